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
	}
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
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareQueue(t, rand.New(rand.NewPCG(seed, 0)), 8_000) })
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
	for step := range steps {
		switch rnd.IntN(8) {
		case 0, 1:
			id, err := ids.Next(now)
			if err != nil {
				t.Fatal(err)
			}
			chat := fmt.Sprint("chat ", rnd.IntN(6))
			if len(p.runs) < 40 {
				q.Push(chat, id)
				p.runs = append(p.runs, &plainRun{id: id, chat: chat})
			}
		case 2, 3:
			batch := engine.Batch{Max: rnd.IntN(4), Lease: time.Duration(1+rnd.IntN(20)) * time.Second}
			p.expire(now)
			ready := 0
			first := p.first()
			for _, r := range first {
				if !r.claimed {
					ready++
				}
			}
			claimed, _ := q.Claim(all[rnd.IntN(len(all))], batch, now)
			if len(claimed) != min(batch.Max, ready) {
				t.Fatalf("step %d: claimed %d runs, want %d of %d", step, len(claimed), batch.Max, ready)
			}
			for _, c := range claimed {
				r := p.find(c.ID.String())
				if r == nil || first[r.chat] != r || r.claimed || c.Attempt != r.starts+1 || !c.StartedAt.Equal(now) {
					t.Fatalf("step %d: claimed %+v, which is %+v", step, c, r)
				}
				*r = plainRun{id: r.id, chat: r.chat, starts: c.Attempt, claimed: true, token: c.Token, expires: now.Add(batch.Lease)}
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
			switch rnd.IntN(3) {
			case 0:
				q.Requeue(id)
				if !q.WasRequeued(claim) {
					t.Fatalf("step %d: a requeue is not known", step)
				}
				*r = plainRun{id: r.id, chat: r.chat, starts: r.starts - 1}
			case 1:
				q.Remove(id)() // not after all
			default:
				q.Remove(id)
				p.runs = slices.DeleteFunc(p.runs, func(other *plainRun) bool { return other == r })
			}
		case 6: // a run is withdrawn or cancelled
			if len(p.runs) == 0 {
				break
			}
			r := p.runs[rnd.IntN(len(p.runs))]
			if q.Cancel(r.id) != r.claimed {
				t.Fatalf("step %d: cancelled %t", step, !r.claimed)
			}
			r.cancelled = r.cancelled || r.claimed
			if _, queued := q.Holds(&engine.Claim{Run: &engine.Run{ID: r.id.String()}}); queued == r.claimed {
				t.Fatalf("step %d: it is queued %t", step, queued)
			} else if queued && rnd.IntN(2) == 0 {
				q.Remove(r.id)
				p.runs = slices.DeleteFunc(p.runs, func(other *plainRun) bool { return other == r })
			}
		case 7:
			now = now.Add(time.Duration(rnd.IntN(5)) * time.Second)
			p.expire(now)
			q.expire(now)
		}
		queued := 0
		for _, r := range p.runs {
			var record engine.Record
			q.Describe(r.id, &record)
			if (record.Status == engine.Running) != r.claimed || record.Attempts != r.starts {
				t.Fatalf("step %d: a run is %s after %d starts, want %+v", step, record.Status, record.Attempts, r)
			}
			if !r.claimed {
				queued++
			}
		}
		if q.Size().Queued != queued {
			t.Fatalf("step %d: %d are queued, want %d", step, q.Size().Queued, queued)
		}
	}
	for _, r := range p.runs {
		q.Remove(r.id)
	}
	if n := len(q.claimed) + len(q.expired) + len(q.starts) + len(q.requeued); n > 0 || q.Size().Queued > 0 {
		t.Errorf("an empty queue still knows %d things", n)
	}
}
