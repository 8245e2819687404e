package caddyhooks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// exactWindow is a sliding window as the documentation has it, without a thought of memory.
type exactWindow []time.Time

func (w exactWindow) in(per time.Duration, now time.Time) int {
	n := 0
	for _, at := range w {
		if now.Sub(at) < per {
			n++
		}
	}
	return n
}

func TestRateIsAnExactSlidingWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := hookRate{runs: 1 + random.IntN(40), per: time.Duration(1+random.IntN(60)) * time.Second}
		var r rates
		var model exactWindow
		now := time.Now()
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(limit.per) / int64(limit.runs))))
			n := 1 + random.IntN(min(limit.runs, 4))
			fits := model.in(limit.per, now)+n <= limit.runs
			taken, wait := r.take("a", limit, n, now)
			if (wait == 0) != fits {
				t.Fatalf("%v, seed %d: %d in the window, %d more: the wait is %v", limit, seed, model.in(limit.per, now), n, wait)
			}
			switch {
			case !fits:
				// There is room when the wait is over, and not a moment before.
				if model.in(limit.per, now.Add(wait))+n > limit.runs || model.in(limit.per, now.Add(wait-1))+n <= limit.runs {
					t.Fatalf("%v, seed %d: the wait of %v is wrong", limit, seed, wait)
				}
			case random.IntN(5) == 0:
				taken.giveBack()
			default:
				for range n {
					model = append(model, now)
				}
			}
		}
		if w := r.byHook["a"]; w.count > limit.runs || len(w.ring) > 4*max(limit.runs, 8) {
			t.Errorf("%v: %d times are kept, in %d places", limit, w.count, len(w.ring))
		}
	}
}

func TestRateTakesAllRunsOfARequestOrNone(t *testing.T) {
	t.Parallel()
	var r rates
	limit, now := hookRate{10, time.Minute}, time.Now()
	r.take("a", limit, 7, now)
	if _, wait := r.take("a", limit, 4, now.Add(20*time.Second)); wait != 40*time.Second {
		t.Errorf("there is no room for 4 of 3; the wait is %v", wait)
	}
	if _, wait := r.take("a", limit, 3, now.Add(20*time.Second)); wait != 0 {
		t.Errorf("what was refused took room: the wait is %v", wait)
	}
	if _, wait := r.take("a", limit, 11, now.Add(time.Hour)); wait != never {
		t.Errorf("there is never room for 11; the wait is %v", wait)
	}
	if _, wait := r.take("b", limit, 10, now.Add(20*time.Second)); wait != 0 {
		t.Errorf("another hook is held up: %v", wait)
	}
}

func TestRateCountsOnWhenItIsChanged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		after hookRate
		wait  time.Duration
	}{
		{hookRate{10, time.Minute}, 50 * time.Second},
		{hookRate{11, time.Minute}, 0},
		{hookRate{5, time.Minute}, 55 * time.Second}, // the fifth from the end must leave
		{hookRate{1, time.Minute}, 59 * time.Second},
		{hookRate{10, 5 * time.Second}, 0},
		{hookRate{3, 5 * time.Second}, 2 * time.Second},
		{hookRate{10, time.Hour}, time.Hour - 10*time.Second},
	} {
		var r rates
		now := time.Now()
		for range 10 {
			r.take("a", hookRate{10, time.Minute}, 1, now)
			now = now.Add(time.Second)
		}
		if _, wait := r.take("a", tc.after, 1, now); wait != tc.wait {
			t.Errorf("10/1m is used up, and becomes %v: the wait is %v, want %v", tc.after, wait, tc.wait)
		}
	}
	// A window that becomes longer counts what has left the shorter one.
	var r rates
	now := time.Now()
	for range 30 {
		r.take("a", hookRate{10, 10 * time.Second}, 1, now)
		now = now.Add(5 * time.Second)
	}
	if _, wait := r.take("a", hookRate{10, time.Hour}, 1, now); wait != time.Hour-50*time.Second {
		t.Errorf("the wait is %v", wait)
	}
}

func TestRateForgetsHooksThatAreGone(t *testing.T) {
	t.Parallel()
	var r rates
	now := time.Now()
	for i := range 10 {
		r.take(fmt.Sprint("old", i), hookRate{10, time.Minute}, 1, now.Add(-2*time.Minute))
	}
	r.take("gone lately", hookRate{10, time.Minute}, 1, now)
	r.follow(&activeSettings{hooks: map[string]*hook{"old3": {}}})
	var kept []string
	for name := range r.byHook {
		kept = append(kept, name)
	}
	slices.Sort(kept)
	if want := []string{"gone lately", "old3"}; !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
}

func TestRateTakesLittleMemory(t *testing.T) {
	t.Parallel()
	var r rates
	limit, now := hookRate{maxRateRuns, time.Second}, time.Now()
	for i := range 3 * maxRateRuns {
		r.take("a", limit, 1, now.Add(time.Duration(i)*20*time.Microsecond))
	}
	w := r.byHook["a"]
	if len(w.ring) > 1<<17 {
		t.Errorf("the ring has %d places", len(w.ring))
	}
	// When a lower rate is in force the rest is given up.
	r.take("a", hookRate{10, time.Second}, 1, now.Add(time.Hour))
	if len(w.ring) > 64 || w.count > 10 {
		t.Errorf("the ring has %d places for %d times", len(w.ring), w.count)
	}
}

func BenchmarkRate(b *testing.B) {
	var r rates
	limit, now := hookRate{maxRateRuns, time.Hour}, time.Now()
	for b.Loop() {
		now = now.Add(40 * time.Millisecond)
		r.take("a", limit, 1, now)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"60/1h", "1/1s", "100000/24h", "0/1h", "/", "1/", "/1h", "1/1d", "+1/1h", "9e9/1h", "1/-1h", "1//1h", "1/1h/1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := parseRate(text)
		if err != nil {
			return
		}
		if limit.runs < 1 || limit.runs > maxRateRuns || limit.per < time.Second || limit.per > maxRateTime {
			t.Fatalf("%q is %v", text, limit)
		}
		if again, err := parseRate(limit.String()); err != nil || again != limit {
			t.Errorf("%q is %v, and that is %v, %v", text, limit, again, err)
		}
	})
}
