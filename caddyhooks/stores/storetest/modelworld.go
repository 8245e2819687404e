package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// world is a store, and what a caller of it knows. That of a store and that of a model are the same but for ids, tokens and the time.
type world struct {
	t       *testing.T
	s       engine.Store        // the node that does the next operation …
	nodes   []engine.Store      // … of all that are open
	join    func() engine.Store // nil if there is one node alone
	reopen  func() engine.Store // nil if nothing outlives the process
	advance func(time.Duration)
	exact   bool            // the store does all in the very order of the model
	ordered bool            // … also runs of different chats
	began   time.Time       // when the first run was accepted
	runs    []*engine.Run   // in their order
	names   []string        // pairs of an id and a name, for a strings.Replacer
	ends    []*engine.Claim // that were ended or put back
	claims  []*engine.Claim
	asked   []*engine.Run // that were to be put aside, as often as they were
	held    []*engine.Delivery
	settled []*engine.Delivery
	watched []watchedRun
	saved   int64 // the revision of the settings
	steps   int
	queued  int    // how many runs are queued …
	waits   int    // … and wait for their runner
	often   uint64 // as comparison has it
	model   *world // of a store that need not do as the model at once

	throttled bool
}

type watchedRun struct {
	id    string
	ended <-chan struct{}
}

func newWorld(c *comparison, first engine.Store, advance func(time.Duration)) *world {
	w := &world{t: c.t, advance: advance, often: c.often, exact: c.options.IDsAscend, ordered: c.options.IDsAscend}
	w.open(first)
	return w
}

func (w *world) open(node engine.Store) {
	w.nodes = append(w.nodes, node)
	w.names = append(w.names, node.Node(), fmt.Sprint("node ", len(w.names)))
}

// leave closes all nodes but the first.
func (w *world) leave() {
	for len(w.nodes) > 1 {
		last := len(w.nodes) - 1
		_ = w.nodes[last].Close()
		w.nodes = w.nodes[:last]
	}
	w.watched, w.s = nil, w.nodes[0]
}

// openAgain has the process end and start again. What is claimed is ended before: when it can be claimed again depends on the store.
func (w *world) openAgain() any {
	all := w.endAll()
	w.leave()
	w.nodes[0] = w.reopen()
	w.names = append(w.names, w.nodes[0].Node(), fmt.Sprint("node ", len(w.names)))
	w.s = w.nodes[0]
	_, _ = w.s.Runs().Backlog(w.t.Context()) // as in note
	w.ordered, w.ends = false, nil           // neither which chat comes first is kept, nor whether an End that put a run back is repeated
	return all
}

func (w *world) close() {
	w.leave()
	_ = w.nodes[0].Close()
}

// misses returns a run whose end only one of two worlds heard of.
func (w *world) misses(model *world) string {
	isClosed := func(ended <-chan struct{}) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	for i, want := range model.watched {
		if isClosed(want.ended) {
			hear(w.t, w.watched[i].ended, "the end of "+want.id)
		} else if isClosed(w.watched[i].ended) {
			return want.id
		}
	}
	return ""
}

// note does something, and has the store notice which waits and windows are over. Otherwise it may notice later, and another chat comes first.
func (w *world) note(do func(w *world) any) any {
	w.steps++
	w.s = w.nodes[w.steps%len(w.nodes)]
	_, _ = w.s.Runs().Backlog(w.t.Context())
	result := do(w)
	backlog, err := w.s.Runs().Backlog(w.t.Context())
	for began := time.Now(); w.model != nil && backlog.Queued < w.model.queued && time.Since(began) < patience/5; time.Sleep(10 * time.Millisecond) {
		_, _, _ = w.s.Runs().Claim(w.t.Context(), engine.Batch{}) // a store may take a while to notice that a lease is over
		backlog, err = w.s.Runs().Backlog(w.t.Context())
	}
	w.queued = backlog.Queued
	return []any{result, backlog, err}
}

// compare tells which of two runs was added first.
func (w *world) compare(a, b string) int {
	place := func(id string) int {
		return slices.IndexFunc(w.runs, func(run *engine.Run) bool { return run.ID == id })
	}
	return place(a) - place(b)
}
