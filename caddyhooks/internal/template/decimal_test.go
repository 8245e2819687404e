package template

import (
	"encoding/json"
	"testing"
)

func TestDecimalComparesExactly(t *testing.T) {
	t.Parallel()
	ascending := []json.Number{
		"-1e999999999999999999999", "-12345678901234567891", "-12345678901234567890", "-1.5", "-1", "-0.001", "-1e-400",
		"0", "1e-400", "0.00099", "0.001", "0.1", "0.10000000000000000001", "0.9", "1", "1.0000000001", "9", "10", "99.5", "100",
		"9007199254740992", "9007199254740993", "12345678901234567890", "12345678901234567891", "1e400", "1.1e400",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := newDecimal(a).compare(newDecimal(b)); got != want {
				t.Errorf("%s and %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for a, b := range map[json.Number]json.Number{"1": "1.0", "100": "1E+2", "0": "-0.0e5", "1.10": "0.11e1", "0.05": "5e-2", "1200": "1.2e3"} {
		if newDecimal(a) != newDecimal(b) {
			t.Errorf("%s is not %s", a, b)
		}
	}
}
