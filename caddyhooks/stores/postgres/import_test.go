//go:build real

package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

func TestImportBringsAllThatAFileHas(t *testing.T) {
	server := pgtest.Shared(t)
	database, err := bolt.Open(filepath.Join(t.TempDir(), "hooks.db"))
	if err != nil {
		t.Fatal(err)
	}
	from := database.Store()
	defer func() { _ = from.Close() }()
	fill(t, from)

	opener := &Postgres{DSN: server.DSN("postgres"), Schema: pgtest.NewName("imported_")}
	if opener.dsn, err = parseDSN(opener.DSN); err != nil {
		t.Fatal(err)
	}
	var noted int
	fine := func(imports.Counts) error { return nil }
	refused := errors.New("there should be more")
	if _, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return refused }}); !errors.Is(err, refused) {
		t.Errorf("an import that is refused: %v", err)
	}
	got, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(runs int) { noted = runs }, Check: fine})
	if err != nil {
		t.Fatal(err)
	}
	if want := (imports.Counts{Queued: 6, Ended: 9, History: 1, Deliveries: 4, Keys: 2, Sessions: 2, Revision: 2, Changes: 2, Minutes: 1}); got != want || noted != 15 {
		t.Errorf("imported %+v, and told of %d, want %+v", got, noted, want)
	}
	if _, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: fine}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second import: %v", err)
	}
	to, err := opener.OpenStore(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()

	want := everything(t, from)
	if got := everything(t, to); got != want {
		t.Errorf("the imported store has\n%s\nwant\n%s", got, want)
	}
	for _, s := range []engine.Store{from, to} { // what is queued is carried out in its order
		if got, want := drain(t, s), "a3 a4 b1 b2 fold:f1,f2 "; got != want {
			t.Errorf("carried out %q, want %q", got, want)
		}
	}
	repeated := &engine.Run{ChatID: "z", Hook: "agent", Key: &engine.Key{ID: [32]byte{1}, Body: [32]byte{2}}}
	var duplicate *engine.DuplicateError
	if err := to.Runs().Add(t.Context(), repeated, engine.Terms{Settings: 2}); !errors.As(err, &duplicate) || !duplicate.SameBody {
		t.Errorf("a repeated request: %v", err)
	}
	due, _, err := to.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: time.Minute})
	if err != nil || len(due) != 2 || due[0].Body == "" {
		t.Errorf("%d deliveries are due: %v", len(due), err)
	}
}

