package runnerstate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Outages knows which runners do not take on turns: they are busy, or cannot be reached. Runs of such a runner are not claimed. Now and
// then one is, as a probe. When the runner takes a turn on, all of its runs can be claimed again. The zero value is ready to use.
type Outages struct {
	mu     sync.Mutex
	known  map[string]*outage // by the name of the runner
	probes uint64             // how many were made
	resume []string           // runners that are back: runs that wait for them need not any more
	anew   bool               // all runners may be others now
}

const (
	// failuresToOpen is how many turns in a row a runner must not take on before its runs are left alone.
	failuresToOpen = 5
	firstWait      = time.Second
	longestWait    = 30 * time.Second
	// refusalCounts is for how long a refused turn tells the state of its runner if no other turn is tried, counted from when the next
	// one is due. A node that gets no requests because of the refusal would otherwise never find out that the runner is back.
	refusalCounts = 5 * time.Second
	// logEvery is how often the log says at most that a runner cannot be reached.
	logEvery = time.Minute
)

// LongestRetryAfter caps a runner's Retry-After.
const LongestRetryAfter = time.Hour

// Refusal is why a runner did not take on a turn.
type Refusal struct {
	Busy       bool          // it answers, and has no time
	RetryAfter time.Duration // as long as it asked for, 0 when it did not say
	Reason     string        // for callers
	Cause      string        // for operators
}

// outage is how a runner took on the last turns.
type outage struct {
	failures int
	since    time.Time     // of the first refusal
	open     bool          // its runs are left alone …
	opened   time.Time     // … since then …
	pauses   int           // … with so many pauses so far …
	retryAt  time.Time     // … and the end of this one
	probing  uint64        // the probe that is under way, counted from 1 …
	claimed  uint64        // … and the last one that a run was claimed for
	reopened chan struct{} // closed when a pause begins
	reason   string        // for callers
	busy     bool          // as the last refusal has it: it answers, and has no time
	cause    string        // of the last refusal, for operators

	refused  bool      // it did not take on the last turn, of a run or of a try …
	until    time.Time // … which counts until then …
	retrying int       // … and while turns are under way that began since
	turned   string    // what became of the last turn that it took on: OK, Failing, or "" if there was none

	logged   bool      // the log says that it cannot be reached, since it took on the last turn …
	loggedAt time.Time // … and said so then, or before
}

// get returns what is known about a runner. It is called under the lock.
func (o *Outages) get(name string) *outage {
	r := o.known[name]
	if r == nil {
		if o.known == nil {
			o.known = make(map[string]*outage)
		}
		r = &outage{reopened: make(chan struct{})}
		o.known[name] = r
	}
	return r
}

