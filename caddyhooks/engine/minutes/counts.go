package minutes

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxCountedHooks bounds the hooks that have counts of their own.
	maxCountedHooks = 64
	// idleMinutes is how long a hook without runs keeps its counts when others need the space.
	idleMinutes = 60
)

// counts only grow: a minute is what they grew by, so nothing is lost between two minutes, and whoever counts takes no lock.
type counts struct {
	sums      [sumCount]atomic.Int64
	durations [len(Durations{})]atomic.Int64
	longest   longest

	hooks     sync.Map // of *hookCounts, by name
	hookCount atomic.Int32
	others    hookCounts
}

type hookCounts struct {
	accepted, ended, failed, last atomic.Int64
	durations                     [len(HookDurations{})]atomic.Int64
	longest                       longest
	idle                          int // for how many minutes; under the lock of the minutes
}

// longest is the longest duration of the minute under way.
type longest struct{ atomic.Int64 }

func (l *longest) note(took time.Duration) {
	for {
		before := l.Load()
		if int64(took) <= before || l.CompareAndSwap(before, int64(took)) {
			return
		}
	}
}

// ofHook finds the counts of a hook.
func (c *counts) ofHook(name string) *hookCounts {
	if known, ok := c.hooks.Load(name); ok {
		return known.(*hookCounts)
	}
	if name == "" || c.hookCount.Load() >= maxCountedHooks {
		return &c.others
	}
	known, loaded := c.hooks.LoadOrStore(name, new(hookCounts))
	if !loaded {
		c.hookCount.Add(1)
	}
	return known.(*hookCounts)
}

// RunAccepted counts a run of a hook.
func (c *counts) RunAccepted(hook string, at time.Time) {
	c.sums[sumAccepted].Add(1)
	h := c.ofHook(hook)
	h.accepted.Add(1)
	h.last.Store(at.Unix())
}

// sumOfStatus is where runs are counted that ended with a status.
var sumOfStatus = map[string]int{
	"completed": sumCompleted, "failed": sumFailed, "timed_out": sumTimedOut, "cancelled": sumCancelled, "expired": sumExpired,
}

// RunEnded counts a run that has ended. took is 0 if it was not started.
func (c *counts) RunEnded(hook, status string, took time.Duration) {
	h := c.ofHook(hook)
	h.ended.Add(1)
	sum, known := sumOfStatus[status]
	if known {
		c.sums[sum].Add(1)
	}
	if sum == sumFailed || sum == sumTimedOut || sum == sumExpired {
		h.failed.Add(1)
	}
	if took > 0 {
		bucket := bucketOf(took)
		c.durations[bucket].Add(1)
		h.durations[bucket/2].Add(1)
		c.longest.note(took)
		h.longest.note(took)
	}
}

// Delivered counts a delivery that has arrived.
func (c *counts) Delivered() { c.sums[sumDelivered].Add(1) }

// Dead counts a delivery that was given up.
func (c *counts) Dead() { c.sums[sumDead].Add(1) }

// Answered counts a request that was answered with an HTTP status.
func (c *counts) Answered(status int) {
	switch status / 100 {
	case 2:
		c.sums[sumAnswered2xx].Add(1)
	case 4:
		c.sums[sumAnswered4xx].Add(1)
	case 5:
		c.sums[sumAnswered5xx].Add(1)
	}
}

// Ignored counts a request that a hook leaves out. Answered counts it too.
func (c *counts) Ignored() { c.sums[sumIgnored].Add(1) }

// Challenge counts a request with which a sender tried out whether a hook is there. Answered counts it too.
func (c *counts) Challenge() { c.sums[sumChallenges].Add(1) }

// Accepted is how many runs were accepted in all.
func (c *counts) Accepted() int64 { return c.sums[sumAccepted].Load() }

// now is what was counted so far.
func (c *counts) now() Minute {
	m := Minute{Longest: time.Duration(c.longest.Load()), Hooks: make(map[string]HookMinute)}
	for i, sum := range m.sums() {
		*sum = c.sums[i].Load()
	}
	for i := range c.durations {
		m.Durations[i] = c.durations[i].Load()
	}
	c.eachHook(func(name string, hook *hookCounts) {
		sum := HookMinute{Accepted: hook.accepted.Load(), Ended: hook.ended.Load(), Failed: hook.failed.Load(),
			Longest: time.Duration(hook.longest.Load())}
		if last := hook.last.Load(); last > 0 {
			sum.Last = time.Unix(last, 0)
		}
		for i := range hook.durations {
			sum.Durations[i] = hook.durations[i].Load()
		}
		m.Hooks[name] = sum
	})
	return m
}

func (c *counts) eachHook(do func(name string, hook *hookCounts)) {
	c.hooks.Range(func(name, hook any) bool {
		do(name.(string), hook.(*hookCounts))
		return true
	})
	do("", &c.others)
}

// since is how much the counts grew.
func (m Minute) since(before *Minute) Minute {
	for i, sum := range before.sums() {
		*m.sums()[i] -= *sum
	}
	for i := range m.Durations {
		m.Durations[i] -= before.Durations[i]
	}
	grown := make(map[string]HookMinute)
	for name, hook := range m.Hooks {
		was := before.Hooks[name]
		if was.Last.Equal(hook.Last) {
			hook.Last = time.Time{}
		}
		hook.Accepted -= was.Accepted
		hook.Ended -= was.Ended
		hook.Failed -= was.Failed
		for i := range hook.Durations {
			hook.Durations[i] -= was.Durations[i]
		}
		if hook != (HookMinute{}) {
			grown[name] = hook
		}
	}
	m.Hooks = grown
	return m
}

// begin begins a minute after another one, at the end of which so much was counted. Hooks that were idle for long make room
// for others.
func (c *counts) begin(minute, counted *Minute) {
	c.longest.Store(0)
	c.eachHook(func(name string, hook *hookCounts) {
		hook.longest.Store(0)
		hook.idle++
		if _, active := minute.Hooks[name]; active {
			hook.idle = 0
		}
		if name != "" && hook.idle > idleMinutes && c.hookCount.Load() >= maxCountedHooks {
			c.hooks.Delete(name)
			c.hookCount.Add(-1)
			delete(counted.Hooks, name) // it begins anew if there are runs again
		}
	})
}
