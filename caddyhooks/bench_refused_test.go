package caddyhooks_test

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkRefusals measures accepting while 10,000 bad requests a second come in, half of them with a wrong token and half of
// them to a hook that does not exist. One instance notes and logs them, another one does not. Both are measured in turns, and
// each is the first in every other round. Runs are in memory, so that the disk of a busy machine is not measured. The medians
// count:
//
//   - accepting is how many times as fast runs are accepted by the instance that notes refusals;
//   - bad/s is how many bad requests a second were answered;
//   - log-B and log-lines are what the log has of them at the end.
func BenchmarkRefusals(b *testing.B) {
	dir := b.TempDir()
	log := filepath.Join(dir, "caddy.log")
	s := hookstest.NewServer(b)
	s.Globals = "log {\n output file " + log + "\n level WARN\n}\n"
	instances := []string{"noting", "silent"}
	site := ""
	for _, instance := range instances {
		site += "hooks " + instance + " {\npath /" + instance + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\nrunner echo\n" +
			"drain_timeout 1ms\nstore memory\n}\n"
	}
	s.Load(site)
	caddyhooks.StopNotingRefusals("silent")
	const clients, rounds, badRequests = 16, 100, 10_000
	share := max(b.N/rounds, 1)
	var answered int64
	var flooded time.Duration
	turn := func(instance string) time.Duration {
		bad := [][]byte{
			rawRequest(s, "/"+instance+"/wake", "Authorization: Bearer wrong\r\n", `{"text":"a"}`),
			rawRequest(s, "/"+instance+"/unknown", "", `{"text":"a"}`),
		}
		request := rawRequest(s, "/"+instance+"/wake", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"text":"the disk of web-3 is 91 % full"}`)
		start := time.Now()
		stop := flood(b, s, bad, badRequests)
		took, _ := hammer(b, s, request, "200", clients, share)
		answered += stop()
		flooded += time.Since(start)
		return took
	}
	var accepting []float64
	for round := range rounds {
		took := make(map[string]float64)
		for i := range instances {
			instance := instances[(round+i)%2]
			took[instance] = turn(instance).Seconds()
		}
		accepting = append(accepting, took["silent"]/took["noting"])
	}
	slices.Sort(accepting)
	s.Stop() // counts that wait for the end of a minute are logged now
	lines, err := os.ReadFile(log)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(accepting[rounds/2], "accepting")
	b.ReportMetric(float64(answered)/flooded.Seconds(), "bad/s")
	b.ReportMetric(float64(len(lines)), "log-B")
	b.ReportMetric(float64(bytes.Count(lines, []byte("\n"))), "log-lines")
	b.ReportMetric(0, "ns/op")
}

// flood sends requests by turns until it is stopped, at a rate per second. stop returns how many were answered.
func flood(b *testing.B, s *hookstest.Server, requests [][]byte, rate int) (stop func() (answered int64)) {
	const clients, atOnce = 16, 20
	batch := bytes.Repeat(bytes.Join(requests, nil), atOnce/len(requests))
	var answered atomic.Int64
	var group sync.WaitGroup
	over := make(chan struct{})
	for range clients {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
		if err != nil {
			b.Fatal(err)
		}
		group.Go(func() {
			defer conn.Close()
			answers := bufio.NewReader(conn)
			ticks := time.NewTicker(time.Second * clients * atOnce / time.Duration(rate))
			defer ticks.Stop()
			for {
				select {
				case <-over:
					return
				case <-ticks.C:
				}
				if _, err := conn.Write(batch); err != nil {
					b.Error(err)
					return
				}
				for range atOnce {
					if got, err := skipAnswer(answers); err != nil || got[0] != '4' {
						b.Errorf("got status %s, %v", got, err)
						return
					}
					answered.Add(1)
				}
			}
		})
	}
	return func() int64 {
		close(over)
		group.Wait()
		return answered.Load()
	}
}
