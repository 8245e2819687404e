package bolt

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var writeLayout = flag.Bool("write-layout", false, "write a new testdata/layout-<n>.db for the present version of the layout")

// TestFilesOfAllLayoutsAreRead opens a file of every layout since the first release, as the version with that layout wrote it.
func TestFilesOfAllLayoutsAreRead(t *testing.T) {
	newest := newestLayout(migrations)
	for layout := firstLayout; layout <= newest; layout++ {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			name := filepath.Join("testdata", fmt.Sprintf("layout-%d.db", layout))
			if *writeLayout && layout == newest {
				writeLayoutFile(t, name)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "hooks.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if checked, err := Check(path); err != nil || checked.Manifest != nil || checked.Summary.Ended != 1 ||
				checked.Summary.Unfinished != 4 && layout < 8 || checked.Summary.Unfinished != 5 && layout >= 8 || checked.Summary.Damaged > 0 {
				t.Errorf("checking it: %+v, %v", checked, err)
			}
			if _, err := Compact(path, func(int64) {}); err != nil {
				t.Errorf("compacting it: %v", err)
			}
			s := newBolt(t, path)
			defer s.Close()
			if layout >= 8 {
				checkQuestions(t, s)
			}
			checkLayoutFile(t, s)
		})
	}
}

// A file from before the first release is refused, and stays as it is.
func TestFilesOfEarlierLayoutsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	if err := newBolt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	for layout := 1; layout < firstLayout; layout++ {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return putVersion(tx, layout) }), db.Close()); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		want := fmt.Sprintf("the file was written before the first release of caddyhooks (layout %d, and this version reads from %d on). "+
			"Nothing in it was changed. Move it to another place", layout, firstLayout)
		_, open := Open(path)
		_, check := Check(path)
		_, compact := Compact(path, func(int64) {})
		for what, err := range map[string]error{"open": open, "check": check, "compact": compact} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Error("the file was changed")
		}
	}
}

// writeLayoutFile writes a file that has something of everything. Once a version has been released, its file must stay.
func writeLayoutFile(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	revision, err := s.Settings().Save(t.Context(), []byte(`{"enabled":true}`), []byte("a change"), 0)
	check(err)
	add := func(chat, message string) {
		run := testRun(chat, message)
		run.Metadata = []byte(`{"host":"web-3"}`)
		run.Schema = []byte(`{"type":"object"}`)
		run.Key = &engine.Key{ID: [32]byte([]byte(message + "                                ")[:32]), Body: [32]byte{1}}
		run.History = 100 * 365 * 24 * time.Hour // the file is for later
		check(s.Runs().Add(t.Context(), run, engine.Terms{Settings: revision}))
	}
	claim := func() *engine.Claim {
		claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
		check(err)
		return claims[0]
	}
	add("ended", "ended")
	ended := claim()
	deliveries := []*engine.Delivery{
		{ID: "msg_1", RunID: ended.Run.ID, Index: 0, Status: engine.Pending, Callback: "https://example.com/", Body: "pending"},
		{ID: "msg_2", RunID: ended.Run.ID, Index: 1, Status: engine.Pending, Channel: "notes", To: "me", Body: "arrived"},
		{ID: engine.DeliveryID(ended.Run.ID, 2), RunID: ended.Run.ID, Index: 2, Status: engine.Pending, Channel: "notes", To: "you", Body: "dead"},
	}
	_, err = s.Runs().End(t.Context(), ended, engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true},
		Deliveries: deliveries}, engine.Batch{})
	check(err)
	due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 3, Lease: time.Minute})
	check(err)
	for _, d := range due {
		switch d.Index {
		case 1:
			d.Status, d.Attempt = engine.Delivered, 1
		case 2:
			d.Status, d.Attempt, d.LastStatus, d.LastAnswer = engine.Dead, 8, 500, "oops"
		}
		check(s.Deliveries().Settle(t.Context(), d, 0))
	}
	add("waiting", "waits")
	_, err = s.Runs().End(t.Context(), claim(), engine.End{Requeue: true, WaitingFor: "The agent is away.", Pause: time.Hour}, engine.Batch{})
	check(err)
	writeQuestion(t, s, add, claim)
	add("busy", "interrupted")
	claim()
	add("busy", "queued")
	again := testRun("busy", "ended"+strings.Repeat(" ", inputApartFrom))
	again.AgainOf = ended.Run.ID
	check(s.Runs().Add(t.Context(), again, engine.Terms{Settings: revision}))
	check(s.Close())

	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	from, err := bbolt.Open(path, 0o600, nil)
	check(err)
	to, err := bbolt.Open(name, 0o644, nil)
	check(err)
	check(bbolt.Compact(to, from, 0))
	check(to.Close())
	check(from.Close())
}

