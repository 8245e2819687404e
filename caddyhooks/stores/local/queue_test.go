package local

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// plainRun is a run of a queue, as plainly as can be told.
type plainRun struct {
	id        uuid.UUID
	chat      string
	starts    int
	claimed   bool
	token     string // of the last claim, as long as it can be in force
	expires   time.Time
	cancelled bool

	runner   string
	deadline time.Time // zero: none
	waits    int
	due      time.Time // while it waits
	waiting  bool

	hasAsked bool
	aside    bool      // until due, which is zero if it has to be answered
	known    bool      // it was put aside the last time …
	question int       // … for this question …
	asked    time.Time // … which was asked then
}

// handedOut is whether the run may be handed out, as far as its own state goes.
func (r *plainRun) handedOut(now time.Time) bool {
	return !r.claimed && !r.aside && !(r.waiting && now.Before(r.due))
}

// plainQueue does what a Queue does by looking at every run, every time.
type plainQueue struct {
	runs   []*plainRun // in the order in which they were added
	tokens []*engine.Claim
}

func (q *plainQueue) find(id string) *plainRun {
	for _, r := range q.runs {
		if r.id.String() == id {
			return r
		}
	}
	return nil
}

func (q *plainQueue) expire(now time.Time) {
	for _, r := range q.runs {
		if r.claimed && !now.Before(r.expires) {
			r.claimed = false
		}
		if r.aside && !r.due.IsZero() && !now.Before(r.due) {
			r.aside = false
		}
	}
}

// putAside is what PutAside does.
func (r *plainRun) putAside(question *engine.Question, pause time.Duration, now time.Time) {
	r.claimed, r.token, r.waits, r.waiting, r.starts, r.hasAsked, r.cancelled = false, "", 0, false, r.starts-1, true, false
	if question.Answer != nil {
		return
	}
	if !r.known || r.question != question.Number {
		r.asked = now
	}
	r.aside, r.known, r.question, r.due = true, true, question.Number, time.Time{}
	if question.For > 0 {
		r.due = r.asked.Add(question.For)
	}
	if pause > 0 && (r.due.IsZero() || now.Add(pause).Before(r.due)) {
		r.due = now.Add(pause)
	}
}

// queuedIn is how many runs of a chat are queued, or all there are.
func (q *plainQueue) queuedIn(chat string, all bool) (n int) {
	for _, r := range q.runs {
		if r.chat == chat && (all || !r.claimed && !r.aside) {
			n++
		}
	}
	return n
}

// first is the first run of each chat.
func (q *plainQueue) first() map[string]*plainRun {
	first := map[string]*plainRun{}
	for _, r := range q.runs {
		if first[r.chat] == nil {
			first[r.chat] = r
		}
	}
	return first
}

// TestAQueueDoesWhatAPlainOneDoes has several nodes claim, renew, end, requeue and cancel runs at random, also with claims
// that they have lost.
func TestAQueueDoesWhatAPlainOneDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareQueue(t, rand.New(rand.NewPCG(seed, 0)), 5_000) })
	}
}

