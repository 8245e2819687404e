package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
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
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := settings.HookRate{Runs: 1 + random.IntN(40), Per: time.Duration(1+random.IntN(60)) * time.Second}
		var r rates
		var model exactWindow
		now := time.Now()
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(limit.Per) / int64(limit.Runs))))
			n := 1 + random.IntN(min(limit.Runs, 4))
			fits := model.in(limit.Per, now)+n <= limit.Runs
			taken, wait := r.take("a", limit, n, now)
			if (wait == 0) != fits {
				t.Fatalf("%v, seed %d: %d in the window, %d more: the wait is %v", limit, seed, model.in(limit.Per, now), n, wait)
			}
			switch {
			case !fits:
				// There is room when the wait is over, and not a moment before.
				if model.in(limit.Per, now.Add(wait))+n > limit.Runs || model.in(limit.Per, now.Add(wait-1))+n <= limit.Runs {
					t.Fatalf("%v, seed %d: the wait of %v is wrong", limit, seed, wait)
				}
			case random.IntN(5) == 0:
				taken.GiveBack()
			default:
				for range n {
					model = append(model, now)
				}
			}
		}
		if w := r.byHook["a"]; w.count > limit.Runs || len(w.ring) > 4*max(limit.Runs, 8) {
			t.Errorf("%v: %d times are kept, in %d places", limit, w.count, len(w.ring))
		}
	}
}

func TestRateTakesAllRunsOfARequestOrNone(t *testing.T) {
	t.Parallel()
	var r rates
	limit, now := settings.HookRate{Runs: 10, Per: time.Minute}, time.Now()
	r.take("a", limit, 7, now)
	if _, wait := r.take("a", limit, 4, now.Add(20*time.Second)); wait != 40*time.Second {
		t.Errorf("there is no room for 4 of 3; the wait is %v", wait)
	}
	if _, wait := r.take("a", limit, 3, now.Add(20*time.Second)); wait != 0 {
		t.Errorf("what was refused took room: the wait is %v", wait)
	}
	if _, wait := r.take("a", limit, 11, now.Add(time.Hour)); wait != noAllowance {
		t.Errorf("there is never room for 11; the wait is %v", wait)
	}
	if _, wait := r.take("b", limit, 10, now.Add(20*time.Second)); wait != 0 {
		t.Errorf("another hook is held up: %v", wait)
	}
}

func TestRateCountsOnWhenItIsChanged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		after settings.HookRate
		wait  time.Duration
	}{
		{settings.HookRate{Runs: 10, Per: time.Minute}, 50 * time.Second},
		{settings.HookRate{Runs: 11, Per: time.Minute}, 0},
		{settings.HookRate{Runs: 5, Per: time.Minute}, 55 * time.Second}, // the fifth from the end must leave
		{settings.HookRate{Runs: 1, Per: time.Minute}, 59 * time.Second},
		{settings.HookRate{Runs: 10, Per: 5 * time.Second}, 0},
		{settings.HookRate{Runs: 3, Per: 5 * time.Second}, 2 * time.Second},
		{settings.HookRate{Runs: 10, Per: time.Hour}, time.Hour - 10*time.Second},
	} {
		var r rates
		now := time.Now()
		for range 10 {
			r.take("a", settings.HookRate{Runs: 10, Per: time.Minute}, 1, now)
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
		r.take("a", settings.HookRate{Runs: 10, Per: 10 * time.Second}, 1, now)
		now = now.Add(5 * time.Second)
	}
	if _, wait := r.take("a", settings.HookRate{Runs: 10, Per: time.Hour}, 1, now); wait != time.Hour-50*time.Second {
		t.Errorf("the wait is %v", wait)
	}
}

func TestRateForgetsHooksThatAreGone(t *testing.T) {
	t.Parallel()
	var r rates
	now := time.Now()
	for i := range 10 {
		r.take(fmt.Sprint("old", i), settings.HookRate{Runs: 10, Per: time.Minute}, 1, now.Add(-2*time.Minute))
	}
	r.take("gone lately", settings.HookRate{Runs: 10, Per: time.Minute}, 1, now)
	r.follow(&settings.Active{Hooks: map[string]*settings.Hook{"old3": {}}})
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
	limit, now := settings.HookRate{Runs: settings.MaxRateRuns, Per: time.Second}, time.Now()
	for i := range 3 * settings.MaxRateRuns {
		r.take("a", limit, 1, now.Add(time.Duration(i)*20*time.Microsecond))
	}
	w := r.byHook["a"]
	if len(w.ring) > 1<<17 {
		t.Errorf("the ring has %d places", len(w.ring))
	}
	// When a lower rate is in force the rest is given up.
	r.take("a", settings.HookRate{Runs: 10, Per: time.Second}, 1, now.Add(time.Hour))
	if len(w.ring) > 64 || w.count > 10 {
		t.Errorf("the ring has %d places for %d times", len(w.ring), w.count)
	}
}

func BenchmarkRate(b *testing.B) {
	var r rates
	limit, now := settings.HookRate{Runs: settings.MaxRateRuns, Per: time.Hour}, time.Now()
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
		limit, err := settings.ParseRate(text)
		if err != nil {
			return
		}
		if limit.Runs < 1 || limit.Runs > settings.MaxRateRuns || limit.Per < time.Second || limit.Per > settings.MaxRateTime {
			t.Fatalf("%q is %v", text, limit)
		}
		if again, err := settings.ParseRate(limit.String()); err != nil || again != limit {
			t.Errorf("%q is %v, and that is %v, %v", text, limit, again, err)
		}
	})
}