// layoutQuestion is that of the run that is put aside in the file.
func layoutQuestion() engine.Question {
	return engine.Question{Kind: engine.AskDeliver, Text: "may it be sent?", Choices: []string{"yes", "no"}, Channel: "notes", To: "me", By: []string{"U1"},
		For: 100 * 365 * 24 * time.Hour, Else: "no", State: []byte("the answer")} // the file is for later
}

// writeQuestion puts a run aside for the second of its questions.
func writeQuestion(t *testing.T, s engine.Store, add func(chat, message string), claim func() *engine.Claim) {
	t.Helper()
	add("aside", "put aside")
	question := layoutQuestion()
	first := claim()
	id := engine.QuestionID(first.Run.ID, 0)
	asks := &engine.Delivery{ID: engine.DeliveryID(first.Run.ID, 100), RunID: first.Run.ID, Index: 100, Status: engine.Pending, Channel: "notes", To: "all",
		Question: id, Closes: true}
	_, err := s.Runs().End(t.Context(), first, engine.End{Requeue: true, WaitingFor: "Somebody is asked.", Question: &question,
		Deliveries: []*engine.Delivery{asks}}, engine.Batch{})
	if err != nil {
		t.Fatal(err)
	}
	due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: time.Minute})
	for _, d := range due {
		if d.Index == 100 {
			d.Status = engine.Delivered
		}
		err = errors.Join(err, s.Deliveries().Settle(t.Context(), d, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Questions().Answer(t.Context(), id, engine.Answer{Text: "yes", Error: "none", By: "ann", Via: engine.AnsweredByPage}); err != nil {
		t.Fatal(err)
	}
	question.Number = 1
	if _, err := s.Runs().End(t.Context(), claim(), engine.End{Requeue: true, WaitingFor: "Somebody is asked.", Question: &question}, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
}

// checkQuestions checks that the run that is put aside in the file is there, with its questions.
func checkQuestions(t *testing.T, s engine.Store) {
	t.Helper()
	page, _, err := s.Runs().List(t.Context(), engine.Query{Statuses: []engine.Status{engine.Waiting}, Limit: 10})
	if err != nil || len(page) != 1 || page[0].WaitingFor != "Somebody is asked." {
		t.Fatalf("put aside are %+v, %v", page, err)
	}
	record, err := s.Runs().Get(t.Context(), page[0].Run.ID)
	if err != nil || len(record.Questions) != 2 || len(record.Deliveries) != 1 || !record.Deliveries[0].Closes ||
		record.Deliveries[0].Question != record.Questions[0].ID() {
		t.Fatalf("the run that is put aside is %+v, %v", record, err)
	}
	for i, got := range record.Questions {
		want := layoutQuestion()
		want.RunID, want.Number, want.AskedAt, want.Until = record.Run.ID, i, got.AskedAt, got.AskedAt.Add(want.For)
		if i == 0 {
			want.Answer = &engine.Answer{Text: "yes", Error: "none", By: "ann", Via: engine.AnsweredByPage, At: got.Answer.At}
		}
		if !reflect.DeepEqual(got, &want) || got.AskedAt.IsZero() {
			t.Errorf("question %d is %+v, want %+v", i, got, want)
		}
	}
	open, _, err := s.Questions().List(t.Context(), 10, "")
	if count, _ := s.Questions().Count(t.Context()); err != nil || count != 1 || len(open) != 1 || open[0].Number != 1 {
		t.Errorf("open are %+v, %v", open, err)
	}
}

// checkLayoutFile checks that all that writeLayoutFile wrote is there.
func checkLayoutFile(t *testing.T, s engine.Store) {
	t.Helper()
	if settings, revision, err := s.Settings().Load(t.Context()); err != nil || string(settings) != `{"enabled":true}` || revision != 1 {
		t.Errorf("the settings are %s, revision %d, %v", settings, revision, err)
	}
	if waiting, _, err := s.Runs().List(t.Context(), engine.Query{ChatID: "waiting", Limit: 1}); err != nil || len(waiting) != 1 || waiting[0].WaitingFor != "The agent is away." {
		t.Errorf("the run that waits is %+v, %v", waiting, err)
	}
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Minute})
	claims = slices.DeleteFunc(claims, func(claim *engine.Claim) bool { return claim.Run.Message == "waits" }) // it is due after an hour
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs, %v", len(claims), err)
	}
	first := claims[0]
	if first.Run.Message != "interrupted" || first.Attempt != 2 || string(first.Run.Metadata) != `{"host":"web-3"}` {
		t.Errorf("the first run is %+v, attempt %d", first.Run, first.Attempt)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	next, err := s.Runs().End(t.Context(), first, end, engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(next) != 1 || next[0].Run.Message != "queued" || next[0].Attempt != 1 {
		t.Errorf("the next one is %+v, %v", next, err)
	}
	due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: time.Minute})
	if err != nil || len(due) != 1 || due[0].ID != "msg_1" || due[0].Body != "pending" {
		t.Fatalf("due are %+v, %v", due, err)
	}
	record, err := s.Runs().Get(t.Context(), due[0].RunID)
	if err != nil || record.Outcome.Text != "hi" || len(record.Deliveries) != 3 || record.Deliveries[1].Status != engine.Delivered {
		t.Errorf("the run that has ended is %+v, %v", record, err)
	}
	dead, err := s.Deliveries().Get(t.Context(), engine.DeliveryID(record.Run.ID, 2))
	if err != nil || dead.Status != engine.Dead || dead.Attempt != 8 || dead.LastStatus != 500 || dead.LastAnswer != "oops" || dead.Body != "dead" {
		t.Errorf("the delivery that was given up is %+v, %v", dead, err)
	}
	if changes, _, err := s.Settings().Changes(t.Context(), 10, ""); err != nil || len(changes) != 1 ||
		changes[0].Revision != 1 || string(changes[0].Description) != "a change" || changes[0].At.IsZero() {
		t.Errorf("the changes of the settings are %+v, %v", changes, err)
	}
	checkHistory(t, s, record)
	checkIndexes(t, s, record.Run.ID)
	again := testRun("ended", "ended")
	again.Key = record.Run.Key
	var duplicate *engine.DuplicateError
	if err := s.Runs().Add(t.Context(), again, engine.Terms{Settings: 1}); !errors.As(err, &duplicate) || duplicate.First.ID != due[0].RunID || !duplicate.SameBody {
		t.Errorf("adding a run with a known key: %v", err)
	}
}

