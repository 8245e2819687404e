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

// foldedRun is a run of a queue with folds, as plainly as can be told.
type foldedRun struct {
	id       uuid.UUID
	chat     string
	hook     string
	fold     engine.Fold
	size     int
	accepted time.Time
	starts   int
	claim    *engine.Claim // while it is claimed
}

// plainFolds does what a Queue does with folds by looking at every run, every time.
type plainFolds struct{ runs []*foldedRun }

// ready are the runs of a chat that may be handed out together, none if it has to wait.
func (p *plainFolds) ready(chat string, now time.Time) (fold []*foldedRun) {
	size, full := 0, false
	for _, r := range p.runs {
		switch {
		case r.chat != chat:
			continue
		case r.claim != nil:
			return nil
		case len(fold) == 0:
			fold, size = append(fold, r), r.size
			if r.fold.Max == 0 {
				return fold
			}
			continue
		}
		first := fold[0]
		if r.hook != first.hook || r.fold.Max == 0 || r.starts != first.starts {
			break
		}
		if len(fold) == first.fold.Max || size+r.size > engine.MaxFoldMessage {
			full = true
			break
		}
		fold, size = append(fold, r), size+r.size
	}
	if len(fold) == 0 || len(fold) == fold[0].fold.Max || full || !now.Before(fold[0].accepted.Add(fold[0].fold.Window)) {
		return fold
	}
	return nil
}

func TestAQueueFoldsAsAPlainOneDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareFolds(t, rand.New(rand.NewPCG(seed, 1)), 3_000) })
	}
}

func compareFolds(t *testing.T, rnd *rand.Rand, steps int) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const lease = 20 * time.Second
	var nodes Nodes
	var ids IDs
	q, p := NewQueue(&nodes), &plainFolds{}
	node := nodes.Join(now)
	chats := []string{"a", "b", "c", "d"}
	expiries := map[*engine.Claim]time.Time{}
	under := func() (claims []*engine.Claim) {
		for _, r := range p.runs {
			if r.claim != nil && !slices.Contains(claims, r.claim) {
				claims = append(claims, r.claim)
			}
		}
		return claims
	}
	unclaim := func(claim *engine.Claim, starts int) {
		for _, r := range p.runs {
			if r.claim == claim {
				r.claim, r.starts = nil, starts
			}
		}
		delete(expiries, claim)
	}
	folds := 0
	for step := range steps {
		if step%503 == 0 {
			q.chatQueues.compact()
		}
		switch rnd.IntN(9) {
		case 0, 1, 2:
			if len(p.runs) > 60 {
				break
			}
			id, err := ids.Next(now)
			if err != nil {
				t.Fatal(err)
			}
			r := &foldedRun{id: id, chat: chats[rnd.IntN(len(chats))], hook: []string{"x", "x", "x", "y"}[rnd.IntN(4)], accepted: now}
			if rnd.IntN(8) > 0 {
				r.fold = engine.Fold{Window: time.Duration(1+rnd.IntN(3)) * 5 * time.Second, Max: 2 + rnd.IntN(4)}
			}
			if rnd.IntN(4) == 0 {
				r.size = rnd.IntN(engine.MaxFoldMessage * 2 / 3)
			}
			undo := q.Push(Entry{ID: id, Chat: r.chat, Hook: r.hook, Fold: r.fold, Size: r.size, Accepted: now.UnixNano()})
			if rnd.IntN(10) == 0 {
				undo()
				break
			}
			p.runs = append(p.runs, r)
		case 3, 4:
			batch := engine.Batch{Max: rnd.IntN(4), Lease: lease}
			var want [][]*foldedRun
			for _, chat := range chats {
				if fold := p.ready(chat, now); fold != nil {
					want = append(want, fold)
				}
			}
			claimed, undo := q.Claim(node, batch, now, now)
			if len(claimed) != min(batch.Max, len(want)) {
				t.Fatalf("step %d: %d folds were claimed, want %d of %d", step, len(claimed), batch.Max, len(want))
			}
			if rnd.IntN(8) == 0 {
				undo()
				break
			}
			for i := range claimed {
				c := &claimed[i]
				got := slices.Collect(c.Runs)
				at := slices.IndexFunc(want, func(fold []*foldedRun) bool { return fold[0].id == c.ID })
				if at < 0 || len(got) != len(want[at]) {
					t.Fatalf("step %d: claimed %v", step, got)
				}
				claim := c.Claim(&engine.Run{ID: c.ID.String()}, false)
				if len(got) > 1 {
					folds++
				}
				for j, r := range want[at] {
					if r.id != got[j] || c.Attempt != r.starts+1 {
						t.Fatalf("step %d: claimed %v for attempt %d, want %+v", step, got, c.Attempt, r)
					}
					r.claim, r.starts = claim, c.Attempt
					if j > 0 {
						claim.Folded = append(claim.Folded, &engine.Run{ID: r.id.String()})
					}
				}
				expiries[claim] = now.Add(lease)
			}
		case 5: // an end, or a requeue
			claims := under()
			if len(claims) == 0 {
				break
			}
			claim := claims[rnd.IntN(len(claims))]
			id, ok := q.Holds(claim)
			if !ok {
				t.Fatalf("step %d: a claim does not hold", step)
			}
			if rnd.IntN(2) == 0 {
				undo := q.Requeue(id, engine.End{Requeue: true}, now)
				if rnd.IntN(4) == 0 {
					undo()
				} else {
					unclaim(claim, claim.Attempt-1)
				}
				break
			}
			undos := []func(){q.Remove(id)}
			for _, run := range claim.Folded {
				undos = append(undos, q.Remove(uuid.MustParse(run.ID)))
			}
			if rnd.IntN(4) == 0 {
				for _, undo := range slices.Backward(undos) {
					undo()
				}
				break
			}
			p.runs = slices.DeleteFunc(p.runs, func(r *foldedRun) bool { return r.claim == claim })
		case 6: // a run that is queued leaves
			if len(p.runs) == 0 {
				break
			}
			if r := p.runs[rnd.IntN(len(p.runs))]; r.claim == nil {
				undo := q.Remove(r.id)
				if rnd.IntN(2) == 0 {
					undo()
					break
				}
				p.runs = slices.DeleteFunc(p.runs, func(other *foldedRun) bool { return other == r })
			}
		case 7:
			claims := under()
			if len(claims) == 0 {
				break
			}
			claim := claims[rnd.IntN(len(claims))]
			if lost, _ := q.Renew([]*engine.Claim{claim}, now.Add(lease)); len(lost) > 0 {
				t.Fatalf("step %d: a claim is lost", step)
			}
			expiries[claim] = now.Add(lease)
		case 8:
			now = now.Add(time.Duration(rnd.IntN(6)) * time.Second)
			q.expire(now)
			for claim, expires := range expiries {
				if !now.Before(expires) {
					unclaim(claim, claim.Attempt)
				}
			}
		}
		checkFolds(t, q, p, chats, now, step)
	}
	if folds < steps/100 {
		t.Errorf("%d folds were not enough to tell", folds)
	}
	for _, r := range p.runs {
		q.Remove(r.id)
	}
	if n := len(q.chatQueues.heaps[byWindow]) + runsOfKinds(q) + len(q.chatQueues.active) + len(q.claimed) + len(q.starts); n > 0 || q.Size().Queued > 0 {
		t.Errorf("an empty queue still knows %d things", n)
	}
}

