//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// patience is how long word may take.
const patience = 30 * time.Second

// joinAs opens the schema of a store as one more node, made as a test wants it.
func joinAs(t testing.TB, schema string, change func(*store)) *store {
	t.Helper()
	d, err := connect(t.Context(), pgtest.Shared(t).DSN("postgres"), schema)
	if err != nil {
		t.Fatal(err)
	}
	s := makeStore(d)
	change(s)
	s.watch.start()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// deaf nodes do not hear the word of others.
func deaf(s *store) { s.listens = false }

// still nodes have no pulse but for the word of others.
func still(s *store) { s.watch.pulse.period = time.Hour }

// hears makes a change, and waits for word of it.
func hears(t *testing.T, word <-chan struct{}, what string, change func()) {
	t.Helper()
	select {
	case <-word:
	default:
	}
	change()
	select {
	case <-word:
	case <-time.After(patience):
		t.Fatalf("no word came after %s", what)
	}
}

func (s *store) add(t *testing.T, run *engine.Run) *engine.Run {
	t.Helper()
	if run.Timeout == 0 {
		run.Timeout = time.Minute
	}
	if err := s.Runs().Add(t.Context(), run, engine.Terms{Settings: s.revision(t)}); err != nil {
		t.Fatal(err)
	}
	return run
}

func (s *store) revision(t *testing.T) int64 {
	t.Helper()
	revision, err := s.Settings().Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (s *store) claimOne(t *testing.T) *engine.Claim {
	t.Helper()
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs, %v", len(claims), err)
	}
	return claims[0]
}

func (s *store) endRun(t *testing.T, claim *engine.Claim) {
	t.Helper()
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer", HasText: true}}
	end.Deliveries = []*engine.Delivery{{
		ID: engine.DeliveryID(claim.Run.ID, 0), RunID: claim.Run.ID, Status: engine.Pending, Callback: "https://example.com/", RunStatus: engine.Completed,
	}}
	if _, err := s.Runs().End(t.Context(), claim, end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
}

// wants waits until other nodes want a run, or not.
func (s *store) wants(t *testing.T, id string, want bool) uint64 {
	t.Helper()
	timeout := time.After(patience)
	for {
		number, wanted := s.Streams().Wanted()[id]
		if wanted == want {
			return number
		}
		select {
		case <-s.Streams().Asked():
		case <-timeout:
			t.Fatalf("it is %v that others want run %s", wanted, id)
		}
	}
}

// Each of both ways by which a node hears of others is enough.
func TestNodesHearOfEachOtherByPulseAloneAndByWordAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*store){"pulse": deaf, "word": still} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := pgtest.NewName("heard_")
			hearEachOther(t, joinAs(t, schema, change), joinAs(t, schema, change), 0)
		})
	}
}

// hearEachOther has one node do all that another one should hear of.
func hearEachOther(t *testing.T, a, b *store, revision int64) {
	t.Helper()
	waitFor(t, "node a knows of node b", func() bool { return !a.watch.isLone.Load() })
	var run *engine.Run
	hears(t, b.Watch().Claimable(), "a run was added", func() { run = a.add(t, newAdded("a", "")) })
	ended, stop := a.Watch().Ended(run.ID)
	defer stop()
	claim := b.claimOne(t)
	hears(t, b.Watch().Cancelled(), "a run is to be cancelled", func() {
		if err := a.Runs().Cancel(t.Context(), run.ID, "somebody"); err != nil {
			t.Fatal(err)
		}
	})
	feed := a.Streams().Follow(run.ID)
	defer feed.Close()
	b.wants(t, run.ID, true)
	for i := range 3 {
		b.sends(t, feed, engine.Frame{Turn: 5, At: i, Text: "\xff\x00"})
	}
	hears(t, a.Watch().Due(), "a run ended with a delivery", func() { b.endRun(t, claim) })
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the end of the run was not told")
	}
	hears(t, b.Watch().SettingsChanged(), "settings were saved", func() {
		if _, err := a.Settings().Save(t.Context(), []byte("settings"), nil, revision); err != nil {
			t.Fatal(err)
		}
	})
	feed.Close()
	b.wants(t, run.ID, false)
}

// sends sends a frame to another node, and waits for it there.
func (s *store) sends(t *testing.T, to engine.Feed, frame engine.Frame) {
	t.Helper()
	if err := s.Streams().Send(t.Context(), to.(*feed).id, frame); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-to.Frames():
		if got != frame {
			t.Errorf("got %+v, want %+v", got, frame)
		}
	case <-time.After(patience):
		t.Fatal("no frame came")
	}
}

func TestNodesHearOfEachOtherBehindPgbouncer(t *testing.T) {
	t.Parallel()
	bouncer := pgtest.NewPgbouncer(t, pgtest.New(t, pgtest.Config{}), 4)
	p := newModule(t, bouncer.DSN("postgres"))
	hearEachOther(t, openModule(t, p), openModule(t, p), 0)
}

// A crash empties the table of frames. What nodes follow stays.
func TestNodesHearOfEachOtherAfterTheDatabaseWasUnreachable(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, pgtest.Config{})
	p := newModule(t, server.DSN("postgres"))
	a, b := openModule(t, p), openModule(t, p)
	hearEachOther(t, a, b, 0)
	run := uuid.NewString()
	followed := a.Streams().Follow(run)
	b.wants(t, run, true)
	b.sends(t, followed, engine.Frame{Turn: 1, Text: "before"})
	server.Stop("immediate")
	late := uuid.NewString()
	followedLate := a.Streams().Follow(late) // it cannot be stored now
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	b.wants(t, late, true)
	b.wants(t, run, true)
	b.sends(t, followed, engine.Frame{Turn: 1, Text: "after"})
	b.sends(t, followedLate, engine.Frame{Turn: 1, Text: "late"})
	hearEachOther(t, a, b, 1)
}

