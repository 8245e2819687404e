package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// BenchmarkBesideRunsPutAside accepts runs, claims them and ends them, in turn in a store that has nothing else and in one with 100,000 runs
// that are put aside. It tells how much longer that takes in the second one, and the memory of a run that is put aside.
func BenchmarkBesideRunsPutAside(b *testing.B) {
	const waiting, together = 100_000, 64
	path := filepath.Join(b.TempDir(), "waiting.db")
	writePutAside(b, path, waiting)
	before := heap()
	began := time.Now()
	full := newBolt(b, path)
	defer full.Close()
	opening, memory := time.Since(began), heap()-before
	if backlog, err := full.Runs().Backlog(b.Context()); err != nil || backlog.Waiting != waiting || backlog.Queued > 0 {
		b.Fatalf("the backlog is %+v, %v", backlog, err)
	}
	empty := newBolt(b, filepath.Join(b.TempDir(), "empty.db"))
	defer empty.Close()
	var accepting, claiming [2]time.Duration
	stores := []*store{empty, full}
	for first := 0; b.Loop(); first = 1 - first { // each comes first as often as the other
		for _, i := range []int{first, 1 - first} {
			s := stores[i]
			accepting[i] += timed(func() { addRuns(b, s, together, together) })
			claiming[i] += timed(func() { claimAndEnd(b, s, together, completedEnd) })
		}
	}
	b.ReportMetric(float64(accepting[1])/float64(accepting[0]), "accept-ratio")
	b.ReportMetric(float64(claiming[1])/float64(claiming[0]), "claim-ratio")
	b.ReportMetric(float64(accepting[1].Microseconds())/float64(b.N)/together, "µs/accepted")
	b.ReportMetric(float64(opening.Milliseconds()), "ms-to-open")
	b.ReportMetric(float64(memory)/waiting, "B/put-aside")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSpending ends runs, in turn without a word on what they cost and with it, and tells how much longer the latter takes.
func BenchmarkSpending(b *testing.B) {
	const together = 64
	s := newBolt(b, filepath.Join(b.TempDir(), "hooks.db"))
	defer s.Close()
	use := engine.Use{Model: "gpt-5", HasTokens: true, Input: 1200, Output: 340, HasCost: true, Cost: 4_900_000}
	spending := completedEnd
	spending.Outcome.Usage = []engine.Use{use}
	spending.Spent = []engine.LedgerEntry{{Account: usage.NewAccount("cost", "agent", "default", "gpt-5"), Span: time.Hour, Keep: 24 * time.Hour,
		Runs: 1, Use: use}}
	ends := []engine.End{completedEnd, spending}
	var took [2]time.Duration
	for first := 0; b.Loop(); first = 1 - first {
		for _, i := range []int{first, 1 - first} {
			addRuns(b, s, together, together)
			took[i] += timed(func() { claimAndEnd(b, s, together, ends[i]) })
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "end-ratio")
	b.ReportMetric(0, "ns/op")
}

// completedEnd is the end of a run of which nobody told what it cost.
var completedEnd = engine.End{Outcome: engine.Outcome{Status: engine.Completed}}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// claimAndEnd claims so many runs, one by one, and ends them, many callers at once.
func claimAndEnd(b *testing.B, s *store, n int, end engine.End) {
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			claims, _, err := s.Runs().Claim(b.Context(), engine.Batch{Max: 1, Lease: time.Minute})
			if err != nil || len(claims) != 1 {
				b.Errorf("claimed %d runs: %v", len(claims), err)
				return
			}
			if _, err := s.Runs().End(b.Context(), claims[0], end, engine.Batch{}); err != nil {
				b.Error(err)
			}
		})
	}
	callers.Wait()
}

// writePutAside makes a file in which so many runs are put aside, each in a chat of its own, half of them for people.
func writePutAside(b *testing.B, path string, n int) {
	b.Helper()
	if err := newBolt(b, path).Close(); err != nil {
		b.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	var ids local.IDs
	now := time.Now()
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		tx.Bucket(askedBucket).FillPercent, tx.Bucket(openBucket).FillPercent = 1, 1 // as the store has it
		tx.Bucket(questionsBucket).FillPercent = questionsFill
		put := func(bucket, key, value []byte) { err = errors.Join(err, tx.Bucket(bucket).Put(key, seal(key, value))) }
		for i := range n {
			id, idErr := ids.Next(now)
			err = errors.Join(err, idErr)
			run := testRun(fmt.Sprint("waiting chat ", i), strings.Repeat("x", 200))
			run.ID, run.AcceptedAt, run.QueueTime = id.String(), now, time.Hour
			data, _ := encodeRun(run)
			question := &engine.Question{Kind: engine.AskAgent, State: []byte("a turn"), For: 24 * time.Hour, AskedAt: now}
			if i%2 == 0 {
				question.Kind = engine.AskStart
				open := local.OpenKeyOf(id, question)
				err = errors.Join(err, tx.Bucket(openBucket).Put(open[:], nil))
			}
			put(questionsBucket, questionKey(id, 0), encodeQuestion(question))
			aside := storedAside{is: true, within: question.For, run: seal(id[:], data),
				Aside: local.Aside{Asked: now, Due: now.Add(question.For), For: "The agent works on it."}}
			put(askedBucket, id[:], encodeFields(newEncoder(64), asideFields(&aside)))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		b.Fatal(err)
	}
}