func checkFolds(t *testing.T, q *Queue, p *plainFolds, chats []string, now time.Time, step int) {
	t.Helper()
	claimed, ready := 0, false
	wait := time.Duration(-1)
	for _, r := range p.runs {
		var record engine.Record
		if q.Describe(r.id, &record); (record.Status == engine.Running) != (r.claim != nil) || record.Attempts != r.starts {
			t.Fatalf("step %d: a run is %s after %d starts, want %+v", step, record.Status, record.Attempts, r)
		}
		if r.claim != nil {
			claimed++
		}
	}
	for _, chat := range chats {
		if p.ready(chat, now) != nil {
			ready = true
			continue
		}
		in := slices.DeleteFunc(slices.Clone(p.runs), func(r *foldedRun) bool { return r.chat != chat })
		if len(in) > 0 && in[0].claim == nil {
			if until := in[0].accepted.Add(in[0].fold.Window).Sub(now); wait < 0 || until < wait {
				wait = until
			}
		}
		newest, runs := q.NewestIn(chat)
		if runs != len(in) || len(q.InChat(chat)) != runs || runs > 0 && newest != in[runs-1].id {
			t.Fatalf("step %d: %d runs are in a chat, want %d", step, runs, len(in))
		}
	}
	if got := q.Ready(now); got != ready {
		t.Fatalf("step %d: ready %t, want %t", step, got, ready)
	}
	if backlog := q.Backlog(now); backlog.Running != claimed || backlog.Queued != len(p.runs)-claimed {
		t.Fatalf("step %d: the backlog is %+v, want %d of %d running", step, backlog, claimed, len(p.runs))
	}
	if got := q.UntilDue(now); wait >= 0 && (got < 0 || got > wait) {
		t.Fatalf("step %d: the next window is over in %v, want %v", step, got, wait)
	}
}

// runsOfKinds counts the runs that kinds have.
func runsOfKinds(q *Queue) (runs int) {
	for _, k := range q.chatQueues.kinds {
		runs += k.places
	}
	return runs
}
