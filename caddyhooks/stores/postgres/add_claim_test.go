//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestAddingAndClaimingTakesNoLongerInALongQueue(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct{ ready, paused bool }{
		"others are ready": {true, false}, "others are paused": {true, true}, "nothing is ready": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fill := func(t *testing.T, s *store, from, to int) {
				fillRuns(t, s, from, to)
				if !is.ready {
					execForLong(t, s, "UPDATE @.queue SET turn = NULL, due_at = now() + interval '1 hour', waiting_for = 'the runner', waits = 1 WHERE head AND node IS NULL")
				}
			}
			explains(t, fill, func(t *testing.T, s *store, n int) {
				terms := engine.Terms{Limits: engine.Limits{Queue: 10_000_000, Chat: 10_000_000}}
				if n%2 == 0 {
					terms.Limits.Chat = 100
				}
				own, key, other := fmt.Sprint("own ", n), fmt.Sprint("key ", n), fmt.Sprint("other ", n)
				runs := []*engine.Run{newAdded(own, key), newAdded(own, ""), newAdded(other, "")}
				batch := engine.Batch{Max: 2, Lease: time.Hour}
				if is.paused {
					batch.Bounds, runs = []engine.Bound{{Hooks: []string{"agent"}}}, []*engine.Run{runs[0], runs[2]}
					for _, run := range runs {
						run.Hook = "own"
					}
				}
				claims, err := s.runs.AddAndClaim(t.Context(), runs, terms, batch)
				if is.ready && !is.paused && err == nil && len(claims) == 0 {
					claims, _, err = s.runs.Claim(t.Context(), batch)
				}
				if err != nil || len(claims) != 2 {
					t.Fatalf("claimed %d runs: %v", len(claims), err)
				}
				for _, claim := range claims {
					if _, err := s.runs.End(t.Context(), claim, engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{}); err != nil {
						t.Fatal(err)
					}
				}
				if !is.ready { // what is left in the chat
					claims, _, err := s.runs.Claim(t.Context(), batch)
					if err != nil || len(claims) != 1 {
						t.Fatalf("claimed %d runs: %v", len(claims), err)
					}
				}
			})
		})
	}
}

