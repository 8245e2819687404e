package bolt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Whenever a process is killed that ends runs and forgets them, the lists say the same as the runs themselves.
func TestKilledWhileRunsEndAndAreForgotten(t *testing.T) {
	if os.Getenv(isChild) != "" {
		endUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	accepted, segments := make(map[string]bool), 0 // of the accepted runs, those that nobody was about to end
	ended := 0
	for tries := 0; tries < *kills || ended == 0 || segments == 0; tries++ {
		said, _, killed := child(t, dir, rand.N(400*time.Millisecond))
		if !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		for _, line := range said {
			if id, ok := strings.CutPrefix(line, "accepted "); ok {
				accepted[id] = true
			} else if id, ok := strings.CutPrefix(line, "ending "); ok {
				delete(accepted, id)
				ended++
			}
		}
		inside(t, path, func(tx *bbolt.Tx) error {
			var all []error
			for err := range tx.Check() {
				all = append(all, err)
			}
			eachSegment(tx, uuid.Nil, func([]byte) bool { segments++; return true })
			return errors.Join(all...)
		})
		s := newBolt(t, path)
		s.segmentSize = childSegments
		for id := range accepted {
			if !s.queue.Has(uuid.MustParse(id)) {
				t.Errorf("run %s was accepted and is gone", id)
			}
		}
		checkIndexed(t, s)
		checkLists(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d runs have ended, and %d were left; segments were seen %d times", ended, len(accepted), segments)
}

const childSegments = 20

// endUntilKilled accepts runs, ends them in any order and forgets them.
func endUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	s.segmentSize = childSegments
	fmt.Println("begin")
	go func() {
		for {
			if _, err := s.Prune(context.Background(), engine.Limits{Retention: 50 * time.Millisecond}); err != nil {
				fmt.Println("pruning:", err)
				os.Exit(1)
			}
		}
	}()
	statuses := []engine.Status{engine.Completed, engine.Completed, engine.Failed, engine.TimedOut}
	for g := range 8 {
		go func() {
			var waiting []*engine.Run
			for i := 0; ; i++ {
				run := testRun(fmt.Sprint("chat ", rand.N(6)), "hello")
				run.Hook = fmt.Sprint("hook ", rand.N(3))
				switch rand.N(4) {
				case 0:
					run.ChatID = fmt.Sprintf("own %d:%d", g, i)
				case 1:
					run.ChatID, run.NewChat = "hook:"+uuid.Must(uuid.NewV7()).String(), true
				}
				if err := s.Runs().Add(context.Background(), run, engine.Terms{}); err != nil {
					fmt.Println("accepting:", err)
					os.Exit(1)
				}
				fmt.Println("accepted " + run.ID)
				waiting = append(waiting, run)
				for len(waiting) > rand.N(6) {
					n := rand.N(len(waiting))
					end := engine.End{Outcome: engine.Outcome{Status: statuses[rand.N(len(statuses))]}}
					fmt.Println("ending " + waiting[n].ID)
					if err := withdraw(t, s, waiting[n], end); err != nil {
						fmt.Println("ending:", err)
						os.Exit(1)
					}
					waiting = slices.Delete(waiting, n, n+1)
				}
			}
		}()
	}
	select {}
}

// checkLists compares the lists with a walk over all runs.
func checkLists(t *testing.T, s *store) {
	t.Helper()
	list := func(query engine.Query) (ids []string) {
		for query.Limit = 7; ; {
			page, next, err := s.Runs().List(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range page {
				ids = append(ids, record.Run.ID)
			}
			if query.Cursor = next; next == "" {
				return ids
			}
		}
	}
	var all []*engine.Record
	for _, id := range list(engine.Query{}) {
		record, err := s.Runs().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
	check := func(query engine.Query) {
		t.Helper()
		var want []string
		for _, record := range all {
			if query.Selects(record) {
				want = append(want, record.Run.ID)
			}
		}
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%+v lists\n%s, want\n%s", query, got, want)
		}
		slices.Reverse(want)
		query.OldestFirst = true
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%+v lists\n%s, want\n%s", query, got, want)
		}
	}
	statuses := []engine.Status{engine.Queued, engine.Completed, engine.Failed, engine.TimedOut}
	chats := make(map[string]int)
	var order []string
	for _, record := range all {
		if !record.Run.NewChat {
			if chats[record.Run.ChatID]++; chats[record.Run.ChatID] == 1 {
				order = append(order, record.Run.ChatID)
			}
		}
	}
	for chat := range 6 {
		check(engine.Query{ChatID: fmt.Sprint("chat ", chat)})
		check(engine.Query{ChatID: fmt.Sprint("chat ", chat), Statuses: []engine.Status{engine.Failed}})
		check(engine.Query{ChatID: fmt.Sprint("chat ", chat), Hooks: []string{"hook 1", "hook 2"}, Statuses: []engine.Status{engine.Failed, engine.TimedOut}})
	}
	for _, record := range all[:min(len(all), 20)] {
		check(engine.Query{ChatID: record.Run.ChatID})
	}
	for _, status := range statuses {
		check(engine.Query{Statuses: []engine.Status{status}})
		check(engine.Query{Statuses: []engine.Status{status}, Hooks: []string{"hook 0"}})
	}
	for hook := range 3 {
		check(engine.Query{Hooks: []string{fmt.Sprint("hook ", hook)}})
	}
	got := make(map[string]int)
	var gotOrder []string
	for query := (engine.ChatQuery{Limit: 3}); ; {
		page, next, err := s.Runs().Chats(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, chat := range page {
			got[chat.ChatID] = chat.Runs
			gotOrder = append(gotOrder, chat.ChatID)
		}
		if query.Cursor = next; next == "" {
			break
		}
	}
	if !reflect.DeepEqual(got, chats) || !slices.Equal(gotOrder, order) {
		t.Errorf("the chats are\n%v %s, want\n%v %s", got, gotOrder, chats, order)
	}
}
