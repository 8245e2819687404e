package template

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A filter is the condition of a [?…] in a JSONPath expression. It is an operator with its operands, or itself an
// operand: a path or a literal.
//
// Filters are not left to jp, which finds no two fractions unequal, knows no number beyond a float64, panics on objects and has no
// limit to its work.
type filter struct {
	operator    string
	left, right *filter

	path        path           // of fromHere and fromRoot
	query       *query         // of fromHere and fromRoot, instead of path: it may match several values
	literal     any            // of constant: string, bool, nil, decimal, or an []any of these
	pattern     *regexp.Regexp // of =~; nil if it is the value of right
	whole       bool           // of =~: the value of right must match the whole text
	patternCost int            // of a look at one byte, in tenths of a step
}

// The operators of operands, and of a function with one argument. The others are called as they are written.
const (
	fromHere = "@"
	fromRoot = "$"
	constant = "constant"
	length   = "length"
	count    = "count"
	valueOf  = "value"
)

// isCondition reports whether f is true or false of a value.
func (f *filter) isCondition() bool {
	return f.operator != constant && f.operator != length && f.operator != count && f.operator != valueOf
}

// maxPatternSize bounds a compiled regular expression, in instructions.
const maxPatternSize = 1000

func (f *filter) setPattern(pattern string) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	if len(program.Inst) > maxPatternSize {
		return fmt.Errorf("the regular expression %s is too large", pattern)
	}
	f.patternCost = 2
	for i := range program.Inst {
		f.patternCost += instructionCost(&program.Inst[i])
	}
	f.pattern, err = regexp.Compile(pattern)
	return err
}

// instructionCost is the cost of an instruction of a regular expression, in tenths of a step, as measured with expressions
// for which each instruction looks at each byte. That is as bad as it gets: no instruction looks at a byte twice.
func instructionCost(i *syntax.Inst) int {
	switch i.Op {
	case syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL, syntax.InstEmptyWidth:
		return 3
	case syntax.InstRune:
		if len(i.Rune) == 1 { // in upper and lower case
			return 3 + foldCost(i.Rune[0])
		}
		return 3 + bits.Len(uint(len(i.Rune)/2))/2 // ranges, among which it searches by halves
	}
	return 2
}

// foldCost is the cost of comparing a letter with those that differ from it in case. Beyond ASCII they are looked up in
// tables.
func foldCost(letter rune) int {
	cost := 0
	for r := unicode.SimpleFold(letter); ; r = unicode.SimpleFold(r) {
		if r > unicode.MaxASCII {
			cost += 5
		}
		if r == letter {
			return cost
		}
	}
}

// matchCost is the steps of a match with a text.
func (f *filter) matchCost(text string) int {
	return 5 + (len(text)+1)*f.patternCost/10
}

// maxPatternLength bounds a regular expression that stands in a body, in bytes.
const maxPatternLength = 1024

// patternOf makes a filter of the regular expression that is the value of f.right. It returns nil if there is none, and the filter
// is then true of nothing.
func (s *search) patternOf(f *filter, here any) *filter {
	text, ok := s.evaluate(f.right, here).(string)
	if !ok || len(text) > maxPatternLength {
		return nil
	}
	if s.pattern != nil && s.pattern.right == f && s.pattern.literal == text {
		return s.pattern
	}
	if !s.spend(1000 + 50*len(text)) {
		return nil
	}
	pattern := interoperable(text, f.whole)
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || !s.spend(10*min(patternSize(parsed), maxPatternSize)) || patternSize(parsed) > maxPatternSize {
		return nil
	}
	made := &filter{operator: "=~", right: f, literal: text}
	if made.setPattern(pattern) != nil {
		return nil
	}
	s.pattern = made
	return made
}

// patternSize is about how many instructions a regular expression is compiled to. It stops to count where that is too many.
func patternSize(r *syntax.Regexp) int {
	size := 1 + len(r.Rune)
	for _, sub := range r.Sub {
		if size += patternSize(sub); size > maxPatternSize {
			return size
		}
	}
	if r.Op == syntax.OpRepeat {
		size *= max(1, r.Min, r.Max)
	}
	return size
}

