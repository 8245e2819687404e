//go:build real

package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestClaimsAndEndsTakeNoLongerInALongQueue(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T, s *store, from, to int) {
		fillRuns(t, s, from, to)
		if from == to {
			return
		}
		// Some wait, some are overdue, and some are to be folded, with a window that is open.
		execForLong(t, s, "UPDATE @.queue SET turn = NULL, due_at = now() + interval '1 hour', waiting_for = 'the runner', waits = 1 WHERE chat LIKE 'chat %3'")
		execForLong(t, s, "UPDATE @.queue SET expires_at = now() - interval '1 hour' WHERE chat LIKE 'chat %5'")
		execForLong(t, s, "UPDATE @.queue SET fold_window = '1 hour', fold_max = 10 WHERE chat LIKE 'chat %7'")
		execForLong(t, s, "INSERT INTO @.kind (runner, hook) VALUES ('away', 'agent') ON CONFLICT DO NOTHING")
		execForLong(t, s, "UPDATE @.queue SET kind = (SELECT id FROM @.kind WHERE runner = 'away'), runner = 'away' WHERE chat LIKE 'chat %1'")
	}
	explains(t, fill, func(t *testing.T, s *store, n int) {
		ctx := t.Context()
		for i := range 6 { // so that there are some in an empty queue too
			run := &engine.Run{ChatID: fmt.Sprint("call ", n, i/2), Hook: "agent", QueueTime: time.Millisecond}
			if i == 4 {
				run.Fold = engine.Fold{Window: time.Hour, Max: 5}
			}
			if err := s.Runs().Add(ctx, run, engine.Terms{}); err != nil {
				t.Fatal(err)
			}
		}
		claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 4, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		bounds := []engine.Bound{{Runners: []string{"away"}}, {Hooks: []string{"agent"}, AtMost: 3}}
		without := make([]string, engine.MaxWithout) // most of which are ready, and before the others
		for i := range without {
			without[i] = fmt.Sprintf("chat %d", 2*i)
		}
		for _, bounds := range [][]engine.Bound{bounds, nil} {
			more, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 3, Lease: time.Hour, Bounds: bounds, Without: without})
			if err != nil || len(more) > 3 {
				t.Fatalf("claimed %d runs: %v", len(more), err)
			}
			claims = append(claims, more...)
		}
		if _, _, err := s.Runs().Renew(ctx, claims, time.Hour); err != nil {
			t.Fatal(err)
		}
		var ends sync.WaitGroup
		for i, claim := range claims {
			ends.Go(func() {
				end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
				if i%3 == 1 {
					end = engine.End{Requeue: true}
				}
				if _, err := s.Runs().End(ctx, claim, end, engine.Batch{}); err != nil {
					t.Error(err)
				}
			})
		}
		ends.Wait()
		overdue, _, err := s.Runs().Overdue(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range overdue {
			if _, err := s.Runs().End(ctx, &engine.Claim{Run: run}, engine.End{Outcome: engine.Outcome{Status: engine.Expired}}, engine.Batch{}); err != nil && !errors.Is(err, engine.ErrClaimLost) {
				t.Fatal(err)
			}
		}
		if err := s.Runs().Resume(ctx, "nobody"); err != nil {
			t.Fatal(err)
		}
	})
}

// The runs of a paused hook are ready, and before the others.
func TestClaimsTakeNoLongerBesideALongPausedQueue(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T, s *store, from, to int) { fillRuns(t, s, from, to) }
	explains(t, fill, func(t *testing.T, s *store, n int) {
		run := &engine.Run{ChatID: fmt.Sprint("other ", n), Hook: "other"}
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 3, Lease: time.Hour, Bounds: []engine.Bound{{Hooks: []string{"agent"}}}})
		if err != nil || len(claims) != 1 || claims[0].Run.ID != run.ID {
			t.Fatalf("claimed %d runs, not the one of the other hook: %v", len(claims), err)
		}
	})
}

// turmoil has several nodes carry out runs of few chats in all ways at once.
type turmoil struct {
	t     *testing.T
	nodes []*store
	lease time.Duration // of all claims; they run out if it is short

	total atomic.Int64 // runs that were added
	over  atomic.Int64 // runs that have ended
	mu    sync.Mutex
	held  map[string]string // by chat: the token of its claim
	ended map[string]int    // by chat: the last run that was ended under a claim
	known map[string][]*engine.Run

	asked    []string       // ids of questions
	answered map[string]int // by id: how many answers were taken
}

