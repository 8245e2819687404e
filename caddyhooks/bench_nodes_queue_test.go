//go:build real

package caddyhooks_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var (
	longQueue = flag.Int("queued", 10_000, "how many runs the long queue of BenchmarkQueueOfNodes has")
	heldFor   = flag.Duration("held", 2*time.Second, "how long BenchmarkHeldTransaction holds a transaction open")
)

// BenchmarkQueueOfNodes compares accepting when -queued runs are queued with accepting when a thousand are, in turns, with bolt and then with
// a PostgreSQL that 1, 2 and 3 Caddys share, as in BenchmarkNodes. cost-ratio is the median for the time, cpu-ratio for the processor time
// of PostgreSQL. Run it with -benchtime 1x -queued=1000000 -requests=20000.
func BenchmarkQueueOfNodes(b *testing.B) {
	const short, most = 1_000, 3
	held := "echo {\ndelay 1h\n}"
	bolt, nodes := newBenchNodes(b, 0), newBenchNodes(b, 1)
	site := func(n *benchNodes) string { return n.hooks("default", "", held) + n.hooks("long", "path /long", held) }
	for name, queued := range map[string]int{"default": short, "long": *longQueue} {
		fillStore(b, filepath.Join(bolt.dir, name+".db"), queued)
	}
	start := func(n *benchNodes) {
		n.start(b, site(n))
		hookstest.Within(b, time.Minute, "the other instance has its store", func() bool {
			resp, err := hookstest.TryRequest("POST", n.processes[len(n.processes)-1].URL+"/long/none", "")
			return err == nil && resp.Status == 404
		})
	}
	start(bolt)
	measureLongQueue(b, bolt)
	for count := 1; count <= most; count++ {
		start(nodes)
		if count == 1 { // it has made the tables
			fillSchema(b, nodes.database, "hooks_default", short)
			fillSchema(b, nodes.database, "hooks_long", *longQueue)
		}
		nodes.name = fmt.Sprint("postgres-", count)
		measureLongQueue(b, nodes)
	}
}

