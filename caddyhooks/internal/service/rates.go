package service

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// rates counts the runs that hooks with a rate have accepted on this node. It outlives reloads: what was accepted under one rate
// counts under the next.
//
// Of each such hook it remembers when its last runs were accepted, as many as the rate allows: 8 bytes each, and no more than
// settings.MaxRateRuns. So a window slides exactly, and the time until the next allowance is known.
type rates struct {
	mu     sync.Mutex
	began  time.Time
	byHook map[string]*rateWindow
}

// Allowance is place for runs that was taken from the rate of a hook. The zero value is that of a hook without a rate.
type Allowance struct {
	rates *rates
	hook  string
	at    int64
	runs  int
}

// Admit takes an allowance for the runs of a request from the rate of its hook, for all of them or for none. custom may be nil. If there
// is none the error is the answer to the request, unless it repeats an earlier one: then it is that of engine.Repeated, for a
// repeated request makes no run.
func (s *Service) Admit(ctx context.Context, custom *settings.Hook, runs []*engine.Run, revision int64) (Allowance, error) {
	if custom == nil || custom.RunRate.Runs == 0 {
		return Allowance{}, nil
	}
	taken, wait := s.rates.take(custom.Name, custom.RunRate, len(runs), time.Now())
	if wait == 0 {
		return taken, nil
	}
	if mayRepeat(runs[0]) {
		if err := s.Engine.Repeated(ctx, runs, revision); err != nil {
			return Allowance{}, err
		}
	}
	if wait == noAllowance {
		return Allowance{}, &api.Error{Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("The body makes %d runs, and this hook accepts no more than %d in %s.", len(runs), custom.RunRate.Runs,
				text.ShortDuration(custom.RunRate.Per)),
			Reason: "the body makes more runs than the hook ever accepts at once (rate)"}
	}
	return Allowance{}, &api.Error{Status: http.StatusTooManyRequests, RetryAfter: wait,
		Message: fmt.Sprintf("This hook accepts %s in %s, and this request would be more. Try again in %s s.",
			text.Count(custom.RunRate.Runs, "run", "runs"), text.ShortDuration(custom.RunRate.Per), api.RetryAfterSeconds(wait)),
		Reason: "the hook has accepted as many runs as it may (rate)"}
}

// mayRepeat reports whether a request whose first run this is can repeat an earlier one.
func mayRepeat(run *engine.Run) bool {
	return run.Key != nil || run.Replay != nil || len(run.Gates) > 0
}

// Of is the part of the allowance that is for so many runs.
func (r Allowance) Of(runs int) Allowance {
	r.runs = runs
	return r
}

// GiveBack gives back the allowance of runs that were not stored.
func (r Allowance) GiveBack() {
	if r.rates != nil {
		r.rates.giveBack(r)
	}
}

// noAllowance is the wait for an allowance that will not come.
const noAllowance = time.Duration(math.MaxInt64)

// take takes an allowance for n runs of a hook. If there is none it returns the time after which there is, unless others take it.
func (r *rates) take(hook string, limit settings.HookRate, n int, now time.Time) (taken Allowance, wait time.Duration) {
	if n > limit.Runs {
		return Allowance{}, noAllowance
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byHook == nil {
		r.began, r.byHook = now, make(map[string]*rateWindow)
	}
	w := r.byHook[hook]
	if w == nil {
		w = new(rateWindow)
		r.byHook[hook] = w
	}
	at := max(int64(now.Sub(r.began)), w.newest()) // by a clock that nobody sets; requests may get here in another order
	if wait := w.wait(limit, n, at); wait > 0 {
		return Allowance{}, wait
	}
	w.add(limit, n, at)
	return Allowance{r, hook, at, n}, 0
}

func (r *rates) giveBack(taken Allowance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byHook[taken.hook]; w != nil {
		w.remove(taken.at, taken.runs)
	}
}

// follow forgets hooks that are gone, when nothing of theirs would count any more: one that comes back soon goes on counting.
func (r *rates) follow(active *settings.Active) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.byHook {
		if active.Hooks[name] == nil && int64(time.Since(r.began))-w.newest() >= int64(w.per) {
			delete(r.byHook, name)
		}
	}
}

// rateWindow has the times at which the last runs of a hook were accepted, the oldest first, in a ring.
type rateWindow struct {
	ring  []int64 // its length is a power of two
	first int     // the place of the oldest one
	count int
	per   time.Duration // that of the last rate
}

// at is the place of the i-th oldest time.
func (w *rateWindow) at(i int) *int64 { return &w.ring[(w.first+i)&(len(w.ring)-1)] }

// newest is when the last run was accepted.
func (w *rateWindow) newest() int64 {
	if w.count == 0 {
		return 0
	}
	return *w.at(w.count - 1)
}

// wait is how long until n runs are allowed, 0 if there is.
func (w *rateWindow) wait(limit settings.HookRate, n int, now int64) time.Duration {
	// With n runs more, the one that is as many places before the end as the rate allows must have left the window.
	blocking := w.count - (limit.Runs - n) - 1
	if blocking < 0 {
		return 0
	}
	return max(0, time.Duration(*w.at(blocking)+int64(limit.Per)-now))
}

// add notes runs. It forgets those that have left the window, but for as many as the rate allows: the next rate may be for a
// longer time.
func (w *rateWindow) add(limit settings.HookRate, n int, now int64) {
	w.per = limit.Per
	for w.count > max(0, limit.Runs-n) && *w.at(0)+int64(limit.Per) <= now {
		w.first++
		w.count--
	}
	if size := 1 << bits.Len(uint(max(w.count+n, 8)-1)); size > len(w.ring) || size < len(w.ring)/4 {
		w.resize(size)
	}
	for range n {
		*w.at(w.count) = now
		w.count++
	}
}

func (w *rateWindow) resize(size int) {
	ring := make([]int64, size)
	for i := range w.count {
		ring[i] = *w.at(i)
	}
	w.ring, w.first = ring, 0
}

// remove takes out runs that were noted at a time.
func (w *rateWindow) remove(at int64, n int) {
	i := w.count - 1
	for i >= 0 && *w.at(i) > at {
		i--
	}
	for ; n > 0 && i >= 0 && *w.at(i) == at; n, i = n-1, i-1 {
		for j := i; j < w.count-1; j++ {
			*w.at(j) = *w.at(j + 1)
		}
		w.count--
	}
}
