//go:build real

package caddyhooks_test

import "testing"

// BenchmarkOneChat has a single chat get all runs, which are carried out one after the other. A run counts in runs/s once its end is stored;
// us-of-caddy and us-of-postgres are processor time for each run. Run it with -benchtime 1x.
func BenchmarkOneChat(b *testing.B) {
	for count := range 3 {
		nodes := newBenchNodes(b, count)
		b.Run(nodes.name, func(b *testing.B) {
			for range max(count, 1) {
				nodes.start(b, nodes.hooks("default", "workers 64", "echo"))
			}
			bench := nodesBenchmark{hook: "agent", body: `{"message":"look at the disk of web-3","chatId":"one"}`, status: "202"}
			var m nodesMeasured
			for range 5 {
				bench.turn(b, nodes, &m, *nodeRequests/5)
			}
			b.ReportMetric(median(m.runs), "runs/s")
			b.ReportMetric(perRun(m.ofCaddy, *nodeRequests), "us-of-caddy")
			b.ReportMetric(perRun(m.ofPostgres, *nodeRequests), "us-of-postgres")
			b.ReportMetric(0, "ns/op")
		})
	}
}
