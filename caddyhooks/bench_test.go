package caddyhooks_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// BenchmarkIngress measures requests per second that the hooks take, beside a bare respond of the same Caddy in the same
// run, with clients that keep their connections. The two are measured in turns, so that whatever else the machine does
// falls on both; ratio, the median of those turns, is what to look at. Clients and server share the machine's cores.
//
// The third in turn is the limit: a handler of the same Caddy that hashes a body, appends it to a file and waits for the disk, for all who
// wait at once. x/limit is the share of its requests that the hooks take.
//
// In agent-traced Caddy's tracing handles all requests, and spans are made and not sent anywhere.
//
// hmac-20KB and ignored-20KB take the same events; the latter leave all of them out.
//
// Runs are stored on disk before they are answered. In the cases that are called held all workers are busy, so that the
// queue grows; otherwise an echo runner works it off at the same time, and runs/s is how many were over per second from
// the first request until the queue was empty.
func BenchmarkIngress(b *testing.B) {
	bearer := "Authorization: Bearer " + hookstest.Token + "\r\n"
	large := largePayload()
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(large))
	signature := "X-Hub-Signature-256: sha256=" + hex.EncodeToString(mac.Sum(nil)) + "\r\n"
	wake := `{"text":"the disk of web-3 is 91 % full","metadata":{"host":"web-3"}}`
	agent := `{"message":"look at the disk of web-3","name":"disk"}`

	for _, bench := range []struct {
		name    string
		clients int
		hook    string
		headers string
		body    string
		status  string
		config  string
	}{
		{"wake-held", 64, "wake", bearer, wake, "200", "runner echo {\ndelay 1h\n}"},
		{"wake-held", 256, "wake", bearer, wake, "200", "runner echo {\ndelay 1h\n}"},
		{"wake", 64, "wake", bearer, wake, "200", "runner echo"},
		{"wake", 256, "wake", bearer, wake, "200", "runner echo"},
		{"agent", 64, "agent", bearer, agent, "202", "runner echo"},
		{"agent", 256, "agent", bearer, agent, "202", "runner echo"},
		{"agent-traced", 64, "agent", bearer, agent, "202", "runner echo"},
		{"hmac-20KB", 64, "github", signature, large, "202", "runner echo"},
		{"ignored-20KB", 64, "closed", signature, large, "200", "runner echo"},
		{"ignored-by-header-20KB", 64, "pings", signature, large, "200", "runner echo"},
		{"wake-memory", 64, "wake", bearer, wake, "200", "runner echo\nstore memory"},
	} {
		b.Run(fmt.Sprintf("%s/%d", bench.name, bench.clients), func(b *testing.B) {
			tracing := ""
			if strings.HasSuffix(bench.name, "traced") {
				tracing = "tracing"
				b.Setenv("OTEL_TRACES_EXPORTER", "none")
			}
			s := hookstest.StartSite(b, tracing+`
			respond /bare "ok"
			route /limit {
				append_to * `+filepath.Join(b.TempDir(), "appended")+`
			}
			hooks {
				enabled
				token `+hookstest.Token+`
				queue_limit 100000000
				drain_timeout 1ms
				hook github {
					action agent
					auth hmac X-Hub-Signature-256 secret sha256=
					template "{repository.full_name}: {action} by {sender.login}, { $.issue.title }, {issue.labels[0].name}"
				}
				hook closed {
					action agent
					auth hmac X-Hub-Signature-256 secret sha256=
					template "{repository.full_name}: {action} by {sender.login}, { $.issue.title }, {issue.labels[0].name}"
					only `+"`$.action == 'closed' && $.issue.labels[?@.name == 'bug']`"+`
				}
				hook pings {
					action agent
					auth hmac X-Hub-Signature-256 secret sha256=
					template "{repository.full_name}: {action} by {sender.login}, { $.issue.title }, {issue.labels[0].name}"
					only header X-GitHub-Event ping
				}
				`+bench.config+`
			}`)
			request := rawRequest(s, "/api/hooks/"+bench.hook, bench.headers, bench.body)
			bare := rawRequest(s, "/bare", bench.headers, bench.body) // which it does not read
			limit := rawRequest(s, "/limit", bench.headers, bench.body)
			held := strings.HasSuffix(bench.name, "held") || strings.HasPrefix(bench.name, "ignored") // no run is carried out
			const rounds = 10
			var bareTime, hookTime, workTime time.Duration
			var ratios, limits []float64
			share := max(b.N/rounds, 1)
			var latencies, bareLatencies []time.Duration
			for range rounds {
				bareTurn, bareTook := hammer(b, s, bare, "200", bench.clients, share)
				bareLatencies = append(bareLatencies, bareTook...)
				limitTurn, _ := hammer(b, s, limit, "200", bench.clients, share)
				start := time.Now()
				hookTurn, took := hammer(b, s, request, bench.status, bench.clients, share)
				latencies = append(latencies, took...)
				if !held {
					// Runs of a chat are carried out in order, and chats by turns.
					if got := s.Post("/api/hooks/agent", `{"message":"last","chatId":"webhook:default","syncResponse":true}`); got.Status != 200 {
						b.Fatalf("got %+v", got)
					}
					workTime += time.Since(start)
				}
				bareTime += bareTurn
				hookTime += hookTurn
				ratios = append(ratios, bareTurn.Seconds()/hookTurn.Seconds())
				limits = append(limits, limitTurn.Seconds()/hookTurn.Seconds())
			}
			slices.Sort(ratios)
			slices.Sort(limits)
			total := float64(rounds * share)
			b.ReportMetric(total/hookTime.Seconds(), "req/s")
			b.ReportMetric(total/bareTime.Seconds(), "bare-req/s")
			b.ReportMetric(ratios[rounds/2], "ratio")
			b.ReportMetric(limits[rounds/2], "x/limit")
			b.ReportMetric(p99(latencies), "p99-ms")
			b.ReportMetric(p99(bareLatencies), "bare-p99-ms")
			if !held {
				b.ReportMetric(total/workTime.Seconds(), "runs/s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// p99 is the time in milliseconds that 99 in 100 stay below.
func p99(all []time.Duration) float64 {
	slices.Sort(all)
	return all[len(all)*99/100].Seconds() * 1000
}

// BenchmarkDispatch measures how many asynchronous agent runs per second are accepted, stored, carried out by an HTTP
// runner that answers at once, and over, with their ends stored. Clients, Caddy and runner share the machine's cores.
func BenchmarkDispatch(b *testing.B) {
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "done")
	}))
	defer runner.Close()
	s := hookstest.StartSite(b, "hooks {\nenabled\ntoken "+hookstest.Token+"\nqueue_limit 100000000\nrunner http "+runner.URL+"\n}")
	request := rawRequest(s, "/api/hooks/agent", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"message":"look at the disk of web-3"}`)
	start := time.Now()
	hammer(b, s, request, "202", 64, b.N)
	settle(b, s)
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "runs/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCallbacks measures how many callbacks per second reach a receiver that answers at once. The receiver lets none
// pass until all runs are over, so that nothing but sending, and putting down that it was done, is measured. The same is
// done by an instance that has deliveries waiting for two dead hosts, one that refuses connections and one that never
// answers; slowed is by which factor that is slower. Both are measured in turns, and the median counts: a turn in which the
// disk was busy with something else takes many times as long. At the end the runs are not held back: both
// accepting and carrying out runs and calling back, with everything on the same cores, is what all/s says.
func BenchmarkCallbacks(b *testing.B) {
	var received, wanted atomic.Int64
	over := make(chan struct{}, 1)
	var gate sync.RWMutex
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		gate.RLock()
		defer gate.RUnlock()
		if received.Add(1) == wanted.Load() {
			over <- struct{}{}
		}
	}))
	defer receiver.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer silent.Close() // nobody accepts, but the system does
	refusing := hookstest.FreePort(b)
	s := hookstest.NewServer(b)
	site := ""
	instances := []string{"calm", "troubled"}
	for _, name := range instances {
		site += "hooks " + name + " {\npath /" + name + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\nrunner echo\n" +
			"drain_timeout 1ms\ncallbacks {\nsecret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nallow 127.0.0.0/8\nports *\n}\n}\n"
	}
	s.Load(site)
	request := func(instance, url string) []byte {
		return rawRequest(s, "/"+instance+"/agent", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"message":"look at the disk of web-3","callbackUrl":"`+url+`"}`)
	}
	settled := func(instance string) {
		hookstest.Within(b, time.Minute, "all runs are over", func() bool {
			for _, status := range []string{"queued", "running"} {
				resp := s.AdminRequest("GET", "/hooks/instances/"+instance+"/runs?limit=1&status="+status, "")
				if !strings.HasPrefix(resp.Body, `{"runs":[]`) {
					return false
				}
			}
			return true
		})
	}
	const dead = 1000
	hammer(b, s, request("troubled", "http://"+silent.Addr().String()), "202", 64, dead)
	hammer(b, s, request("troubled", "http://127.0.0.1:"+refusing), "202", 64, dead)
	settled("troubled")

	rounds := min(max(b.N/500, 4), 30)
	share := max(b.N/rounds, 2000) // with fewer it would be the beginning and the end of a turn that count
	turn := func(instance string) time.Duration {
		received.Store(0)
		wanted.Store(int64(share))
		gate.Lock()
		hammer(b, s, request(instance, receiver.URL), "202", 64, share)
		settled(instance)
		start := time.Now()
		gate.Unlock()
		<-over
		return time.Since(start)
	}
	took := make(map[string][]time.Duration)
	for round := range rounds {
		for i := range instances { // each of them is the first in every other round
			name := instances[(round+i)%2]
			took[name] = append(took[name], turn(name))
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return took[name][rounds/2].Seconds()
	}
	b.ReportMetric(float64(share)/median("calm"), "deliveries/s")
	b.ReportMetric(median("troubled")/median("calm"), "slowed")

	received.Store(0)
	wanted.Store(int64(rounds * share))
	start := time.Now()
	hammer(b, s, request("calm", receiver.URL), "202", 64, rounds*share)
	<-over
	b.ReportMetric(float64(rounds*share)/time.Since(start).Seconds(), "all/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLongQueue compares accepting when a million runs are queued with accepting when a thousand are, in turns, and
// says what it takes to start with a million runs that are unfinished. Each has a chat of its own, which costs most.
func BenchmarkLongQueue(b *testing.B) {
	const long, short = 1_000_000, 1_000
	dir := b.TempDir()
	for name, n := range map[string]int{"long": long, "short": short} {
		fillStore(b, filepath.Join(dir, name+".db"), n)
	}
	s := hookstest.NewServer(b)
	site := "respond /bare \"ok\"\n"
	for _, name := range []string{"long", "short"} {
		site += "hooks " + name + " {\npath /" + name + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\n" +
			"runner echo {\ndelay 1h\n}\ndrain_timeout 1ms\nstore bolt " + filepath.Join(dir, name+".db") + "\n}\n"
	}
	debug.FreeOSMemory() // what it took to fill them
	start := time.Now()
	s.Load(site)
	ready := time.Since(start)
	anonymous, file := residentMemory(b, os.Getpid())

	body := `{"message":"look at the disk of web-3","name":"disk"}`
	headers := "Authorization: Bearer " + hookstest.Token + "\r\n"
	const rounds = 10
	share := max(b.N/rounds, 1)
	var ratios []float64
	for range rounds {
		few, _ := hammer(b, s, rawRequest(s, "/short/agent", headers, body), "202", 64, share)
		many, _ := hammer(b, s, rawRequest(s, "/long/agent", headers, body), "202", 64, share)
		ratios = append(ratios, many.Seconds()/few.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[rounds/2], "cost-ratio")
	b.ReportMetric(ready.Seconds(), "s-to-start")
	b.ReportMetric(float64(anonymous)/1e6, "MB")
	b.ReportMetric(float64(file)/1e6, "MB-of-files")
	b.ReportMetric(0, "ns/op")
}

// fillStore makes a store that has n queued runs.
func fillStore(b *testing.B, path string, n int) {
	store, err := (&bolt.Bolt{Path: path}).OpenStore(b.Context(), "")
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for range 512 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				err := store.Runs().Add(b.Context(), &engine.Run{
					ChatID: "hook:" + uuid.NewString(), Hook: "agent", Action: engine.Agent, MemoryPreset: "disabled",
					Message: "look at the disk of web-3", Timeout: time.Hour, QueueTime: 24 * time.Hour,
				}, engine.Terms{})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// residentMemory is how many bytes of memory a process uses, its own and of files that are mapped into it.
func residentMemory(b *testing.B, pid int) (anonymous, file int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kilobytes); err == nil {
			anonymous = kilobytes << 10
		}
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kilobytes); err == nil {
			file = kilobytes << 10
		}
	}
	return anonymous, file
}

func rawRequest(s *hookstest.Server, path, headers, body string) []byte {
	return rawRequestTo("127.0.0.1:"+s.Port, path, headers, body)
}

func rawRequestTo(address, path, headers, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		path, address, headers, len(body), body)
}

