package integration

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var outageRounds = flag.Int("outage.rounds", 10, "how often BenchmarkStoreUnreachable takes the database away, in each way")

// BenchmarkStoreUnreachable takes the PostgreSQL of a Caddy away, again and again, while 64 callers send requests: it is stopped as in a crash, all its processes
// are frozen, it is unplugged, or something on the way drops all packets. It reports
//
//	first-ms             the longest wait for a 503 of a request that was sent before anybody had got one
//	p50-ms p99-ms max-ms how long a 503 took that was asked for later
//	back-p50-ms back-ms  from the return of the database until a request is accepted, the median and the longest of all rounds
//	bare-p99-ms bare-max-ms the same for 8 other callers, whom Caddy answers itself: that much is due to the machine
//	wrong                answers that are no 503 with Retry-After while it is unreachable, and requests without an answer
//
// Callers, Caddy and PostgreSQL share the machine's cores. To a server that was unplugged on the same network, the kernel first has to ask for its
// hardware address once more, which it does every second. Run it with -benchtime 1x.
func BenchmarkStoreUnreachable(b *testing.B) {
	if !inNodesNetwork(b, "-outage.rounds", fmt.Sprint(*outageRounds)) {
		return
	}
	database := pgtest.New(b, pgtest.Config{Listen: back + "1"})
	node := newMachine(b, 1)
	caddy := startOutageNode(b, node, database)
	for _, absence := range []struct {
		name       string
		begin, end func(b *testing.B)
	}{
		{"stopped", func(*testing.B) { database.Stop("immediate") }, func(b *testing.B) {
			if err := database.Start(); err != nil {
				b.Fatal(err)
			}
		}},
		{"frozen", func(b *testing.B) { database.Freeze(b) }, func(b *testing.B) { database.Thaw(b) }},
		{"unplugged", func(*testing.B) { node.set("back", "down") }, func(*testing.B) { node.set("back", "up") }},
		{"silent", func(*testing.B) {
			node.keepNeighbour()
			node.set("back", "down")
		}, func(*testing.B) { node.set("back", "up") }},
	} {
		b.Run(absence.name, func(b *testing.B) {
			m := &outageMeasure{callers: startOutageCallers(caddy.URL)}
			defer m.callers.finish()
			for round := range *outageRounds {
				m.round(b, round, func() { absence.begin(b) }, func() { absence.end(b) })
			}
			m.report(b)
		})
	}
}

// startOutageNode starts a Caddy on a machine.
func startOutageNode(b *testing.B, node *machine, database *pgtest.Server) *hookstest.Process {
	b.Helper()
	d := &hookstest.Deployment{
		Binary: hookstest.NewBinary(b),
		URL:    "http://" + node.front + ":8080",
		Admin:  "http://" + node.front + ":2019",
		Config: filepath.Join(b.TempDir(), "Caddyfile"),
		Env:    []string{"HOOKS_DSN=" + database.TCP("postgres", pgtest.Password, "postgres")}, Prepare: node.moveIn,
	}
	text := fmt.Sprintf("{\nadmin %s:2019\npersist_config off\n%s\n}\n%s {\nrespond /bare ok\nhooks {\nenabled\ntoken %s\nrunner echo\nstore postgres {env.HOOKS_DSN}\n}\n}\n",
		node.front, onlyWarnings, d.URL, tokenOf(0))
	if err := os.WriteFile(d.Config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return d.Start(b)
}

// outageCallers send requests, and put down how they are answered.
type outageCallers struct {
	url     string
	began   time.Time
	stop    chan struct{}
	all     sync.WaitGroup
	mu      sync.Mutex
	answers []outageAnswer
}

// outageAnswer is one answer, and when it came. The status of a request without one is 0.
type outageAnswer struct {
	sent, answered time.Duration
	status         int
	retryAfter     bool
	isBare         bool
}

// barePath is answered by Caddy, without hooks.
const barePath = "/bare"

func startOutageCallers(url string) *outageCallers {
	const callers, others = 64, 8
	c := &outageCallers{url: url, began: time.Now(), stop: make(chan struct{})}
	for i := range callers + others {
		path := "/api/hooks/agent"
		if i >= callers {
			path = barePath
		}
		c.all.Go(func() { c.call(path) })
	}
	return c
}

func (c *outageCallers) finish() {
	close(c.stop)
	c.all.Wait()
}

func (c *outageCallers) call(path string) {
	const patience, pause = 30 * time.Second, 50 * time.Millisecond
	client := &http.Client{Timeout: patience, Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		a := c.ask(client, path)
		c.mu.Lock()
		c.answers = append(c.answers, a)
		c.mu.Unlock()
		select {
		case <-ticker.C:
		case <-c.stop:
			return
		}
	}
}

func (c *outageCallers) ask(client *http.Client, path string) (a outageAnswer) {
	a.isBare = path == barePath
	request, err := http.NewRequest("POST", c.url+path, strings.NewReader(`{"message":"look at the disk of web-3"}`))
	if err != nil {
		return a
	}
	request.Header.Set("Authorization", "Bearer "+tokenOf(0))
	a.sent = time.Since(c.began)
	resp, err := client.Do(request)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		a.status, a.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After") != ""
	}
	a.answered = time.Since(c.began)
	return a
}

