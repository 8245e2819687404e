package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// failuresToOpen is how many turns in a row a runner must not take on before its runs are left alone.
	failuresToOpen = 5
	firstWait      = time.Second
	longestWait    = 30 * time.Second
	// longestRetryAfter caps a runner's Retry-After.
	longestRetryAfter = time.Hour
	// takenOnAfter is how long after it was sent a turn counts as taken on. A runner that is busy says so sooner.
	takenOnAfter = time.Second
	// reachedWithin is how long it takes at most to reach a runner that is there.
	reachedWithin = 2 * time.Second
)

// pauseBefore is how long to wait for a runner after it did not take on a number of turns in a row. rnd is asked for a number
// in [0, 1).
func pauseBefore(failures int, retryAfter time.Duration, rnd func() float64) time.Duration {
	pause := longestWait
	if failures < 6 {
		pause = min(firstWait<<max(failures-1, 0), longestWait)
	}
	// Runs that failed together need not come back together.
	pause -= time.Duration(rnd() * float64(pause) / 4)
	return max(pause, min(retryAfter, longestRetryAfter))
}

// awayRunners know which runners do not take on turns: they are busy, or cannot be reached. Runs of such a runner are not
// claimed. Now and then one is, as a probe. When the runner takes a turn on, all of its runs can be claimed again.
type awayRunners struct {
	mu     sync.Mutex
	known  map[string]*awayRunner // by the name of the runner
	probes uint64                 // how many were made
	resume []string               // runners that are back: runs that wait for them need not any more
	anew   bool                   // all runners may be others now
}

// awayRunner is how a runner took on the last turns.
type awayRunner struct {
	failures int
	since    time.Time     // of the first failure
	open     bool          // its runs are left alone …
	opened   time.Time     // … since then …
	pauses   int           // … with so many pauses so far …
	retryAt  time.Time     // … and the end of this one
	probing  uint64        // the probe that is under way, counted from 1
	reopened chan struct{} // closed when a pause begins
	reason   string        // for callers
	busy     bool          // as the last failure has it: it answers, and has no time
	tookOn   bool          // it took on the last turn
	cause    string        // of the last failure, for operators
}

// get returns what is known about a runner. It is called under the lock.
func (a *awayRunners) get(name string) *awayRunner {
	r := a.known[name]
	if r == nil {
		if a.known == nil {
			a.known = make(map[string]*awayRunner)
		}
		r = &awayRunner{reopened: make(chan struct{})}
		a.known[name] = r
	}
	return r
}

// failed notes a turn that a runner did not take on. began is when the turn was tried. It reports whether the runner's runs
// are left alone from now on, and were not before.
func (a *awayRunners) failed(name string, err *UnavailableError, began time.Time) (opened bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	r := a.get(name)
	if r.failures == 0 {
		r.since = now
	}
	r.failures++
	r.tookOn = false
	r.reason, r.busy, r.cause = waitingFor(err), err.Busy, err.Error()
	if r.failures < failuresToOpen {
		return false
	}
	if r.open && began.Before(r.opened) {
		return false // the turn was under way when the pause began, and tells nothing new
	}
	opened = !r.open
	r.open, r.opened, r.probing = true, now, 0
	r.pauses++
	r.retryAt = now.Add(pauseBefore(r.pauses, err.RetryAfter, rand.Float64))
	close(r.reopened)
	r.reopened = make(chan struct{})
	return opened
}

// takenOn notes that a runner took on a turn. It reports whether the runner's runs were left alone before, and for how long
// it was away.
func (a *awayRunners) takenOn(name string) (away time.Duration, back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.get(name)
	away, back = time.Since(r.since), r.open
	*r = awayRunner{reopened: r.reopened, tookOn: true}
	if back {
		a.resume = append(a.resume, name)
	}
	return away, back
}

// probe is a run that is to find out whether a runner is back.
type probe struct {
	runner string
	number uint64
}

// probe lets a runner be probed whose pause is over, and reports false if it is not, or if a probe is under way. A runner
// that is not away needs no probe.
func (a *awayRunners) probe(name string) (p probe, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	if r == nil || !r.open || r.probing != 0 || time.Now().Before(r.retryAt) {
		return probe{}, false
	}
	a.probes++
	r.probing = a.probes
	return probe{name, a.probes}, true
}

// unprobe takes back a probe that told nothing.
func (a *awayRunners) unprobe(p probe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[p.runner]; r != nil && r.probing == p.number {
		r.probing = 0
	}
}

