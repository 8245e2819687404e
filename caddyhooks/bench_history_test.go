package caddyhooks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkHistory compares an instance that keeps the messages of finished runs with one that does not, and both with a bare
// respond of the same Caddy. An echo runner works off the queue at the same time. All are measured in turns, as in
// BenchmarkIngress, and each instance is the first in every other round. The medians count:
//
//   - accepting is how many times as fast runs are accepted with history, and finishing how many times as fast they are over;
//   - cpu is how much more processor time a run takes with history, the clients included: a busy machine does not change it;
//   - on-ratio and off-ratio compare accepting with bare respond;
//   - on-B/run and off-B/run are the size of the files by the number of runs.
func BenchmarkHistory(b *testing.B) {
	for _, size := range []int{30, 1 << 10, 8 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			dir := b.TempDir()
			s := hookstest.NewServer(b)
			instances := []string{"on", "off"}
			site := "respond /bare \"ok\"\n"
			for _, instance := range instances {
				site += "hooks " + instance + " {\npath /" + instance + "\nenabled\ntoken " + hookstest.Token + "\nqueue_limit 100000000\nrunner echo\n" +
					"drain_timeout 1ms\nstore bolt " + filepath.Join(dir, instance+".db") + "\n"
				if instance == "off" {
					site += "history off\n"
				}
				site += "}\n"
			}
			s.Load(site)
			headers := "Authorization: Bearer " + hookstest.Token + "\r\n"
			body := fmt.Sprintf(`{"message":%q}`, strings.Repeat("The disk of web-3 is 91 % full", size/30+1)[:size])
			const clients, rounds = 64, 20
			share := max(b.N/rounds, 1)
			turn := func(instance string) (accepting, finishing, cpu time.Duration) {
				start, before := time.Now(), cpuTime(b)
				accepting, _ = hammer(b, s, rawRequest(s, "/"+instance+"/agent", headers, body), "202", clients, share)
				if got := s.Post("/"+instance+"/agent", `{"message":"last","syncResponse":true}`); got.Status != 200 {
					b.Fatalf("got %+v", got)
				}
				return accepting, time.Since(start), cpuTime(b) - before
			}
			var accepting, finishing, cpu []float64
			ratios := make(map[string][]float64)
			for round := range rounds {
				bare, _ := hammer(b, s, rawRequest(s, "/bare", headers, body), "200", clients, share)
				accepted, finished, used := make(map[string]float64), make(map[string]float64), make(map[string]float64)
				for i := range instances {
					instance := instances[(round+i)%2]
					a, f, c := turn(instance)
					accepted[instance], finished[instance], used[instance] = a.Seconds(), f.Seconds(), c.Seconds()
					ratios[instance] = append(ratios[instance], bare.Seconds()/a.Seconds())
				}
				accepting = append(accepting, accepted["off"]/accepted["on"])
				finishing = append(finishing, finished["off"]/finished["on"])
				cpu = append(cpu, used["on"]/max(used["off"], 0.01))
			}
			median := func(all []float64) float64 {
				slices.Sort(all)
				return all[len(all)/2]
			}
			b.ReportMetric(median(accepting), "accepting")
			b.ReportMetric(median(finishing), "finishing")
			b.ReportMetric(median(cpu), "cpu")
			for _, instance := range instances {
				b.ReportMetric(median(ratios[instance]), instance+"-ratio")
				info, err := os.Stat(filepath.Join(dir, instance+".db"))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Size())/float64(rounds*share), instance+"-B/run")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTime is how much processor time the process has used.
func cpuTime(b *testing.B) time.Duration {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		b.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	var skipped string
	var user, system int64
	if _, err := fmt.Sscan(fields, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &skipped, &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
