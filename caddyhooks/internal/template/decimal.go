package template

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// A decimal is the exact value of a JSON number: sign × 0.digits × 10^exponent. Equal numbers are equal structs.
type decimal struct {
	sign     int    // -1, 0 or 1
	digits   string // without zeros at either end
	exponent int
}

func newDecimal(number json.Number) decimal {
	text := string(number)
	sign := 1
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		sign, text = -1, rest
	}
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			exponent = int(math.Copysign(maxExponent, float64(exponent)))
		}
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole, "0")
	exponent += len(digits)
	if digits == "" {
		digits = strings.TrimLeft(fraction, "0")
		exponent -= len(fraction) - len(digits)
	} else if fraction != "" {
		digits += fraction
	}
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return decimal{}
	}
	return decimal{sign, digits, exponent}
}

// maxExponent is where numbers stop to differ by their exponent, so that it never overflows.
const maxExponent = 1 << 30

func intDecimal(n int) decimal {
	return newDecimal(json.Number(strconv.Itoa(n)))
}

func (d decimal) compare(other decimal) int {
	if d.sign != other.sign {
		return cmp.Compare(d.sign, other.sign)
	}
	return d.sign * cmp.Or(cmp.Compare(d.exponent, other.exponent), strings.Compare(d.digits, other.digits))
}
