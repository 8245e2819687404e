package engine

import (
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/fold"
)

// FoldMessage is the message of a turn for some runs: see fold.Join. If only the newest counts, it is that of the last one.
func FoldMessage(runs []*Run) string {
	if last := runs[len(runs)-1]; last.Fold.Latest {
		return last.Message
	}
	messages := make([]fold.Message, len(runs))
	for i, run := range runs {
		messages[i] = fold.Message{RunID: run.ID, AcceptedAt: run.AcceptedAt, Text: run.Message}
	}
	return fold.Join(messages)
}

// foldedMessage is the message of a past turn, as far as it is kept; "" if it was that of the last run, which is not kept.
func (r *Record) foldedMessage() string {
	runs := []*Run{r.Run}
	for _, run := range r.Followers {
		if run.Message != "" || run.Fold.Latest {
			runs = append(runs, run)
		}
	}
	return FoldMessage(runs)
}

// MaxFoldMessage is how many bytes the messages of the runs of a fold have together. Runs beyond it wait for the next turn. The
// first run is carried out whatever its size.
const MaxFoldMessage = 1 << 20

// runs are all that the claim is for, in their order.
func (c *Claim) runs() []*Run { return slices.Collect(c.eachRun) }

// eachRun goes over all runs that the claim is for, in their order.
func (c *Claim) eachRun(yield func(*Run) bool) {
	if !yield(c.Run) {
		return
	}
	for _, run := range c.Folded {
		if !yield(run) {
			return
		}
	}
}

// forTurn is what a runner is told about the runs of a fold, nil of a single run.
func (c *Claim) forTurn() []FoldedRun {
	if len(c.Folded) == 0 {
		return nil
	}
	folded := make([]FoldedRun, 0, 1+len(c.Folded))
	for run := range c.eachRun {
		folded = append(folded, FoldedRun{RunID: run.ID, AcceptedAt: run.AcceptedAt})
	}
	return folded
}

// waitedOf is how long ago a run of the claim was accepted when it was claimed.
func (c *Claim) waitedOf(run *Run) time.Duration {
	return max(c.Waited-run.AcceptedAt.Sub(c.Run.AcceptedAt), 0)
}

// overdueOf reports whether nobody took a run of the claim on within its queue time.
func (c *Claim) overdueOf(run *Run) bool {
	one := *c
	one.Run, one.Waited = run, c.waitedOf(run)
	return one.overdue()
}

// expireFolded ends those runs of a fold that waited too long, each alone, and puts the others back. It reports whether there were
// any.
func (p *workerPool) expireFolded(claim *Claim) (found bool) {
	if len(claim.Folded) == 0 {
		return false
	}
	overdue := slices.DeleteFunc(claim.runs(), func(run *Run) bool { return !claim.overdueOf(run) })
	if len(overdue) == 0 {
		return false
	}
	p.ends.putBack(claim, End{Requeue: true})
	for _, run := range overdue {
		_ = p.ends.withdraw(run, p.runners.expired(run)) // a store that fails is in the log; the run will be found again
	}
	return true
}

// deliveriesOfAll lists what has to be sent out now that the runs of a turn ended with the same outcome. A callback or a chat that
// several of them name is told once, by a delivery of the first one that names it.
func (c *Config) deliveriesOfAll(runs []*Run, outcome Outcome) (all []*Delivery) {
	if len(runs) == 1 {
		return c.deliveriesOf(runs[0], outcome)
	}
	type receiver struct{ callback, channel, to string }
	sent := make(map[receiver]bool)
	for _, run := range runs {
		index := 0
		for _, d := range c.deliveriesOf(run, outcome) {
			to := receiver{d.Callback, d.Channel, d.To}
			if sent[to] {
				continue
			}
			sent[to] = true
			d.Index, d.ID = index, DeliveryID(run.ID, index)
			index++
			all = append(all, d)
		}
	}
	return all
}