// checkIndexes checks that the run that has ended in the file is found without a look at all runs.
func checkIndexes(t *testing.T, s engine.Store, ended string) {
	t.Helper()
	for _, query := range []engine.Query{{ChatID: "ended"}, {Hooks: []string{"agent"}, ChatID: "ended"}, {Prefix: ended}} {
		query.Limit = 10
		if page, next, err := s.Runs().List(t.Context(), query); err != nil || len(page) != 1 || next != "" || page[0].Run.ID != ended {
			t.Errorf("listing %+v: %+v, %q, %v", query, page, next, err)
		}
	}
	chats, _, err := s.Runs().Chats(t.Context(), engine.ChatQuery{Text: "ended", Limit: 10})
	if err != nil || len(chats) != 1 || chats[0].Runs != 1 || chats[0].Last.Run.ID != ended {
		t.Errorf("the chats are %+v, %v", chats, err)
	}
	checkIndexed(t, s.(*store))
}

// checkHistory checks that the run that has ended in the file has kept its input, that it counts, and that the run is
// known to have been run again.
func checkHistory(t *testing.T, s engine.Store, record *engine.Record) {
	t.Helper()
	input := record.Run.Input()
	if record.Kept != engine.KeptWhole || input.Message != "ended" || string(input.Metadata) != `{"host":"web-3"}` || string(input.Schema) != `{"type":"object"}` {
		t.Errorf("the run was told %+v, %q of it is kept", input, record.Kept)
	}
	if again, err := s.Runs().Get(t.Context(), record.AgainAs); err != nil || again.Run.AgainOf != record.Run.ID || again.Run.Message != "ended"+strings.Repeat(" ", inputApartFrom) {
		t.Errorf("it was run again as %q: %+v, %v", record.AgainAs, again, err)
	}
	for _, limits := range []engine.Limits{{HistoryBytes: 10_000}, {HistoryBytes: 1}} {
		if _, err := s.Prune(t.Context(), limits); err != nil {
			t.Error(err)
		}
		if pruned, err := s.Runs().Get(t.Context(), record.Run.ID); err != nil || (pruned.Kept != engine.KeptNothing) != (limits.HistoryBytes > 1) {
			t.Errorf("with room for %d bytes %q is kept of it, %v", limits.HistoryBytes, pruned.Kept, err)
		}
	}
}
