package bolt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// TestKilledWhileAsking kills processes whose runs ask and are answered. Whatever they were told is there, and each question is there with
// its delivery and its run put aside, and each answer with its own, or not at all.
func TestKilledWhileAsking(t *testing.T) {
	if os.Getenv(isChild) != "" {
		askUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	accepted, answers := map[string]bool{}, map[string]string{}
	for tries := 0; tries < *kills || len(accepted) == 0 || len(answers) == 0; tries++ {
		said, _, killed := child(t, dir, 20*time.Millisecond+rand.N(300*time.Millisecond))
		if !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		for _, line := range said {
			verb, rest, _ := strings.Cut(line, " ")
			switch verb {
			case "accepted":
				accepted[rest] = true
			case "answered":
				id, text, _ := strings.Cut(rest, " ")
				if answers[id] != "" {
					t.Errorf("question %s was answered twice", id)
				}
				answers[id] = text
			}
		}
		inside(t, path, checkPages)
		s := newBolt(t, path)
		checkAsked(t, s, answers)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := newBolt(t, path)
	waiting := s.queue.Size().PutAside
	for unfinished := 1; unfinished > 0; { // all that is left is answered and carried out
		if err := errors.Join(carryOutAsking(s), answerOpen(s, 1000, func(string, string) {})); err != nil {
			t.Fatal(err)
		}
		backlog, _ := s.Runs().Backlog(t.Context())
		unfinished = backlog.Queued + backlog.Running + backlog.Waiting
	}
	records := checkAsked(t, s, answers)
	for id := range accepted {
		if record := records[id]; record == nil || record.Status != engine.Completed || len(record.Questions) != askedByEach {
			t.Errorf("run %s is %+v", id, record)
		}
	}
	for _, bucket := range [][]byte{runsBucket, startsBucket, waitsBucket, askedBucket, openBucket} {
		_ = s.db.View(func(tx *bbolt.Tx) error {
			if n := count(tx, bucket); n > 0 {
				t.Errorf("%d records are left in %s", n, bucket)
			}
			return nil
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs accepted, %d answers, %d runs put aside", len(accepted), len(answers), waiting)
}

const askedByEach = 2 // questions

// askUntilKilled adds runs that ask, and has them answered. It says which were accepted, and what was answered.
func askUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	fmt.Println("begin")
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	go func() {
		for i := 0; ; i++ {
			run := testRun(fmt.Sprint("chat ", i%20), "what happened")
			fail(s.Runs().Add(context.Background(), run, engine.Terms{}))
			fmt.Println("accepted " + run.ID)
		}
	}()
	for range 2 {
		go func() {
			for {
				fail(carryOutAsking(s))
			}
		}()
	}
	for {
		fail(answerOpen(s, 5, func(id, text string) { fmt.Println("answered " + id + " " + text) }))
	}
}

// carryOutAsking has what can be claimed now ask its next question, or end.
func carryOutAsking(s *store) error {
	ctx := context.Background()
	claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 10, Lease: time.Minute})
	for _, claim := range claims {
		number := len(claim.Questions)
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, HasText: true, Text: "done"}}
		switch {
		case number > 0 && claim.Questions[number-1].Answer == nil:
			return fmt.Errorf("run %s was handed out without an answer to question %d", claim.Run.ID, number-1)
		case number < askedByEach:
			question := &engine.Question{Number: number, Kind: []engine.QuestionKind{engine.AskStart, engine.AskInput}[number%2]}
			end = engine.End{Requeue: true, WaitingFor: "an answer", Question: question, Deliveries: questionDelivery(claim.Run.ID, number, false)}
		}
		_, endErr := s.Runs().End(ctx, claim, end, engine.Batch{})
		err = errors.Join(err, endErr)
	}
	return err
}

func questionDelivery(runID string, number int, closes bool) []*engine.Delivery {
	index := engine.QuestionDeliveryIndex(number, closes)
	return []*engine.Delivery{{ID: engine.DeliveryID(runID, index), RunID: runID, Index: index, Callback: "https://example.com/",
		Question: engine.QuestionID(runID, number), Closes: closes}}
}

// answerOpen answers some open questions, and says what.
func answerOpen(s *store, most int, say func(id, text string)) error {
	ctx := context.Background()
	page, _, err := s.Questions().List(ctx, most, "")
	for _, question := range page {
		text := fmt.Sprint("answer-", rand.Int())
		_, err := s.Questions().Answer(ctx, question.ID(), engine.Answer{Text: text}, questionDelivery(question.RunID, question.Number, true)...)
		if err != nil && !errors.Is(err, engine.ErrAnswered) {
			return err
		}
		if err == nil {
			say(question.ID(), text)
		}
	}
	return err
}

// checkAsked checks all runs and questions, and that the answers are there that somebody was told of.
func checkAsked(t *testing.T, s *store, answers map[string]string) map[string]*engine.Record {
	t.Helper()
	records, open, found := map[string]*engine.Record{}, 0, 0
	for cursor := ""; ; {
		page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 1000, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, listed := range page {
			record, err := s.Runs().Get(t.Context(), listed.Run.ID)
			if err != nil {
				t.Fatal(err)
			}
			records[record.Run.ID] = record
			deliveries, waits := 0, false
			for _, question := range record.Questions {
				deliveries++
				switch want := answers[question.ID()]; {
				case question.Answer != nil:
					deliveries++
					if want != "" && question.Answer.Text != want {
						t.Fatalf("question %s has the answer %q, want %q", question.ID(), question.Answer.Text, want)
					}
				case want != "":
					t.Fatalf("question %s has no answer, want %q", question.ID(), want)
				default:
					open++
					waits = true
				}
				if want := answers[question.ID()]; want != "" {
					found++
				}
			}
			if len(record.Deliveries) != deliveries || (record.Status == engine.Waiting) != waits {
				t.Fatalf("run %s is %s with %d deliveries and the questions %+v", record.Run.ID, record.Status, len(record.Deliveries), record.Questions)
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if n, err := s.Questions().Count(t.Context()); err != nil || n != open || found != len(answers) {
		t.Fatalf("%d questions are counted as open, and %d are; %d of %d answers are there: %v", n, open, found, len(answers), err)
	}
	return records
}
