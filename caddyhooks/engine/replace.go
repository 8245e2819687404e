package engine

import (
	"errors"

	"go.uber.org/zap"
)

// replaceOlder cancels the unfinished runs whose place a run takes. If the process dies before, those that wait are found when they start.
func (n *runEnds) replaceOlder(run *Run) {
	for last := ""; ; {
		older, _ := n.beside(run)
		for _, id := range older { // from the last one on, so that none starts meanwhile
			if other := n.otherOfChat(run, id); other != nil {
				_ = n.cancel(other, cancelledOutcome("", byNewer+run.ID)) // a store that fails is in the log
			}
		}
		if len(older) < maxBeside || older[0] == last { // the store fails
			return
		}
		last = older[0]
	}
}

// replacedOutcome is the end of a run whose place a newer one takes that is unfinished, if there is one.
func (n *runEnds) replacedOutcome(run *Run) (outcome Outcome, replaced bool) {
	_, newer := n.beside(run)
	for _, id := range newer {
		if other := n.otherOfChat(run, id); other != nil && other.Replaces {
			return cancelledOutcome("", byNewer+id), true
		}
	}
	return Outcome{}, false
}

// maxBeside is how many runs of a chat are listed at once. It is more than one turn has, which may be under way after it was cancelled.
const maxBeside = 2000

// beside are the ids of unfinished runs of the hook and the chat of a run, and nothing else of them: they may be large.
func (n *runEnds) beside(run *Run) (older, newer []string) {
	ctx, stop := n.store.context()
	defer stop()
	older, newer, err := n.store.Runs().Beside(ctx, run, maxBeside)
	if err != nil {
		n.store.failed("looking for runs to replace failed", err, zap.String("run_id", run.ID))
	}
	return older, newer
}

// otherOfChat is a run as a whole, nil if it is of another chat or forgotten.
func (n *runEnds) otherOfChat(run *Run, id string) *Run {
	ctx, stop := n.store.context()
	defer stop()
	record, err := n.store.Runs().Get(ctx, id)
	if err == nil && record.Run.ChatID == run.ChatID {
		return record.Run
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		n.store.failed("looking for runs to replace failed", err, zap.String("run_id", run.ID))
	}
	return nil
}