// hammer sends n requests over so many connections and checks the status of every answer. The client is as thin as can be,
// since it takes its time from the same cores.
func hammer(b *testing.B, s *hookstest.Server, request []byte, status string, clients, n int) (total time.Duration, each []time.Duration) {
	return hammerAt(b, "127.0.0.1:"+s.Port, request, status, clients, n)
}

func hammerAt(b *testing.B, address string, request []byte, status string, clients, n int) (total time.Duration, each []time.Duration) {
	return hammerNodes(b, []string{address}, request, status, clients, upTo(n))
}

// upTo reports true so many times.
func upTo(n int) (more func() bool) {
	var left atomic.Int64
	left.Store(int64(n))
	return func() bool { return left.Add(-1) >= 0 }
}

// hammerNodes shares connections out to nodes, and sends requests as long as there are to be more.
func hammerNodes(b *testing.B, addresses []string, request []byte, status string, clients int, more func() bool) (total time.Duration, each []time.Duration) {
	conns := make([]net.Conn, clients)
	for i := range conns {
		conn, err := net.Dial("tcp", addresses[i%len(addresses)])
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for _, conn := range conns {
		group.Go(func() {
			answers := bufio.NewReader(conn)
			var took []time.Duration
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				each = append(each, took...)
			}()
			for more() {
				sent := time.Now()
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				got, err := skipAnswer(answers)
				if err != nil || got != status {
					b.Errorf("got status %s, %v, want %s", got, err, status)
					return
				}
				took = append(took, time.Since(sent))
			}
		})
	}
	group.Wait()
	return time.Since(start), each
}

// skipAnswer reads one answer and returns its status.
func skipAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return "", err
	}
	status := string(line[9:12])
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return status, err
		}
		if len(line) <= 2 {
			_, err = r.Discard(length)
			return status, err
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && string(name) == "Content-Length" {
			if _, err := fmt.Sscan(string(value), &length); err != nil {
				return status, err
			}
		}
	}
}

// largePayload is 20 KB in the shape of what GitHub sends.
func largePayload() string {
	var b strings.Builder
	b.WriteString(`{"action":"opened","repository":{"full_name":"caddy-hooks/caddy-hooks","private":false},"sender":{"login":"octocat","id":583231},` +
		`"issue":{"number":1347,"title":"Found a bug","labels":[{"id":208045946,"name":"bug","default":true}],"comments":[`)
	for i := 0; b.Len() < 20<<10; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"user":{"login":"user-%d","site_admin":false},"created_at":"2026-01-02T03:04:05Z","body":"I see the same on version %d.%d, \"again\"."}`, 100000+i, i, i, i)
	}
	b.WriteString(`]}}`)
	return b.String()
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
