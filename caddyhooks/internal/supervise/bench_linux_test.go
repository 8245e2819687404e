package supervise_test

import (
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkStart measures a program that does nothing, with and without a wrapper, in turns. This binary is small; see
// BenchmarkProgram in package caddyhooks for one with all of Caddy.
func BenchmarkStart(b *testing.B) {
	var direct, supervised []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := exec.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
		direct = append(direct, time.Since(began))

		began = time.Now()
		process := start(b, program("true"))
		_, _ = io.Copy(io.Discard, process.Stdout)
		<-process.Done()
		supervised = append(supervised, time.Since(began))
	}
	slices.Sort(direct)
	slices.Sort(supervised)
	one, other := direct[len(direct)/2], supervised[len(supervised)/2]
	b.ReportMetric(float64(one.Microseconds())/1000, "ms-direct")
	b.ReportMetric(float64(other.Microseconds())/1000, "ms-supervised")
	b.ReportMetric(float64(other)/float64(one), "ratio")
}
