package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// watch implements engine.Watch. What this node does itself is notified at once; of what others do it learns by a pulse, once a second, and
// by their word, which makes it look sooner.
type watch struct {
	*store
	claimable, cancelled, due, settingsChanged chan struct{}

	mu       sync.Mutex
	watchers map[string][]*watcher // by run id
	isClosed bool
	begins   *batcher[watcher]

	pulse  pulse
	teller teller
	isLone atomic.Bool // no other node is there, as far as the last pulse knew

	background sync.WaitGroup
	cancel     context.CancelFunc
}

// watcher is somebody who waits for the end of a run.
type watcher struct {
	id    string
	ended chan struct{}
	state watcherState // under the lock of the watch
	early bool         // the run ended while the watcher was new
	found bool         // by the batch: the run had not ended
}

type watcherState int

const (
	isNew   watcherState = iota // whether the run has ended before is not known yet
	waiting                     // it had not
	isOver
)

func newWatch(s *store) *watch {
	w := &watch{
		store:     s,
		claimable: make(chan struct{}, 1), cancelled: make(chan struct{}, 1), due: make(chan struct{}, 1),
		settingsChanged: make(chan struct{}, 1),
		watchers:        make(map[string][]*watcher),
	}
	w.begins = newBatcher(1000, w.findUnfinished)
	w.pulse.init()
	w.teller.init()
	return w
}

// start joins the other nodes, and hears of them from now on.
func (w *watch) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	_ = w.beat(ctx, request{full: true}) // or later: the database may be unreachable
	w.background.Go(func() { w.keepPulse(ctx) })
	w.background.Go(func() { w.keepTelling(ctx) })
	if w.listens {
		w.background.Go(func() { w.keepListening(ctx) })
	}
}

// close leaves the other nodes, and waits for all that goes on in the background.
func (w *watch) close() {
	w.mu.Lock()
	wasClosed := w.isClosed
	w.isClosed = true
	w.mu.Unlock()
	if wasClosed {
		return
	}
	w.cancel()
	w.background.Wait()
	w.streams.close()
	w.leave()
}

func (w *watch) Claimable() <-chan struct{}       { return w.claimable }
func (w *watch) Cancelled() <-chan struct{}       { return w.cancelled }
func (w *watch) Due() <-chan struct{}             { return w.due }
func (w *watch) SettingsChanged() <-chan struct{} { return w.settingsChanged }

// Ended asks the database whether the run is still there, so that an earlier end is not taken for a later one. If it does not answer,
// that are indistinguishable.
func (w *watch) Ended(id string) (ended <-chan struct{}, stop func()) {
	own := &watcher{id: id, ended: make(chan struct{})}
	if _, ok := local.ParseID(id); !ok {
		return own.ended, func() {}
	}
	w.mu.Lock()
	if w.isClosed {
		w.mu.Unlock()
		return own.ended, func() {}
	}
	w.watchers[id] = append(w.watchers[id], own)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	err := w.begins.do(ctx, own)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case own.state != isNew:
	case err == nil && !own.found:
		w.drop(own)
	default:
		own.state = waiting
		if own.early {
			w.end(own)
		}
	}
	return own.ended, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(own)
	}
}

// findUnfinished marks those whose run has not ended.
func (w *watch) findUnfinished(ctx context.Context, calls []*watcher) error {
	ids := make([]string, len(calls))
	for i, call := range calls {
		ids[i] = call.id
	}
	unfinished := make(map[string]bool, len(calls))
	err := w.on(watchCalls).query(ctx, func(rows pgx.Rows) error {
		var id string
		err := rows.Scan(&id)
		unfinished[id] = true
		return err
	}, "SELECT @.unfinished_1($1)", ids)
	for _, call := range calls {
		call.found = unfinished[call.id]
	}
	return err
}

// drop forgets a watcher. It is called under the lock.
func (w *watch) drop(gone *watcher) {
	gone.state = isOver
	all := w.watchers[gone.id]
	for i := range all {
		if all[i] == gone {
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			break
		}
	}
	if len(all) == 0 {
		delete(w.watchers, gone.id)
	} else {
		w.watchers[gone.id] = all
	}
}

// end tells a watcher. It is called under the lock.
func (w *watch) end(own *watcher) {
	w.drop(own)
	close(own.ended)
}

// What this node did itself, told at once.
func (w *watch) tellClaimable()       { signal(w.claimable) }
func (w *watch) tellDue()             { signal(w.due) }
func (w *watch) tellCancelled()       { signal(w.cancelled) }
func (w *watch) tellSettingsChanged() { signal(w.settingsChanged) }

// tellEnded says that runs have ended on this node: to those who wait here, and to other nodes.
func (w *watch) tellEnded(ids ...string) {
	if len(ids) == 0 {
		return
	}
	w.noteEnded(ids)
	w.tellOthersEnded(ids)
}

// noteEnded tells those who wait here.
func (w *watch) noteEnded(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		for _, own := range append([]*watcher(nil), w.watchers[id]...) {
			if own.state == isNew {
				own.early = true
			} else {
				w.end(own)
			}
		}
	}
}

// mostWatched is how many runs a pulse looks at: that takes some 5 µs for each.
const mostWatched = 5_000

// watched are the runs that somebody waits for, all or those of some. If there are very many they are looked at by turns.
func (w *watch) watched(all bool, some []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !all {
		ids := []string{}
		for _, id := range some {
			if len(w.watchers[id]) > 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	ids := make([]string, 0, min(len(w.watchers), mostWatched))
	for id := range w.watchers { // in another order each time
		if len(ids) == mostWatched {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// tellAll leaves every word there is, and looks again: much may have changed while the database was unreachable.
func (w *watch) tellAll() {
	for _, word := range []chan struct{}{w.claimable, w.cancelled, w.due, w.settingsChanged} {
		signal(word)
	}
	w.pulse.ask(request{full: true})
}

// signal leaves word, unless there is some already.
func signal(word chan<- struct{}) {
	select {
	case word <- struct{}{}:
	default:
	}
}

// sleepUnlessDone waits, and reports whether ctx is still not done.
func sleepUnlessDone(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Interface guard
var _ engine.Watch = (*watch)(nil)

// leaveTime is how long a node that is closed tries to tell the others.
const leaveTime = 2 * time.Second

// leave takes this node out, so that the others need not wait until it seems to be gone.
func (w *watch) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := w.on(watchCalls).exec(ctx, "SELECT @.leave_1($1)", w.node); err == nil && !w.isLone.Load() {
		_ = w.tell(ctx, word{kinds: "n"})
	}
}
