//go:build real

package postgres

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

// Questions and runs that are put aside come along. Open questions stay open, with the time that they have left.
func TestImportBringsQuestions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "hooks.db")
	database, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	from := database.Store()
	defer func() { _ = from.Close() }()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(chat string) *engine.Claim {
		t.Helper()
		must(from.Runs().Add(ctx, &engine.Run{ChatID: chat, Hook: "agent", QueueTime: time.Hour, Timeout: time.Minute}, engine.Terms{}))
		claims, _, err := from.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: time.Hour})
		if err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		return claims[0]
	}
	aside := func(claim *engine.Claim, q *engine.Question) string {
		t.Helper()
		d := &engine.Delivery{RunID: claim.Run.ID, Index: engine.QuestionDeliveryIndex(q.Number, false), Channel: "ops", To: "1", Body: "?"}
		d.ID, d.Question = engine.DeliveryID(claim.Run.ID, d.Index), engine.QuestionID(claim.Run.ID, q.Number)
		_, err := from.Runs().End(ctx, claim, engine.End{Requeue: true, WaitingFor: "somebody", Question: q, Deliveries: []*engine.Delivery{d}}, engine.Batch{})
		must(err)
		return claim.Run.ID
	}
	answer := func(id string, number int) {
		t.Helper()
		_, err := from.Questions().Answer(ctx, engine.QuestionID(id, number), engine.Answer{Text: "yes \x00", By: "ann", Via: engine.AnsweredByPage})
		must(err)
	}
	timed := aside(run("a"), &engine.Question{Kind: engine.AskStart, Text: "may \x00?", Choices: []string{"yes", "no"}, For: time.Hour, Else: "no", By: []string{"U1"}})
	must(from.Runs().Add(ctx, &engine.Run{ChatID: "a", Hook: "agent", Timeout: time.Minute}, engine.Terms{})) // behind it
	agent := aside(run("b"), &engine.Question{Kind: engine.AskAgent, State: []byte("\x00state"), For: 24 * time.Hour})
	forever := aside(run("c"), &engine.Question{Kind: engine.AskInput, Text: "what?"})
	due := aside(run("d"), &engine.Question{Kind: engine.AskInput})
	claim := run("e")
	early := claim.Run.ID
	answer(early, 0)
	_, err = from.Runs().End(ctx, claim, engine.End{Requeue: true, WaitingFor: "the runner", Pause: time.Hour}, engine.Batch{})
	must(err)
	claim = run("f")
	closed := aside(claim, &engine.Question{Kind: engine.AskStart})
	_, err = from.Runs().End(ctx, &engine.Claim{Run: claim.Run}, engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}}, engine.Batch{})
	must(err)
	answer(due, 0)

	opener := &Postgres{DSN: pgtest.Shared(t).DSN("postgres"), Schema: pgtest.NewName("imported_")}
	opener.dsn, err = parseDSN(opener.DSN)
	must(err)
	got, err := opener.Import(ctx, "default", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return nil }})
	if want := (imports.Counts{Queued: 6, Ended: 1, Deliveries: 5, Questions: 6}); err != nil || got != want {
		t.Fatalf("imported %+v, want %+v: %v", got, want, err)
	}
	to, err := opener.OpenStore(ctx, "default")
	must(err)
	defer func() { _ = to.Close() }()
	checkQueue(t, to.(*store), 3)
	for id, status := range map[string]engine.Status{timed: engine.Waiting, agent: engine.Waiting, forever: engine.Waiting, due: engine.Queued, early: engine.Queued, closed: engine.Cancelled} {
		before, err := from.Runs().Get(ctx, id)
		must(err)
		after, err := to.Runs().Get(ctx, id)
		must(err)
		if after.Status != status || status == engine.Waiting && after.WaitingFor != "somebody" || len(after.Deliveries) != len(before.Deliveries) {
			t.Errorf("run %s is %s, %q, with %d deliveries; want %s", id, after.Status, after.WaitingFor, len(after.Deliveries), status)
		}
		if got, want := shownQuestions(after.Questions), shownQuestions(before.Questions); got != want {
			t.Errorf("run %s has the questions\n%s, want\n%s", id, got, want)
		}
	}
	list := func(s engine.Store) (ids []string) {
		page, _, err := s.Questions().List(ctx, 10, "")
		must(err)
		for _, q := range page {
			ids = append(ids, q.ID())
		}
		return ids
	}
	if got, want := fmt.Sprint(list(to)), fmt.Sprint(list(from)); got != want {
		t.Errorf("open are %s, want %s", got, want)
	}
	if backlog, err := to.Runs().Backlog(ctx); err != nil || backlog.Waiting != 3 || backlog.Queued != 3 {
		t.Errorf("the backlog is %+v: %v", backlog, err)
	}

	// The run of the agent is handed out, so that it is asked how it goes. The others wait for their answers.
	claims, wait, err := to.Runs().Claim(ctx, engine.Batch{Max: 10, Lease: time.Minute})
	must(err)
	claimed := map[string]int{}
	for _, claim := range claims {
		claimed[claim.Run.ID] = len(claim.Questions)
	}
	if len(claims) != 3 || claimed[agent] != 1 || claimed[due] != 1 || claimed[early] != 1 || wait > time.Hour || wait < 50*time.Minute {
		t.Errorf("claimed %v, and more are due in %v", claimed, wait)
	}
	must(from.Close())
	if checked, err := bolt.Check(file); err != nil || checked.Summary.Open != 2 || checked.Summary.Questions != got.Questions {
		t.Errorf("the file has %+v: %v", checked, err)
	}
	if _, err := to.Questions().Answer(ctx, engine.QuestionID(forever, 0), engine.Answer{Text: "that"}); err != nil {
		t.Error(err)
	}
	if claims, _, err = to.Runs().Claim(ctx, engine.Batch{Max: 10, Lease: time.Minute}); err != nil || len(claims) != 1 || claims[0].Run.ID != forever {
		t.Errorf("after an answer %d runs are due: %v", len(claims), err)
	}
}

// shownQuestions is a text with all that questions have.
func shownQuestions(all []*engine.Question) (text string) {
	for _, q := range all {
		at := func(t time.Time) string { return t.UTC().Round(10 * time.Microsecond).Format(time.RFC3339Nano) }
		text += fmt.Sprintf("%s %s %q %q %s %s %q %v %q %q %s %s", q.ID(), q.Kind, q.Text, q.Choices, q.Channel, q.To, q.By, q.For, q.Else, q.State, at(q.AskedAt), at(q.Until))
		if q.Answer != nil {
			text += fmt.Sprintf(" %q %q %q %q %s", q.Answer.Text, q.Answer.Error, q.Answer.By, q.Answer.Via, at(q.Answer.At))
		}
		text += "\n"
	}
	return text
}
