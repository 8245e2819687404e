package engine

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// minutes counts what an engine does. The counts only grow: a minute is what they grew by, so nothing is lost between two
// minutes, and whoever counts takes no lock.
type minutes struct {
	counts counts

	mu      sync.Mutex
	before  Minute    // the counts when the minute under way began …
	began   time.Time // … which was then
	part    uint64    // of the minute under way; it differs from those of other nodes
	shared  Minute    // the minute under way, as the other nodes know it
	unsaved []Minute  // that the store did not take
	kept    []Minute  // of all nodes, as the store has them, for as long as keptInMemory; nil until somebody asks
	loaded  time.Time // when the last ones of kept were
}

const (
	// keptInMemory is of how many minutes the store need not be asked.
	keptInMemory = 48 * time.Hour
	// maxUnsaved bounds the minutes that wait for a store that fails.
	maxUnsaved = 60
	// maxCountedHooks bounds the hooks that have counts of their own.
	maxCountedHooks = 64
	// shareEvery is the time between two saves of the minute under way, for other nodes.
	shareEvery = 2 * time.Second
	// sharedFor is how long minutes of other nodes are good that were loaded.
	sharedFor = time.Second
	// idleMinutes is how long a hook without runs keeps its counts when others need the room.
	idleMinutes = 60
)