// add adds runs to a chat. With some it claims others, which it carries out.
func (u *turmoil) add(s *store, chat string, runs int) {
	chance := rand.New(rand.NewPCG(300, uint64(len(chat)))) //nolint:gosec // nothing here is secret
	for n := range runs {
		run := &engine.Run{ChatID: chat, Hook: "agent", Message: strconv.Itoa(n), Fold: engine.Fold{}}
		if chat == "folded" || n%7 == 0 {
			run.Fold = engine.Fold{Window: 500 * time.Millisecond, Max: 3}
		}
		claims, err := s.runs.AddAndClaim(u.t.Context(), []*engine.Run{run}, engine.Terms{}, engine.Batch{Max: n % 3, Lease: u.lease})
		if err != nil {
			u.t.Errorf("adding: %v", err)
			return
		}
		u.total.Add(1)
		u.mu.Lock()
		u.known[chat] = append(u.known[chat], run)
		u.mu.Unlock()
		u.carryOutAll(s, chance, claims)
	}
}

// carryOutAll carries out claims, and what is claimed meanwhile.
func (u *turmoil) carryOutAll(s *store, chance *rand.Rand, claims []*engine.Claim) {
	for len(claims) > 0 {
		claims = append(claims[1:], u.carryOut(s, chance, claims[0])...)
	}
}

// began notes a claim. Within leases a chat has one, and runs that were added earlier come earlier.
func (u *turmoil) began(claim *engine.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	chat := claim.Run.ChatID
	if other := u.held[chat]; other != "" && u.lease > time.Hour {
		u.t.Errorf("chat %s has two claims, %s and %s", chat, other, claim.Token)
	}
	u.held[chat] = claim.Token
	for _, run := range append([]*engine.Run{claim.Run}, claim.Folded...) {
		if n, _ := strconv.Atoi(run.Message); n <= u.ended[chat] && u.ended[chat] > 0 {
			u.t.Errorf("chat %s: run %d was claimed after run %d had ended", chat, n, u.ended[chat])
		}
	}
}

// letGo notes that a claim is about to be given up.
func (u *turmoil) letGo(claim *engine.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[claim.Run.ChatID] == claim.Token {
		u.held[claim.Run.ChatID] = ""
	}
}

func (u *turmoil) carryOut(s *store, chance *rand.Rand, claim *engine.Claim) (next []*engine.Claim) {
	ctx := u.t.Context()
	u.began(claim)
	batch := engine.Batch{Max: 1, Lease: u.lease}
	if chance.IntN(3) == 0 {
		batch.Bounds = []engine.Bound{{Runners: []string{"elsewhere"}}, {Hooks: []string{"agent"}, AtMost: chance.IntN(2)}}
	}
	if chance.IntN(3) == 0 {
		batch.Without = []string{claim.Run.ChatID}
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "done"}}
	if !claim.Run.Fold.IsSet() && len(claim.Questions) < 4 && chance.IntN(4) == 0 {
		end = u.ask(s, chance, claim)
	}
	switch chance.IntN(10) {
	case 0:
		end = engine.End{Requeue: true, Interrupted: chance.IntN(2) == 0}
	case 1:
		end = engine.End{Requeue: true, Interrupted: chance.IntN(2) == 0, WaitingFor: "the runner", Pause: 100 * time.Millisecond}
	case 2:
		if u.lease < time.Hour {
			return nil // its lease runs out
		}
	case 3:
		if err := s.Runs().Cancel(ctx, claim.Run.ID, "somebody"); err != nil && !errors.Is(err, engine.ErrNotFound) {
			u.t.Errorf("cancelling: %v", err)
		}
		fallthrough
	case 4:
		if _, _, err := s.Runs().Renew(ctx, []*engine.Claim{claim}, u.lease); err != nil {
			u.t.Errorf("renewing: %v", err)
		}
	}
	u.letGo(claim)
	if !end.Requeue { // before others can hear of it
		u.mu.Lock()
		last := claim.Run
		if len(claim.Folded) > 0 {
			last = claim.Folded[len(claim.Folded)-1]
		}
		before := u.ended[last.ChatID]
		u.mu.Unlock()
		next, err := s.Runs().End(ctx, claim, end, batch)
		switch {
		case err == nil:
			u.over.Add(int64(1 + len(claim.Folded)))
			u.mu.Lock()
			if n, _ := strconv.Atoi(last.Message); u.ended[last.ChatID] == before {
				u.ended[last.ChatID] = n
			}
			u.mu.Unlock()
		case !errors.Is(err, engine.ErrClaimLost) || u.lease > time.Hour:
			u.t.Errorf("ending: %v", err)
		}
		return next
	}
	next, err := s.Runs().End(ctx, claim, end, batch)
	if err != nil && (!errors.Is(err, engine.ErrClaimLost) || u.lease > time.Hour) {
		u.t.Errorf("putting back: %v", err)
	}
	return next
}

