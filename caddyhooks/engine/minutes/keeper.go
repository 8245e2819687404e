package minutes

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Keeper counts what a node does.
type Keeper struct {
	counts
	node Node

	rests atomic.Bool   // the queue is not looked at, for it is empty, until a run is accepted …
	woken chan struct{} // … which says so

	mu      sync.Mutex
	before  Minute    // the counts when the minute under way began …
	began   time.Time // … which was then
	part    uint64    // of the minute under way; it differs from those of other nodes
	queue   queueSeen // in the minute under way
	shared  Minute    // the minute under way, as the other nodes know it
	unsaved []Minute  // that the store did not take
	kept    []Minute  // of all nodes, as the store has them, for as long as keptInMemory; nil until somebody asks
	loaded  time.Time // when the last ones of kept were
}

// Node is what a keeper uses of the node that it counts for.
type Node struct {
	Store    Store
	IsShared bool // other nodes work on the store, too
	Backlog  func(context.Context) (queued int, oldest time.Duration, err error)

	// Context is for a call of the store that nobody waits for.
	Context func() (context.Context, context.CancelFunc)
	// Failed logs that the store failed. With "" it logs only that the store is broken.
	Failed func(message string, err error)
	// Protect calls a function, and logs its panic.
	Protect func(what string, do func())

	Stopping <-chan struct{} // closed when the node stops
}

// NewKeeper makes a keeper whose first minute begins now.
func NewKeeper(node Node) *Keeper {
	return &Keeper{
		node: node, woken: make(chan struct{}, 1), began: time.Now().Truncate(time.Minute),
		part: rand.Uint64N(1 << 62), //nolint:gosec // it need not be secret
	}
}

const (
	// keptInMemory is of how many minutes the store need not be asked.
	keptInMemory = 48 * time.Hour
	// maxUnsaved bounds the minutes that wait for a store that fails.
	maxUnsaved = 60
	// shareEvery is the time between two saves of the minute under way, for other nodes, and between two looks at a shared queue.
	shareEvery = 2 * time.Second
	// lookEvery is the time between two looks at the queue of a store that is no other node's.
	lookEvery = 250 * time.Millisecond
	// sharedFor is how long minutes of other nodes are good that were loaded.
	sharedFor = time.Second
)

// Keep saves each minute when it is over, until the node stops.
func (k *Keeper) Keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	every, what := lookEvery, "looking at the queue"
	if k.node.IsShared {
		every, what = shareEvery, "sharing a minute"
	}
	look := time.NewTicker(every) // while there is a queue, and once a minute
	defer look.Stop()
	for {
		now := time.Now()
		next := now.Truncate(time.Minute).Add(time.Minute)
		timer.Reset(next.Sub(now))
		look.Reset(every)
		for isOver := false; !isOver; {
			select {
			case <-k.node.Stopping:
				return
			case <-k.woken:
				look.Reset(every)
			case <-look.C:
				k.protect(what, func(ctx context.Context) {
					if k.look(ctx) {
						look.Stop()
					}
					if k.node.IsShared {
						k.share(ctx)
					}
				})
			case <-timer.C:
				isOver = true
			}
		}
		if now = time.Now(); now.Sub(next).Abs() > time.Second { // the machine slept, or its clock was set
			next = now.Truncate(time.Minute)
		}
		k.protect("saving a minute", func(ctx context.Context) { k.endMinute(ctx, next) })
	}
}

// RunAccepted counts a run of a hook.
func (k *Keeper) RunAccepted(hook string, at time.Time) {
	k.counts.RunAccepted(hook, at)
	if k.rests.Load() && k.rests.CompareAndSwap(true, false) {
		select {
		case k.woken <- struct{}{}:
		default:
		}
	}
}

// protect does something with the store.
func (k *Keeper) protect(what string, do func(context.Context)) {
	k.node.Protect(what, func() {
		ctx, stop := k.node.Context()
		defer stop()
		do(ctx)
	})
}

// queueSeen is the longest queue of a minute, as far as it was looked at. A queue can grow and be gone within a minute, and a plot
// that shows its length at the end of each minute would not have it.
type queueSeen struct {
	most, last int64
	oldest     time.Duration
	accepted   int64 // in all, when it was looked at last
}

// note has a look at the queue count, in which the lock is held.
func (q *queueSeen) note(queued int, oldest time.Duration) {
	q.last = int64(queued)
	q.most = max(q.most, q.last)
	q.oldest = max(q.oldest, oldest)
}

