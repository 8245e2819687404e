//go:build real

package caddyhooks_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var nodeRequests = flag.Int("requests", 2000, "how many requests benchmarks of nodes send to each of them and their stores")

// benchNodes is some Caddys, each a process of its own, that share stores. Without a database it is one Caddy with bolt.
type benchNodes struct {
	name      string
	dir       string // of bolt's files
	database  *pgtest.Server
	addresses []string
	processes []*hookstest.Process
}

// newBenchNodes is so many Caddys on a database of their own, none of which is started yet; 0 is for bolt.
func newBenchNodes(b *testing.B, count int) *benchNodes {
	if count == 0 {
		return &benchNodes{name: "bolt", dir: b.TempDir()}
	}
	return &benchNodes{name: fmt.Sprint("postgres-", count), database: pgtest.NewDurable(b)}
}

// store is the directive of a store that all of them share.
func (n *benchNodes) store(name string) string {
	if n.database == nil {
		return "store bolt " + filepath.Join(n.dir, name+".db")
	}
	return "store postgres \"" + n.database.DSN("postgres") + "\" {\nschema hooks_" + name + "\n}"
}

// hooks is the directive of an instance, whose store has its name.
func (n *benchNodes) hooks(name, more, runner string) string {
	return "hooks " + name + " {\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\ndrain_timeout 1ms\n" + more + "\nrunner " + runner + "\n" + n.store(name) + "\n}\n"
}

// start starts one more Caddy.
func (n *benchNodes) start(b *testing.B, site string) {
	caddy := hookstest.NewBinary(b).Serve(b, "log {\nlevel WARN\n}", site)
	n.processes = append(n.processes, caddy)
	n.addresses = append(n.addresses, strings.TrimPrefix(caddy.URL, "http://"))
}

// hammer sends requests to all nodes.
func (n *benchNodes) hammer(b *testing.B, request []byte, status string, more func() bool) (total time.Duration, each []time.Duration) {
	const clients = 64
	return hammerNodes(b, n.addresses, request, status, clients, more)
}

// request is one for any of the nodes.
func (n *benchNodes) request(path, body string) []byte {
	return rawRequestTo(n.addresses[0], path, "Authorization: Bearer "+hookstest.Token+"\r\n", body)
}

// settle waits until all runs are over, on whatever node. It asks the database itself, if there is one: that costs it least.
func (n *benchNodes) settle(b *testing.B) {
	isOver := func() bool {
		for _, status := range []string{"queued", "running"} {
			resp, err := hookstest.TryRequest("GET", n.processes[0].Admin+"/hooks/runs?limit=1&status="+status, "")
			if err != nil || !strings.HasPrefix(resp.Body, `{"runs":[]`) {
				return false
			}
		}
		return true
	}
	if n.database != nil {
		conn := connectTo(b, n.database)
		defer func() { _ = conn.Close(b.Context()) }()
		isOver = func() (over bool) {
			if err := conn.QueryRow(b.Context(), "SELECT sum(queued + running) = 0 FROM hooks_default.counter").Scan(&over); err != nil {
				b.Fatal(err)
			}
			return over
		}
	}
	hookstest.Within(b, 10*time.Minute, "all runs are over", isOver)
}

// used is how much processor time the Caddys and the database have had.
func (n *benchNodes) used(b *testing.B) (caddys, database time.Duration) {
	for _, p := range n.processes {
		caddys += processorTime(b, p.Cmd.Process.Pid)
	}
	if n.database != nil {
		database = n.database.ProcessorTime(b)
	}
	return caddys, database
}

