package caddyhooks_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkIngress measures requests per second that the hooks take, beside a bare respond of the same Caddy in the same
// run, with 64 clients that keep their connections. The two are measured in turns, so that whatever else the machine does
// falls on both; ratio, the median of those turns, is what to look at. The time of a hook ends when its runs have been
// carried out, not when they have been accepted. Clients and server share the machine's cores.
func BenchmarkIngress(b *testing.B) {
	s := startSite(b, `
	respond /bare "ok"
	hooks {
		enabled
		token `+token+`
		runner echo
		queue_limit 1000000
		hook github {
			action agent
			auth hmac X-Hub-Signature-256 secret sha256=
			template "{repository.full_name}: {action} by {sender.login}, { $.issue.title }, {issue.labels[0].name}"
		}
	}`)
	large := largePayload()
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(large))
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))

	bearer := "Authorization: Bearer " + token + "\r\n"
	for _, bench := range []struct {
		name    string
		request []byte
		status  string
	}{
		{"wake", rawRequest(s, "/api/hooks/wake", bearer, `{"text":"the disk of web-3 is 91 % full","metadata":{"host":"web-3"}}`), "200"},
		{"agent", rawRequest(s, "/api/hooks/agent", bearer, `{"message":"look at the disk of web-3","name":"disk"}`), "202"},
		{"hmac-20KB", rawRequest(s, "/api/hooks/github", "X-Hub-Signature-256: "+signature+"\r\n", large), "202"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			// The bare site gets the same body, which it does not read.
			bare := bytes.Replace(bench.request, bench.request[5:bytes.IndexByte(bench.request[5:], ' ')+5], []byte("/bare"), 1)
			const rounds = 10
			var bareTime, hookTime time.Duration
			var ratios []float64
			share := max(b.N/rounds, 1)
			for range rounds {
				bareTurn := hammer(b, s, bare, "200", share)
				start := time.Now()
				hammer(b, s, bench.request, bench.status, share)
				// Runs are carried out in order, so when this one is over the others are too.
				if got := s.post("/api/hooks/agent", `{"message":"last","chatId":"webhook:default","syncResponse":true}`); got.status != 200 {
					b.Fatalf("got %+v", got)
				}
				hookTurn := time.Since(start)
				bareTime += bareTurn
				hookTime += hookTurn
				ratios = append(ratios, bareTurn.Seconds()/hookTurn.Seconds())
			}
			slices.Sort(ratios)
			total := float64(rounds * share)
			b.ReportMetric(total/hookTime.Seconds(), "req/s")
			b.ReportMetric(total/bareTime.Seconds(), "bare-req/s")
			b.ReportMetric(ratios[rounds/2], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func rawRequest(s *server, path, headers, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		path, s.port, headers, len(body), body)
}

// hammer sends n requests over 64 connections and checks the status of every answer. The client is as thin as can be,
// since it takes its time from the same cores.
func hammer(b *testing.B, s *server, request []byte, status string, n int) time.Duration {
	const clients = 64
	conns := make([]net.Conn, clients)
	for i := range conns {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	start := time.Now()
	for _, conn := range conns {
		group.Go(func() {
			answers := bufio.NewReader(conn)
			for left.Add(-1) >= 0 {
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				got, err := skipAnswer(answers)
				if err != nil || got != status {
					b.Errorf("got status %s, %v, want %s", got, err, status)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(start)
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
