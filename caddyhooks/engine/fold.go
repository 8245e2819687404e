package engine

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FoldMessage is the message of a turn for several runs: the messages of all, in order, each after a line with its number and
// time. Outside text stays marked as it is in each of them. A single run has its own message.
//
// The lines carry an id that depends on the ids of all runs. Those are random, and made after the messages were sent: nobody can
// send a text that passes for such a line. The same runs have the same id, so a turn that is repeated has the same message.
func FoldMessage(runs []*Run) string {
	if len(runs) == 1 {
		return runs[0].Message
	}
	ids := sha256.New()
	size := 0
	for _, run := range runs {
		ids.Write([]byte(run.ID))
		size += len(run.Message) + foldLineSize
	}
	id := fmt.Sprintf("%x", ids.Sum(nil)[:4])
	var message strings.Builder
	message.Grow(size + foldLineSize)
	fmt.Fprintf(&message, "%d messages came one after the other. Each one begins after a line that ends with id=%s].\n", len(runs), id)
	for i, run := range runs {
		message.WriteString("\n[" + strconv.Itoa(i+1) + " of " + strconv.Itoa(len(runs)) +
			", accepted " + run.AcceptedAt.UTC().Format(time.RFC3339) + ", id=" + id + "]\n")
		message.WriteString(run.Message)
		if i+1 < len(runs) {
			message.WriteByte('\n')
		}
	}
	return message.String()
}

// foldedMessage is the message of a past turn, as far as it is kept.
func (r *Record) foldedMessage() string {
	runs := []*Run{r.Run}
	for _, run := range r.Followers {
		if run.Message != "" {
			runs = append(runs, run)
		}
	}
	return FoldMessage(runs)
}

// foldLineSize is about how many bytes there are beside each message.
const foldLineSize = 80

// MaxFoldMessage is how many bytes the messages of the runs of a fold have together. Runs beyond it wait for the next turn. The
// first run is carried out whatever its size.
const MaxFoldMessage = 1 << 20

// runs are all that the claim is for, in their order.
func (c *Claim) runs() []*Run {
	if len(c.Folded) == 0 {
		return []*Run{c.Run}
	}
	return append([]*Run{c.Run}, c.Folded...)
}

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
