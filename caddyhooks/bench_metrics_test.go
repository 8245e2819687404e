package caddyhooks_test

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkMetrics measures what metrics cost. One instance has them, and another one does not. Both are measured in turns, and each is
// the first in every other round. Before each round there is a scrape, which is far more often than in practice. Runs are in memory, so
// that the disk of a busy machine is not measured, and metrics are the largest part of the whole that they can be. The medians count:
//
//   - ratio is how many times as many requests a second are taken with metrics, traced-ratio the same for requests with a trace that is
//     recorded, all of which become exemplars;
//   - cpu-ratio compares the processor time of all rounds.
func BenchmarkMetrics(b *testing.B) {
	s := hookstest.NewServer(b)
	instances := []string{"counting", "silent"}
	site := ""
	for _, instance := range instances {
		site += "hooks " + instance + " {\npath /" + instance + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\nrunner echo\n" +
			"drain_timeout 1ms\nstore memory\nretention 1s\nhook deploy\n}\n"
	}
	s.Load(site)
	caddyhooks.StopCounting("silent")
	const clients, rounds = 16, 100
	share := max(b.N/rounds, 1)
	for _, c := range []struct{ name, header string }{
		{"ratio", ""}, {"traced-ratio", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"},
	} {
		used := make(map[string]time.Duration)
		var ratios []float64
		for round := range rounds {
			s.AdminRequest("GET", "/metrics", "")
			took := make(map[string]float64)
			for i := range instances {
				instance := instances[(round+i)%2]
				request := rawRequest(s, "/"+instance+"/deploy", "Authorization: Bearer "+hookstest.Token+"\r\n"+c.header, `{"text":"the disk of web-3 is 91 % full"}`)
				before := cpuTime(b)
				total, _ := hammer(b, s, request, "200", clients, share)
				used[instance] += cpuTime(b) - before
				took[instance] = total.Seconds()
			}
			ratios = append(ratios, took["silent"]/took["counting"])
		}
		b.ReportMetric(median(ratios), c.name)
		if c.header == "" {
			b.ReportMetric(used["silent"].Seconds()/max(used["counting"].Seconds(), 0.01), "cpu-ratio")
		}
	}
	b.ReportMetric(0, "ns/op")
}