func compareQueue(t *testing.T, rnd *rand.Rand, steps int) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var nodes Nodes
	var ids IDs
	q, p := NewQueue(&nodes), &plainQueue{}
	all := []*Node{nodes.Join(now), nodes.Join(now), nodes.Join(now)}
	someClaim := func() *engine.Claim {
		if len(p.tokens) == 0 {
			return nil
		}
		return p.tokens[max(0, len(p.tokens)-1-rnd.IntN(30))]
	}
	// holds is whether a claim is in force, which it is again if its lease was over and nobody else has the run.
	holds := func(claim *engine.Claim) *plainRun {
		r := p.find(claim.Run.ID)
		if r == nil || r.token != claim.Token {
			return nil
		}
		if !r.claimed {
			r.claimed = true
		}
		return r
	}
	runners := []string{"", "one", "two"}
	for step := range steps {
		if step%503 == 0 {
			q.chatQueues.compact()
		}
		switch rnd.IntN(11) {
		case 0, 1:
			id, err := ids.Next(now)
			if err != nil {
				t.Fatal(err)
			}
			chat := fmt.Sprint("chat ", rnd.IntN(6))
			if len(p.runs) < 40 {
				r := &plainRun{id: id, chat: chat, runner: runners[rnd.IntN(len(runners))]}
				run := &engine.Run{ChatID: chat, Runner: r.runner}
				if rnd.IntN(2) == 0 {
					run.QueueTime = time.Duration(1+rnd.IntN(60)) * time.Second
					r.deadline = now.Add(run.QueueTime)
				}
				q.Push(EntryOf(id, run, now))
				p.runs = append(p.runs, r)
			}
		case 2, 3:
			batch := engine.Batch{Max: rnd.IntN(4), Lease: time.Duration(1+rnd.IntN(20)) * time.Second}
			if rnd.IntN(2) == 0 {
				batch.Bounds = []engine.Bound{{Runners: runners[:1+rnd.IntN(2)], AtMost: rnd.IntN(2)}}
			}
			for range rnd.IntN(3) {
				batch.Without = append(batch.Without, fmt.Sprint("chat ", rnd.IntN(8)))
			}
			p.expire(now)
			ready, bounded := 0, 0
			first := p.first()
			for _, r := range first {
				switch {
				case !r.handedOut(now), slices.Contains(batch.Without, r.chat):
				case len(batch.Bounds) > 0 && slices.Contains(batch.Bounds[0].Runners, r.runner):
					bounded++
				default:
					ready++
				}
			}
			if bounded > 0 {
				ready += min(bounded, batch.Bounds[0].AtMost)
			}
			if got := q.ReadyFor(batch, now); got != (min(batch.Max, ready) > 0) {
				t.Fatalf("step %d: ready for a batch: %t", step, got)
			}
			claimed, undo := q.Claim(all[rnd.IntN(len(all))], batch, now, now)
			if rnd.IntN(10) == 0 { // it could not be written down
				undo()
				for _, c := range claimed {
					p.find(c.ID.String()).token = "" // earlier claims are lost all the same
				}
				break
			}
			if len(claimed) != min(batch.Max, ready) {
				t.Fatalf("step %d: claimed %d runs, want %d of %d", step, len(claimed), batch.Max, ready)
			}
			for _, c := range claimed {
				r := p.find(c.ID.String())
				if r == nil || first[r.chat] != r || !r.handedOut(now) || slices.Contains(batch.Without, r.chat) || c.Attempt != r.starts+1 || c.Waits != r.waits || !c.StartedAt.Equal(now) {
					t.Fatalf("step %d: claimed %+v, which is %+v", step, c, r)
				}
				*r = plainRun{id: r.id, chat: r.chat, runner: r.runner, deadline: r.deadline, waits: r.waits,
					hasAsked: r.hasAsked, known: r.known, question: r.question, asked: r.asked,
					starts: c.Attempt, claimed: true, token: c.Token, expires: now.Add(batch.Lease)}
				p.tokens = append(p.tokens, c.Claim(&engine.Run{ID: c.ID.String()}, false))
			}
		case 4:
			claim := someClaim()
			if claim == nil {
				break
			}
			expires := now.Add(time.Duration(1+rnd.IntN(20)) * time.Second)
			lost, cancelled := q.Renew([]*engine.Claim{claim}, expires)
			r := holds(claim)
			if (len(lost) == 0) != (r != nil) || (len(cancelled) == 1) != (r != nil && r.cancelled) {
				t.Fatalf("step %d: lost %d, cancelled %d; it is %+v", step, len(lost), len(cancelled), r)
			}
			if r != nil {
				r.expires = expires
			}
		case 5: // an end, or a requeue
			claim := someClaim()
			if claim == nil {
				break
			}
			id, ok := q.Holds(claim)
			r := holds(claim)
			if ok != (r != nil) {
				t.Fatalf("step %d: holds %t, and it is %+v", step, ok, r)
			}
			if !ok {
				break
			}
			switch rnd.IntN(4) {
			case 0:
				question := &engine.Question{Number: r.question + rnd.IntN(2), For: time.Duration(rnd.IntN(3)) * 20 * time.Second}
				if rnd.IntN(5) == 0 {
					question.Answer = new(engine.Answer)
				}
				pause := time.Duration(rnd.IntN(3)) * 5 * time.Second
				undo := q.PutAside(id, question, engine.End{WaitingFor: "an answer", Pause: pause}, now, now)
				if !q.WasRequeued(claim) {
					t.Fatalf("step %d: that it was put aside is not known", step)
				}
				if rnd.IntN(4) == 0 { // not after all
					undo()
					break
				}
				r.putAside(question, pause, now)
				q.expire(now)
				p.expire(now)
			case 3:
				end := engine.End{Requeue: true, Held: rnd.IntN(3) == 0}
				if rnd.IntN(2) == 0 {
					end.WaitingFor, end.Pause = "somebody", time.Duration(rnd.IntN(10))*time.Second
				}
				undo := q.Requeue(id, end, now)
				if !q.WasRequeued(claim) {
					t.Fatalf("step %d: a requeue is not known", step)
				}
				if rnd.IntN(4) == 0 { // not after all
					undo()
					break
				}
				*r = plainRun{id: r.id, chat: r.chat, runner: r.runner, deadline: r.deadline, waits: r.waits, starts: r.starts - 1,
					hasAsked: r.hasAsked, known: r.known, question: r.question, asked: r.asked}
				if end.WaitingFor != "" {
					if !end.Held || r.waits == 0 {
						r.waits++
					}
					r.waiting, r.due = true, now.Add(end.Pause)
				}
			case 1:
				undo := q.Remove(id)
				q.expire(now) // while its end is written down
				undo()        // not after all
				p.expire(now)
				r.claimed = true
			default:
				q.Remove(id)
				p.runs = slices.DeleteFunc(p.runs, func(other *plainRun) bool { return other == r })
			}
		case 6: // a run is withdrawn or cancelled
			if len(p.runs) == 0 {
				break
			}
			r := p.runs[rnd.IntN(len(p.runs))]
			if q.Cancel(r.id, "somebody") != r.claimed {
				t.Fatalf("step %d: cancelled %t", step, !r.claimed)
			}
			r.cancelled = r.cancelled || r.claimed
			if _, queued := q.Holds(&engine.Claim{Run: &engine.Run{ID: r.id.String()}}); queued == r.claimed {
				t.Fatalf("step %d: it is queued %t", step, queued)
			} else if queued && rnd.IntN(3) == 0 {
				q.Remove(r.id)() // not after all
			} else if queued && rnd.IntN(2) == 0 {
				q.Remove(r.id)
				p.runs = slices.DeleteFunc(p.runs, func(other *plainRun) bool { return other == r })
			}
		case 7:
			some := runners[:rnd.IntN(3)]
			_, undo := q.Resume(some)
			if rnd.IntN(4) == 0 {
				undo()
				break
			}
			for _, r := range p.runs {
				if !r.claimed && (len(some) == 0 || slices.Contains(some, r.runner)) {
					r.waiting, r.waits = false, 0
				}
			}
		case 8:
			checkOverdue(t, q, p, now, step)
		case 9:
			now = now.Add(time.Duration(rnd.IntN(5)) * time.Second)
			p.expire(now)
			q.expire(now)
		case 10: // an answer
			if len(p.runs) == 0 {
				break
			}
			r := p.runs[rnd.IntN(len(p.runs))]
			number := r.question + rnd.IntN(5)/4
			undo := q.Answered(r.id, number)
			if rnd.IntN(4) == 0 { // not after all
				undo()
			} else if r.aside && number == r.question {
				r.aside, r.known = false, false
			}
		}
		queued, aside := 0, 0
		for _, r := range p.runs {
			var record engine.Record
			q.Describe(r.id, &record)
			if (record.Status == engine.Running) != r.claimed || record.Attempts != r.starts || record.WaitingFor != "" && !r.waiting && !r.aside ||
				(record.Status == engine.Waiting) != r.aside || q.HasAsked(r.id) != r.hasAsked {
				t.Fatalf("step %d: a run is %s after %d starts, want %+v", step, record.Status, record.Attempts, r)
			}
			switch {
			case r.aside:
				aside++
			case !r.claimed:
				queued++
			}
		}
		if q.Size().Queued != queued || q.chatQueues.aside != aside {
			t.Fatalf("step %d: %d are queued and %d put aside, want %d and %d", step, q.Size().Queued, q.chatQueues.aside, queued, aside)
		}
		chat := fmt.Sprint("chat ", rnd.IntN(6))
		if got, want := q.QueuedIn(chat), p.queuedIn(chat, false); got != want {
			t.Fatalf("step %d: %d are queued in a chat, want %d", step, got, want)
		}
		if _, got := q.NewestIn(chat); got != p.queuedIn(chat, true) {
			t.Fatalf("step %d: %d are unfinished in a chat, want %d", step, got, p.queuedIn(chat, true))
		}
	}
	for _, r := range p.runs {
		q.Remove(r.id)
	}
	if n := len(q.claimed) + len(q.expired) + len(q.starts) + len(q.requeued) + len(q.waits) + len(q.asides) + q.chatQueues.aside + len(q.waiting.entries) + len(q.chatQueues.heaps[byDeadline]) + len(q.chatQueues.heaps[byAge]); n > 0 || q.Size().Queued > 0 {
		t.Errorf("an empty queue still knows %d things", n)
	}
}

