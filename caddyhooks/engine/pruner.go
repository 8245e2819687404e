package engine

import (
	"sync/atomic"
	"time"
)

// pruner forgets runs that have been kept long enough.
type pruner struct {
	*node
	now   chan struct{} // before its time
	added atomic.Int64  // about how many bytes were added to the history since pruning was last asked for
}

func newPruner(n *node) *pruner { return &pruner{node: n, now: make(chan struct{}, 1)} }

// soon has it look for what was kept long enough now.
func (p *pruner) soon() { signal(p.now) }

// pruneEvery is how often the engine looks for runs that have been kept long enough.
const pruneEvery = time.Minute

// note has the engine prune before its time when so much was added to the history that it may exceed its limit by far.
func (p *pruner) note(run *Run) {
	limit := p.config().Limits.HistoryBytes
	if run.History <= 0 || limit <= 0 {
		return
	}
	input := run.Input()
	if p.added.Add(int64(input.Size())) > max(limit/16, 1<<20) {
		p.added.Store(0)
		p.soon()
	}
}

// loop forgets old runs and keys, in steps that are small and leave the store to others most of the time.
func (p *pruner) loop() {
	timer := time.NewTimer(pruneEvery)
	defer timer.Stop()
	for {
		select {
		case <-p.stopping:
			return
		case <-timer.C:
		case <-p.now:
		}
		pause := pruneEvery
		p.protect("pruning", func() {
			start := time.Now()
			more, err := p.store.Prune(p.base, p.config().pruneLimits())
			if err != nil {
				p.store.failed("pruning failed", err)
			} else if more {
				pause = max(4*time.Since(start), 5*time.Millisecond)
			}
		})
		timer.Reset(pause)
	}
}
