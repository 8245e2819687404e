package template

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Source is something that a request has beside the values of its body.
type Source struct {
	Kind string // header, query, body, hook, run or time
	Name string // of the header, in canonical form, or of the query parameter
}

// FromOutside reports whether the caller wrote the text of the source.
func (s Source) FromOutside() bool {
	return s.Kind == "header" || s.Kind == "query" || s.Kind == "body"
}

// String is the source as a template names it, without its braces.
func (s Source) String() string {
	switch {
	case s.Name == "":
		return "@" + s.Kind
	case nameEnd(s.Name) == len(s.Name):
		return "@" + s.Kind + "." + s.Name
	default:
		return "@" + s.Kind + "['" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.Name) + "']"
	}
}

// rootKey is the name of the whole body, where each has taken a part of it.
const rootKey = "@root"

// parseSource reads the source that text begins with. Its length is 0 if there is none, and mistake says why not if it nearly is one.
func parseSource(text string) (source Source, length int, mistake string) {
	key := text[:keyLength(text)]
	rest := text[len(key):]
	follows := strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "[")
	switch kind := strings.TrimPrefix(key, "@"); key {
	case "@body", "@hook", "@run", "@time":
		if follows {
			return Source{}, 0, key + " has no parts; a key of that name is written as $['" + key + "']"
		}
		return Source{Kind: kind}, len(key), ""
	case "@header", "@query":
		name, n := parseName(rest)
		source, err := newSource(kind, name)
		if err != nil {
			return Source{}, 0, err.Error() + ", as in {" + key + ".X-Name}; a key of the body is written as $['" + key + "']"
		}
		return source, len(key) + n, ""
	}
	return Source{}, 0, ""
}

// meantSource says which source was probably meant by a key such as @Header or @headers, "" for other placeholders.
func (p *templatePart) meantSource() string {
	inner, bare := strings.CutPrefix(strings.Trim(p.placeholder, "{}"+spaces), "@")
	if !bare || len(p.path) == 0 {
		return ""
	}
	key := inner[:keyLength(inner)]
	name := strings.ToLower(key)
	if !slices.Contains(sourceNames, name) {
		name = strings.TrimSuffix(name, "s")
	}
	if name == key || !slices.Contains(sourceNames, name) {
		return ""
	}
	return fmt.Sprintf("%s is read from the body: write {@%s%s} for the source, or begin with $['@%s'] for the key",
		abridged(p.placeholder), name, abridged(inner[len(key):]), key)
}

var sourceNames = []string{"header", "query", "body", "hook", "run", "time", "root"}

// parseName reads the .name or ['name'] of a header or query parameter.
func parseName(text string) (name string, length int) {
	if rest, ok := strings.CutPrefix(text, "."); ok {
		n := nameEnd(rest)
		return rest[:n], n + 1
	}
	if strings.HasPrefix(text, "[") {
		if step, n := parseBracket(text); n > 0 && !step.isIndex {
			return step.key, n
		}
	}
	return "", 0
}

// nameEnd is the length of the name without quotes that text begins with.
func nameEnd(text string) int {
	for i, r := range text {
		if r != '_' && r != '-' && r != '.' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) {
			return i
		}
	}
	return len(text)
}

// ReadsRoot reports whether a placeholder begins with @root, which is a key like others without each.
func (t *Template) ReadsRoot() bool {
	for p := range t.lookups() {
		if p.extra != nil && p.extra.root {
			return true
		}
	}
	return false
}

// Sources returns the sources that the template reads, each once.
func (t *Template) Sources() []Source {
	var all []Source
	for p := range t.lookups() {
		if p.extra != nil && p.extra.source != nil && !slices.Contains(all, *p.extra.source) {
			all = append(all, *p.extra.source)
		}
	}
	return all
}