type counts struct {
	accepted, completed, failed, timedOut, cancelled, expired atomic.Int64
	answered                                                  [6]atomic.Int64 // by the first digit of the status
	ignored, challenges                                       atomic.Int64
	delivered, dead                                           atomic.Int64
	durations                                                 [len(Durations{})]atomic.Int64
	longest                                                   longest

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

func (m *minutes) accepted(run *Run) {
	m.counts.accepted.Add(1)
	hook := m.counts.ofHook(run.Hook)
	hook.accepted.Add(1)
	hook.last.Store(run.AcceptedAt.Unix())
}

// ended counts a run that has ended. took is 0 if it was not started.
func (m *minutes) ended(run *Run, status Status, took time.Duration) {
	hook := m.counts.ofHook(run.Hook)
	hook.ended.Add(1)
	switch status {
	case Completed:
		m.counts.completed.Add(1)
	case Failed:
		m.counts.failed.Add(1)
	case TimedOut:
		m.counts.timedOut.Add(1)
	case Cancelled:
		m.counts.cancelled.Add(1)
	case Expired:
		m.counts.expired.Add(1)
	}
	if status == Failed || status == TimedOut || status == Expired {
		hook.failed.Add(1)
	}
	if took > 0 {
		bucket := bucketOf(took)
		m.counts.durations[bucket].Add(1)
		hook.durations[bucket/2].Add(1)
		m.counts.longest.note(took)
		hook.longest.note(took)
	}
}

// settled counts a delivery that has arrived or was given up.
func (m *minutes) settled(status DeliveryStatus) {
	switch status {
	case Delivered:
		m.counts.delivered.Add(1)
	case Dead:
		m.counts.dead.Add(1)
	}
}

// NoteAnswer counts a request that was answered with an HTTP status. It takes no lock.
func (e *Engine) NoteAnswer(status int) {
	if class := status / 100; class >= 1 && class < len(e.minutes.counts.answered) {
		e.minutes.counts.answered[class].Add(1)
	}
}

// NoteIgnored counts a request that a hook leaves out. NoteAnswer counts it too.
func (e *Engine) NoteIgnored(hook string) {
	e.minutes.counts.ignored.Add(1)
	e.metrics().RequestIgnored(hook)
}

// NoteChallenge counts a request with which a sender tried out whether a hook is there. NoteAnswer counts it too.
func (e *Engine) NoteChallenge(hook string) {
	e.minutes.counts.challenges.Add(1)
	e.metrics().ChallengeAnswered(hook)
}

// now is what was counted so far.
func (c *counts) now() Minute {
	m := Minute{
		Accepted: c.accepted.Load(), Completed: c.completed.Load(), Failed: c.failed.Load(), TimedOut: c.timedOut.Load(),
		Cancelled: c.cancelled.Load(), Expired: c.expired.Load(),
		Answered2xx: c.answered[2].Load(), Answered4xx: c.answered[4].Load(), Answered5xx: c.answered[5].Load(),
		Ignored: c.ignored.Load(), Challenges: c.challenges.Load(),
		Delivered: c.delivered.Load(), Dead: c.dead.Load(),
		Longest: time.Duration(c.longest.Load()), Hooks: make(map[string]HookMinute),
	}
	for i := range c.durations {
		m.Durations[i] = c.durations[i].Load()
	}
	c.eachHook(func(name string, hook *hookCounts) {
		sum := HookMinute{Accepted: hook.accepted.Load(), Ended: hook.ended.Load(), Failed: hook.failed.Load(), Longest: time.Duration(hook.longest.Load())}
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
	m.Accepted -= before.Accepted
	m.Completed -= before.Completed
	m.Failed -= before.Failed
	m.TimedOut -= before.TimedOut
	m.Cancelled -= before.Cancelled
	m.Expired -= before.Expired
	m.Answered2xx -= before.Answered2xx
	m.Answered4xx -= before.Answered4xx
	m.Answered5xx -= before.Answered5xx
	m.Ignored -= before.Ignored
	m.Challenges -= before.Challenges
	m.Delivered -= before.Delivered
	m.Dead -= before.Dead
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

// keepMinutes saves each minute when it is over.
func (e *Engine) keepMinutes() {
	defer e.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var share <-chan time.Time
	if e.isRemote() {
		ticker := time.NewTicker(shareEvery)
		defer ticker.Stop()
		share = ticker.C
	}
	for {
		now := time.Now()
		next := now.Truncate(time.Minute).Add(time.Minute)
		timer.Reset(next.Sub(now))
		for isOver := false; !isOver; {
			select {
			case <-e.stopping:
				return
			case <-share:
				e.protect("sharing a minute", func() {
					ctx, stop := e.storeContext()
					defer stop()
					e.shareMinute(ctx)
				})
			case <-timer.C:
				isOver = true
			}
		}
		if now = time.Now(); now.Sub(next).Abs() > time.Second { // the machine slept, or its clock was set
			next = now.Truncate(time.Minute)
		}
		e.protect("saving a minute", func() {
			ctx, stop := e.storeContext()
			defer stop()
			e.endMinute(ctx, next)
		})
	}
}

// saveLastMinute saves the minute under way, for the engine stops.
func (e *Engine) saveLastMinute() {
	select {
	case <-e.broken:
		return
	default:
	}
	ctx, stop := context.WithTimeout(context.Background(), stragglerTimeout/2)
	defer stop()
	e.endMinute(ctx, time.Now())
}

// shareMinute saves the minute under way, so that other nodes have it in their overviews. It is saved again when it is over.
func (e *Engine) shareMinute(ctx context.Context) {
	m := &e.minutes
	m.mu.Lock()
	defer m.mu.Unlock()
	minute := m.counts.now()
	minute = minute.since(&m.before)
	minute.At, minute.Part = m.began, m.part
	if minute.IsZero() || reflect.DeepEqual(minute, m.shared) {
		return
	}
	if err := e.store.Minutes().Save(ctx, minute); err != nil {
		e.noteBroken(err) // there is another try soon, and the end of the minute is logged
		return
	}
	m.shared = minute
}

// endMinute ends the minute under way, and begins another one.
func (e *Engine) endMinute(ctx context.Context, next time.Time) {
	m := &e.minutes
	backlog, err := e.store.Runs().Backlog(ctx)
	if err != nil {
		e.noteBroken(err) // the counts are worth more than the length of the queue
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	counted := m.counts.now()
	minute := counted.since(&m.before)
	minute.At, minute.Queued, minute.Oldest = m.began, int64(backlog.Queued), backlog.Oldest
	minute.Part = m.part
	m.counts.begin(&minute, &counted)
	m.before, m.began, m.shared = counted, next, Minute{}
	m.part++
	if !minute.IsZero() {
		m.unsaved = append(m.unsaved, minute)
	}
	if len(m.unsaved) > 0 {
		if err := e.store.Minutes().Save(ctx, m.unsaved...); err != nil {
			e.storeFailed("saving the counts of a minute failed", err)
			m.unsaved = slices.Delete(m.unsaved, 0, max(0, len(m.unsaved)-maxUnsaved))
			return
		}
		if m.kept != nil {
			m.kept = byMinute(append(m.kept, m.unsaved...)) // in case that it cannot be loaded
		}
		m.unsaved = nil
	}
	if m.kept != nil && !e.isStopping() {
		e.refreshMinutes(ctx, next.Add(-lateMinutes))
	}
}

// lateMinutes is by how much another node may be late in saving a minute.
const lateMinutes = 5 * time.Minute

// refreshMinutes loads minutes, of all nodes, in the place of those in memory. The lock is held.
func (e *Engine) refreshMinutes(ctx context.Context, since time.Time) {
	m := &e.minutes
	loaded, err := e.loadMinutes(ctx, since)
	if err != nil {
		e.storeFailed("loading the counts of the last minutes failed", err)
		return
	}
	oldest := time.Now().Add(-keptInMemory)
	m.kept = slices.DeleteFunc(m.kept, func(minute Minute) bool { return !minute.At.Before(since) || minute.At.Before(oldest) })
	m.kept = append(m.kept, loaded...)
}

// loadMinutes loads minutes of all nodes, without those of this one that are in memory: they have grown since they were shared. The lock is
// held.
func (e *Engine) loadMinutes(ctx context.Context, since time.Time) ([]Minute, error) {
	m := &e.minutes
	loaded, err := e.store.Minutes().Load(ctx, since)
	if err != nil {
		return nil, err
	}
	m.loaded = time.Now()
	return byMinute(slices.DeleteFunc(loaded, func(minute Minute) bool {
		return minute.Part == m.part || slices.ContainsFunc(m.unsaved, func(own Minute) bool { return own.Part == minute.Part })
	})), nil
}

// MinutesSince returns what was counted on all nodes, minute by minute, the oldest first. The last one is not over. Of other nodes it
// lacks what they counted in the last shareEvery and sharedFor. Minutes in which nothing happened are left out. Whoever gets them must not
// change them.
func (e *Engine) MinutesSince(ctx context.Context, since time.Time) ([]Minute, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	backlog, err := e.store.Runs().Backlog(ctx)
	if err != nil {
		e.noteBroken(err)
		return nil, err
	}
	m := &e.minutes
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept != nil && e.isRemote() && time.Since(m.loaded) > sharedFor {
		e.refreshMinutes(ctx, m.began.Add(-lateMinutes))
	}
	all := m.kept
	if longAgo := time.Now().Add(-keptInMemory); since.Before(longAgo) || m.kept == nil {
		from := since
		if longAgo.Before(from) {
			from = longAgo
		}
		all, err = e.loadMinutes(ctx, from)
		if err != nil {
			e.noteBroken(err)
			return nil, err
		}
		if m.kept == nil {
			first, _ := slices.BinarySearchFunc(all, longAgo, func(minute Minute, at time.Time) int { return minute.At.Compare(at) })
			m.kept = append([]Minute{}, all[first:]...)
		}
	}
	first, _ := slices.BinarySearchFunc(all, since, func(minute Minute, at time.Time) int { return minute.At.Compare(at) })
	current := m.counts.now()
	current = current.since(&m.before)
	current.At, current.Queued, current.Oldest = m.began, int64(backlog.Queued), backlog.Oldest
	recent := append(slices.Clone(m.unsaved), current)
	return byMinute(append(slices.Clone(all[first:]), recent...)), nil
}

// Backlog is how much there is to do, on whatever node.
func (e *Engine) Backlog(ctx context.Context) (Backlog, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	backlog, err := e.store.Runs().Backlog(ctx)
	e.noteBroken(err)
	return backlog, err
}

// CountUndelivered is how many deliveries are pending, and how many were given up.
func (e *Engine) CountUndelivered(ctx context.Context) (pending, dead int, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	pending, dead, err = e.store.Deliveries().Count(ctx)
	e.noteBroken(err)
	return pending, dead, err
}

// CountUndeliveredBy is CountUndelivered by channel. Those of "" are callbacks.
func (e *Engine) CountUndeliveredBy(ctx context.Context) (map[string]Undelivered, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	counts, err := e.store.Deliveries().CountByChannel(ctx)
	e.noteBroken(err)
	return counts, err
}

// StoreSize is about how many bytes the store takes.
func (e *Engine) StoreSize(ctx context.Context) (bytes int64, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	bytes, err = e.store.Size(ctx)
	e.noteBroken(err)
	return bytes, err
}

// Accepted is how many runs this engine has accepted since it was made.
func (e *Engine) Accepted() int64 { return e.minutes.counts.accepted.Load() }
