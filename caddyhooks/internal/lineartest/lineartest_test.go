package lineartest

import "testing"

// record stands in for a test that may fail.
type record struct {
	testing.TB
	failed bool
}

func (*record) Helper()                 {}
func (r *record) Errorf(string, ...any) { r.failed = true }

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		steps  func(size int) int
		failed bool
	}{
		"linear":    {func(size int) int { return size * 1000 }, false},
		"quadratic": {func(size int) int { return size * size }, true},
	} {
		r := &record{TB: t}
		Check(r, 4_000, func(size int) func() {
			return func() {
				for range tc.steps(size) {
					sink++
				}
			}
		})
		if r.failed != tc.failed {
			t.Errorf("%s: failed is %t", name, r.failed)
		}
	}
}

var sink int