// Keys may be kept for longer than runs.
func TestImportBringsKeysOfForgottenRuns(t *testing.T) {
	database, err := bolt.Open(filepath.Join(t.TempDir(), "hooks.db"))
	if err != nil {
		t.Fatal(err)
	}
	from := database.Store()
	defer func() { _ = from.Close() }()
	first := &engine.Run{ChatID: "a", Hook: "agent", Timeout: time.Minute, Key: &engine.Key{ID: [32]byte{1}, Body: [32]byte{2}}}
	if err := from.Runs().Add(t.Context(), first, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Runs().End(t.Context(), &engine.Claim{Run: first}, engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Prune(t.Context(), engine.Limits{Retention: time.Nanosecond, KeyAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	opener := &Postgres{DSN: pgtest.Shared(t).DSN("postgres"), Schema: pgtest.NewName("imported_")}
	if opener.dsn, err = parseDSN(opener.DSN); err != nil {
		t.Fatal(err)
	}
	got, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return nil }})
	if want := (imports.Counts{Keys: 1}); err != nil || got != want {
		t.Fatalf("imported %+v, want %+v: %v", got, want, err)
	}
	to, err := opener.OpenStore(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	var duplicate *engine.DuplicateError
	again := &engine.Run{ChatID: "a", Hook: "agent", Key: first.Key}
	if err := to.Runs().Add(t.Context(), again, engine.Terms{}); !errors.As(err, &duplicate) || !duplicate.SameBody || duplicate.First.ID != first.ID {
		t.Errorf("a repeated request: %v", err)
	}
}

func TestImportBringsGates(t *testing.T) {
	database, err := bolt.Open(filepath.Join(t.TempDir(), "hooks.db"))
	if err != nil {
		t.Fatal(err)
	}
	from := database.Store()
	defer func() { _ = from.Close() }()
	gates := []gate.Gate{onceAnHour("x"), aloneIn("x"), anHour(1, "x")}
	first := newGated("a", "", gates...)
	if err := from.Runs().Add(t.Context(), first, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	opener := &Postgres{DSN: pgtest.Shared(t).DSN("postgres"), Schema: pgtest.NewName("imported_")}
	if opener.dsn, err = parseDSN(opener.DSN); err != nil {
		t.Fatal(err)
	}
	if _, err := opener.Import(t.Context(), "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	to, err := opener.OpenStore(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	for _, g := range gates {
		var closed *gate.ClosedError
		if err := to.Runs().Add(t.Context(), newGated("b", "", g), engine.Terms{}); !errors.As(err, &closed) || g.Kind != gate.Rate && closed.First.RunID != first.ID {
			t.Errorf("gate %d: %v", g.Kind, err)
		}
	}
}

// fill makes a store that has something of everything.
func fill(t *testing.T, s engine.Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Documents().Save(t.Context(), engine.Document{Kind: "kind", Name: "name", Value: []byte("value")}))
	revision := int64(0)
	for range 2 {
		saved, err := s.Settings().Save(t.Context(), []byte(`{"a":1}`), []byte("somebody did"), revision)
		must(err)
		revision = saved
	}
	add := func(run *engine.Run) {
		t.Helper()
		run.Hook, run.Timeout = "agent", time.Minute
		must(s.Runs().Add(t.Context(), run, engine.Terms{Settings: revision}))
	}
	end := func(outcome engine.Outcome, session string, deliveries ...*engine.Delivery) {
		t.Helper()
		claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
		must(err)
		claim := claims[0]
		for i, d := range deliveries {
			d.RunID, d.Index, d.ID = claim.Run.ID, i, engine.DeliveryID(claim.Run.ID, i)
			d.Status, d.ChatID, d.Hook, d.ContentType, d.Body = engine.Pending, claim.Run.ChatID, claim.Run.Hook, "text/plain", "an answer"
		}
		_, err = s.Runs().End(t.Context(), claim, engine.End{Outcome: outcome, Deliveries: deliveries, Session: engine.Session{Runner: "default", ID: session},
			Steps: []engine.Step{{Phase: engine.PhaseTurn, StartedAt: claim.StartedAt, Took: time.Second, Errors: []string{"no"}}},
			Spent: []engine.LedgerEntry{{Account: usage.NewAccount("a", session), Span: time.Hour, Keep: 24 * time.Hour, Runs: 1,
				Use: engine.Use{HasTokens: true, Input: 5, Output: 4, Cached: 3, Reasoning: 2, HasCost: true, Cost: 1}}}}, engine.Batch{})
		must(err)
	}
	completed := engine.Outcome{Status: engine.Completed, Text: "fine \\ \x00 ok", HasText: true, JSON: []byte("{ }")}
	add(&engine.Run{ChatID: "a", Message: "a1 \x00", Metadata: json.RawMessage(`{"x": 1}`), History: time.Hour, Key: &engine.Key{ID: [32]byte{1}, Body: [32]byte{2}}})
	end(completed, "session-a", &engine.Delivery{Callback: "http://127.0.0.1:1/a"}, &engine.Delivery{Channel: "chat", To: "room"})
	add(&engine.Run{ChatID: "b", Message: "b0", Replay: &engine.Key{ID: [32]byte{3}}})
	end(engine.Outcome{Status: engine.Failed, Failure: engine.RunnerFailed, Message: "no", Account: engine.Account{Reason: "why", LastAnswer: "that"}}, "session-b",
		&engine.Delivery{Callback: "http://127.0.0.1:1/b"}, &engine.Delivery{Callback: "http://127.0.0.1:2/b"})
	add(&engine.Run{ChatID: "c", Message: "gone", Key: &engine.Key{ID: [32]byte{4}}})
	end(engine.Outcome{Status: engine.Cancelled, Account: engine.Account{CancelledBy: "somebody"}}, "")
	for range 2 {
		due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 4, Lease: time.Minute})
		must(err)
		for i, d := range due {
			switch i {
			case 0:
				d.Status = engine.Delivered
			case 1:
				d.Status, d.LastError, d.LastStatus = engine.Dead, "refused", 410
			default:
				d.LastError = "later"
			}
			d.Attempt++
			must(s.Deliveries().Settle(t.Context(), d, 0))
		}
		if len(due) > 0 {
			break
		}
	}
	for i := range 6 { // folded into one turn
		add(&engine.Run{ChatID: "f", Message: fmt.Sprint("f", i), Fold: engine.Fold{Window: time.Hour, Max: 6}})
	}
	end(completed, "")
	for _, message := range []string{"a3", "a4"} {
		add(&engine.Run{ChatID: "a", Message: message, QueueTime: time.Hour})
	}
	for _, message := range []string{"b1", "b2"} {
		add(&engine.Run{ChatID: "b", Message: message, NewChat: true, Runner: "other"})
	}
	for _, message := range []string{"f1", "f2"} {
		add(&engine.Run{ChatID: "fold", Message: message, Fold: engine.Fold{Max: 2, Window: time.Hour}})
	}
	must(s.Minutes().Save(t.Context(), engine.Minute{At: time.Now().Truncate(time.Minute), Part: 7, Accepted: 3}))
}

