package engine

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
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
	// refusalCounts is for how long a refused turn tells the state of its runner if no other turn is tried, counted from when the next
	// one is due. A node that gets no requests because of the refusal would otherwise never find out that the runner is back.
	refusalCounts = 5 * time.Second
	// failingTries is how often a turn is tried that fails without effects, and may itself be the cause.
	failingTries = 10
	// logEvery is how often the log says at most that a runner cannot be reached.
	logEvery = time.Minute
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

// unreachableRunners know which runners do not take on turns: they are busy, or cannot be reached. Runs of such a runner are not
// claimed. Now and then one is, as a probe. When the runner takes a turn on, all of its runs can be claimed again.
type unreachableRunners struct {
	mu     sync.Mutex
	known  map[string]*unreachableRunner // by the name of the runner
	probes uint64                        // how many were made
	resume []string                      // runners that are back: runs that wait for them need not any more
	anew   bool                          // all runners may be others now
}

// unreachableRunner is how a runner took on the last turns.
type unreachableRunner struct {
	failures int
	since    time.Time     // of the first refusal
	open     bool          // its runs are left alone …
	opened   time.Time     // … since then …
	pauses   int           // … with so many pauses so far …
	retryAt  time.Time     // … and the end of this one
	probing  uint64        // the probe that is under way, counted from 1
	reopened chan struct{} // closed when a pause begins
	reason   string        // for callers
	busy     bool          // as the last refusal has it: it answers, and has no time
	cause    string        // of the last refusal, for operators

	refused  bool      // it did not take on the last turn, of a run or of a try …
	until    time.Time // … which counts until then …
	retrying int       // … and while turns are under way that began since
	turned   string    // what became of the last turn that it took on: RunnerOK, RunnerFailing, or "" if there was none

	logged   bool      // the log says that it cannot be reached, since it took on the last turn …
	loggedAt time.Time // … and said so then, or before
}

// get returns what is known about a runner. It is called under the lock.
func (a *unreachableRunners) get(name string) *unreachableRunner {
	r := a.known[name]
	if r == nil {
		if a.known == nil {
			a.known = make(map[string]*unreachableRunner)
		}
		r = &unreachableRunner{reopened: make(chan struct{})}
		a.known[name] = r
	}
	return r
}

// failed notes a turn that a runner did not take on. began is when the turn was tried. It reports whether the runner's runs
// are left alone from now on, and were not before, and whether it is news that the runner cannot be reached.
func (a *unreachableRunners) failed(name string, err *UnavailableError, began time.Time) (opened, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	r := a.get(name)
	r.refuse(err, now)
	if news = !err.Busy && !r.logged && now.Sub(r.loggedAt) >= logEvery; news {
		r.logged, r.loggedAt = true, now
	}
	r.failures++
	if r.failures < failuresToOpen {
		return false, news
	}
	if r.open && began.Before(r.opened) {
		return false, news // the turn was under way when the pause began, and tells nothing new
	}
	opened = !r.open
	r.open, r.opened, r.probing = true, now, 0
	r.pauses++
	r.retryAt = now.Add(pauseBefore(r.pauses, err.RetryAfter, rand.Float64))
	r.countUntil(r.retryAt)
	close(r.reopened)
	r.reopened = make(chan struct{})
	return opened, news
}

// takenOn notes that a runner took on a turn. It reports whether the runner's runs were left alone before, and for how long
// it was unreachable.
func (a *unreachableRunners) takenOn(name string) (unreachable time.Duration, back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.get(name)
	unreachable, back = time.Since(r.since), r.open
	*r = unreachableRunner{reopened: r.reopened, retrying: r.retrying, turned: r.turned, loggedAt: r.loggedAt}
	if back {
		a.resume = append(a.resume, name)
	}
	return unreachable, back
}

// probe is a run that is to find out whether a runner is back.
type probe struct {
	runner string
	number uint64
}

