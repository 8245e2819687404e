//go:build real

package postgres

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

// manyRuns is how many runs a large file has.
const manyRuns = 100_000

func TestAnImportOfManyRunsLosesNone(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine moves 100,000 runs")
	}
	began := time.Now()
	file := filepath.Join(t.TempDir(), "hooks.db")
	database, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	from := database.Store()
	fillWithMany(t, from, manyRuns)
	filled := time.Now()
	opener := &Postgres{DSN: pgtest.Shared(t).DSN("postgres"), Schema: pgtest.NewName("imported_")}
	if opener.dsn, err = parseDSN(opener.DSN); err != nil {
		t.Fatal(err)
	}
	got, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	imported := time.Now()
	want := imports.Counts{Queued: 30_000, Ended: 70_000, History: 35_000, Deliveries: 21_000, Keys: 20_000, Sessions: 100}
	if got != want {
		t.Errorf("imported %+v, want %+v", got, want)
	}
	to, err := opener.OpenStore(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()

	compareRuns(t, from, to, manyRuns)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("filled in %v, imported in %v, compared in %v", filled.Sub(began), imported.Sub(filled), time.Since(imported))
}

// fillWithMany adds runs of which three tenths stay queued and the others have ended: one in seven failed, one in seven was cancelled. Half of those that
// have ended keep their message, three in ten have a delivery, and one in five runs has a key.
func fillWithMany(t *testing.T, s engine.Store, n int) {
	t.Helper()
	add := func(run *engine.Run) {
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Error(err)
		}
	}
	const atOnce = 1000
	inParallel := func(n int, do func(i int)) {
		var group sync.WaitGroup
		for worker := range atOnce {
			group.Go(func() {
				for i := worker; i < n && !t.Failed(); i += atOnce {
					do(i)
				}
			})
		}
		group.Wait()
	}
	run := func(i int) *engine.Run {
		r := &engine.Run{ChatID: fmt.Sprint("chat ", i), Hook: fmt.Sprint("hook", i%5), Action: engine.Agent, Message: fmt.Sprint("message ", i),
			Metadata: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), Timeout: time.Minute, NewChat: i%3 == 0}
		if i%2 == 0 {
			r.History = time.Hour
		}
		if i%5 == 0 {
			r.Key = &engine.Key{ID: [32]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}, Body: [32]byte{byte(i)}}
		}
		return r
	}
	inParallel(n*7/10, func(i int) { add(run(i)) })
	for ended := 0; ended < n*7/10; {
		claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: atOnce, Lease: time.Minute})
		if err != nil || len(claims) == 0 {
			t.Fatalf("claimed %d runs: %v", len(claims), err)
		}
		ended += len(claims)
		inParallel(len(claims), func(i int) { endOne(t, s, claims[i]) })
	}
	settleSome(t, s, inParallel)
	inParallel(n*3/10, func(i int) { add(run(n*7/10 + i)) })
	if t.Failed() {
		t.FailNow()
	}
}

// endOne ends a run as the number in its message says.
func endOne(t *testing.T, s engine.Store, claim *engine.Claim) {
	number := 0
	if _, err := fmt.Sscanf(claim.Run.Message, "message %d", &number); err != nil {
		t.Error(err)
		return
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: fmt.Sprint("answer ", number), HasText: true}}
	switch number % 7 {
	case 0:
		end.Outcome = engine.Outcome{Status: engine.Failed, Failure: engine.RunnerFailed, Message: "it failed", Account: engine.Account{Reason: "why"}}
	case 1:
		end.Outcome = engine.Outcome{Status: engine.TimedOut, Message: "time was up"}
	}
	end.Steps = []engine.Step{{Phase: engine.PhaseTurn, StartedAt: claim.StartedAt, Took: time.Second}}
	if number%700 == 2 {
		end.Session = engine.Session{Runner: "default", ID: fmt.Sprint("session ", number)}
	}
	if number%10 < 3 {
		end.Deliveries = []*engine.Delivery{{ID: engine.DeliveryID(claim.Run.ID, 0), RunID: claim.Run.ID, Status: engine.Pending, ChatID: claim.Run.ChatID, Hook: claim.Run.Hook,
			ContentType: "text/plain", Body: fmt.Sprint("answer ", number), Callback: fmt.Sprintf("http://host%d.example.com/", number%50)}}
	}
	if _, err := s.Runs().End(t.Context(), claim, end, engine.Batch{}); err != nil {
		t.Error(err)
	}
}

// settleSome sends deliveries, some of them in vain, and leaves others pending.
func settleSome(t *testing.T, s engine.Store, inParallel func(n int, do func(i int))) {
	t.Helper()
	for range 10 {
		due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 1000, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		inParallel(len(due), func(i int) {
			d := due[i]
			d.Attempt++
			d.Status = engine.Delivered
			if i%3 == 0 {
				d.Status, d.LastError, d.LastStatus = engine.Dead, "refused", 410
			}
			if err := s.Deliveries().Settle(t.Context(), d, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// compareRuns compares all runs of two stores, page by page. Lists leave out steps and the bodies of deliveries: every so many runs it looks at all.
func compareRuns(t *testing.T, from, to engine.Store, want int) {
	t.Helper()
	const everySoMany = 20
	query := engine.Query{Limit: 1000, OldestFirst: true, Input: true, Replies: true, Deliveries: true}
	others := query
	compared := 0
	for {
		page, next, err := from.Runs().List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		other, otherNext, err := to.Runs().List(t.Context(), others)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) != len(other) || (next == "") != (otherNext == "") {
			t.Fatalf("after %d runs the file has %d, and the database %d", compared, len(page), len(other))
		}
		for i, record := range page {
			if before, after := textOf(t, record, nil), textOf(t, other[i], nil); before != after {
				t.Fatalf("a run was\n%s\nand is\n%s", before, after)
			}
			if (compared+i)%everySoMany == 0 {
				if before, after := wholeRun(t, from, record.Run.ID), wholeRun(t, to, record.Run.ID); before != after {
					t.Fatalf("a run was\n%s\nand is\n%s", before, after)
				}
			}
		}
		compared += len(page)
		if next == "" {
			break
		}
		query.Cursor, others.Cursor = next, otherNext
	}
	if compared != want {
		t.Errorf("there are %d runs, want %d", compared, want)
	}
}

// wholeRun is a text with all that a store has about a run and its deliveries.
func wholeRun(t *testing.T, s engine.Store, id string) string {
	t.Helper()
	record, err := s.Runs().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	deliveries := make([]*engine.Delivery, len(record.Deliveries))
	for i, d := range record.Deliveries {
		if deliveries[i], err = s.Deliveries().Get(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
	}
	return textOf(t, record, deliveries)
}

// textOf is a text with all of a record, but for claims, which are not moved, and nanoseconds, which the database does not have.
func textOf(t *testing.T, record *engine.Record, whole []*engine.Delivery) string {
	t.Helper()
	shorten := func(at *time.Time) { *at = at.UTC().Truncate(time.Microsecond) }
	for _, d := range slices.Concat(record.Deliveries, whole) {
		d.Token, d.Due = "", time.Time{}
		if d.Status == engine.Delivered {
			d.Body = ""
		}
		shorten(&d.CreatedAt)
		shorten(&d.TriedAt)
	}
	shorten(&record.Run.AcceptedAt)
	shorten(&record.StartedAt)
	shorten(&record.FinishedAt)
	for i := range record.Steps {
		shorten(&record.Steps[i].StartedAt)
	}
	text, err := json.Marshal([]any{record, whole})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
