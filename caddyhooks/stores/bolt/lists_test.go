package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// finishedRuns is a file with runs that have ended, a millisecond after each other.
type finishedRuns struct {
	path        string
	first, last uuid.UUID
	fresh       string // a chat that was made for a run in the middle
	middle      time.Time
}

// One of so many is rare: of a hook, of a status and of a chat. Half of the others are in one of many named chats.
const (
	oneOf      = 1000
	namedChats = 5000
)

// writeFinished makes a file, with the indexes or as the fourth layout has it.
func writeFinished(t testing.TB, n int, indexed bool) *finishedRuns {
	t.Helper()
	file := &finishedRuns{path: filepath.Join(t.TempDir(), "hooks.db")}
	if err := newBolt(t, file.path).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(file.path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	var ids local.IDs
	at := time.Now().Add(-time.Duration(n) * time.Millisecond)
	reply := strings.Repeat("answer ", 40)
	const step = 20_000
	var runs []endedRun
	for from := 0; from < n && err == nil; from += step {
		err = db.Update(func(tx *bbolt.Tx) error {
			t := &transaction{tx: tx}
			for i := from; i < min(from+step, n); i++ {
				at = at.Add(time.Millisecond)
				run, status := testRun(fmt.Sprint("chat ", i*7919%namedChats), ""), engine.Completed
				run.Hook, run.AcceptedAt = fmt.Sprint("hook ", i%8), at
				if i%2 == 0 {
					var chat uuid.UUID
					chat, _ = new(local.IDs).Next(at)
					run.ChatID, run.NewChat = "hook:"+chat.String(), true
				}
				switch i % oneOf {
				case 1:
					run.Hook = "rare"
				case 2:
					status = engine.Failed
				case 3:
					run.ChatID, run.NewChat = "rare", false
				}
				id, err := ids.Next(at)
				if err != nil {
					return err
				}
				if i == 0 {
					file.first = id
				}
				if i == n/2 {
					file.fresh, file.middle = run.ChatID, at
					run.RequestID = "delivery"
				}
				file.last = id
				if run.RequestID != "" {
					t.put(byRequestBucket, indexKey(run.RequestID, id), nil)
				}
				record := &engine.Record{Run: run, Status: status, Attempts: 1, StartedAt: at, FinishedAt: at,
					Outcome: engine.Outcome{Status: status, Text: reply, HasText: true}}
				t.append(endedBucket, id[:], seal(id[:], encodeEnded(record, "token")))
				if !indexed {
					continue
				}
				runs = append(runs, newEndedRun(id, run, status))
				if len(runs) == segmentSize {
					t.putEntries(runs)
					runs = nil
				}
			}
			if indexed && from+step >= n { // the last ones are new
				var list []byte
				for _, run := range runs {
					list = append(list, run.id[:]...)
				}
				t.put(newRunsBucket, make([]byte, 8), list)
			}
			return t.failure
		})
	}
	if err := errors.Join(err, db.Sync(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// benchSizes are 100,000 runs, and a million if HOOKS_BENCH_MILLION is set: to write that file takes a while.
func benchSizes() []int {
	if os.Getenv("HOOKS_BENCH_MILLION") != "" {
		return []int{100_000, 1_000_000}
	}
	return []int{100_000}
}

// BenchmarkLists asks for a page of each kind of list.
func BenchmarkLists(b *testing.B) {
	for _, n := range benchSizes() {
		file := writeFinished(b, n, true)
		s := newBolt(b, file.path)
		b.Cleanup(func() { s.Close() })
		early := local.FirstID(local.IDTime(file.first).Add(100 * time.Millisecond)).String() // a hundred runs are older
		for _, list := range []struct {
			name  string
			query engine.Query
			want  int
		}{
			{"first page", engine.Query{}, 100},
			{"last page", engine.Query{Cursor: early}, 100},
			{"rare status", engine.Query{Statuses: []engine.Status{engine.Failed}}, 100},
			{"no such status", engine.Query{Statuses: []engine.Status{engine.TimedOut, engine.Expired}}, 0},
			{"frequent hook", engine.Query{Hooks: []string{"hook 3"}}, 100},
			{"rare hook", engine.Query{Hooks: []string{"rare"}}, 100},
			{"hook and status", engine.Query{Hooks: []string{"hook 2"}, Statuses: []engine.Status{engine.Failed, engine.Cancelled}}, 100},
			{"hook without that status", engine.Query{Hooks: []string{"rare"}, Statuses: []engine.Status{engine.Failed}}, 0},
			{"named chat", engine.Query{ChatID: "rare"}, 100},
			{"fresh chat", engine.Query{ChatID: file.fresh}, 1},
			{"no such chat", engine.Query{ChatID: "none"}, 0},
			{"since", engine.Query{Since: file.middle, OldestFirst: true}, 100},
			{"until", engine.Query{Until: file.middle}, 100},
			{"failed since", engine.Query{Statuses: []engine.Status{engine.Failed}, Since: file.middle, OldestFirst: true,
				UpTo: file.last.String(), Limit: 50}, 50},
			{"failed until", engine.Query{Statuses: []engine.Status{engine.Failed}, Until: file.middle, Limit: 50}, 50},
			{"rare hook since", engine.Query{Hooks: []string{"rare"}, Since: file.middle, OldestFirst: true, Limit: 50}, 50},
			{"chat until", engine.Query{ChatID: "rare", Until: file.middle, Limit: 50}, 50},
			{"sender's id", engine.Query{RequestID: "delivery"}, 1},
			{"no such sender's id", engine.Query{RequestID: "none"}, 0},
			{"running", engine.Query{Statuses: []engine.Status{engine.Running}}, 0},
			{"by id", engine.Query{Prefix: file.first.String()}, 1},
			{"no such word", engine.Query{Text: "nowhere"}, 0},
		} {
			b.Run(fmt.Sprintf("%s of %d", list.name, n), func(b *testing.B) {
				list.query.Limit = cmp.Or(list.query.Limit, 100)
				for b.Loop() {
					page, _, err := s.Runs().List(b.Context(), list.query)
					if err != nil || len(page) != list.want {
						b.Fatalf("got %d runs, %v", len(page), err)
					}
				}
				inMillis(b)
			})
		}
		chats := func(name string, query engine.ChatQuery, want int) {
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				query.Limit = 100
				for b.Loop() {
					page, _, err := s.Runs().Chats(b.Context(), query)
					if err != nil || len(page) != want {
						b.Fatalf("got %d chats, %v", len(page), err)
					}
				}
				inMillis(b)
			})
		}
		chats("chats", engine.ChatQuery{}, 100)
		chats("no such chats", engine.ChatQuery{Text: "none"}, 0)
	}
}

func inMillis(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
	b.ReportMetric(0, "ns/op")
}

func withFile(path string, change func(tx *bbolt.Tx) error) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	return errors.Join(db.Update(change), db.Close())
}

// BenchmarkIndexes carries out runs with the indexes and without, in turns, and compares.
func BenchmarkIndexes(b *testing.B) {
	const turn, callers = 2000, 64
	for _, chats := range []int{0, 100, 10_000} {
		name := "fresh chats"
		if chats > 0 {
			name = fmt.Sprint(chats, " named chats")
		}
		b.Run(name, func(b *testing.B) {
			stores := make([]*store, 2)
			for i := range stores {
				stores[i] = newBolt(b, filepath.Join(b.TempDir(), "hooks.db"))
				defer stores[i].Close()
				stores[i].withoutIndexes = i == 1
			}
			var ratios []float64
			var rates [2][]float64
			runs := 0
			for b.Loop() {
				var rate [2]float64
				for k := range stores {
					i := (k + len(ratios)) % 2
					start := time.Now()
					carryOutMany(b, stores[i], turn, callers, func(n int) *engine.Run {
						run := testRun(fmt.Sprint("chat ", (runs+n)*7919%max(chats, 1)), "hello")
						run.Hook = fmt.Sprint("hook ", n%5)
						if chats == 0 {
							run.ChatID, run.NewChat = "hook:"+uuid.Must(uuid.NewV7()).String(), true
						}
						return run
					})
					rate[i] = turn / time.Since(start).Seconds()
					rates[i] = append(rates[i], rate[i])
				}
				runs += turn
				ratios = append(ratios, rate[0]/rate[1])
			}
			b.ReportMetric(median(ratios), "median-ratio")
			b.ReportMetric(median(rates[0]), "runs/s-with")
			b.ReportMetric(median(rates[1]), "runs/s-without")
			for i, name := range []string{"bytes/run-with", "bytes/run-without"} {
				stats := stores[i].db.Stats()
				b.ReportMetric(float64(stats.TxStats.GetPageAlloc())/float64(runs), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// carryOutMany adds runs and ends them, from so many goroutines at once.
func carryOutMany(b *testing.B, s *store, n, callers int, run func(n int) *engine.Run) {
	var group sync.WaitGroup
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: strings.Repeat("answer ", 40), HasText: true}}
	for c := range callers {
		group.Go(func() {
			for i := c; i < n; i += callers {
				if err := s.Runs().Add(context.Background(), run(i), engine.Terms{}); err != nil {
					b.Error(err)
				}
				claims, _, err := s.Runs().Claim(context.Background(), engine.Batch{Max: 1, Lease: time.Minute})
				if err != nil {
					b.Error(err)
				}
				for _, claim := range claims {
					if _, err := s.Runs().End(context.Background(), claim, end, engine.Batch{}); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	finishAll(b, s)
}