// ask asks a question of a run and either puts it aside, or has it wait for nothing.
func (u *turmoil) ask(s *store, chance *rand.Rand, claim *engine.Claim) engine.End {
	number := len(claim.Questions)
	if last := number - 1; last >= 0 && (claim.Questions[last].AskedAt.IsZero() || claim.Questions[last].Answer == nil && chance.IntN(2) == 0) {
		number = last // it was answered before it was asked, or is asked again
	}
	question := &engine.Question{Number: number, Kind: engine.AskInput, State: []byte("state")}
	if chance.IntN(2) == 0 {
		question.Kind = engine.AskAgent
	}
	if chance.IntN(2) == 0 {
		question.For = 10 * time.Second
	}
	u.mu.Lock()
	u.asked = append(u.asked, engine.QuestionID(claim.Run.ID, number))
	u.mu.Unlock()
	if chance.IntN(4) == 0 {
		if err := s.Questions().Ask(u.t.Context(), claim, question); err != nil && (!errors.Is(err, engine.ErrClaimLost) || u.lease > time.Hour) {
			u.t.Errorf("asking: %v", err)
		}
		return engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "asked"}}
	}
	end := engine.End{Requeue: true, WaitingFor: "somebody", Question: question}
	if chance.IntN(2) == 0 {
		end.Pause = 500 * time.Millisecond
	}
	return end
}

// answer answers some question.
func (u *turmoil) answer(s *store, chance *rand.Rand) {
	u.mu.Lock()
	id := ""
	if len(u.asked) > 0 {
		id = u.asked[chance.IntN(len(u.asked))]
	}
	u.mu.Unlock()
	_, err := s.Questions().Answer(u.t.Context(), id, engine.Answer{Text: "yes", Via: engine.AnsweredByLink})
	switch {
	case err == nil:
		u.mu.Lock()
		u.answered[id]++
		u.mu.Unlock()
	case !errors.Is(err, engine.ErrAnswered) && !errors.Is(err, engine.ErrNotFound):
		u.t.Errorf("answering: %v", err)
	}
}

// withdraw ends a run that is queued, if it is.
func (u *turmoil) withdraw(s *store, chance *rand.Rand) {
	u.mu.Lock()
	var run *engine.Run
	for _, runs := range u.known {
		if len(runs) > 0 {
			run = runs[chance.IntN(len(runs))]
		}
		break
	}
	u.mu.Unlock()
	if run == nil {
		return
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}}
	_, err := s.Runs().End(u.t.Context(), &engine.Claim{Run: run}, end, engine.Batch{})
	switch {
	case err == nil:
		u.over.Add(1)
	case !errors.Is(err, engine.ErrClaimLost):
		u.t.Errorf("withdrawing: %v", err)
	}
}