// first is the first answer with a status that came after a time.
func (c *outageCallers) first(status int, after time.Duration) (first outageAnswer, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers { // in the order in which they came, or nearly so
		if a.status == status && !a.isBare && a.answered > after {
			return a, true
		}
	}
	return outageAnswer{}, false
}

// waitFor waits for the first such answer.
func (c *outageCallers) waitFor(b *testing.B, status int, after time.Duration) (first outageAnswer) {
	b.Helper()
	hookstest.Within(b, time.Minute, fmt.Sprint("an answer is ", status), func() (found bool) {
		first, found = c.first(status, after)
		return found
	})
	return first
}

// outageMeasure is what callers saw, over all rounds.
type outageMeasure struct {
	callers *outageCallers
	first   []time.Duration
	later   []time.Duration
	bare    []time.Duration
	back    []time.Duration
	wrong   int
}

// round takes the database away once.
func (m *outageMeasure) round(b *testing.B, n int, begin, end func()) {
	b.Helper()
	c := m.callers
	c.waitFor(b, http.StatusAccepted, time.Since(c.began)+time.Second)
	began := time.Since(c.began)
	begin()
	known := c.waitFor(b, http.StatusServiceUnavailable, began).answered
	time.Sleep(2*time.Second + time.Duration(n)*370*time.Millisecond) // so that it returns at any moment between two tries
	returning := time.Since(c.began)
	end()
	returned := time.Since(c.began)
	back := c.waitFor(b, http.StatusAccepted, returning).answered
	m.back = append(m.back, max(0, back-returned))
	c.waitFor(b, http.StatusAccepted, time.Since(c.began)+time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		took := a.answered - a.sent
		switch {
		case a.answered < began || a.sent > returned:
		case a.status == 0:
			m.wrong++
		case a.isBare:
			if a.sent > known && a.answered < returning {
				m.bare = append(m.bare, took)
			}
		case a.sent <= known:
			if a.status == http.StatusServiceUnavailable {
				m.first = append(m.first, took)
			}
		case a.answered < returning:
			m.later = append(m.later, took)
			if a.status != http.StatusServiceUnavailable || !a.retryAfter {
				m.wrong++
			}
		}
	}
	c.answers = nil
}

func (m *outageMeasure) report(b *testing.B) {
	of := func(all []time.Duration, share float64) float64 {
		if len(all) == 0 {
			b.Fatal("nothing was measured")
		}
		slices.Sort(all)
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(of(m.first, 1), "first-ms")
	b.ReportMetric(of(m.later, .5), "p50-ms")
	b.ReportMetric(of(m.later, .99), "p99-ms")
	b.ReportMetric(of(m.later, 1), "max-ms")
	b.ReportMetric(of(m.bare, .99), "bare-p99-ms")
	b.ReportMetric(of(m.bare, 1), "bare-max-ms")
	b.ReportMetric(of(m.back, .5), "back-p50-ms")
	b.ReportMetric(of(m.back, 1), "back-ms")
	b.ReportMetric(float64(len(m.later)), "answers")
	b.ReportMetric(float64(m.wrong), "wrong")
	b.ReportMetric(0, "ns/op")
}
