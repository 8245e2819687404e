//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Chats run empty all the time, while others add to them. A run that is added just then must not be left behind a head that is gone, and
// no call may stand in the way of another one for good: PostgreSQL counts those, each of which costs a second.
func TestNoChatIsLeftBehindWhenItRunsEmpty(t *testing.T) {
	t.Parallel()
	shared := newTestStore(t)
	name := pgtest.NewName("churn_")
	execForLong(t, shared, "CREATE DATABASE "+name)
	dsn := pgtest.Shared(t).DSN(name)
	var nodes []*store
	for range 3 {
		d, err := connect(t.Context(), dsn, "hooks")
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, newStore(d))
	}
	closeAll := sync.OnceFunc(func() {
		for _, node := range nodes {
			_ = node.Close()
		}
	})
	t.Cleanup(closeAll)
	const adders, each = 4, 30
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var added, ended atomic.Int64
	var adding, working sync.WaitGroup
	over := make(chan struct{})
	for i, node := range nodes {
		for adder := range adders {
			adding.Go(func() {
				for n := range each {
					runs := []*engine.Run{newAdded(fmt.Sprint("chat ", (n+adder)%4), "")}
					if n%4 == 0 {
						runs = append(runs, newAdded(fmt.Sprint("chat ", (n+i)%3), fmt.Sprint("key ", i, adder, n)), newAdded(fmt.Sprint("chat ", n%7), ""))
					}
					if n%6 == 0 {
						for _, run := range runs {
							run.Fold = engine.Fold{Window: time.Millisecond, Max: 3}
						}
					}
					if err := node.Runs().AddAll(ctx, runs, engine.Terms{Limits: engine.Limits{Queue: 10_000, Chat: 1000}}); err != nil {
						t.Error(err)
						return
					}
					added.Add(int64(len(runs)))
				}
			})
		}
		for range 3 {
			working.Go(func() {
				batch := engine.Batch{Max: 2, Lease: time.Minute}
				for {
					claims, _, err := node.Runs().Claim(ctx, batch)
					for len(claims) > 0 && err == nil {
						ended.Add(int64(1 + len(claims[0].Folded)))
						var next []*engine.Claim
						next, err = node.Runs().End(ctx, claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{Max: 1, Lease: time.Minute})
						claims = append(claims[1:], next...)
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
						return
					}
					select {
					case <-over:
						return
					case <-ctx.Done():
						return
					case <-node.Watch().Claimable():
					case <-time.After(20 * time.Millisecond): // a window may be over
					}
				}
			})
		}
	}
	adding.Wait()
	for ended.Load() < added.Load() && ctx.Err() == nil && !t.Failed() {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	close(over)
	working.Wait()
	if added.Load() != ended.Load() {
		t.Errorf("%d runs were added, and %d have ended", added.Load(), ended.Load())
	}
	checkQueue(t, nodes[0], 0)
	closeAll() // all that they did is counted then
	if n := shared.number(t, "SELECT deadlocks::int FROM pg_stat_database WHERE datname = $1", name); n != 0 {
		t.Errorf("%d calls stood in each other's way", n)
	}
}

// An end that finds no other run in the chat waits for those who are about to add one.
func TestRunThatIsAddedWhileItsChatRunsEmpty(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	if err := s.Runs().Add(t.Context(), newAdded("a", ""), engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("got %d claims, %v", len(claims), err)
	}
	second := newAdded("a", "")
	commit := addUncommitted(t, joinTestStore(t, s), second)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Runs().End(t.Context(), claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{})
		ended <- err
	}()
	waitForLock(t, s, ended)
	commit()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	checkQueue(t, s, 1)
	if n := s.number(t, "SELECT count(*) FROM @.queue WHERE turn IS NOT NULL"); n != 1 {
		t.Errorf("%d runs are ready, want 1", n)
	}
}

// Two nodes add to chats that have no head, in any order of their requests. The second waits for the first, and neither for ever.
func TestHeadsAreAddedInOneOrder(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	second := joinTestStore(t, first)
	if err := first.Runs().Add(t.Context(), newAdded("z", ""), engine.Terms{}); err != nil { // or they would wait for its kind
		t.Fatal(err)
	}
	commit := addUncommitted(t, first, newAdded("b", ""), newAdded("a", ""))
	added := make(chan error, 1)
	go func() {
		added <- second.Runs().AddAll(t.Context(), []*engine.Run{newAdded("b", ""), newAdded("a", ""), newAdded("c", "")}, engine.Terms{})
	}()
	waitForLock(t, first, added)
	commit()
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	checkQueue(t, first, 6)
}

// A repeated request waits for the first one, and repeats it only if that one was accepted.
func TestRepeatedRequestWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	second := joinTestStore(t, first)
	if err := first.Runs().Add(t.Context(), newAdded("z", ""), engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	commit := addUncommitted(t, first, newAdded("a", "key"))
	added := make(chan error, 1)
	go func() { added <- second.Runs().Add(t.Context(), newAdded("b", "key"), engine.Terms{}) }()
	waitForLock(t, first, added)
	commit()
	var duplicate *engine.DuplicateError
	if err := <-added; !errors.As(err, &duplicate) || duplicate.First.ChatID != "a" || !duplicate.SameBody {
		t.Errorf("got %v", err)
	}
	checkQueue(t, first, 2)
}

// addUncommitted adds runs as a node does whose call takes a while.
func addUncommitted(t *testing.T, s *store, runs ...*engine.Run) (commit func()) {
	t.Helper()
	a, err := newAddition(runs, engine.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	together := []*addition{a}
	adding := &s.runs.adding
	if err := a.prepare(&adding.ids, adding.now(), nil); err != nil {
		t.Fatal(err)
	}
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), s.sql(addStatement), adding.arguments(together, adding.now(), 3600)...); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForLock waits until a call waits for another one, which must be before it returns.
func waitForLock(t *testing.T, s *store, returned <-chan error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for s.number(t, "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()", s.sql("@.")) == 0 {
		select {
		case err := <-returned:
			t.Fatalf("the call did not wait: %v", err)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the call neither waits nor returns")
		}
	}
}