// look looks at the queue, unless it was empty and nothing was accepted since. It reports whether there is nothing to look at
// before the next run is accepted, which is unknown of a queue that other nodes fill.
func (k *Keeper) look(ctx context.Context) (rests bool) {
	accepted := k.Accepted()
	k.mu.Lock()
	isEmpty := k.queue.last == 0 && k.queue.accepted == accepted
	k.queue.accepted = accepted
	k.mu.Unlock()
	if isEmpty {
		k.rests.Store(!k.node.IsShared)
		return k.rests.Load() && k.Accepted() == accepted
	}
	queued, oldest, err := k.node.Backlog(ctx)
	if err != nil {
		k.node.Failed("", err)
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.note(queued, oldest)
	return false
}

// SaveLast saves the minute under way, for the node stops.
func (k *Keeper) SaveLast(ctx context.Context) { k.endMinute(ctx, time.Now()) }

// share saves the minute under way, so that other nodes have it in their overviews. It is saved again when it is over.
func (k *Keeper) share(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	minute := k.counts.now()
	minute = minute.since(&k.before)
	minute.At, minute.Part, minute.Queued, minute.Oldest = k.began, k.part, k.queue.most, k.queue.oldest
	if minute.IsZero() || reflect.DeepEqual(minute, k.shared) {
		return
	}
	if err := k.node.Store.Save(ctx, minute); err != nil {
		k.node.Failed("", err) // there is another try soon, and the end of the minute is logged
		return
	}
	k.shared = minute
}

// endMinute ends the minute under way, and begins another one.
func (k *Keeper) endMinute(ctx context.Context, next time.Time) {
	queued, oldest, err := k.node.Backlog(ctx)
	if err != nil {
		k.node.Failed("", err) // the counts are worth more than the length of the queue
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.note(queued, oldest)
	counted := k.counts.now()
	minute := counted.since(&k.before)
	minute.At, minute.Part, minute.Queued, minute.Oldest = k.began, k.part, k.queue.most, k.queue.oldest
	k.queue.most, k.queue.oldest = 0, 0
	k.counts.begin(&minute, &counted)
	k.before, k.began, k.shared = counted, next, Minute{}
	k.part++
	if !minute.IsZero() {
		k.unsaved = append(k.unsaved, minute)
	}
	if len(k.unsaved) > 0 {
		if err := k.node.Store.Save(ctx, k.unsaved...); err != nil {
			k.node.Failed("saving the counts of a minute failed", err)
			k.unsaved = slices.Delete(k.unsaved, 0, max(0, len(k.unsaved)-maxUnsaved))
			return
		}
		if k.kept != nil {
			k.kept = byMinute(append(k.kept, k.unsaved...)) // in case that it cannot be loaded
		}
		k.unsaved = nil
	}
	if k.kept != nil && !k.isStopping() {
		k.refresh(ctx, next.Add(-lateMinutes))
	}
}

// lateMinutes is by how much another node may be late in saving a minute.
const lateMinutes = 5 * time.Minute

// refresh loads minutes, of all nodes, in the place of those in memory. The lock is held.
func (k *Keeper) refresh(ctx context.Context, since time.Time) {
	loaded, err := k.load(ctx, since)
	if err != nil {
		k.node.Failed("loading the counts of the last minutes failed", err)
		return
	}
	oldest := time.Now().Add(-keptInMemory)
	k.kept = slices.DeleteFunc(k.kept, func(minute Minute) bool { return !minute.At.Before(since) || minute.At.Before(oldest) })
	k.kept = append(k.kept, loaded...)
}

// load loads minutes of all nodes, without those of this one that are in memory: they have grown since they were shared. The lock is
// held.
func (k *Keeper) load(ctx context.Context, since time.Time) ([]Minute, error) {
	loaded, err := k.node.Store.Load(ctx, since)
	if err != nil {
		return nil, err
	}
	k.loaded = time.Now()
	return byMinute(slices.DeleteFunc(loaded, func(minute Minute) bool {
		return minute.Part == k.part || slices.ContainsFunc(k.unsaved, func(own Minute) bool { return own.Part == minute.Part })
	})), nil
}

func (k *Keeper) isStopping() bool {
	select {
	case <-k.node.Stopping:
		return true
	default:
		return false
	}
}

// Since returns what was counted on all nodes, minute by minute, the oldest first. The last one is not over. Of other nodes it
// lacks what they counted in the last shareEvery and sharedFor. Minutes in which nothing happened are left out. Whoever gets them must not
// change them.
func (k *Keeper) Since(ctx context.Context, since time.Time) ([]Minute, error) {
	queued, oldest, err := k.node.Backlog(ctx)
	if err != nil {
		k.node.Failed("", err)
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept != nil && k.node.IsShared && time.Since(k.loaded) > sharedFor {
		k.refresh(ctx, k.began.Add(-lateMinutes))
	}
	all := k.kept
	if longAgo := time.Now().Add(-keptInMemory); since.Before(longAgo) || k.kept == nil {
		from := since
		if longAgo.Before(from) {
			from = longAgo
		}
		all, err = k.load(ctx, from)
		if err != nil {
			k.node.Failed("", err)
			return nil, err
		}
		if k.kept == nil {
			first, _ := slices.BinarySearchFunc(all, longAgo, func(minute Minute, at time.Time) int { return minute.At.Compare(at) })
			k.kept = append([]Minute{}, all[first:]...)
		}
	}
	first, _ := slices.BinarySearchFunc(all, since, func(minute Minute, at time.Time) int { return minute.At.Compare(at) })
	k.queue.note(queued, oldest)
	current := k.counts.now()
	current = current.since(&k.before)
	current.At, current.Queued, current.Oldest = k.began, k.queue.most, k.queue.oldest
	recent := append(slices.Clone(k.unsaved), current)
	return byMinute(append(slices.Clone(all[first:]), recent...)), nil
}
