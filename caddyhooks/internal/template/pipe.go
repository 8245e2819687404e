package template

import (
	"fmt"
	"strconv"
	"strings"
)

// A pipe changes a value before it is inserted.
type pipe struct {
	name   string
	number int
	text   string
}

func (p pipe) shortens() bool { return p.name == "truncate" }

// pipeNumbers are the pipes that take a number, with the largest one. All but json among the others take a text.
var pipeNumbers = map[string]int{"truncate": 1 << 30, "indent": 100}

// pipeTexts are examples of the texts that pipes take.
var pipeTexts = map[string]string{"default": "none", "join": ", "}

const (
	pipeNames      = "truncate, default, join, json and indent"
	maxPipes       = 10      // of a placeholder
	maxSeveral     = 1 << 18 // matches that are passed through a pipe
	writtenPerStep = 8       // bytes that a pipe writes in the time of a step
)

// parsePipes reads the pipes that text, which begins with a |, begins with, up to the brace behind them. The length is 0 if there are
// none, and mistake says why not if a person may have meant some.
func parsePipes(text string) (pipes []pipe, length int, mistake string) {
	rest := text
	for strings.HasPrefix(rest, "|") {
		rest = strings.TrimLeft(rest[1:], spaces)
		name := rest[:pipeNameLength(rest)]
		rest = strings.TrimLeft(rest[len(name):], spaces)
		p := pipe{name: name}
		var n int
		switch name {
		case "":
			return nil, 0, ""
		case "truncate", "indent":
			if p.number, n = parseCount(rest, pipeNumbers[name]); n == 0 {
				return nil, 0, fmt.Sprintf("%s takes a number from 1 to %d, as in | %[1]s 20", name, pipeNumbers[name])
			}
		case "default", "join":
			if p.text, n = parseQuoted(rest, true); n == 0 {
				return nil, 0, fmt.Sprintf(`%s takes a text in quotes, as in | %[1]s %q`, name, pipeTexts[name])
			}
		case "json":
		default:
			return nil, 0, fmt.Sprintf("there is no pipe %s; there are %s", abridged(name), pipeNames)
		}
		if pipes = append(pipes, p); len(pipes) > maxPipes {
			return nil, 0, fmt.Sprintf("it has more than %d pipes", maxPipes)
		}
		rest = strings.TrimLeft(rest[n:], spaces)
	}
	if !strings.HasPrefix(rest, "}") {
		last := pipes[len(pipes)-1].name
		return nil, 0, "after " + last + " comes a brace or another pipe"
	}
	return pipes, len(text) - len(rest) + 1, ""
}

func pipeNameLength(text string) int {
	if n := keyLength(text); !strings.HasPrefix(text, "@") {
		return n
	}
	return 0
}

// parseCount reads a number, and returns its length, or 0.
func parseCount(text string, most int) (count, length int) {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	count, err := strconv.Atoi(digits)
	if err != nil || count < 1 || count > most {
		return 0, 0
	}
	return count, len(digits)
}

// A piped value is on its way through the pipes of a placeholder.
type piped struct {
	value  any
	absent bool
	own    bool // the text is not the caller's
}

// appendExtra is for placeholders with a source or with pipes. own says that the text is not the caller's.
func (s *search) appendExtra(dst []byte, in *Input, p *templatePart, b *bound) (_ []byte, _ outcome, own bool) {
	v, result := s.start(in, p)
	if result != inserted {
		return dst, result, false
	}
	b.base = len(dst)
	for i := range p.extra.pipes {
		if result = s.pass(&v, &p.extra.pipes[i], b); result != inserted {
			break
		}
	}
	b.base = 0
	if result != inserted {
		return dst, result, false
	}
	if v.absent {
		return dst, absent, false
	}
	dst, ok := appendValue(dst, v.value, b)
	if !ok {
		return dst, oversized, false
	}
	return dst, inserted, v.own
}

// start finds the value of a placeholder.
func (s *search) start(in *Input, p *templatePart) (v piped, result outcome) {
	switch {
	case p.extra.source != nil:
		text, ok := in.text(*p.extra.source)
		if !s.spend(len(text) / bytesPerStep) {
			return v, unfinished
		}
		return piped{strings.ToValidUTF8(text, "\uFFFD"), !ok, !p.extra.source.FromOutside()}, inserted
	case p.query != nil:
		matches, more := s.collected(p.query, maxSeveral)
		switch {
		case s.steps < 0:
			return v, unfinished
		case more:
			return v, oversized
		case len(matches) == 0:
			return piped{absent: true}, inserted
		case len(matches) == 1:
			return piped{value: matches[0]}, inserted
		}
		return piped{value: matches}, inserted
	default:
		value, ok := in.find(p)
		return piped{value: value, absent: !ok}, inserted
	}
}

// pass sends a value through a pipe. The text that comes out is within the bound.
func (s *search) pass(v *piped, p *pipe, b *bound) outcome {
	if p.name == "default" {
		text, isText := v.value.(string)
		if v.absent || v.value == nil || isText && s.spend(len(text)/bytesPerStep) && strings.TrimSpace(text) == "" {
			*v = piped{value: p.text, own: true}
		}
		return s.passed()
	}
	items, isArray := v.value.([]any)
	if v.absent || p.name == "join" && !isArray {
		return inserted
	}
	var out []byte
	fits := true
	switch p.name {
	case "join":
		for i, item := range items {
			if i > 0 {
				out = append(out, p.text...)
			}
			if out, fits = appendValue(out, item, b); !fits {
				return oversized
			}
		}
		s.spend(len(items))
	case "json":
		out, fits = appendJSON(nil, v.value, b)
	default:
		text, isText := v.value.(string)
		if !isText {
			if out, fits = appendJSON(nil, v.value, b); !fits {
				return oversized
			}
			text = string(out)
		}
		if p.name == "truncate" {
			v.value = truncated(text, p.number)
			s.spend(min(len(text), p.number)/writtenPerStep + len(out)/writtenPerStep)
			return s.passed()
		}
		out, fits = appendIndented(nil, text, p.number, b)
	}
	s.spend(1 + len(out)/writtenPerStep)
	if !fits {
		return oversized
	}
	v.value = string(out)
	return s.passed()
}

// passed is the outcome of a pipe, which counts only if there are steps left.
func (s *search) passed() outcome {
	if s.steps < 0 {
		return unfinished
	}
	return inserted
}

// truncated cuts a text to so many characters, with an … at the end as one of them.
func truncated(text string, most int) string {
	if len(text) <= most {
		return text
	}
	count, end := 0, 0
	for i := range text {
		if count == most-1 {
			end = i
		}
		if count == most {
			return text[:end] + "…"
		}
		count++
	}
	return text
}

// appendIndented appends a text with so many spaces before every line. It returns false when dst would grow beyond the bound.
func appendIndented(dst []byte, text string, count int, b *bound) ([]byte, bool) {
	for line := range strings.Lines(text) {
		if !b.fits(len(dst) + count + len(line)) {
			return dst, false
		}
		dst = append(dst, strings.Repeat(" ", count)...)
		dst = append(dst, line...)
	}
	return dst, true
}