// checkOverdue compares the runs that nobody took on in time, and when there are more.
func checkOverdue(t *testing.T, q *Queue, p *plainQueue, now time.Time, step int) {
	t.Helper()
	p.expire(now)
	want, next := map[uuid.UUID]bool{}, time.Time{}
	for _, r := range p.runs {
		if r.claimed || r.deadline.IsZero() || r.hasAsked || r.starts > 0 && r.waits == 0 {
			continue
		}
		if next.IsZero() || r.deadline.Before(next) {
			next = r.deadline
		}
		if !r.deadline.After(now) {
			want[r.id] = true
		}
	}
	ids, wait := q.Overdue(now, 1000)
	if len(ids) != len(want) {
		t.Fatalf("step %d: %d are overdue, want %d", step, len(ids), len(want))
	}
	for _, id := range ids {
		if !want[id] {
			t.Fatalf("step %d: %v is not overdue", step, id)
		}
	}
	wantWait := time.Duration(-1)
	if !next.IsZero() {
		wantWait = max(next.Sub(now), 0)
	}
	if wait != wantWait {
		t.Fatalf("step %d: the next is overdue in %v, want %v", step, wait, wantWait)
	}
	if some, _ := q.Overdue(now, 2); len(some) != min(2, len(want)) {
		t.Fatalf("step %d: got %d, want up to 2 of %d", step, len(some), len(want))
	}
}

// Watchers of a run that stop to watch leave nothing behind.
func TestWatchersAreForgotten(t *testing.T) {
	t.Parallel()
	var nodes Nodes
	node := nodes.Join(time.Now())
	_, first := node.Ended("run")
	_, second := node.Ended("run")
	second()
	first()
	first()
	if len(nodes.watchers) != 0 {
		t.Errorf("left: %v", nodes.watchers)
	}
}