// openRunners are the runners whose runs are left alone.
func (a *awayRunners) openRunners() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.known {
		if r.open {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// AwayRunner is a runner that does not take on runs.
type AwayRunner struct {
	Name  string
	Since time.Time // when it did not take on the first one
	Busy  bool      // it can be reached, and has no time
	Cause string    // for operators
}

// away lists the runners whose runs are left alone.
func (a *awayRunners) away() (away []AwayRunner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.known {
		if r.open {
			away = append(away, AwayRunner{Name: name, Since: r.since, Busy: r.busy, Cause: r.cause})
		}
	}
	slices.SortFunc(away, func(x, y AwayRunner) int { return strings.Compare(x.Name, y.Name) })
	return away
}

// wait is how long until a runner can be probed, negative if none is to be.
func (a *awayRunners) wait() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := time.Duration(-1)
	for _, r := range a.known {
		// One whose pause is over is probed when there is a run to do so.
		if rest := time.Until(r.retryAt); r.open && r.probing == 0 && rest > 0 && (wait < 0 || rest < wait) {
			wait = rest
		}
	}
	return wait
}

// refuses reports whether a caller need not wait for a runner, and how long it is left alone. If the runner can be waited
// for, reopened is closed when that changes.
func (a *awayRunners) refuses(name string) (reopened <-chan struct{}, rest time.Duration, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.get(name)
	if rest := time.Until(r.retryAt); r.open && (r.probing != 0 || rest > 0) {
		return nil, max(rest, time.Second), true
	}
	return r.reopened, 0, false
}

// failedLast reports whether the last turn of a runner was not taken on.
func (a *awayRunners) failedLast(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	return r != nil && r.failures > 0
}

// reasonFor is why runs of a runner are left alone, "" if they are not.
func (a *awayRunners) reasonFor(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[name]; r != nil && r.open {
		return r.reason
	}
	return ""
}

// causeFor is why the last turn of a runner was not taken on, "" if it was.
func (a *awayRunners) causeFor(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[name]; r != nil && r.failures > 0 {
		return r.cause
	}
	return ""
}

// stateOf says whether a runner takes on turns.
func (a *awayRunners) stateOf(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r := a.known[name]; {
	case r != nil && r.open:
		return RunnerWaiting
	case r != nil && r.tookOn:
		return RunnerOK
	default:
		return RunnerUnknown
	}
}

// doubt notes that a runner did not take on a try. That an operator tries it is no reason to leave its runs alone.
func (a *awayRunners) doubt(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.get(name).tookOn = false
}

// gone notes that a run was found whose runner is not configured any more. Such runs wait for nothing.
func (a *awayRunners) gone(name string) (waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	if r == nil {
		return false
	}
	waited = r.open
	*r = awayRunner{reopened: r.reopened}
	if waited {
		a.resume = append(a.resume, name)
	}
	return waited
}

// reset forgets which runners are away, since there are other runners now. Those of a name that is configured still count as
// taking on turns.
func (a *awayRunners) reset(config *Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.known {
		*r = awayRunner{reopened: r.reopened, tookOn: r.tookOn && config.Runners[name] != nil}
	}
	a.anew = true
}

// takeResumed returns the runners that came back since the last call, none if all may be others now.
func (a *awayRunners) takeResumed() (names []string, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names, any = a.resume, a.anew || len(a.resume) > 0
	if a.anew {
		names = nil
	}
	a.resume, a.anew = nil, false
	return names, any
}

// resumeLater puts back what takeResumed returned.
func (a *awayRunners) resumeLater(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resume = append(a.resume, names...)
	a.anew = a.anew || len(names) == 0
}

// waitForRunner is the end of a claim on a run that its runner did not take on, if the run is to wait for the runner. A
// caller who waits would rather know at once, and a run with an answer was taken on.
func waitForRunner(ctx context.Context, claim *Claim, outcome Outcome, err error) (end End, waits bool) {
	var unavailable *UnavailableError
	var cancelled *cancelledError
	if claim.Awaited || outcome.HasText || !errors.As(err, &unavailable) || errors.As(context.Cause(ctx), &cancelled) {
		return End{}, false
	}
	return End{Requeue: true, WaitingFor: waitingFor(unavailable), Pause: pauseBefore(claim.Waits+1, unavailable.RetryAfter, rand.Float64)}, true
}

// waitingFor says why a run waits for its runner.
func waitingFor(err *UnavailableError) string {
	if err.Busy {
		return "The agent is busy. The run starts as soon as the agent has time for it."
	}
	return "The agent cannot be reached. The run starts as soon as the agent is back."
}

// AwayRunners lists the runners that do not take on runs, as far as this node knows. A runner that is away is tried again only
// when there is a run for it.
func (e *Engine) AwayRunners() []AwayRunner { return e.away.away() }

// endProbe lets another run be the probe if this one has told nothing.
func (e *Engine) endProbe(p probe) {
	e.away.unprobe(p)
	signal(e.workerFree)
}

// resumeRuns lets runs start whose runner is back.
func (e *Engine) resumeRuns() {
	runners, any := e.away.takeResumed()
	if !any {
		return
	}
	err := errors.New("the store panicked")
	e.protect("resuming runs", func() {
		ctx, stop := e.storeContext()
		defer stop()
		err = e.store.Runs().Resume(ctx, e.config.Load().namesOf(runners...)...)
	})
	if err != nil && !e.noteBroken(err) {
		e.storeFailed("runs whose runner is back could not be resumed, trying again in a second", err)
		e.away.resumeLater(runners)
		time.AfterFunc(time.Second, func() { signal(e.workerFree) })
	}
}

// runnerTookOn notes that a runner took on a turn. If it was away, its runs can go on.
func (e *Engine) runnerTookOn(name string) {
	if away, back := e.away.takenOn(name); back {
		e.log().Info("the runner is back; its runs go on", zap.String("runner", name), zap.Duration("away", away))
		signal(e.workerFree)
	}
}

// runnerGone notes that a run was found whose runner is not configured any more. The others need not wait for it either.
func (e *Engine) runnerGone(name string) {
	if e.away.gone(name) {
		signal(e.workerFree)
	}
}

// runnerRefused notes that a runner did not take on a turn. For a runner that is gone since a reload nobody waits.
func (e *Engine) runnerRefused(config *Config, run *Run, name string, err *UnavailableError, start time.Time) {
	if e.config.Load().Runners[name] == nil {
		return
	}
	if e.away.failed(name, err, start) {
		config.Log.Warn("the runner does not take on runs; they wait until it does", zap.String("runner", name), zap.Error(err))
	} else {
		config.Log.Debug("the runner did not take on a run", zap.String("runner", name), zap.String("run_id", run.ID), zap.Error(err))
	}
}
