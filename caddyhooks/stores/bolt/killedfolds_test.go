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

// TestKilledWhileFolding kills processes that accept and carry out folds. Every run that was accepted is carried out in one turn
// that ended, in the order of its chat, and all runs of a turn know about it.
func TestKilledWhileFolding(t *testing.T) {
	if os.Getenv(isChild) != "" {
		foldUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	accepted := map[string]bool{}
	for tries := 0; tries < *kills || len(accepted) < 50; tries++ {
		said, _, killed := child(t, dir, 20*time.Millisecond+rand.N(300*time.Millisecond))
		if !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		for _, line := range said {
			if ids, ok := strings.CutPrefix(line, "accepted "); ok {
				for id := range strings.FieldsSeq(ids) {
					accepted[id] = true
				}
			}
		}
		inside(t, path, checkPages)
	}
	s := newBolt(t, path)
	before := s.queue.Size().Queued
	for s.queue.Size().Queued > 0 {
		if err := carryOutFolds(s); err != nil {
			t.Fatal(err)
		}
	}
	if size := s.queue.Size(); size.Claimed+size.StartedBefore+size.Waits > 0 {
		t.Errorf("left in the queue: %+v", size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	turns, folded := checkFolds(t, path, accepted)
	t.Logf("%d runs accepted, %d of them queued after the last kill, in %d turns, %d of which had several", len(accepted), before, turns, folded)
	if folded == 0 {
		t.Error("no runs were folded")
	}
}

const foldedChats = 3

// foldUntilKilled adds runs to some chats and carries them out. It says which were accepted.
func foldUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	fmt.Println("begin")
	for chat := range foldedChats {
		go func() {
			for {
				var runs []*engine.Run
				for range 1 + rand.IntN(4) {
					run := testRun(fmt.Sprint("chat ", chat), "what happened")
					run.Hook, run.Fold = "storm", engine.Fold{Window: 30 * time.Millisecond, Max: 12}
					runs = append(runs, run)
				}
				if err := s.Runs().AddAll(context.Background(), runs, engine.Terms{}); err != nil {
					fmt.Println("accepting:", err)
					os.Exit(1)
				}
				line := "accepted"
				for _, run := range runs {
					line += " " + run.ID
				}
				fmt.Println(line)
			}
		}()
	}
	for {
		if err := carryOutFolds(s); err != nil {
			t.Fatal(err)
		}
	}
}

// carryOutFolds carries out what can be claimed now. The answer names the runs of the turn.
func carryOutFolds(s *store) error {
	claims, _, err := s.Runs().Claim(context.Background(), engine.Batch{Max: foldedChats, Lease: time.Minute})
	for _, claim := range claims {
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, HasText: true, Text: claim.Run.ID}}
		for i, run := range claim.Folded {
			end.Outcome.Text += " " + run.ID
			if i%2 == 0 {
				end.Deliveries = append(end.Deliveries, &engine.Delivery{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Callback: "https://example.com/", Status: engine.Pending})
			}
		}
		if rand.IntN(5) == 0 {
			end = engine.End{Requeue: true}
		}
		_, endErr := s.Runs().End(context.Background(), claim, end, engine.Batch{})
		err = errors.Join(err, endErr)
	}
	return err
}

// checkFolds looks at a file in which all runs have ended.
func checkFolds(t *testing.T, path string, accepted map[string]bool) (turns, folded int) {
	t.Helper()
	s := newBolt(t, path)
	defer s.Close()
	left := len(accepted)
	leaders := map[string]*engine.Record{} // of the turn that is being looked at, by chat
	followers := map[string]int{}
	var cursor string
	for {
		page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 1000, Replies: true, Deliveries: true, OldestFirst: true, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page {
			id, chat := record.Run.ID, record.Run.ChatID
			if accepted[id] {
				left--
			}
			together := strings.Fields(record.Outcome.Text)
			leader := leaders[chat]
			at := followers[chat] + 1
			switch {
			case record.FoldedInto == "":
				if leader != nil && leader.Folded != at && (leader.Folded != 0 || at != 1) {
					t.Fatalf("run %s led %d runs, and %d are known", leader.Run.ID, leader.Folded, at)
				}
				leaders[chat], followers[chat] = record, 0
				turns++
				if record.Folded > 1 {
					folded++
				}
				at = 0
			case leader == nil || record.FoldedInto != leader.Run.ID:
				t.Fatalf("run %s was folded into %s out of order", id, record.FoldedInto)
			default:
				followers[chat]++
				if len(record.Deliveries) != at%2 {
					t.Errorf("run %s has %d deliveries", id, len(record.Deliveries))
				}
			}
			if record.Status != engine.Completed || at >= len(together) || together[at] != id {
				t.Fatalf("run %s is %s, number %d of the turn of %q", id, record.Status, at, record.Outcome.Text)
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if left > 0 {
		t.Errorf("%d runs were accepted and are gone", left)
	}
	inside := func(bucket []byte) (n int) {
		_ = s.db.View(func(tx *bbolt.Tx) error {
			n = count(tx, bucket)
			return nil
		})
		return n
	}
	if n := inside(startsBucket) + inside(runsBucket) + inside(waitsBucket); n > 0 {
		t.Errorf("%d records of unfinished runs are left", n)
	}
	return turns, folded
}