// matches reports whether f is true of here. The answer counts only while the search has steps left.
func (s *search) matches(f *filter, here any) bool {
	if !s.spend(1) {
		return false
	}
	switch f.operator {
	case fromHere, fromRoot:
		if f.query != nil {
			return s.tallied(f, here, 1).count > 0
		}
		return s.evaluate(f, here) != absentValue{}
	case "!":
		return !s.matches(f.left, here)
	case "&&":
		return s.matches(f.left, here) && s.matches(f.right, here)
	case "||":
		return s.matches(f.left, here) || s.matches(f.right, here)
	case "=~":
		text, ok := s.evaluate(f.left, here).(string)
		if ok && f.pattern == nil {
			if f = s.patternOf(f, here); f == nil {
				return false
			}
		}
		return ok && s.spend(f.matchCost(text)) && f.pattern.MatchString(text)
	}
	left, right := s.evaluate(f.left, here), s.evaluate(f.right, here)
	switch f.operator {
	case "==":
		return s.equal(left, right)
	case "!=":
		return !s.equal(left, right)
	case "<":
		return s.order(left, right, -1, -1)
	case "<=":
		return s.order(left, right, -1, 0) || s.standard && s.equal(left, right)
	case ">":
		return s.order(left, right, 1, 1)
	case ">=":
		return s.order(left, right, 0, 1) || s.standard && s.equal(left, right)
	}
	list, _ := right.([]any) // in
	for _, item := range list {
		if !s.spend(1) || s.equal(left, s.comparable(item)) {
			return true
		}
	}
	return false
}

// absentValue is the value of a path without a match.
type absentValue struct{}

// evaluate returns the value of an operand: a string, bool, nil, decimal, map[string]any, []any or absentValue.
func (s *search) evaluate(f *filter, here any) any {
	switch f.operator {
	case constant:
		return f.literal
	case fromHere, fromRoot:
		if f.operator == fromRoot {
			here = s.body
		}
		value, ok := f.path.find(here)
		if !ok || !s.spend(1+len(f.path)) {
			return absentValue{}
		}
		return s.comparable(value)
	case count:
		if f.left.query != nil {
			return intDecimal(s.tallied(f.left, here, math.MaxInt).count)
		}
		if (s.evaluate(f.left, here) == absentValue{}) {
			return intDecimal(0)
		}
		return intDecimal(1)
	case valueOf:
		if f.left.query == nil {
			return s.evaluate(f.left, here)
		}
		if found := s.tallied(f.left, here, 2); found.count == 1 {
			return s.comparable(found.first)
		}
		return absentValue{}
	case length:
		switch value := s.evaluate(f.left, here).(type) {
		case string:
			s.spend(len(value) / bytesPerStep)
			return intDecimal(utf8.RuneCountInString(value))
		case []any:
			return intDecimal(len(value))
		case map[string]any:
			return intDecimal(len(value))
		}
		return absentValue{}
	}
	return s.matches(f, here)
}

func (s *search) comparable(value any) any {
	number, ok := value.(json.Number)
	if !ok {
		return value
	}
	if !s.spend(len(number) / bytesPerStep) {
		return absentValue{}
	}
	return newDecimal(number)
}

// bytesPerStep is how much text is read or compared in the time of a step.
const bytesPerStep = 64

// equal reports whether a and b are the same value, or both absent. Objects and arrays are the same if all in them is, but never in
// templates.
func (s *search) equal(a, b any) bool {
	switch a := s.comparable(a).(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !s.standard || !ok || len(a) != len(b) {
			return false
		}
		for key, member := range a {
			other, ok := b[key]
			if !ok || !s.spend(2+len(key)/bytesPerStep) || !s.equal(member, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !s.standard || !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !s.spend(1) || !s.equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case string:
		b, ok := b.(string)
		return ok && len(a) == len(b) && s.spend(len(a)/bytesPerStep) && a == b
	case decimal:
		b, ok := s.comparable(b).(decimal)
		return ok && s.spend(len(a.digits)/bytesPerStep) && a == b
	default:
		switch b.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
}

// order reports whether the comparison of two numbers or two strings gives from, to, or a result between them.
func (s *search) order(a, b any, from, to int) bool {
	var compared int
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		if !ok || !s.spend(min(len(a), len(b))/bytesPerStep) {
			return false
		}
		compared = strings.Compare(a, b)
	case decimal:
		b, ok := b.(decimal)
		if !ok || !s.spend(min(len(a.digits), len(b.digits))/bytesPerStep) {
			return false
		}
		compared = a.compare(b)
	default:
		return false
	}
	return from <= compared && compared <= to
}