func TestNodesCarryOutFewChatsInTurmoil(t *testing.T) {
	for name, lease := range map[string]time.Duration{"leases hold": 1000 * time.Hour, "leases run out": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPostgres(t)
			t.Cleanup(func() { _ = s.Close() })
			u := &turmoil{t: t, nodes: []*store{s}, lease: lease, held: map[string]string{}, ended: map[string]int{}, known: map[string][]*engine.Run{}, answered: map[string]int{}}
			for range 2 {
				node := openPostgres(t, s.schema)
				t.Cleanup(func() { _ = node.Close() })
				u.nodes = append(u.nodes, node)
			}
			deadlocks := s.number(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
			var adders, workers, others sync.WaitGroup
			var added atomic.Bool
			for i, chat := range []string{"a", "b", "folded", "c", "d"} {
				adders.Go(func() { u.add(u.nodes[i%3], chat, 60) })
			}
			deadline := time.Now().Add(2 * time.Minute)
			goesOn := func() bool {
				return (!added.Load() || u.over.Load() < u.total.Load()) && time.Now().Before(deadline) && !t.Failed()
			}
			for i := range 9 {
				workers.Go(func() {
					node, chance := u.nodes[i%3], rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // nothing here is secret
					for goesOn() {
						claims, _, err := node.Runs().Claim(t.Context(), engine.Batch{Max: 1 + chance.IntN(3), Lease: lease})
						if err != nil {
							t.Errorf("claiming: %v", err)
							return
						}
						u.carryOutAll(node, chance, claims)
					}
				})
			}
			others.Go(func() {
				chance := rand.New(rand.NewPCG(100, 1)) //nolint:gosec // nothing here is secret
				for i := 0; goesOn(); i++ {
					u.withdraw(u.nodes[i%3], chance)
					if err := s.exec(t.Context(), "UPDATE @.test_clock SET ahead = ahead + interval '200 milliseconds'"); err != nil {
						t.Errorf("advancing the clock: %v", err)
						return
					}
					if i%10 == 0 {
						if err := u.nodes[i%3].Runs().Resume(t.Context()); err != nil {
							t.Errorf("resuming: %v", err)
						}
					}
				}
			})
			for i := range 3 {
				others.Go(func() {
					chance := rand.New(rand.NewPCG(200, uint64(i))) //nolint:gosec // nothing here is secret
					for goesOn() {
						u.answer(u.nodes[i], chance)
					}
				})
			}
			adders.Wait()
			added.Store(true)
			workers.Wait()
			others.Wait()
			if total, over := u.total.Load(), u.over.Load(); total != over {
				t.Errorf("%d of %d runs have ended", over, total)
			}
			checkQueue(t, s, 0)
			if len(u.answered) < 5 {
				t.Errorf("only %d questions were answered", len(u.answered))
			}
			for id, n := range u.answered {
				if n > 1 {
					t.Errorf("question %s was answered %d times", id, n)
				}
			}
			if n := s.number(t, "SELECT count(*) FROM @.queue"); n != 0 {
				t.Errorf("%d runs are left", n)
			}
			if n := s.number(t, "SELECT count(*) FROM @.done"); n != int(u.total.Load()) {
				t.Errorf("%d runs are known to have ended, want %d", n, u.total.Load())
			}
			if n := s.number(t, "SELECT coalesce(sum(running), 0) FROM @.counter"); n != 0 {
				t.Errorf("%d runs are said to be carried out", n)
			}
			if n := s.number(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != deadlocks {
				t.Errorf("there were %d deadlocks", n-deadlocks)
			}
		})
	}
}

// The answer to a claim is lost. Its runs are claimed again at once, as if they had not been.
func TestClaimsWithoutAnAnswerAreUndone(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for _, chat := range []string{"a", "b", "b"} {
		run := newAdded(chat, "")
		if chat == "b" {
			run.Fold = engine.Fold{Window: time.Hour, Max: 2}
		}
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	const call = 1000
	if err := s.exec(t.Context(), "SELECT * FROM @.claim_runs_1($1, $2, 0, -1, '{10}', '{3600}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')", s.node, call); err != nil {
		t.Fatal(err)
	}
	if claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Hour}); err != nil || len(claims) > 0 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	s.runs.claiming.lost = append(s.runs.claiming.lost, call)
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Hour})
	if err != nil || len(claims) != 2 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	for _, claim := range claims {
		if claim.Attempt != 1 || (claim.Run.ChatID == "b") != (len(claim.Folded) == 1) {
			t.Errorf("chat %s was claimed for attempt %d, with %d others", claim.Run.ChatID, claim.Attempt, len(claim.Folded))
		}
	}
	checkQueue(t, s, 0)
}

// A caller that is gone when its claims come gets none of them, and somebody else does.
func TestClaimsOfCallersThatAreGoneAreUndone(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	if err := s.Runs().Add(t.Context(), newAdded("a", ""), engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	gone := &turnover{next: engine.Batch{Max: 1, Lease: time.Hour}, state: turnoverUnderWay}
	asked := newAsks([]*turnover{gone})
	answer, err := s.runs.claiming.ask(t.Context(), []*turnover{gone}, asked, careOfAny)
	if err != nil || len(answer.claims) != 1 {
		t.Fatalf("claimed %d runs: %v", len(answer.claims), err)
	}
	gone.state = turnoverAbandoned
	s.runs.claiming.give(t.Context(), []*turnover{gone}, asked, answer)
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Hour})
	if err != nil || len(claims) != 1 || claims[0].Attempt != 1 {
		t.Fatalf("claimed %v: %v", claims, err)
	}
}
