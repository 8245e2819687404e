package template

// Input is what a template is rendered from, and what a condition is asked of.
type Input struct {
	// Body is what bare paths and $ address: the body of the request or, with each, one of the matches. It is made of
	// map[string]any, []any, string, json.Number, bool and nil.
	Body any

	// Root is the whole body, for {@root.…}, if there is Each.
	Root any
	Each bool

	// Source returns the text of a source. If it is nil, every source is missing.
	Source func(Source) (text string, ok bool)

	// Reserve is called before a message grows, with the bytes of memory that it takes beside those of earlier calls. If it
	// returns false there is no message. It may be nil.
	Reserve func(bytes int) bool
}

// text is what Source returns, if there is one.
func (in *Input) text(s Source) (string, bool) {
	if in.Source == nil {
		return "", false
	}
	return in.Source(s)
}

// find follows the path of a placeholder. With each, @root is the whole body; otherwise it is a key like others.
func (in *Input) find(p *templatePart) (any, bool) {
	if in.Each && p.extra.root {
		return p.path[1:].find(in.Root)
	}
	return p.path.find(in.Body)
}