// probe lets a runner be probed whose pause is over, and reports false if it is not, or if a probe is under way. A runner
// that is not unreachable needs no probe.
func (a *unreachableRunners) probe(name string) (p probe, ok bool) {
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
func (a *unreachableRunners) unprobe(p probe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[p.runner]; r != nil && r.probing == p.number {
		r.probing = 0
	}
}

// openRunners are the runners whose runs are left alone.
func (a *unreachableRunners) openRunners() (names []string) {
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

// wait is how long until a runner can be probed, negative if none is to be.
func (a *unreachableRunners) wait() time.Duration {
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
func (a *unreachableRunners) refuses(name string) (reopened <-chan struct{}, rest time.Duration, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.get(name)
	if rest := time.Until(r.retryAt); r.open && (r.probing != 0 || rest > 0) {
		return nil, max(rest, time.Second), true
	}
	return r.reopened, 0, false
}

// refuse notes that a turn was not taken on.
func (r *unreachableRunner) refuse(err *UnavailableError, now time.Time) {
	if !r.refused {
		r.refused, r.since = true, now
	}
	r.reason, r.busy, r.cause = waitingFor(err), err.Busy, err.Error()
	r.countUntil(now)
}

// countUntil has a refusal tell the state of the runner until refusalCounts after the next turn is due.
func (r *unreachableRunner) countUntil(due time.Time) {
	if until := due.Add(refusalCounts); until.After(r.until) {
		r.until = until
	}
}

// waits notes that a turn which the runner did not take on is tried again after a pause.
func (a *unreachableRunners) waits(name string, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[name]; r != nil && r.refused {
		r.countUntil(time.Now().Add(pause))
	}
}

// tryAgain notes that a turn begins, and reports whether the runner did not take on the last one. If so, over must be called when the
// turn has ended.
func (a *unreachableRunners) tryAgain(name string) (over func(), refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	if r == nil || !r.refused {
		return nil, false
	}
	r.retrying++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		r.retrying--
		r.countUntil(time.Now()) // until it is noted how the turn ended
	}, true
}

// ended notes what became of a turn that a runner took on: RunnerOK or RunnerFailing.
func (a *unreachableRunners) ended(name, turned string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.get(name).turned = turned
}

// reasonFor is why runs of a runner are left alone, "" if they are not.
func (a *unreachableRunners) reasonFor(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[name]; r != nil && r.open {
		return r.reason
	}
	return ""
}

// causeFor is why the last turn of a runner was not taken on, "" if it was.
func (a *unreachableRunners) causeFor(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.known[name]; r != nil && r.refused {
		return r.cause
	}
	return ""
}

// stateOf says how a runner fares. If it takes on no turns, it says since when, and why.
func (a *unreachableRunners) stateOf(name string) (state string, since time.Time, cause string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	switch {
	case r == nil:
		return RunnerUnknown, time.Time{}, ""
	case !r.refused, r.busy && !r.open: // a runner may be busy now and then
		return cmp.Or(r.turned, RunnerUnknown), time.Time{}, ""
	case r.retrying == 0 && time.Now().After(r.until):
		return RunnerUnknown, time.Time{}, ""
	case r.busy:
		return RunnerBusy, r.since, r.cause
	default:
		return RunnerUnreachable, r.since, r.cause
	}
}

// doubt notes that a runner did not take on a try, or a repair. That is no reason to leave its runs alone.
func (a *unreachableRunners) doubt(name string, err *UnavailableError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.get(name).refuse(err, time.Now())
}

// gone notes that a run was found whose runner is not configured any more. Such runs wait for nothing.
func (a *unreachableRunners) gone(name string) (waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.known[name]
	if r == nil {
		return false
	}
	waited = r.open
	*r = unreachableRunner{reopened: r.reopened, retrying: r.retrying}
	if waited {
		a.resume = append(a.resume, name)
	}
	return waited
}

// reset forgets which runners are unreachable, since there are other runners now. What became of the last turn is kept of those of a name
// that is still configured, unless they did not take on another one since.
func (a *unreachableRunners) reset(config *Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.known {
		turned := r.turned
		if r.refused || config.Runners[name] == nil {
			turned = ""
		}
		*r = unreachableRunner{reopened: r.reopened, retrying: r.retrying, turned: turned}
	}
	a.anew = true
}

// takeResumed returns the runners that came back since the last call, none if all may be others now.
func (a *unreachableRunners) takeResumed() (names []string, any bool) {
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
func (a *unreachableRunners) resumeLater(names []string) {
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
	if unavailable.Failing && claim.Waits+1 >= failingTries {
		return End{}, false
	}
	return End{Requeue: true, WaitingFor: waitingFor(unavailable), Pause: pauseBefore(claim.Waits+1, unavailable.RetryAfter, rand.Float64)},
		true
}

// waitingFor says why a run waits for its runner.
func waitingFor(err *UnavailableError) string {
	if err.Failing {
		return "The agent has trouble with its model. The run is tried again in a moment."
	}
	if err.Busy {
		return "The agent is busy. The run starts as soon as the agent has time for it."
	}
	return "The agent cannot be reached. The run starts as soon as the agent is back."
}
