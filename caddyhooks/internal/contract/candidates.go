package contract

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// tryCandidates calls try with the JSON values of an answer, the likeliest first, until try returns true: the whole
// answer; then fenced blocks, last first; then objects and arrays in the running text, last first. Only complete values
// are tried. A part of a broken value may well match a schema, and would be a wrong answer: broken values need a repair.
//
// An error says why there was nothing to try.
func tryCandidates(answer []byte, b *budget, try func(candidate) bool) error {
	answer = bytes.TrimSpace(bytes.TrimPrefix(answer, []byte("\ufeff")))
	whole, err := parseCandidate(answer, b)
	if err == nil {
		try(whole)
		return nil
	}
	if rest := bytes.TrimSpace(afterThinking(answer)); len(rest) < len(answer) {
		if whole, err = parseCandidate(rest, b); err == nil {
			try(whole)
			return nil
		}
		answer = rest
	}
	tried, longest := 0, 0
	for _, spans := range [][]span{fences(answer, b), bracketed(answer, b)} {
		for i := len(spans) - 1; i >= 0 && tried < maxCandidates; i-- {
			text := bytes.TrimSpace(answer[spans[i].start:spans[i].end])
			c, broken := parseCandidate(text, b)
			if broken != nil {
				if len(text) > longest {
					longest, err = len(text), broken
				}
				continue
			}
			tried++
			if try(c) {
				return nil
			}
		}
	}
	if tried == 0 {
		return err
	}
	return nil
}

// A candidate is a JSON value in an answer.
type candidate struct {
	text  []byte // as it stands in the answer
	value any
}

// The bounds of an answer.
const (
	maxAnswerBytes  = 1 << 20
	maxAnswerValues = 100_000
	maxCandidates   = 64
)

func parseCandidate(text []byte, b *budget) (candidate, error) {
	count := countValues(text)
	b.spend(100 + 12*len(text) + 300*min(count, maxAnswerValues))
	if count > maxAnswerValues {
		return candidate{}, fmt.Errorf("it has more than %d values", maxAnswerValues)
	}
	v, err := strictjson.Parse(text)
	if err != nil {
		if where := (*strictjson.Error)(nil); errors.As(err, &where) {
			err = errors.New(where.Reason) // an offset says nothing about the answer as a whole
		}
		return candidate{}, err
	}
	return candidate{text, v}, nil
}

// afterThinking drops the thoughts of the model.
func afterThinking(answer []byte) []byte {
	end := []byte("</think>")
	if i := bytes.LastIndex(answer, end); i >= 0 {
		return answer[i+len(end):]
	}
	return answer
}

// A span is a piece of a text.
type span struct{ start, end int }

// fences returns the contents of closed code fences of Markdown.
func fences(text []byte, b *budget) []span {
	b.spend(2 * len(text))
	var (
		spans []span
		mark  []byte // of the fence that is open
		start int
	)
	for at := 0; at < len(text); {
		end := len(text)
		if newline := bytes.IndexByte(text[at:], '\n'); newline >= 0 {
			end = at + newline + 1
		}
		line := bytes.TrimSpace(text[at:end])
		switch {
		case mark == nil && (bytes.HasPrefix(line, []byte("```")) || bytes.HasPrefix(line, []byte("~~~"))):
			mark, start = line[:3], end
		case mark != nil && bytes.HasPrefix(line, mark) && len(bytes.Trim(line, string(mark[:1]))) == 0:
			spans = append(spans, span{start, at})
			mark = nil
		}
		at = end
	}
	return spans[max(0, len(spans)-maxCandidates):]
}

// bracketed returns the outermost objects and arrays in a running text.
func bracketed(text []byte, b *budget) []span {
	var spans []span
	for at := 0; at < len(text); at++ {
		if text[at] != '{' && text[at] != '[' {
			continue
		}
		length, closed := balanced(text[at:])
		b.spend(200 + 3*length)
		if closed {
			spans = append(spans, span{at, at + length})
			at += length - 1
		} else if startsLikeJSON(text[at:]) {
			break // an answer that was cut off
		}
	}
	return spans[max(0, len(spans)-maxCandidates):]
}

// balanced returns the length of the brackets at the start of text, or how far it looked.
func balanced(text []byte) (length int, closed bool) {
	var open [strictjson.MaxDepth]byte
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{', '[':
			if depth == len(open) {
				return i, false
			}
			open[depth] = c + 2 // the closing bracket, in ASCII
			depth++
		case '}', ']':
			if depth--; open[depth] != c {
				return i, false
			}
			if depth == 0 {
				return i + 1, true
			}
		case '"':
			i = stringEnd(text, i)
		}
	}
	return len(text), false
}

// startsLikeJSON reports whether text, which starts with a bracket, goes on as an object or an array of JSON would.
func startsLikeJSON(text []byte) bool {
	inside := bytes.TrimLeft(text[1:], " \t\r\n")
	if len(inside) == 0 {
		return false
	}
	if text[0] == '[' {
		return bytes.IndexByte([]byte(`{["`), inside[0]) >= 0
	}
	if inside[0] != '"' {
		return false
	}
	end := stringEnd(inside, 0)
	if end == len(inside) {
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(inside[end+1:], " \t\r\n"), []byte(":"))
}

// countValues returns the most values and keys that data can hold. A document with too many is refused before it takes
// any memory.
func countValues(data []byte) int {
	count := 1
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case ',', ':', '[', '{':
			count++
		case '"':
			i = stringEnd(data, i)
		}
	}
	return count
}

// stringEnd returns the place of the quote that ends the JSON string that starts at i, or len(data).
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(data)
}
