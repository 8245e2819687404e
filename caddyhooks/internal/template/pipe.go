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
	other  *templatePart // of default, instead of text: where another value is
}

func (p pipe) shortens() bool { return p.name == "truncate" }

// pipeNumbers are the pipes that take a number, with the largest one. All but json among the others take a text.
var pipeNumbers = map[string]int{"truncate": 1 << 30, "indent": 100}

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
		case "default":
			if p.text, n = parseQuoted(rest, true); n == 0 {
				p.other, n = parseOther(rest)
			}
			if n == 0 {
				return nil, 0, `default takes a text in quotes or a path, as in | default "none" or | default user.name`
			}
		case "join":
			if p.text, n = parseQuoted(rest, true); n == 0 {
				return nil, 0, `join takes a text in quotes, as in | join ", "`
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

// parseOther reads the path or the source that text begins with, and returns its length, or 0.
func parseOther(text string) (*templatePart, int) {
	source, n, mistake := parseSource(text)
	switch {
	case mistake != "":
		return nil, 0
	case n > 0:
		return &templatePart{extra: &extra{source: &source}}, n
	}
	found, n := parsePath(text)
	if n == 0 {
		return nil, 0
	}
	return &templatePart{path: found, extra: &extra{root: found[0].key == rootKey && strings.HasPrefix(text, rootKey)}}, n
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
	b.base = len(dst)
	v, result := s.pipedValue(in, p, b)
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

// pipedValue returns the value of a placeholder with an extra, after its pipes.
func (s *search) pipedValue(in *Input, p *templatePart, b *bound) (v piped, result outcome) {
	v, result = s.start(in, p)
	for i := 0; i < len(p.extra.pipes) && result == inserted; i++ {
		result = s.pass(in, &v, &p.extra.pipes[i], b)
	}
	return v, result
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
func (s *search) pass(in *Input, v *piped, p *pipe, b *bound) outcome {
	if p.name == "default" {
		text, isText := v.value.(string)
		switch isBlank := v.absent || v.value == nil || isText && s.spend(len(text)/bytesPerStep) && strings.TrimSpace(text) == ""; {
		case isBlank && p.other != nil:
			var result outcome
			if *v, result = s.start(in, p.other); result != inserted {
				return result
			}
		case isBlank:
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
