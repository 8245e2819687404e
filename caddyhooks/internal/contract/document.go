package contract

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// documentSize holds the measures of a document that costs depend on.
type documentSize struct {
	nodes      int
	numbers    int
	path       int // the longest JSON pointer to a value, as the library writes it
	numberCost int // of reading the most costly number, in nanoseconds
}

// documentBounds are the largest measures of a document.
type documentBounds struct {
	depth, nodes int
	pathBytes    int // all JSON pointers together
}

const (
	maxSchemaBytes    = 64 << 10
	maxNumberLength   = 512
	maxExponentDigits = 3
)

var (
	schemaBounds = documentBounds{depth: 64, nodes: 5_000, pathBytes: 1 << 20}
	answerBounds = documentBounds{depth: 128, nodes: 100_000, pathBytes: 64 << 20}
)

// measureDocument returns a failure for a document that is out of bounds.
func measureDocument(doc any, bounds documentBounds) (size documentSize, outOfBounds *failure) {
	var asAWhole string // an error of the document, not of one place in it
	var measure func(v any, depth, path int) *failure
	measure = func(v any, depth, path int) *failure {
		size.nodes++
		size.path = max(size.path, path)
		bounds.pathBytes -= path
		switch {
		case size.nodes > bounds.nodes:
			asAWhole = fmt.Sprintf("there are more than %d values", bounds.nodes)
		case depth > bounds.depth:
			asAWhole = fmt.Sprintf("it is nested deeper than %d levels", bounds.depth)
		case bounds.pathBytes < 0:
			asAWhole = "there are too many values below long property names"
		}
		if asAWhole != "" {
			return &failure{}
		}
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				if f := measure(member, depth+1, path+1+escapedLength(key)); f != nil {
					return &failure{"/" + escapeToken(key) + f.at, f.text}
				}
			}
		case []any:
			for i, item := range v {
				if f := measure(item, depth+1, path+len("/99999")); f != nil {
					return &failure{"/" + strconv.Itoa(i) + f.at, f.text}
				}
			}
		case json.Number:
			cost, ok := numberCost(v)
			if !ok {
				return &failure{"", fmt.Sprintf("the number has more than %d characters or an exponent of more than %d digits",
					maxNumberLength, maxExponentDigits)}
			}
			size.numbers++
			size.numberCost = max(size.numberCost, cost)
		}
		return nil
	}
	outOfBounds = measure(doc, 0, 0)
	if asAWhole != "" {
		outOfBounds = &failure{"", asAWhole}
	}
	return size, outOfBounds
}

// numberCost estimates how many nanoseconds it takes to turn n into a fraction of integers. It reports false for a
// number that is too large for that.
func numberCost(n json.Number) (int, bool) {
	if len(n) > maxNumberLength {
		return 0, false
	}
	mantissa, exponent, found := strings.Cut(strings.ToLower(string(n)), "e")
	size := len(mantissa)
	if found {
		digits := strings.TrimLeft(exponent, "+-0")
		if len(digits) > maxExponentDigits {
			return 0, false
		}
		e, _ := strconv.Atoi(digits)
		size += e
	}
	return 600 + 20*size, true
}

func childCount(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	}
	return 0
}

// escapedLength is how long a key can become in a JSON pointer inside a URL.
func escapedLength(key string) int {
	length := len(key)
	for i := range len(key) {
		if c := key[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			length += 2
		}
	}
	return length
}
