//go:build real

package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// BenchmarkAdd is how long 64 callers take to have runs accepted by a server that syncs.
func BenchmarkAdd(b *testing.B) {
	server := pgtest.New(b, pgtest.Config{Settings: "wal_sync_method = open_sync\n"})
	for _, of := range []struct {
		name string
		run  func(n int64) *engine.Run
	}{
		{"a chat each", func(n int64) *engine.Run { return newAdded(fmt.Sprint("own ", n), "") }},
		{"1000 chats", func(n int64) *engine.Run { return newAdded(fmt.Sprint("own ", n%1000), "") }},
		{"one chat", func(int64) *engine.Run { return newAdded("long", "") }},
		{"a key each", func(n int64) *engine.Run { return newAdded(fmt.Sprint("own ", n), fmt.Sprint("key ", n)) }},
	} {
		b.Run(of.name, func(b *testing.B) { benchmarkAdd(b, server, openBench(b, server), of.run) })
	}
}

// BenchmarkAddGated compares adding runs that have gates with adding those that have none, in turns. The ratios are medians for the time.
// "closed" are refused by a rate that is used up, and "shared" pass one that all have. Run it with -benchtime 1x.
func BenchmarkAddGated(b *testing.B) {
	const rounds, share = 10, 500
	server := pgtest.New(b, pgtest.Config{Settings: "wal_sync_method = open_sync\n"})
	s := openBench(b, server)
	kinds := map[string]func(n int64) []gate.Gate{
		"none": func(int64) []gate.Gate { return nil },
		"once": func(n int64) []gate.Gate { return []gate.Gate{onceAnHour(fmt.Sprint(n))} },
		"three": func(n int64) []gate.Gate {
			v := fmt.Sprint(n)
			return []gate.Gate{onceAnHour(v), aloneIn(v), anHour(9, v)}
		},
		"closed": func(int64) []gate.Gate { return []gate.Gate{anHour(1, "all")} },
		"shared": func(int64) []gate.Gate { return []gate.Gate{anHour(1e9, "all of them")} },
	}
	took, ratios := make(map[string]time.Duration), make(map[string][]float64)
	var number atomic.Int64
	for range rounds {
		now := make(map[string]time.Duration)
		for name, gates := range kinds { // in any order
			now[name] = timeCalls(b, share, func() error {
				n := number.Add(1)
				err := s.Runs().Add(b.Context(), newGated(fmt.Sprint("own ", n), "", gates(n)...), engine.Terms{})
				if closed := (*gate.ClosedError)(nil); name == "closed" && errors.As(err, &closed) {
					return nil
				}
				return err
			})
			took[name] += now[name]
		}
		for name := range kinds {
			ratios[name] = append(ratios[name], now[name].Seconds()/now["none"].Seconds())
		}
	}
	for name := range kinds {
		slices.Sort(ratios[name])
		b.ReportMetric(ratios[name][rounds/2], name+"-ratio")
		b.ReportMetric(rounds*share/took[name].Seconds(), name+"-adds/s")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAddToLongQueue is the same when so many runs are queued.
func BenchmarkAddToLongQueue(b *testing.B) {
	server := pgtest.New(b, pgtest.Config{Settings: "wal_sync_method = open_sync\nmax_wal_size = 8GB\n"})
	for _, queued := range []int{1000, 1_000_000} {
		s := openBench(b, server)
		fillRuns(b, s, 0, queued)
		execForLong(b, s, "VACUUM ANALYZE @.queue")
		execForLong(b, s, "CHECKPOINT")
		number := int64(0)
		for _, name := range []string{"a chat each", "one chat"} {
			b.Run(fmt.Sprint(queued, " queued, ", name), func(b *testing.B) {
				from := number
				number += int64(b.N)
				benchmarkAdd(b, server, s, func(n int64) *engine.Run {
					if name == "one chat" {
						return newAdded("long", "")
					}
					return newAdded(fmt.Sprint("own ", from+n), "")
				})
			})
		}
	}
}

func openBench(b *testing.B, server *pgtest.Server) *store {
	b.Helper()
	d, err := connect(b.Context(), server.DSN("postgres"), pgtest.NewName("bench_"))
	if err != nil {
		b.Fatal(err)
	}
	s := newStore(d)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// benchmarkAdd adds runs that have a number, counted from 1.
func benchmarkAdd(b *testing.B, server *pgtest.Server, s *store, newRun func(n int64) *engine.Run) {
	terms := engine.Terms{Limits: engine.Limits{Queue: 10_000_000, Keys: 1_000_000, KeyAge: time.Hour}}
	message := strings.Repeat("x", 300)
	var n atomic.Int64
	before := serverCPU(b, server)
	b.ResetTimer()
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for number := n.Add(1); number <= int64(b.N); number = n.Add(1) {
				run := newRun(number)
				run.Message = message
				if err := s.Runs().Add(b.Context(), run, terms); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "adds/s")
	b.ReportMetric(float64((serverCPU(b, server)-before).Microseconds())/float64(b.N), "server-µs/add")
}

// serverCPU is how long the processes of a server have worked, as far as they are still there.
func serverCPU(b *testing.B, s *pgtest.Server) (took time.Duration) {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	if err != nil {
		b.Fatal(err)
	}
	postmaster, _, _ := strings.Cut(string(data), "\n")
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) > 12 && fields[1] == postmaster {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			took += time.Duration(user+system) * 10 * time.Millisecond
		}
	}
	return took
}