// BenchmarkNodes is BenchmarkIngress and BenchmarkDispatch for 1, 2 and 3 Caddys that share a PostgreSQL, which syncs every commit, beside a
// Caddy with bolt: they take turns, and each has a process of its own, as has each PostgreSQL. ratio is beside a bare respond of the same Caddys,
// bolt-ratio beside bolt; both are medians over the turns. A run counts in runs/s once its end is stored. us-of-postgres and us-of-caddy are
// processor time for each run: they are steadier than what is done in a second, since clients, Caddys and databases share the machine's cores.
// Every Caddy has 64 workers: a run that takes no time holds one until its end is synced. Run it with -benchtime 1x -requests=10000.
func BenchmarkNodes(b *testing.B) {
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "done")
	}))
	defer runner.Close()
	wake, agent := `{"text":"the disk of web-3 is 91 % full","metadata":{"host":"web-3"}}`, `{"message":"look at the disk of web-3","name":"disk"}`
	for _, bench := range []nodesBenchmark{
		{name: "wake-held", hook: "wake", body: wake, status: "200", runner: "echo {\ndelay 1h\n}", held: true},
		{name: "wake", hook: "wake", body: wake, status: "200", runner: "echo"},
		{name: "agent", hook: "agent", body: agent, status: "202", runner: "echo"},
		{name: "dispatch", hook: "agent", body: `{"message":"look at the disk of web-3"}`, status: "202", runner: "http " + runner.URL},
	} {
		b.Run(bench.name, bench.run)
	}
}

// BenchmarkLoneOnPostgres is BenchmarkLone with a PostgreSQL that syncs every commit.
func BenchmarkLoneOnPostgres(b *testing.B) { benchmarkLone(b, newBenchNodes(b, 1).store("default")) }

// nodesBenchmark is what is measured with each store and number of nodes.
type nodesBenchmark struct {
	name, hook, body, status, runner string
	held                             bool // no run is carried out
}

// nodesMeasured is what was measured of some nodes, by turns.
type nodesMeasured struct {
	rate, ratio, runs   []float64
	ofCaddy, ofPostgres time.Duration
	latencies           []time.Duration
}

func (bench nodesBenchmark) run(b *testing.B) {
	const rounds, most = 10, 3
	var all []*benchNodes
	for count := range most + 1 {
		nodes := newBenchNodes(b, count)
		for range max(count, 1) {
			nodes.start(b, "respond /bare \"ok\"\n"+nodes.hooks("default", "workers 64", bench.runner))
		}
		all = append(all, nodes)
	}
	share := max(*nodeRequests/rounds, 1)
	measured := make([]nodesMeasured, len(all))
	for _, nodes := range all { // the first turn is slower
		bench.turn(b, nodes, new(nodesMeasured), share)
	}
	for round := range rounds {
		for i := range all { // each of them is the first at times
			n := (round + i) % len(all)
			bench.turn(b, all[n], &measured[n], share)
		}
	}
	for i, nodes := range all {
		m, bolt := measured[i], measured[0]
		var ratios []float64
		for round := range rounds {
			ratios = append(ratios, m.rate[round]/bolt.rate[round])
		}
		b.Run(nodes.name, func(b *testing.B) {
			b.ReportMetric(median(m.rate), "req/s")
			b.ReportMetric(median(m.ratio), "ratio")
			b.ReportMetric(median(ratios), "bolt-ratio")
			b.ReportMetric(p99(m.latencies), "p99-ms")
			b.ReportMetric(perRun(m.ofCaddy, rounds*share), "us-of-caddy")
			if nodes.database != nil {
				b.ReportMetric(perRun(m.ofPostgres, rounds*share), "us-of-postgres")
			}
			if !bench.held {
				b.ReportMetric(median(m.runs), "runs/s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// turn measures nodes once.
func (bench nodesBenchmark) turn(b *testing.B, nodes *benchNodes, m *nodesMeasured, n int) {
	bare, _ := nodes.hammer(b, nodes.request("/bare", bench.body), "200", upTo(n))
	caddys, database := nodes.used(b)
	start := time.Now()
	took, each := nodes.hammer(b, nodes.request("/api/hooks/"+bench.hook, bench.body), bench.status, upTo(n))
	if !bench.held {
		nodes.settle(b)
		m.runs = append(m.runs, float64(n)/time.Since(start).Seconds())
	}
	caddysNow, databaseNow := nodes.used(b)
	m.rate = append(m.rate, float64(n)/took.Seconds())
	m.ratio = append(m.ratio, bare.Seconds()/took.Seconds())
	m.ofCaddy += caddysNow - caddys
	m.ofPostgres += databaseNow - database
	m.latencies = append(m.latencies, each...)
}

// perRun is microseconds for each of n runs.
func perRun(used time.Duration, n int) float64 { return float64(used.Microseconds()) / float64(n) }
