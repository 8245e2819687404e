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
// # Values
//
// A string is inserted raw, a number as it is written in the body, an object or array as compact JSON with sorted keys.
// A path without a match becomes <missing>; a null that is there becomes null; several matches become a JSON array, in
// the order of the document, where the members of an object come in the order of their keys. Rendering is one pass:
// inserted text is never read as a template.
//
// # Limits
//
// The values in one message have at most 4 MiB together, and its JSONPath expressions share a number of steps that take
// about half a second at most. Values beyond these limits become <too large>.
package template

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// A Template is a parsed message template. It never changes, and may be rendered by many goroutines at once.
type Template struct {
	source string
	parts  []part
}

// A part of a template is text, or a placeholder with either a path or a query.
type part struct {
	text        string
	placeholder string // as it is written
	path        path
	query       *query
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
		found, length, err := parsePlaceholder(text[i:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", position(text, i), err)
		}
		if length == 0 {
			i++
			continue
		}
		if written < i {
			t.parts = append(t.parts, part{text: text[written:i]})
		}
		found.placeholder = text[i : i+length]
		t.parts = append(t.parts, found)
		i += length
		written = i
	}
	if written < len(text) {
		t.parts = append(t.parts, part{text: text[written:]})
	}
	return t, nil
}

// parsePlaceholder reads the placeholder that text, which begins with a brace, begins with. Its length is 0 if there is
// none.
func parsePlaceholder(text string) (found part, length int, err error) {
	inner := strings.TrimLeft(text[1:], spaces)
	begin := len(text) - len(inner)
	if !strings.HasPrefix(inner, "$") {
		path, n := parsePath(inner)
		rest := strings.TrimLeft(inner[n:], spaces)
		if n == 0 || !strings.HasPrefix(rest, "}") {
			return part{}, 0, nil
		}
		return part{path: path}, len(text) - len(rest) + 1, nil
	}

	n := expressionLength(inner)
	if n < 0 {
		line, _, _ := strings.Cut(text, "\n")
		return part{}, 0, fmt.Errorf("placeholder %s has no closing brace", abridged(line))
	}
	expression := strings.TrimRight(inner[:n], spaces)
	path, query, err := parseExpression(expression)
	if err != nil {
		return part{}, 0, fmt.Errorf("placeholder {%s}: %w", abridged(expression), err)
	}
	return part{path: path, query: query}, begin + n + 1, nil
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

// Blank reports whether the template is nothing but white space.
func (t *Template) Blank() bool {
	return strings.TrimSpace(t.source) == ""
}

// Select adds the parts of a body that Render reads to selection.
func (t *Template) Select(selection *strictjson.Selection) {
	for _, p := range t.parts {
		switch {
		case p.text != "":
		case p.query != nil:
			selection.SelectAll()
		default:
			p.path.addTo(selection)
		}
	}
}

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

// Render returns the message for a body, which is made of map[string]any, []any, string, json.Number, bool and nil.
func (t *Template) Render(body any) string {
	return t.render(body, nil, messageLimits)
}

// RenderMarked is like Render and passes the text of every inserted value through mark. The words for values that are
// missing or too large do not pass.
func (t *Template) RenderMarked(body any, mark func(value string) string) string {
	return t.render(body, mark, messageLimits)
}

func (t *Template) render(body any, mark func(string) string, allowed limits) string {
	if len(t.parts) == 1 && t.parts[0].text != "" {
		return t.source
	}
	return string(t.fill(body, mark, allowed, nil))
}

// A Segment is a part of a message: text of the template, or the value in the place of a placeholder.
type Segment struct {
	Text        string
	Placeholder string // as the template has it, "" for text
	Missing     bool   // there is no value
}

// Segments is the message of Render, or with mark that of RenderMarked, in its parts: one for each placeholder of the template
// and for each text between them. mark may be nil.
func (t *Template) Segments(body any, mark func(value string) string) []Segment {
	segments := make([]Segment, 0, len(t.parts))
	ends := make([]int, 0, len(t.parts))
	message := string(t.fill(body, mark, messageLimits, func(p *part, end int, result outcome) {
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

// fill writes the message. It calls each after every part, with the length of the message up to there; each may be nil.
func (t *Template) fill(body any, mark func(string) string, allowed limits, each func(p *part, end int, result outcome)) []byte {
	out := make([]byte, 0, len(t.source)+512)
	search := search{body: body, steps: allowed.steps}
	room := allowed.values
	for i := range t.parts {
		p := &t.parts[i]
		start := len(out)
		var result outcome
		switch {
		case p.text != "":
			out, result = append(out, p.text...), written
		case p.query != nil:
			out, result = search.appendMatches(out, p.query, start+room)
		default:
			out, result = appendPath(out, p.path, body, start+room)
		}
		switch result {
		case absent:
			out = append(out, missing...)
		case unfinished:
			out = append(out[:start], tooLarge...)
		case oversized:
			out = append(out[:start], tooLarge...)
			room = 0 // so that not every placeholder tries to fill it
		case inserted:
			if mark != nil {
				out = append(out[:start], mark(string(out[start:]))...)
			}
			room = max(0, room-(len(out)-start))
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

func appendPath(dst []byte, p path, body any, limit int) ([]byte, outcome) {
	value, ok := p.find(body)
	if !ok {
		return dst, absent
	}
	dst, ok = appendValue(dst, value, limit)
	if !ok {
		return dst, oversized
	}
	return dst, inserted
}