// The claims are as if the runs had been added and then claimed, whichever way the database takes.
func TestARunClaimedWhenItIsAcceptedIsLikeAnother(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	var claims []*engine.Claim
	add := func() *engine.Run {
		run := newAdded("", fmt.Sprint("key ", len(claims)))
		run.ChatID, run.Name, run.Sync, run.Owner, run.QueueTime = "chat é\x00", "name", true, s.node, time.Hour
		return run
	}
	for i := range 3 {
		run, batch := add(), engine.Batch{Max: 1, Lease: time.Hour}
		var got []*engine.Claim
		var err error
		switch i {
		case 0:
			got, err = s.runs.AddAndClaim(t.Context(), []*engine.Run{run}, engine.Terms{}, batch)
		case 1: // with a bound it is claimed later
			batch.Max, batch.Bounds = 2, []engine.Bound{{Hooks: []string{"agent"}, AtMost: 1}}
			if got, err = s.runs.AddAndClaim(t.Context(), []*engine.Run{run}, engine.Terms{}, batch); err == nil && len(got) == 0 {
				got, _, err = s.runs.Claim(t.Context(), batch)
			}
		default:
			if err = s.runs.Add(t.Context(), run, engine.Terms{}); err == nil {
				got, _, err = s.runs.Claim(t.Context(), batch)
			}
		}
		if err != nil || len(got) != 1 || got[0].Run.ID != run.ID || !got[0].Run.AcceptedAt.Equal(run.AcceptedAt) {
			t.Fatalf("way %d: claimed %+v: %v", i, got, err)
		}
		row := ""
		if err := s.query(t.Context(), func(rows pgx.Rows) error { return rows.Scan(&row) }, "SELECT concat_ws(' ', head, turn, due_at, expires_at, starts, waits, node, call IS NULL, leader = id, folded, started_at >= accepted_at, lease_until - started_at) FROM @.queue"); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("t 1 0 %s f t 0 t 01:00:00", s.node)
		if row != want {
			t.Errorf("way %d: the row is %q, want %q", i, row, want)
		}
		checkQueue(t, s, 0)
		if n := s.number(t, "SELECT sum(running) FROM @.counter"); n != 1 {
			t.Errorf("way %d: %d runs are counted", i, n)
		}
		claims = append(claims, got[0])
		if _, err := s.runs.End(t.Context(), got[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(c *engine.Claim) string {
		run := *c.Run
		run.ID, run.AcceptedAt, run.Key = "", time.Time{}, nil
		return fmt.Sprintf("%+v attempt %d, waits %d, awaited %v, %d folded, %d questions", run, c.Attempt, c.Waits, c.Awaited, len(c.Folded), len(c.Questions))
	}
	for i, claim := range claims[:2] {
		if got, want := plain(claim), plain(claims[2]); got != want {
			t.Errorf("way %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

// The answer to a call that accepted a run and claimed it is lost. The run is claimed again at once, as if it had not been.
func TestClaimsOfAnAdditionWithoutAnAnswerAreUndone(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	lost, err := s.runs.AddAndClaim(t.Context(), []*engine.Run{newAdded("a", "")}, engine.Terms{}, batch)
	if err != nil || len(lost) != 1 {
		t.Fatalf("claimed %d runs: %v", len(lost), err)
	}
	s.runs.claiming.lostAdds.add(s.runs.adding.claimCall)
	claims, _, err := s.Runs().Claim(t.Context(), batch)
	if err != nil || len(claims) != 1 || claims[0].Attempt != 1 || claims[0].Run.ID != lost[0].Run.ID {
		t.Fatalf("claimed %+v: %v", claims, err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	if _, err := s.runs.End(t.Context(), lost[0], end, engine.Batch{}); !errors.Is(err, engine.ErrClaimLost) {
		t.Errorf("the lost claim can be ended: %v", err)
	}
	checkQueue(t, s, 0)
}

// A caller that is gone when its run is accepted gets no claim, and somebody else does.
func TestClaimsOfAnAdditionWhoseCallerIsGoneAreUndone(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	gone, err := newAddition([]*engine.Run{newAdded("a", "")}, engine.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	gone.wanted = &turnover{next: batch, state: turnoverAbandoned}
	s.runs.adding.addTogether(t.Context(), []*addition{gone})
	if gone.err != nil || len(gone.wanted.claims) > 0 {
		t.Fatalf("claimed %v: %v", gone.wanted.claims, gone.err)
	}
	claims, _, err := s.Runs().Claim(t.Context(), batch)
	if err != nil || len(claims) != 1 || claims[0].Attempt != 1 {
		t.Fatalf("claimed %+v: %v", claims, err)
	}
	checkQueue(t, s, 0)
}

// Callers give up at any moment, also while their batch is under way. No run is lost, and none stays claimed by nobody.
func TestCallersMayGiveUpWhileRunsAreAcceptedAndClaimed(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	var mu sync.Mutex
	held := make(map[string]bool)
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			for n := range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*n)*200*time.Microsecond)
				claims, err := s.runs.AddAndClaim(ctx, []*engine.Run{newAdded(fmt.Sprint("chat ", i, n), "")}, engine.Terms{}, engine.Batch{Max: 1, Lease: time.Hour})
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				mu.Lock()
				for _, claim := range claims {
					held[claim.Run.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	waitFor(t, "claims are those that callers know of", func() bool {
		return s.number(t, "SELECT count(*) FROM @.queue WHERE node IS NOT NULL") == len(held)
	})
	checkQueue(t, s, s.number(t, "SELECT count(*) FROM @.queue WHERE node IS NULL"))
}

// Nodes that add to the same chats at the same time claim one run of each.
func TestNodesClaimOneRunOfAChatWhenTheyAcceptSeveral(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	other := joinTestStore(t, s)
	for round := range 30 {
		var claimed [2][]*engine.Claim
		var nodes sync.WaitGroup
		for i, node := range []*store{s, other} {
			nodes.Go(func() {
				var runs []*engine.Run
				for chat := range 5 {
					runs = append(runs, newAdded(fmt.Sprint("chat ", round, chat), ""))
				}
				var err error
				if claimed[i], err = node.runs.AddAndClaim(t.Context(), runs, engine.Terms{}, engine.Batch{Max: 5, Lease: time.Hour}); err != nil {
					t.Error(err)
				}
			})
		}
		nodes.Wait()
		chats := make(map[string]bool)
		for _, claim := range append(claimed[0], claimed[1]...) {
			if chats[claim.Run.ChatID] {
				t.Fatalf("two runs of %s are claimed", claim.Run.ChatID)
			}
			chats[claim.Run.ChatID] = true
		}
		if len(chats) != 5 {
			t.Fatalf("runs of %d chats are claimed", len(chats))
		}
	}
	checkQueue(t, s, 150)
}

// What may be claimed at once is, though there are others that nobody may claim now. Requests that come at the same time claim nothing.
func TestWhatIsClaimedWhenItIsAccepted(t *testing.T) {
	t.Parallel()
	all := engine.Batch{Max: 1, Lease: time.Hour}
	paused := engine.Batch{Max: 1, Lease: time.Hour, Bounds: []engine.Bound{{Hooks: []string{"paused"}}}, Without: []string{"paused chat"}}
	of := func(hook string) *engine.Run {
		run := newAdded("of "+hook, "")
		run.Hook = hook
		return run
	}
	folded, again, refuse := newAdded("folded", ""), newAdded("again", ""), engine.Terms{Refuse: errors.New("refused")}
	folded.Fold, again.AgainOf = engine.Fold{Window: time.Hour, Max: 5}, "of nobody"
	for name, tc := range map[string]struct {
		batch  engine.Batch
		queued *engine.Run // before
		beside *engine.Run // at the same time
		terms  engine.Terms
		key    string
		claims bool
	}{
		"a key":                            {batch: all, key: "new", claims: true},
		"a key that is used beside it":     {batch: all, key: "key", beside: newAdded("beside", "key")},
		"another one beside it":            {batch: all, beside: of("other")},
		"a fold beside it":                 {batch: all, beside: folded},
		"a run again beside it":            {batch: all, beside: again},
		"a refused one beside it":          {batch: all, beside: of("other"), terms: refuse},
		"another hook is paused":           {batch: paused, claims: true},
		"and has a run in the queue":       {batch: paused, queued: of("paused"), claims: true},
		"and another one has a run, too":   {batch: paused, queued: of("other")},
		"and has a run beside it":          {batch: paused, beside: of("paused")},
		"a run of its own hook was before": {batch: all, queued: of("agent")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestStore(t)
			queued, stored := 0, 0
			if tc.queued != nil {
				queued++
				if err := s.runs.Add(t.Context(), tc.queued, engine.Terms{}); err != nil {
					t.Fatal(err)
				}
			}
			own, err := newAddition([]*engine.Run{newAdded("own", tc.key)}, engine.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			own.wanted = &turnover{next: tc.batch}
			batch := []*addition{own}
			if tc.beside != nil {
				beside, err := newAddition([]*engine.Run{tc.beside}, tc.terms)
				if err != nil {
					t.Fatal(err)
				}
				batch = append(batch, beside)
			}
			if err := s.runs.adding.addAll(t.Context(), batch); err != nil || own.err != nil {
				t.Fatal(err, own.err)
			}
			for _, one := range batch {
				if one.err == nil {
					stored++
				}
			}
			if got := len(own.wanted.claims) == 1; got != tc.claims {
				t.Errorf("it is claimed: %v", got)
			}
			checkQueue(t, s, queued+stored-len(own.wanted.claims))
		})
	}
	s := newTestStore(t)
	if claims, err := s.runs.AddAndClaim(t.Context(), []*engine.Run{of("paused")}, engine.Terms{}, paused); err != nil || len(claims) > 0 {
		t.Errorf("a paused run is claimed: %v, %v", claims, err)
	}
	checkQueue(t, s, 1)
}

// Keys that a call had written when it turned out that it cannot claim anything are counted once, and repeats are found.
func TestKeysOfACallThatClaimsNothingAreCounted(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	terms := engine.Terms{Limits: engine.Limits{Chat: 1}}
	first := newAdded("a", "first")
	claims, err := s.runs.AddAndClaim(t.Context(), []*engine.Run{first}, terms, batch)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	if claims, err = s.runs.AddAndClaim(t.Context(), []*engine.Run{newAdded("a", "second")}, terms, batch); err != nil || len(claims) != 0 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	for range 2 {
		_, err := s.runs.AddAndClaim(t.Context(), []*engine.Run{newAdded("a", "third")}, terms, batch)
		if !errors.Is(err, engine.ErrChatFull) {
			t.Errorf("in a full chat: %v", err)
		}
		var duplicate *engine.DuplicateError
		_, err = s.runs.AddAndClaim(t.Context(), []*engine.Run{newAdded("b", "first")}, terms, batch)
		if !errors.As(err, &duplicate) || duplicate.First.ID != first.ID {
			t.Errorf("a repeated request: %v", err)
		}
	}
	checkQueue(t, s, 1)
	if n := s.number(t, "SELECT count(*) FROM @.key"); n != 2 {
		t.Errorf("%d keys are kept", n)
	}
}
