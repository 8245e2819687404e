package template

import (
	"github.com/ohler55/ojg/jp"
)

// A query is a JSONPath expression that may match several values. The walk is ours, because jp visits the members of an object in
// random order and cannot be stopped.
type query struct {
	selectors []selector
}

// A selector picks children of a value: by a fragment of the expression or, if there is one, by a filter, or by each of a union.
type selector struct {
	frag   jp.Frag
	filter *filter
	union  []selector
}

// maxExpression bounds an expression, in bytes, and with it the work for each value that is looked at.
const maxExpression = 1024

// expressionLength returns how far it is from the start of a JSONPath expression to the brace that closes its
// placeholder or to its first pipe, or -1.
func expressionLength(text string) int {
	scan := scanner{}
	for i := 0; i < len(text); i += scan.next(text[i:]) {
		if text[i] == '}' || text[i] == '|' && scan.depth == 0 {
			return i
		}
	}
	return -1
}

// A scanner goes over an expression and takes strings and regular expressions, which stand in brackets only, as one.
type scanner struct {
	depth  int  // of brackets
	before byte // the last character but spaces
}

// next returns how far it is to the next place to look at.
func (s *scanner) next(text string) int {
	n, c := 1, text[0]
	switch {
	case c == '[':
		s.depth++
	case c == ']':
		s.depth--
	case s.depth > 0 && (c == '\'' || c == '"' || c == '/' && (s.before == '~' || s.before == '=')):
		if n = delimitedLength(text); n < 0 {
			n = len(text)
		}
	}
	if c != ' ' {
		s.before = c
	}
	return n
}

// delimitedLength returns the length of the string or regular expression that text begins with, or -1.
func delimitedLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return -1
}

// memberCost is the steps for a look at one member of an object, with its part of sorting the keys.
const memberCost = 10

// A search evaluates the queries of one message, or of conditions.
type search struct {
	body     any
	steps    int     // that may still be taken
	standard bool    // values are compared as by RFC 9535
	pattern  *filter // the last one of a regular expression that stood in the body
	tally            // of the query under way
}

// A tally has the matches of a query. A template writes them, and others count or collect them.
type tally struct {
	out   []byte
	bound *bound // of out
	count int
	first any

	stopAt   int // matches, if they are not written
	collects bool
	found    []any
}

// tallied looks for matches of the query of f, and stops at so many.
func (s *search) tallied(f *filter, here any, stopAt int) tally {
	if f.operator == fromRoot {
		here = s.body
	}
	under := s.tally
	s.tally = tally{stopAt: stopAt}
	s.walk(here, f.query.selectors)
	found := s.tally
	s.tally = under
	return found
}

// collected returns the matches of q, at most so many. There are others if more says so.
func (s *search) collected(q *query, most int) (matches []any, more bool) {
	s.tally = tally{stopAt: most + 1, collects: true}
	s.walk(s.body, q.selectors)
	matches = s.found
	if more = len(matches) > most; more {
		matches = matches[:most]
	}
	s.tally = tally{}
	return matches, more
}

// appendMatches appends the text of all matches of q, unless out would grow beyond the bound.
func (s *search) appendMatches(out []byte, q *query, b *bound) ([]byte, outcome) {
	s.out, s.bound, s.count, s.first = out, b, 0, nil // the rest of tally is as it was made
	ok := s.walk(s.body, q.selectors)
	switch {
	case s.steps < 0:
		return s.out, unfinished
	case ok && s.count == 0:
		return out, absent
	case ok && s.count == 1:
		out, ok = appendValue(out, s.first, b)
	default:
		out = append(s.out, ']')
	}
	if !ok || !b.fits(len(out)) {
		return out, oversized
	}
	return out, inserted
}

// walk adds the matches of selectors below value. Like all methods with selectors it returns false when a limit is
// reached.
func (s *search) walk(value any, selectors []selector) bool {
	if len(selectors) == 0 {
		return s.add(value)
	}
	return s.pick(value, &selectors[0], selectors[1:])
}

// pick walks on from the children that one selector picks.
func (s *search) pick(value any, one *selector, rest []selector) bool {
	if one.filter != nil {
		return s.each(value, func(child any) bool { return !s.matches(one.filter, child) || s.walk(child, rest) })
	}
	switch frag := one.frag.(type) {
	case jp.Child:
		return s.member(value, string(frag), rest)
	case jp.Nth:
		return s.item(value, int(frag), rest)
	case jp.Slice:
		return s.slice(value, frag, rest)
	case jp.Wildcard:
		return s.each(value, func(child any) bool { return s.walk(child, rest) })
	case jp.Descent:
		return s.descend(value, rest)
	}
	for i := range one.union {
		if !s.pick(value, &one.union[i], rest) {
			return false
		}
	}
	return true
}

func (s *search) descend(value any, selectors []selector) bool {
	switch value.(type) {
	case map[string]any, []any:
		return s.walk(value, selectors) &&
			s.each(value, func(child any) bool { return s.descend(child, selectors) })
	}
	return true
}

func (s *search) spend(steps int) bool {
	s.steps -= steps
	return s.steps >= 0
}

func (s *search) member(value any, key string, selectors []selector) bool {
	members, _ := value.(map[string]any)
	child, ok := members[key]
	return s.spend(1) && (!ok || s.walk(child, selectors))
}

func (s *search) item(value any, index int, selectors []selector) bool {
	items, _ := value.([]any)
	if index < 0 {
		index += len(items)
	}
	return s.spend(1) && (index < 0 || index >= len(items) || s.walk(items[index], selectors))
}

func (s *search) each(value any, visit func(child any) bool) bool {
	switch value := value.(type) {
	case []any:
		for _, child := range value {
			if !s.spend(1) || !visit(child) {
				return false
			}
		}
	case map[string]any:
		if !s.spend(memberCost * len(value)) {
			return false
		}
		var few [8]string
		for _, key := range appendSortedKeys(few[:0], value) {
			if !visit(value[key]) {
				return false
			}
		}
	}
	return true
}

// slice follows RFC 9535, section 2.3.4.
func (s *search) slice(value any, frag jp.Slice, selectors []selector) bool {
	items, _ := value.([]any)
	start, end, step := frag[0], frag[1], frag[2]
	if step == jp.SliceNotSet {
		step = 1
	}
	bound := func(i, unset, low, high int) int {
		if i == jp.SliceNotSet {
			return unset
		}
		if i < 0 {
			i += len(items)
		}
		return min(max(i, low), high)
	}
	switch {
	case step > 0:
		step = min(step, len(items)+1)
		end = bound(end, len(items), 0, len(items))
		for i := bound(start, 0, 0, len(items)); i < end; i += step {
			if !s.item(value, i, selectors) {
				return false
			}
		}
	case step < 0:
		step = max(step, -len(items)-1)
		end = bound(end, -1, -1, len(items)-1)
		for i := bound(start, len(items)-1, -1, len(items)-1); i > end; i += step {
			if !s.item(value, i, selectors) {
				return false
			}
		}
	}
	return s.spend(1)
}

// add adds a match to the output, as an item of an array once there are two.
func (s *search) add(value any) bool {
	s.count++
	if s.count == 1 {
		s.first = value
	}
	if s.stopAt > 0 {
		if s.collects {
			s.found = append(s.found, value)
		}
		return s.count < s.stopAt
	}
	if s.count == 1 {
		return true
	}
	var ok bool
	if s.count == 2 {
		if s.out, ok = appendJSON(append(s.out, '['), s.first, s.bound); !ok {
			return false
		}
	}
	s.out, ok = appendJSON(append(s.out, ','), value, s.bound)
	return ok
}
