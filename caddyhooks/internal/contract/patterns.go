package contract

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
)

// patternsSize adds up the regular expressions of one schema. Short expressions can have large programs: a repeat
// multiplies its operand, a Unicode class holds hundreds of ranges, and ignoring case looks at every character of a range.
type patternsSize struct {
	bytes        int
	classes      int // bytes of expressions with Unicode classes
	folded       int // bytes of expressions that ignore the case of any but ASCII characters
	instructions int
	ranges       int
}

const (
	maxPatternBytes  = 16 << 10
	maxUnicodeBytes  = 2 << 10
	maxFoldedBytes   = 128
	maxInstructions  = 20_000
	maxPatternRanges = 100_000
)

var errPatternsTooLarge = errors.New("the regular expressions of the schema together are too large; " +
	"shorten them or lower their repeat counts")

// add returns the number of instructions of a regular expression.
func (p *patternsSize) add(source string) (int, error) {
	p.bytes += len(source)
	if strings.Contains(source, `\p`) || strings.Contains(source, `\P`) {
		p.classes += len(source)
	}
	if ignoresCase(source) && (strings.Contains(source, `\x`) || !isASCII(source)) {
		p.folded += len(source)
	}
	if p.bytes > maxPatternBytes || p.classes > maxUnicodeBytes || p.folded > maxFoldedBytes {
		return 0, errPatternsTooLarge
	}
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		reason := "it is malformed"
		if parseErr := (*syntax.Error)(nil); errors.As(err, &parseErr) {
			reason = parseErr.Code.String()
		}
		return 0, fmt.Errorf("the regular expression cannot be used: %s; "+
			"write it in RE2 syntax, without look-around and back-references, and with repeat counts up to 1000", reason)
	}
	size, ranges := measurePattern(tree)
	p.instructions += size
	p.ranges += ranges
	if p.instructions > maxInstructions || p.ranges > maxPatternRanges {
		return 0, errPatternsTooLarge
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, errPatternsTooLarge
	}
	return len(program.Inst), nil
}

// ignoresCase reports whether source may switch on the i flag.
func ignoresCase(source string) bool {
	for {
		_, rest, found := strings.Cut(source, "(?")
		if !found {
			return false
		}
		flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imsU-"))]
		if strings.Contains(flags, "i") {
			return true
		}
		source = rest
	}
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > '\x7f' }) < 0
}

// measurePattern estimates, from above, the instructions of the program for tree, and counts the ranges of its classes.
func measurePattern(tree *syntax.Regexp) (size, ranges int) {
	const enough = 1 << 20 // further counting changes nothing, and must not overflow
	size = 2 + len(tree.Rune)
	if tree.Op == syntax.OpCharClass {
		size, ranges = 2, len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		s, r := measurePattern(sub)
		size = min(size+s, enough)
		ranges = min(ranges+r, enough)
	}
	if tree.Op == syntax.OpRepeat {
		size = min(size*max(tree.Min+1, tree.Max), enough)
	}
	return size, ranges
}
