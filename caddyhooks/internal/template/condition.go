package template

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// A Condition is a question about a request. It never changes, and may be asked by many goroutines at once.
type Condition struct {
	line    string
	negated bool
	body    *filter // nil if it asks for a header or a query parameter

	source  Source
	values  []string // one of which the text must be, if there are any
	pattern *filter  // that the text must match, if there is one
}

// ConditionSteps is how many steps all conditions of a request may take together. They take about half a second at most.
const ConditionSteps = 4 << 20

// maxCondition bounds a condition, in bytes.
const maxCondition = 8 << 10

// ParseCondition reads a condition from one line:
//
//	$.action == 'opened' && $.issue.labels[?@.name == 'bug']
//	header X-GitHub-Event
//	header X-GitHub-Event issues issue_comment "a value with spaces"
//	header User-Agent ~ ^GitHub-Hookshot/
//	query source …
//
// A "not" before any of them turns it round. The first is a logical expression of RFC 9535, as in [?…], in which $ is the body.
// A header has one of the values, or matches a regular expression.
func ParseCondition(line string) (*Condition, error) {
	line = strings.Trim(line, spaces)
	c := &Condition{line: line}
	switch {
	case line == "":
		return nil, errors.New("the condition is empty")
	case len(line) > maxCondition:
		return nil, fmt.Errorf("the condition is longer than %d bytes", maxCondition)
	case !utf8.ValidString(line):
		return nil, errors.New("the condition is not UTF-8")
	}
	word, rest := cutWord(line)
	if word == "not" {
		c.negated = true
		line = rest
		word, rest = cutWord(line)
	}
	var err error
	switch word {
	case "":
		err = errors.New("not needs a condition after it")
	case "not":
		err = errors.New("not stands once")
	case "header", "query":
		err = c.parseSource(word, rest)
	default:
		if c.body, err = parseLogical(line); err != nil {
			err = fmt.Errorf("%w%s", err, hint(line))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", abridged(c.line), err)
	}
	return c, nil
}

// hint says what a condition is, if line does not begin like one.
func hint(line string) string {
	if n := functionLength(line); strings.ContainsAny(line[:1], "$!(@'\"") || n > 0 && strings.HasPrefix(line[n:], "(") {
		return ""
	}
	return "; a condition is an expression such as $.action == 'opened', or begins with header, query or not"
}

// cutWord cuts a line after its first word.
func cutWord(line string) (word, rest string) {
	i := strings.IndexAny(line, spaces)
	if i < 0 {
		return line, ""
	}
	return line[:i], strings.TrimLeft(line[i:], spaces)
}

// parseSource reads what follows after header or query.
func (c *Condition) parseSource(kind, rest string) error {
	bare, _ := cutWord(rest)
	words, err := SplitWords(rest)
	switch {
	case err != nil:
		return err
	case len(words) == 0:
		return fmt.Errorf("%s needs a name after it", kind)
	}
	if c.source, err = newSource(kind, words[0]); err != nil {
		return err
	}
	_, after := cutWord(rest)
	if strings.HasPrefix(bare, `"`) {
		after = "" // quoted names are followed by a ~ that SplitWords finds
		if len(words) > 1 {
			quoted, _ := strconv.QuotedPrefix(rest)
			after = strings.TrimLeft(rest[len(quoted):], spaces)
		}
	}
	if sign, _ := cutWord(after); sign != "~" {
		c.values = words[1:]
		return nil
	}
	if len(words) != 3 {
		return errors.New(`~ takes one regular expression; one with spaces stands in double quotes`)
	}
	c.pattern = new(filter)
	if err := c.pattern.setPattern(words[2]); err != nil {
		return fmt.Errorf("the regular expression %s: %w", abridged(words[2]), err)
	}
	return nil
}

// SplitWords splits a line at white space. A word in double quotes may have spaces, and has the escapes of JSON.
func SplitWords(line string) (words []string, err error) {
	for line = strings.Trim(line, spaces); line != ""; line = strings.TrimLeft(line, spaces) {
		if !strings.HasPrefix(line, `"`) {
			var word string
			word, line = cutWord(line)
			words = append(words, word)
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("%s has no closing quote, or a backslash that escapes nothing", abridged(line))
		}
		word, err := strconv.Unquote(quoted)
		line = line[len(quoted):]
		if err != nil || line != "" && !strings.Contains(spaces, line[:1]) {
			return nil, fmt.Errorf("a space is missing after %s", abridged(quoted))
		}
		words = append(words, word)
	}
	return words, nil
}

// newSource checks the name of a header or query parameter.
func newSource(kind, name string) (Source, error) {
	switch {
	case name == "":
		return Source{}, fmt.Errorf("%s needs a name", kind)
	case kind == "header" && !httpguts.ValidHeaderFieldName(name):
		return Source{}, fmt.Errorf("%s is not a header name", abridged(name))
	case kind == "header":
		name = textproto.CanonicalMIMEHeaderKey(name)
	}
	return Source{kind, name}, nil
}

// String returns the line that the condition was parsed from, without white space around it.
func (c *Condition) String() string { return c.line }

// Source returns the header or query parameter that the condition asks for, the zero one if it asks for the body.
func (c *Condition) Source() Source { return c.source }

// Example returns a text for which a condition about a header or a query parameter holds, if it is not turned round. It is "" if none is
// found.
func (c *Condition) Example() string {
	switch {
	case c.body != nil:
		return ""
	case c.pattern == nil && len(c.values) > 0:
		return c.values[0]
	case c.pattern == nil:
		return "example"
	}
	begins, _ := c.pattern.pattern.LiteralPrefix()
	pattern := strings.Trim(c.pattern.pattern.String(), "^$")
	for _, text := range append([]string{begins}, strings.Split(strings.Trim(pattern, "()"), "|")...) {
		text = strings.TrimPrefix(text, "?:")
		if text = strings.NewReplacer(`\`, "", "^", "", "$", "").Replace(text); c.pattern.pattern.MatchString(text) {
			return text
		}
	}
	return ""
}

// Warning says what looks like a mistake in the condition, "" if nothing does. textsOnly says that all values of the body are texts, as
// in a form.
func (c *Condition) Warning(textsOnly bool) string {
	if c.body != nil {
		return c.body.warning(textsOnly)
	}
	for _, value := range c.values {
		switch {
		case value == "=" || value == "==":
			return "the values stand after the name without " + value
		case len(value) > 1 && strings.HasSuffix(value, ","):
			return "a value ends with a comma: values stand with spaces between them"
		case len(value) > 1 && strings.HasPrefix(value, "~"):
			return "a value begins with ~: before a regular expression stands ~ and a space"
		}
	}
	return ""
}

// NeedsBody reports whether the condition looks at the body.
func (c *Condition) NeedsBody() bool { return c.body != nil }

// Select adds the parts of a body that the condition reads to selection.
func (c *Condition) Select(selection *strictjson.Selection) {
	if c.body != nil {
		c.body.addTo(selection)
	}
}

// addTo selects what f reads of the body. A path from @ on is below one that is selected as a whole.
func (f *filter) addTo(selection *strictjson.Selection) {
	if f == nil {
		return
	}
	f.left.addTo(selection)
	f.right.addTo(selection)
	if f.operator == fromRoot {
		f.path.addTo(selection)
	}
	if f.query != nil {
		addFilters(f.query.selectors, selection)
	}
}

func addFilters(selectors []selector, selection *strictjson.Selection) {
	for i := range selectors {
		selectors[i].filter.addTo(selection)
		addFilters(selectors[i].union, selection)
	}
}

// Holds reports whether the condition holds. It takes steps off those that are left to all conditions of a request; if there are
// not enough, the condition is not decided, and does not hold.
func (c *Condition) Holds(in Input, steps *int) (holds, decided bool) {
	s := search{body: in.Body, steps: *steps, standard: true}
	if c.body != nil {
		holds = s.matches(c.body, nil)
	} else {
		holds = c.holdsFor(&in, &s)
	}
	*steps = max(0, s.steps)
	decided = s.steps >= 0
	return decided && holds != c.negated, decided
}

func (c *Condition) holdsFor(in *Input, s *search) bool {
	text, ok := in.text(c.source)
	switch {
	case !s.spend(1+len(c.values)) || !ok:
		return false
	case c.pattern != nil:
		return s.spend(c.pattern.matchCost(text)) && c.pattern.pattern.MatchString(text)
	default:
		return len(c.values) == 0 || slices.Contains(c.values, text)
	}
}