// Failed notes a turn that a runner did not take on. began is when the turn was tried. It reports whether the runner's runs
// are left alone from now on, and were not before, and whether it is news that the runner cannot be reached.
func (o *Outages) Failed(name string, refusal *Refusal, began time.Time) (opened, news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	r := o.get(name)
	r.refuse(refusal, now)
	if news = !refusal.Busy && !r.logged && now.Sub(r.loggedAt) >= logEvery; news {
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
	r.retryAt = now.Add(PauseBefore(r.pauses, refusal.RetryAfter))
	r.countUntil(r.retryAt)
	close(r.reopened)
	r.reopened = make(chan struct{})
	return opened, news
}

// TakenOn notes that a runner took on a turn. It reports whether the runner's runs were left alone before, and for how long
// it was unreachable.
func (o *Outages) TakenOn(name string) (unreachable time.Duration, back bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.get(name)
	unreachable, back = time.Since(r.since), r.open
	*r = outage{reopened: r.reopened, retrying: r.retrying, turned: r.turned, loggedAt: r.loggedAt}
	if back {
		o.resume = append(o.resume, name)
	}
	return unreachable, back
}

// Probe is a run that is to find out whether a runner is back.
type Probe struct {
	Runner string
	number uint64
}

// Probe lets a runner be probed whose pause is over, and reports false if it is not, or if a probe is under way. A runner
// that is not unreachable needs no probe.
func (o *Outages) Probe(name string) (p Probe, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.known[name]
	if r == nil || !r.open || r.probing != 0 || time.Now().Before(r.retryAt) {
		return Probe{}, false
	}
	o.probes++
	r.probing = o.probes
	return Probe{name, o.probes}, true
}

// Claimed notes that a run was claimed for a probe.
func (o *Outages) Claimed(p Probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.get(p.Runner).claimed = p.number
}

// Unprobe takes back a probe that told nothing.
func (o *Outages) Unprobe(p Probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.known[p.Runner]; r != nil && r.probing == p.number {
		r.probing = 0
	}
}

// Open are the runners whose runs are left alone.
func (o *Outages) Open() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, r := range o.known {
		if r.open {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Wait is how long until a runner can be probed, negative if none is to be.
func (o *Outages) Wait() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := time.Duration(-1)
	for _, r := range o.known {
		// One whose pause is over is probed when there is a run to do so.
		if rest := time.Until(r.retryAt); r.open && r.probing == 0 && rest > 0 && (wait < 0 || rest < wait) {
			wait = rest
		}
	}
	return wait
}

// Refuses reports whether a caller need not wait for a runner, and how long it is left alone. If the runner can be waited
// for, reopened is closed when that changes. A probe counts once a run was claimed for it: the caller's may become that run.
func (o *Outages) Refuses(name string) (reopened <-chan struct{}, rest time.Duration, refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.get(name)
	if rest := time.Until(r.retryAt); r.open && (r.probing != 0 && r.probing == r.claimed || rest > 0) {
		return nil, max(rest, time.Second), true
	}
	return r.reopened, 0, false
}

// refuse notes that a turn was not taken on.
func (r *outage) refuse(refusal *Refusal, now time.Time) {
	if !r.refused {
		r.refused, r.since = true, now
	}
	r.reason, r.busy, r.cause = refusal.Reason, refusal.Busy, refusal.Cause
	r.countUntil(now)
}

// countUntil has a refusal tell the state of the runner until refusalCounts after the next turn is due.
func (r *outage) countUntil(due time.Time) {
	if until := due.Add(refusalCounts); until.After(r.until) {
		r.until = until
	}
}

// Waits notes that a turn which the runner did not take on is tried again after a pause.
func (o *Outages) Waits(name string, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.known[name]; r != nil && r.refused {
		r.countUntil(time.Now().Add(pause))
	}
}

// TryAgain notes that a turn begins, and reports whether the runner did not take on the last one. If so, over must be called when the
// turn has ended.
func (o *Outages) TryAgain(name string) (over func(), refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.known[name]
	if r == nil || !r.refused {
		return nil, false
	}
	r.retrying++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		r.retrying--
		r.countUntil(time.Now()) // until it is noted how the turn ended
	}, true
}

// Ended notes what became of a turn that a runner took on: OK or Failing.
func (o *Outages) Ended(name, turned string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.get(name).turned = turned
}

// Reason is why runs of a runner are left alone, "" if they are not.
func (o *Outages) Reason(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.known[name]; r != nil && r.open {
		return r.reason
	}
	return ""
}

// Cause is why the last turn of a runner was not taken on, "" if it was.
func (o *Outages) Cause(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.known[name]; r != nil && r.refused {
		return r.cause
	}
	return ""
}

// State says how a runner fares. If it takes on no turns, it says since when, and why.
func (o *Outages) State(name string) (state string, since time.Time, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.known[name]
	switch {
	case r == nil:
		return Unknown, time.Time{}, ""
	case !r.refused, r.busy && !r.open: // a runner may be busy now and then
		return cmp.Or(r.turned, Unknown), time.Time{}, ""
	case r.retrying == 0 && time.Now().After(r.until):
		return Unknown, time.Time{}, ""
	case r.busy:
		return Busy, r.since, r.cause
	default:
		return Unreachable, r.since, r.cause
	}
}

// Doubt notes that a runner did not take on a try, or a repair. That is no reason to leave its runs alone.
func (o *Outages) Doubt(name string, refusal *Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.get(name).refuse(refusal, time.Now())
}

// Gone notes that a run was found whose runner is not configured any more. Such runs wait for nothing.
func (o *Outages) Gone(name string) (waited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.known[name]
	if r == nil {
		return false
	}
	waited = r.open
	*r = outage{reopened: r.reopened, retrying: r.retrying}
	if waited {
		o.resume = append(o.resume, name)
	}
	return waited
}

// Reset forgets which runners are unreachable, since there are other runners now. What became of the last turn is kept of those of a name
// that is still configured, unless they did not take on another one since.
func (o *Outages) Reset(isConfigured func(name string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, r := range o.known {
		turned := r.turned
		if r.refused || !isConfigured(name) {
			turned = ""
		}
		*r = outage{reopened: r.reopened, retrying: r.retrying, turned: turned}
	}
	o.anew = true
}

// TakeResumed returns the runners that came back since the last call, none if all may be others now.
func (o *Outages) TakeResumed() (names []string, any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	names, any = o.resume, o.anew || len(o.resume) > 0
	if o.anew {
		names = nil
	}
	o.resume, o.anew = nil, false
	return names, any
}

// ResumeLater puts back what TakeResumed returned.
func (o *Outages) ResumeLater(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resume = append(o.resume, names...)
	o.anew = o.anew || len(names) == 0
}

// PauseBefore is how long to wait for a runner after it did not take on a number of turns in a row.
func PauseBefore(failures int, retryAfter time.Duration) time.Duration {
	pause := longestWait
	if failures < 6 {
		pause = min(firstWait<<max(failures-1, 0), longestWait)
	}
	// Runs that failed together need not come back together.
	pause -= time.Duration(rand.Float64() * float64(pause) / 4) //nolint:gosec // nobody gains by guessing it
	return max(pause, min(retryAfter, LongestRetryAfter))
}