func measureLongQueue(b *testing.B, nodes *benchNodes) {
	const rounds = 10
	share := max(*nodeRequests/rounds, 1)
	nodes.hammer(b, nodes.request("/long/agent", `{"message":"the first ones are slower"}`), "202", upTo(share))
	nodes.hammer(b, nodes.request("/api/hooks/agent", `{"message":"the first ones are slower"}`), "202", upTo(share))
	var ratios, rates []float64
	used := make(map[string]time.Duration)
	for round := range rounds {
		took := make(map[string]time.Duration)
		for i := range 2 { // each is the first in every other round
			path := []string{"/api/hooks", "/long"}[(round+i)%2]
			_, before := nodes.used(b)
			took[path], _ = nodes.hammer(b, nodes.request(path+"/agent", `{"message":"look at the disk of web-3","name":"disk"}`), "202", upTo(share))
			_, after := nodes.used(b)
			used[path] += after - before
		}
		ratios = append(ratios, took["/long"].Seconds()/took["/api/hooks"].Seconds())
		rates = append(rates, float64(share)/took["/long"].Seconds())
	}
	b.Run(nodes.name, func(b *testing.B) {
		b.ReportMetric(median(ratios), "cost-ratio")
		b.ReportMetric(median(rates), "req/s")
		if nodes.database != nil {
			b.ReportMetric(used["/long"].Seconds()/max(used["/api/hooks"].Seconds(), 0.01), "cpu-ratio")
			b.ReportMetric(perRun(used["/long"], rounds*share), "us-of-postgres")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// fillSchema makes n queued runs, each with a chat of its own.
func fillSchema(b *testing.B, database *pgtest.Server, schema string, n int) {
	conn := connectTo(b, database)
	for _, statement := range []string{
		"SET search_path = " + schema,
		"INSERT INTO kind (runner, hook) VALUES ('', 'agent') ON CONFLICT DO NOTHING",
		fmt.Sprintf(`INSERT INTO queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, size, named, run)
			SELECT gen_random_uuid(), nextval('run_seq'), 'hook:' || gen_random_uuid(), true, nextval('turn_seq'), k.id, 'agent', '', clock_1(), 25, false,
				'{"action":"agent","message":"look at the disk of web-3","memoryPreset":"disabled","timeout":%d}'
			FROM kind k, generate_series(1, %d) WHERE k.runner = '' AND k.hook = 'agent'`, time.Hour, n),
		fmt.Sprintf("INSERT INTO counter (node, lane, queued) VALUES ('fill', 1, %d)", n),
		"VACUUM ANALYZE queue", // what PostgreSQL would do by itself, while we measure
		"CHECKPOINT",
	} {
		if _, err := conn.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

// connectTo is a connection that is there until the benchmark ends.
func connectTo(b *testing.B, database *pgtest.Server) *pgx.Conn {
	conn, err := pgx.Connect(b.Context(), database.DSN("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// BenchmarkHeldTransaction has two Caddys on one PostgreSQL accept and carry out 1,000 runs a second, for as long as -held says: alone, and then
// while another session holds a transaction open, as a backup does, so that nothing can be vacuumed. p50-ms and p99-ms are from acceptance to
// start by the clock of the database, last-p99-ms is that of the last quarter. Run it with -benchtime 1x -held=60s.
func BenchmarkHeldTransaction(b *testing.B) {
	nodes := newBenchNodes(b, 2)
	for range 2 {
		nodes.start(b, nodes.hooks("default", "workers 64", "echo"))
	}
	conn := connectTo(b, nodes.database)
	nodes.hammer(b, nodes.request("/api/hooks/agent", `{"message":"the first ones are slower"}`), "202", upTo(1000))
	nodes.settle(b)
	b.Run("alone", func(b *testing.B) { acceptSteadily(b, nodes, conn) })
	other := connectTo(b, nodes.database)
	// It has a snapshot and, since it has written something, a number.
	for _, statement := range []string{"CREATE TABLE elsewhere (n int)", "BEGIN ISOLATION LEVEL REPEATABLE READ", "INSERT INTO elsewhere VALUES (1)"} {
		if _, err := other.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("held", func(b *testing.B) { acceptSteadily(b, nodes, conn) })
	if _, err := other.Exec(b.Context(), "COMMIT"); err != nil {
		b.Fatal(err)
	}
}

// acceptSteadily has nodes accept 1,000 runs a second.
func acceptSteadily(b *testing.B, nodes *benchNodes, conn *pgx.Conn) {
	const perBeat, beat = 10, 10 * time.Millisecond
	var start time.Time
	if err := conn.QueryRow(b.Context(), "SELECT clock_timestamp()").Scan(&start); err != nil {
		b.Fatal(err)
	}
	due := make(chan struct{}, 1000*int(*heldFor/time.Second+1)) // requests that the nodes are behind
	go func() {                                                  // until hammer has had all of them
		defer close(due)
		beats := time.NewTicker(beat)
		defer beats.Stop()
		began := time.Now()
		for sent := 0; sent < int(*heldFor/beat)*perBeat; {
			<-beats.C
			for ; sent < int(time.Since(began)/beat)*perBeat; sent++ { // also for beats that were missed
				due <- struct{}{}
			}
		}
	}()
	_, before := nodes.used(b)
	took, each := nodes.hammer(b, nodes.request("/api/hooks/agent", `{"message":"look at the disk of web-3"}`), "202", func() bool {
		_, more := <-due
		return more
	})
	nodes.settle(b)
	_, after := nodes.used(b)
	var p50, p99OfAll, p99OfLast float64
	if err := conn.QueryRow(b.Context(), `
		WITH d AS (SELECT 1000 * extract(epoch FROM started_at - accepted_at)::float8 AS ms, accepted_at FROM hooks_default.done WHERE accepted_at >= $1)
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms),
			percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) FILTER (WHERE accepted_at >= $1 + make_interval(secs => $2)) FROM d`,
		start, took.Seconds()*3/4).Scan(&p50, &p99OfAll, &p99OfLast); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(p50, "p50-ms")
	b.ReportMetric(p99OfAll, "p99-ms")
	b.ReportMetric(p99OfLast, "last-p99-ms")
	b.ReportMetric(p99(each), "answer-p99-ms")
	b.ReportMetric(float64(len(each))/took.Seconds(), "runs/s")
	b.ReportMetric(perRun(after-before, len(each)), "us-of-postgres")
	b.ReportMetric(0, "ns/op")
}
