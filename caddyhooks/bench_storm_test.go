package caddyhooks_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkStorm measures how long callers of one hook wait for their answers while another hook gets a thousand events a second, whose
// turns take a second each. It does so without that storm and with it in turns, of which the median counts, and then with a storm on a
// hook that has no `workers`. One Caddy serves all, in a process of its own, with a store in a file for each instance.
func BenchmarkStorm(b *testing.B) {
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var turn struct{ Hook string }
		_ = json.NewDecoder(r.Body).Decode(&turn)
		if turn.Hook == "storm" {
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer runner.Close()
	hooks := func(name, workers string) string {
		return "handle /" + name + "/* {\nhooks " + name + " {\npath /" + name + "\nenabled\ntoken " + hookstest.Token + "\nrunner http " + runner.URL +
			"\nhook storm {\naction agent\ntemplate \"alert {n}\"\nchat_id \"alerts:{chat}\"\nfold 5s 50\n" + workers + "\n}\n" +
			"hook calm {\naction agent\nsync\ntemplate \"{text}\"\n}\n}\n}\n"
	}
	caddy := hookstest.NewBinary(b).Serve(b, "log {\nlevel WARN\n}", hooks("quiet", "")+hooks("bounded", "workers 4")+hooks("unbounded", "")+"respond 404")
	address := strings.TrimPrefix(caddy.URL, "http://")

	const rounds, each = 5, 4 * time.Second
	p99s, p50s := make(map[string][]float64), make(map[string][]float64)
	measure := func(what, instance string) {
		took := calmFor(b, address, instance, each)
		p99s[what] = append(p99s[what], p99(took))
		p50s[what] = append(p50s[what], took[len(took)/2].Seconds()*1000)
	}
	for range b.N {
		calmFor(b, address, "quiet", time.Second) // connections are made
		for range rounds {
			measure("quiet", "quiet")
			end := startStorm(b, address, "bounded")
			measure("storm", "bounded")
			end()
		}
		end := startStorm(b, address, "unbounded")
		measure("unbounded", "unbounded")
		end()
	}
	for what := range p99s {
		for name, all := range map[string][]float64{"-p99-ms": p99s[what], "-p50-ms": p50s[what]} {
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], what+name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// calmFor has four callers call a hook fifty times a second each, or as often as they are answered, for a time, and returns how long
// they waited.
func calmFor(b *testing.B, address, instance string, length time.Duration) (all []time.Duration) {
	b.Helper()
	request := rawRequestTo(address, "/"+instance+"/calm", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"text":"look at the disk"}`)
	var mu sync.Mutex
	var callers sync.WaitGroup
	end := time.Now().Add(length)
	for range 4 {
		callers.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			for sent := time.Now(); sent.Before(end); sent = time.Now() {
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				if status, err := skipAnswer(answers); err != nil || status != "200" {
					b.Errorf("got status %s, %v", status, err)
					return
				}
				took := time.Since(sent)
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
				time.Sleep(time.Until(sent.Add(20 * time.Millisecond)))
			}
		})
	}
	callers.Wait()
	if len(all) == 0 {
		b.Fatal("nobody was answered")
	}
	return all
}

// startStorm sends a thousand events a second to the other hook of an instance, until end is called. It returns when there are enough
// of them for many turns.
func startStorm(b *testing.B, address, instance string) (end func()) {
	b.Helper()
	var sent, accepted atomic.Int64
	stop := make(chan struct{})
	var senders sync.WaitGroup
	began := time.Now()
	for range 16 {
		senders.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			for {
				n := sent.Add(1)
				select {
				case <-time.After(time.Until(began.Add(time.Duration(n) * time.Millisecond))):
				case <-stop:
					return
				}
				request := rawRequestTo(address, "/"+instance+"/storm", "Authorization: Bearer "+hookstest.Token+"\r\n", fmt.Sprintf(`{"n":%d,"chat":%d}`, n, n%40))
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				if status, err := skipAnswer(answers); err != nil || status != "202" {
					b.Errorf("got status %s, %v", status, err)
					return
				}
				accepted.Add(1)
			}
		})
	}
	for accepted.Load() < 2500 && !b.Failed() { // the folds of all chats are full
		time.Sleep(10 * time.Millisecond)
	}
	return func() {
		close(stop)
		senders.Wait()
	}
}
