// Package template renders messages from {json.path} templates and the JSON body of a webhook.
//
// # Placeholders
//
// A placeholder is a path in one pair of braces. White space may stand inside the braces: {user.login}, {tags[0]},
// { $.payload.meta.client_id }. There are two kinds.
//
// A bare path is a list of keys and indexes:
//
//	{user-agent}  {commits[0].author.name}  {tags[-1]}  {[0].id}  {labels['app.kubernetes.io/name']}
//
// A key without quotes is made of letters and digits of any script, _ and -, and may begin with @, as in {@timestamp}.
// The first key needs a letter or _ somewhere, so that {0} and {1-2} are text. A negative index counts from the end of
// the array. Keys with dots, colons, spaces or other characters stand quoted in brackets, with \ before a quote or a \
// of their own.
//
// A placeholder that begins with $ is a JSONPath expression, with wildcards, slices, unions, filters and at most one
// "..":
//
//	{$.items[*].name}  {$..email}  {$.items[?(@.price > 9.5 && @.status != 'sold')].name}  {$.jobs[?@.id == $.failed].log}
//
// A filter compares with == != < <= > >=, "in" a list such as ['a', 'b'], or =~ /regular expression/, and joins
// conditions with && || ! and parentheses. A path alone asks whether there is something. There are the functions length,
// match and search. Paths in a filter begin with @ or $ and consist of keys and indexes. Numbers are compared exactly;
// an object or array equals nothing. An expression that does not parse is an error of the template.
//
// All other braces are text: {"a": 1}, {not a path}, {a:b}, {} and all double braces, such as {{x}}.
//
// # Sources
//
// A placeholder that begins with one of these names is not looked up in the body:
//
//	{@header.X-GitHub-Event}  {@query.source}  {@query['a b']}  {@body}  {@hook}  {@run}  {@time}
//
// With each, a path after @root, as in {@root.group.name}, is one of the whole body, and other paths are those of the match. Other
// names after @ are keys. {$['@header']} is a key of the body.
//
// # Pipes
//
// A value passes through the pipes that follow it, from left to right:
//
//	{issue.body | truncate 2000}  {user.name | default "nobody"}  {$.labels[*].name | join ", "}  {title | json}  {log | indent 2}
//
// A text in single or double quotes has \n and \t for a line break and a tab, and \ before a quote or a \ of its own. In its place default
// also takes a bare path or a source, as in {thread.id | default message.id}. A missing value stays missing but for
// default. Braces with a pipe that is none are text, and Warnings tells of them.
//
// # Values
//
// A string is inserted raw, a number as it is written in the body, an object or array as compact JSON with sorted keys.
// A path without a match becomes <missing>; a null that is there becomes null; several matches become a JSON array, in
// the order of the document, where the members of an object come in the order of their keys. Rendering is one pass:
// inserted text is never read as a template.
//
// # Limits
//
// The values in one message have at most 4 MiB together, and its JSONPath expressions and pipes share a number of steps that take
// about half a second at most. Values beyond these limits become <too large>.
//
// # Conditions
//
// The package also has what is asked of a request before there is a message: a [Condition], and [Each]. Their JSONPath is that of RFC
// 9535, with "in" and =~ besides.
package template

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// A Template is a parsed message template. It never changes, and may be rendered by many goroutines at once.
type Template struct {
	source   string
	parts    []templatePart
	warnings []string
}

// A templatePart is text, or a placeholder with a path, a query or a source.
type templatePart struct {
	text        string
	placeholder string // as it is written
	path        path
	query       *query
	extra       *extra // nil for most
}

// An extra is what a placeholder has beside a path or a query.
type extra struct {
	source *Source // instead of a path or a query
	root   bool    // the path begins with @root
	pipes  []pipe
}