// everything is a text with all that a store has, as far as its interface tells.
func everything(t *testing.T, s engine.Store) string {
	t.Helper()
	all := map[string]any{}
	documents, err := s.Documents().Load(t.Context(), "")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	all["documents"] = documents
	records, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var runs, deliveries []any
	for _, listed := range records {
		record, err := s.Runs().Get(t.Context(), listed.Run.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range record.Deliveries {
			whole, err := s.Deliveries().Get(t.Context(), d.ID)
			if err != nil {
				t.Fatal(err)
			}
			whole.Token, whole.Due = "", time.Time{}
			if whole.Status == engine.Delivered {
				whole.Body = ""
			}
			deliveries = append(deliveries, whole)
			record.Deliveries[i].Token, record.Deliveries[i].Due = "", time.Time{}
		}
		runs = append(runs, record)
	}
	past, err := s.Runs().Past(t.Context(), "a", 10, 1000)
	if err != nil {
		t.Fatal(err)
	}
	session, _ := s.Sessions().Get(t.Context(), "default", "a")
	settings, revision, _ := s.Settings().Load(t.Context())
	changes, _, _ := s.Settings().Changes(t.Context(), 10, "")
	minutes, _ := s.Minutes().Load(t.Context(), time.Time{})
	spent, _, err := s.Ledger().Spent(t.Context(), "", time.Hour)
	if err != nil || len(spent) != 3 {
		t.Fatal(spent, err)
	}
	for i := range spent {
		spent[i].Start = spent[i].Start.UTC()
	}
	all["spent"] = spent
	backlog, _ := s.Runs().Backlog(t.Context())
	pending, dead, _ := s.Deliveries().Count(t.Context())
	all["runs"], all["deliveries"], all["past"], all["session"], all["minutes"] = runs, deliveries, past, session, minutes
	all["settings"], all["revision"], all["changes"] = settings, revision, len(changes)
	all["queued"], all["running"], all["pending"], all["dead"] = backlog.Queued, backlog.Running, pending, dead
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	data, _ = json.MarshalIndent(rounded(plain), "", " ")
	return string(data)
}

// rounded rounds times to microseconds, and takes out nil.
func rounded(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = rounded(inner)
		}
	case []any:
		for i := range v {
			v[i] = rounded(v[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.UTC().Round(10 * time.Microsecond).Format(time.RFC3339Nano)
		}
	}
	return value
}

// drain carries out what is queued, and tells the messages in the order of chats.
func drain(t *testing.T, s engine.Store) string {
	t.Helper()
	byChat := map[string]string{}
	for {
		claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) == 0 {
			return byChat["a"] + byChat["b"] + byChat["fold"]
		}
		for _, claim := range claims {
			text := claim.Run.Message
			if len(claim.Folded) > 0 {
				text = "fold:" + text
			}
			for _, run := range claim.Folded {
				text += "," + run.Message
			}
			byChat[claim.Run.ChatID] += text + " "
			if _, err := s.Runs().End(t.Context(), claim, engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
