package caddyhooks_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkEventStreams measures how many runs per second are accepted, carried out and over while 32 streams are told about
// them, one of which is not read, beside the same without any stream. Both are measured in turns, so that whatever else the
// machine does falls on both; ratio, the median of those turns, is what to look at. heap-KB is by how much the heap is
// larger after the last turn with streams than after the first one. Clients, Caddy and the readers of the streams share the
// machine's cores.
func BenchmarkEventStreams(b *testing.B) {
	s := hookstest.StartSite(b, "hooks {\nenabled\ntoken "+hookstest.Token+"\nqueue_limit 100000000\ndrain_timeout 1ms\nrunner echo\n}")
	request := rawRequest(s, "/api/hooks/agent", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"message":"look at the disk of web-3"}`)
	const rounds, streams = 10, 32
	share := max(b.N/rounds, 1)
	turn := func() time.Duration {
		start := time.Now()
		hammer(b, s, request, "202", 64, share)
		// Runs of different chats are started in the order in which they came.
		if got := s.Post("/api/hooks/agent", `{"message":"last","syncResponse":true}`); got.Status != 200 {
			b.Fatalf("got %+v", got)
		}
		return time.Since(start)
	}
	heap := func() float64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc) / 1024
	}
	turn() // the first one is slower
	var ratios []float64
	var first, last float64
	var alone, watched time.Duration
	for round := range rounds {
		without := turn()
		closeAll := openStreams(b, s, streams)
		with := turn()
		if last = heap(); round == 0 {
			first = last
		}
		closeAll()
		alone, watched = alone+without, watched+with
		ratios = append(ratios, without.Seconds()/with.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(float64(rounds*share)/watched.Seconds(), "runs/s")
	b.ReportMetric(float64(rounds*share)/alone.Seconds(), "runs/s-alone")
	b.ReportMetric(ratios[rounds/2], "ratio")
	b.ReportMetric(last-first, "heap-KB")
	b.ReportMetric(0, "ns/op")
}

// openStreams opens streams, of which one is never read.
func openStreams(b *testing.B, s *hookstest.Server, n int) (closeAll func()) {
	b.Helper()
	var open []io.Closer
	for i := range n {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.Admin, "http://"))
		if err != nil {
			b.Fatal(err)
		}
		open = append(open, conn)
		if _, err := fmt.Fprintf(conn, "GET /hooks/events?topics=runs,overview HTTP/1.1\r\nHost: %s\r\n\r\n", conn.RemoteAddr()); err != nil {
			b.Fatal(err)
		}
		if i > 0 {
			go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return func() {
		for _, conn := range open {
			conn.Close()
		}
	}
}