// Parse reads a template. The only error is a placeholder that begins with $ and holds no JSONPath expression that
// Render can evaluate; it names the placeholder and its place in text.
func Parse(text string) (*Template, error) {
	t := &Template{source: text}
	written := 0 // text before this is in t.parts
	for i := 0; i < len(text); {
		next := strings.IndexByte(text[i:], '{')
		if next < 0 {
			break
		}
		i += next
		if strings.HasPrefix(text[i:], "{{") {
			i += len(text[i:]) - len(strings.TrimLeft(text[i:], "{"))
			continue
		}
		found, length, mistake, err := parsePlaceholder(text[i:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", position(text, i), err)
		}
		if mistake != "" {
			t.warn(text[i:], mistake)
		}
		if length == 0 {
			i++
			continue
		}
		if written < i {
			t.parts = append(t.parts, templatePart{text: text[written:i]})
		}
		found.placeholder = text[i : i+length]
		if meant := found.meantSource(); meant != "" {
			t.addWarning(meant)
		}
		t.parts = append(t.parts, found)
		i += length
		written = i
	}
	if written < len(text) {
		t.parts = append(t.parts, templatePart{text: text[written:]})
	}
	return t, nil
}

// parsePlaceholder reads the placeholder that text, which begins with a brace, begins with. Its length is 0 if there is
// none, and mistake says why not if a person may have meant one.
func parsePlaceholder(text string) (found templatePart, length int, mistake string, err error) {
	inner := strings.TrimLeft(text[1:], spaces)
	var rest string // from the end of the path on
	if strings.HasPrefix(inner, "$") {
		n := expressionLength(inner)
		if n < 0 {
			line, _, _ := strings.Cut(text, "\n")
			return templatePart{}, 0, "", fmt.Errorf("placeholder %s has no closing brace", abridged(line))
		}
		expression := strings.TrimRight(inner[:n], spaces)
		if found.path, found.query, err = parseExpression(expression); err != nil {
			return templatePart{}, 0, "", fmt.Errorf("placeholder {%s}: %w", abridged(expression), err)
		}
		rest = inner[n:]
	} else {
		source, n, mistake := parseSource(inner)
		switch {
		case mistake != "":
			return templatePart{}, 0, mistake, nil
		case n > 0:
			found.extra = &extra{source: &source}
		default:
			found.path, n = parsePath(inner)
		}
		if n == 0 {
			return templatePart{}, 0, "", nil
		}
		if strings.HasPrefix(inner, rootKey) && found.path[0].key == rootKey {
			found.extra = &extra{root: true}
		}
		rest = strings.TrimLeft(inner[n:], spaces)
	}
	if strings.HasPrefix(rest, "|") {
		pipes, n, mistake := parsePipes(rest)
		if n > 0 {
			if found.extra == nil {
				found.extra = new(extra)
			}
			found.extra.pipes = pipes
			if slices.ContainsFunc(found.lookups(), (*templatePart).readsRun) && slices.ContainsFunc(pipes, pipe.shortens) {
				n, mistake = 0, "the id of a run is not known yet when the template is rendered, and cannot be truncated"
			}
		}
		if n == 0 {
			if strings.HasPrefix(inner, "$") && (mistake == "" || !strings.Contains(rest, "}")) {
				line, _, _ := strings.Cut(text, "\n")
				return templatePart{}, 0, "", fmt.Errorf("placeholder %s: after the JSONPath expression comes a brace or a pipe such as | json",
					abridged(line))
			}
			return templatePart{}, 0, mistake, nil
		}
		return found, len(text) - len(rest) + n, "", nil
	}
	if !strings.HasPrefix(rest, "}") {
		return templatePart{}, 0, "", nil
	}
	return found, len(text) - len(rest) + 1, "", nil
}

// lookups are where a placeholder looks for its value: itself, and the paths of default.
func (p *templatePart) lookups() []*templatePart {
	all := []*templatePart{p}
	if p.extra != nil {
		for i := range p.extra.pipes {
			if other := p.extra.pipes[i].other; other != nil {
				all = append(all, other)
			}
		}
	}
	return all
}

func (p *templatePart) readsRun() bool {
	return p.extra != nil && p.extra.source != nil && p.extra.source.Kind == "run"
}

// lookups are those of all placeholders.
func (t *Template) lookups() iter.Seq[*templatePart] {
	return func(yield func(*templatePart) bool) {
		for i := range t.parts {
			if t.parts[i].text != "" {
				continue
			}
			for _, p := range t.parts[i].lookups() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// maxWarnings bounds the warnings about a template.
const maxWarnings = 5

// warn adds a warning about the placeholder that text begins with.
func (t *Template) warn(text, mistake string) {
	line, _, _ := strings.Cut(text, "\n")
	if end := strings.IndexByte(line, '}'); end >= 0 {
		line = line[:end+1]
	}
	t.addWarning(fmt.Sprintf("%s is not replaced: %s", abridged(line), mistake))
}

func (t *Template) addWarning(warning string) {
	if len(t.warnings) < maxWarnings && !slices.Contains(t.warnings, warning) {
		t.warnings = append(t.warnings, warning)
	}
}

const spaces = " \t\r\n"

// position says where offset is in text, for a person.
func position(text string, offset int) string {
	line := 1 + strings.Count(text[:offset], "\n")
	column := 1 + utf8.RuneCountInString(text[strings.LastIndexByte(text[:offset], '\n')+1:offset])
	return fmt.Sprintf("line %d, column %d", line, column)
}

func abridged(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}

// String returns the text that the template was parsed from.
func (t *Template) String() string {
	return t.source
}

// FirstPlaceholder returns the first placeholder as it is written, "" if there is none.
func (t *Template) FirstPlaceholder() string {
	for i := range t.parts {
		if t.parts[i].text == "" {
			return t.parts[i].placeholder
		}
	}
	return ""
}

// Blank reports whether the template is nothing but white space.
func (t *Template) Blank() bool {
	return strings.TrimSpace(t.source) == ""
}

// Select adds the parts of a body that Render reads to selection.
func (t *Template) Select(selection *strictjson.Selection) {
	for p := range t.lookups() {
		switch {
		case p.extra != nil && p.extra.source != nil:
		case p.query != nil || p.extra != nil && p.extra.root:
			selection.SelectAll()
		default:
			p.path.addTo(selection)
		}
	}
}

// Warnings returns what look like mistakes in the template: braces that are text, because of a pipe or a source that is none, and keys
// that are nearly the name of a source.
func (t *Template) Warnings() []string { return t.warnings }

const (
	missing  = "<missing>"
	tooLarge = "<too large>"
)

// limits bound the work on one message.
type limits struct {
	values int // bytes of all values together
	steps  int // of all queries together; a step is a look at one value and takes around 100 ns
}

// messageLimits allow far more text than a model can read.
var messageLimits = limits{values: 4 << 20, steps: 4 << 20}

// Render returns the message, "" if the Input reserves no memory for it.
func (t *Template) Render(in Input) string {
	return t.render(&in, nil, messageLimits)
}

// RenderMarked is like Render and passes the text of every inserted value through mark. The words for values that are
// missing or too large do not pass.
func (t *Template) RenderMarked(in Input, mark func(value string) string) string {
	return t.render(&in, mark, messageLimits)
}

func (t *Template) render(in *Input, mark func(string) string, allowed limits) string {
	if len(t.parts) == 1 && t.parts[0].text != "" {
		return t.source
	}
	return string(t.fill(in, mark, allowed, nil))
}

// A Segment is a part of a message: text of the template, or the value in the place of a placeholder.
type Segment struct {
	Text        string
	Placeholder string // as the template has it, "" for text
	Missing     bool   // there is no value
}

// Segments is the message of Render, or with mark that of RenderMarked, in its parts: one for each placeholder of the template
// and for each text between them. mark may be nil.
func (t *Template) Segments(in Input, mark func(value string) string) []Segment {
	segments := make([]Segment, 0, len(t.parts))
	ends := make([]int, 0, len(t.parts))
	message := string(t.fill(&in, mark, messageLimits, func(p *templatePart, end int, result outcome) {
		segments = append(segments, Segment{Placeholder: p.placeholder, Missing: result == absent})
		ends = append(ends, end)
	}))
	start := 0
	for i, end := range ends {
		segments[i].Text = message[start:end]
		start = end
	}
	return segments
}

// fill writes the message. It calls each after every part, with the length of the message up to there; each may be nil. If there is
// no memory, it returns nil.
func (t *Template) fill(in *Input, mark func(string) string, allowed limits, each func(p *templatePart, end int, result outcome)) []byte {
	b := bound{reserve: in.Reserve}
	if !b.allocate(len(t.source) + 512) {
		return nil
	}
	out := make([]byte, 0, len(t.source)+512)
	search := search{body: in.Body, steps: allowed.steps}
	left := allowed.values
	for i := range t.parts {
		p := &t.parts[i]
		start := len(out)
		b.limit = start + left
		var result outcome
		own := false // the text is not the caller's
		switch {
		case p.text != "":
			out, result = append(out, p.text...), written
		case p.extra != nil:
			out, result, own = search.appendExtra(out, in, p, &b)
		case p.query != nil:
			out, result = search.appendMatches(out, p.query, &b)
		default:
			out, result = appendPath(out, p.path, in.Body, &b)
		}
		if b.refused {
			return nil
		}
		switch result {
		case absent:
			out = append(out, missing...)
		case unfinished:
			out = append(out[:start], tooLarge...)
		case oversized:
			out = append(out[:start], tooLarge...)
			left = 0 // so that not every placeholder tries to fill it
		case inserted:
			if mark != nil && !own {
				marked := mark(string(out[start:]))
				if !b.allocate(start + len(marked)) {
					return nil
				}
				out = append(out[:start], marked...)
			}
			left = max(0, left-(len(out)-start))
		}
		if !b.allocate(len(out)) { // for the text of the template
			return nil
		}
		if each != nil {
			each(p, len(out), result)
		}
	}
	return out
}

// An outcome says how a placeholder was filled.
type outcome int

const (
	inserted   outcome = iota
	absent             // there is no such value
	oversized          // the value does not fit into the message
	unfinished         // the search for it took too many steps
	written            // there was none: it is text of the template
)

func appendPath(dst []byte, p path, body any, b *bound) ([]byte, outcome) {
	value, ok := p.find(body)
	if !ok {
		return dst, absent
	}
	dst, ok = appendValue(dst, value, b)
	if !ok {
		return dst, oversized
	}
	return dst, inserted
}
