//go:build real

package postgres

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// replicated is a server, a synchronous standby, and stores that work on whichever of the two can be written to.
type replicated struct {
	*testing.T
	primary, standby *pgtest.Server
	module           *Postgres
	kept             []string // runs that were acknowledged
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	primary := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	standby := primary.Standby(t, true)
	return &replicated{T: t, primary: primary, standby: standby, module: newModule(t, pgtest.AnyOf("postgres", pgtest.Password, "postgres", primary, standby))}
}

// add adds a run with a key, and notes it if it is acknowledged.
func (r *replicated) add(s *store, key string) (*engine.Run, error) {
	run := newAdded("chat of "+key, key)
	err := s.Runs().Add(r.Context(), run, engine.Terms{})
	if err == nil {
		r.kept = append(r.kept, run.ID)
	}
	return run, err
}

func (r *replicated) mustAdd(s *store, key string) *engine.Run {
	r.Helper()
	run, err := r.add(s, key)
	if err != nil {
		r.Fatal(err)
	}
	return run
}

// wantKept expects that everything that was acknowledged is there.
func (r *replicated) wantKept(s *store) {
	r.Helper()
	for _, id := range r.kept {
		if _, err := s.Runs().Get(r.Context(), id); err != nil {
			r.Errorf("the run %s was acknowledged: %v", id, err)
		}
	}
}

// isCommitted reports whether the primary has the key of a run, as everybody but whoever waits for the standby sees it.
func (r *replicated) isCommitted(key string) bool {
	r.Helper()
	id := newAdded("", key).Key.ID
	return pgtest.Ask[bool](r, r.primary, "postgres", "SELECT EXISTS (SELECT FROM "+r.module.Schema+".key WHERE id = '\\x"+hex.EncodeToString(id[:])+"')")
}

func TestNothingIsAcknowledgedWithoutTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	one, other := openModule(t, r.module), openModule(t, r.module)
	r.mustAdd(one, "before")
	claims, _, err := one.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	r.mustAdd(one, "also before")

	r.standby.Stop("immediate")
	opened := make(chan engine.Store, 1)
	go func() { // which takes as long as the first answer
		s, err := r.module.OpenStore(t.Context(), "test")
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	began := time.Now()
	first, err := r.add(one, "meanwhile")
	if !errors.Is(err, engine.ErrUnreachable) {
		t.Fatalf("without the standby a run is added: %v", err)
	}
	t.Logf("the first answer came after %v: %v", time.Since(began), err)
	waitFor(t, "the run is committed on the primary", func() bool { return r.isCommitted("meanwhile") })
	// Whoever repeats the request finds its key, on any node.
	late, ok := (<-opened).(*store)
	if !ok {
		t.FailNow()
	}
	t.Cleanup(func() { _ = late.Close() })
	for name, s := range map[string]*store{"the node": one, "another node": other, "a new node": late} {
		if _, err := r.add(s, "meanwhile"); !errors.Is(err, engine.ErrUnreachable) {
			t.Errorf("the request is repeated on %s: %v", name, err)
		}
		if _, _, cause := s.Outage(); cause == nil {
			t.Errorf("%s does not say that the database is unreachable", name)
		}
	}
	if _, _, cause := late.Outage(); cause == nil || !strings.Contains(cause.Error(), "synchronous standby") {
		t.Errorf("it is unreachable because of %v", cause)
	}
	if claims, _, err := one.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute}); !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("claimed %d, %v", len(claims), err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "bye", HasText: true}}
	if _, err := one.Runs().End(t.Context(), claims[0], end, engine.Batch{}); !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("a run has ended: %v", err)
	}

	if err := r.standby.Start(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*store{one, other, late} {
		mustReturn(t, s)
		var duplicate *engine.DuplicateError
		if _, err := r.add(s, "meanwhile"); !errors.As(err, &duplicate) {
			t.Errorf("the request is repeated when the standby is back: %v", err)
		} else if r.kept = append(r.kept, duplicate.First.ID); first.ID != "" {
			t.Errorf("a run that was not acknowledged has the id %s", first.ID)
		}
	}
	if _, err := one.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Errorf("ending a run: %v", err)
	}
	r.primary.Kill()
	r.standby.Promote(t)
	mustReturn(t, one)
	r.wantKept(one)
	if record, err := one.Runs().Get(t.Context(), claims[0].Run.ID); err != nil || record.Outcome.Text != "bye" {
		t.Errorf("the run that has ended is %+v, %v", record, err)
	}
}

// Somebody who looks after the primary can end the wait of a commit. PostgreSQL then says that it is done, with a warning.
func TestACommitThatWasNotReplicatedIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	s := openModule(t, r.module)
	r.mustAdd(s, "before")
	r.standby.Stop("immediate")
	added := make(chan error)
	go func() {
		_, err := r.add(s, "meanwhile")
		added <- err
	}()
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%add_runs%'"
	waitFor(t, "a commit waits for the standby", func() bool { return pgtest.Ask[bool](t, r.primary, "postgres", "SELECT EXISTS (SELECT "+waiting+")") })
	r.primary.Exec(t, "postgres", "SELECT pg_cancel_backend(pid) "+waiting)
	if err := <-added; !errors.Is(err, engine.ErrUnreachable) || !errors.Is(err, errAnswerUnknown) {
		t.Fatalf("without the standby a run is added: %v", err)
	}
	waitFor(t, "the run is committed on the primary", func() bool { return r.isCommitted("meanwhile") })

	r.primary.Kill()
	if err := r.standby.Start(); err != nil {
		t.Fatal(err)
	}
	r.standby.Promote(t)
	mustReturn(t, s)
	r.mustAdd(s, "meanwhile") // it is a new one here
	r.wantKept(s)
}

// Callers may wait for a run at another node than the one that carries it out.
func TestAnEndThatWasNotReplicatedIsToldToNobody(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.primary.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_commit = off") // what the server does by default must not matter
	r.primary.Exec(t, "postgres", "SELECT pg_reload_conf()")
	one, other := openModule(t, r.module), openModule(t, r.module)
	run := r.mustAdd(one, "before")
	claims, _, err := one.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	ended, stop := other.Watch().Ended(run.ID)
	defer stop()
	r.standby.Stop("immediate")
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "bye", HasText: true}}
	if _, err := one.Runs().End(t.Context(), claims[0], end, engine.Batch{}); !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("a run has ended: %v", err)
	}
	waitFor(t, "the other node says that it is unreachable", func() bool {
		select {
		case <-ended:
			t.Fatal("the end is told")
		default:
		}
		_, _, cause := other.Outage()
		return cause != nil
	})
}