func TestAPulseTellsOnlyWhatIsSo(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	s.add(t, newAdded("a", ""))
	s.claimOne(t)
	if err := s.watch.beat(t.Context(), request{full: true}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Watch().SettingsChanged(): // since it joined
	default:
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.watch.beat(gone, request{full: true}); err == nil {
		t.Error("a pulse that did not reach the database does not say so")
	}
	if ahead := time.Until(s.now()); ahead.Abs() > time.Hour {
		t.Errorf("the clock is wrong by %v", ahead)
	}
	select {
	case <-s.Watch().Cancelled():
		t.Error("it says that a run is to be cancelled")
	case <-s.Watch().SettingsChanged():
		t.Error("it says that settings were saved")
	default:
	}
}

func TestPulseTakesNoLongerInALongQueue(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T, s *store, from, to int) { fillRuns(t, s, from, to) }
	explains(t, fill, func(t *testing.T, s *store, n int) {
		var watched []string
		for range 10 {
			watched = append(watched, uuid.NewString())
		}
		run := s.add(t, newAdded(fmt.Sprint("watched ", n), ""))
		_, stop := s.Watch().Ended(run.ID)
		defer stop()
		feed := s.Streams().Follow(run.ID)
		defer feed.Close()
		for _, asked := range []request{{full: true}, {runs: watched}, {}} {
			if err := s.watch.beat(t.Context(), asked); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the first one has no news yet
			s.watch.isLone.Store(false)
			if _, err := s.News(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		// As another node would.
		for _, statement := range []string{
			"INSERT INTO @.node (name, alive_until, seen_at) VALUES ('other', now(), now()) ON CONFLICT (name) DO UPDATE SET seen_at = now()",
			"SELECT @.send_frames_1('other', ARRAY['" + run.ID + "'], '{1}', '{0}', '{5}', ARRAY['hello'::bytea], '{false}')",
			"SELECT @.follow_1('other', ARRAY['" + run.ID + "'], '{}', false)",
			"SELECT @.sweep_nodes_1()",
			"SELECT @.leave_1('other')",
		} {
			if err := s.exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			if err := s.watch.beat(t.Context(), request{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !isSo() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Thousands of callers wait for runs, and each is told of the end of its own.
func TestThousandsWaitForTheEndOfRuns(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, deaf)
	const runs = 2000
	var all []*engine.Run
	for i := range runs {
		all = append(all, newAdded(fmt.Sprint(i), ""))
	}
	if err := a.Runs().AddAll(t.Context(), all, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	watched := make([]<-chan struct{}, runs)
	var callers sync.WaitGroup
	for i, run := range all {
		callers.Go(func() { watched[i], _ = b.Watch().Ended(run.ID) })
	}
	callers.Wait()
	if n := len(b.watch.watched(true, nil)); n != runs {
		t.Errorf("%d runs are watched, want %d", n, runs)
	}
	gone := all[:runs/2]
	for _, run := range gone {
		callers.Go(func() {
			if _, err := a.Runs().End(t.Context(), &engine.Claim{Run: run}, engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}}, engine.Batch{}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	timeout := time.After(patience)
	for i := range gone {
		select {
		case <-watched[i]:
		case <-timeout:
			t.Fatal("an end was not told")
		}
	}
	for i := len(gone); i < runs; i++ {
		select {
		case <-watched[i]:
			t.Fatal("an end was told of a run that waits")
		default:
		}
	}
	if n := len(b.watch.watched(true, nil)); n != runs-len(gone) {
		t.Errorf("%d runs are still watched, want %d", n, runs-len(gone))
	}
}

// A run may end at any moment while somebody begins to wait for it. Whoever then finds that it has not ended is told.
func TestEndIsToldToWhoeverFoundTheRunUnfinished(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, func(*store) {})
	for range 50 {
		run := a.add(t, newAdded("a", ""))
		var ender sync.WaitGroup
		ender.Go(func() { a.endRun(t, &engine.Claim{Run: run}) })
		ended, stop := b.Watch().Ended(run.ID)
		unfinished, err := b.Runs().Unfinished(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if unfinished {
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("the end was not told")
			}
		}
		stop()
		ender.Wait()
		late, stop := b.Watch().Ended(run.ID)
		select {
		case <-late:
			t.Fatal("an end was told that was before")
		default:
		}
		stop()
	}
	if n := len(b.watch.watched(true, nil)); n != 0 {
		t.Errorf("%d runs are still watched", n)
	}
}

// What was saved on one node is seen by a question that another one puts afterwards, however many ask at the same time.
func TestRevisionIsNotOlderThanTheQuestion(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, func(*store) {})
	ctx, cancel := context.WithCancel(t.Context())
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			for ctx.Err() == nil {
				if _, err := b.Settings().Revision(ctx); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range int64(50) {
		saved, err := a.Settings().Save(t.Context(), []byte("x"), nil, i)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.revision(t); got != saved {
			t.Errorf("revision %d is in force after %d was saved", got, saved)
		}
	}
	cancel()
	askers.Wait()
}
