package caddyhooks_test

import (
	"io"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// BenchmarkProgram measures a program that does nothing, as runners start it, beside one that is started directly, in turns. The
// wrapper is this binary, which has all of Caddy in it.
func BenchmarkProgram(b *testing.B) {
	var direct, started, supervised []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		direct = append(direct, time.Since(began))

		began = time.Now()
		process, err := supervise.Start(supervise.Program{Args: []string{"/bin/true"}, Dir: "/", Turn: "bench-" + strconv.Itoa(i)})
		if err != nil {
			b.Fatal(err)
		}
		started = append(started, time.Since(began))
		_, _ = io.Copy(io.Discard, process.Stdout)
		<-process.Done()
		supervised = append(supervised, time.Since(began))
	}
	for name, all := range map[string][]time.Duration{"direct": direct, "started": started, "supervised": supervised} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-"+name)
	}
	b.ReportMetric(float64(supervised[len(supervised)/2])/float64(direct[len(direct)/2]), "ratio")
}
