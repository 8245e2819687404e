//go:build real && linux

package caddyhooks_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkSyncs counts how often Caddy waits for the disk for a lone request and its run: strace counts it.
func BenchmarkSyncs(b *testing.B) {
	s := hookstest.StartSite(b, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\n}")
	trace := filepath.Join(b.TempDir(), "trace")
	strace := exec.Command("strace", "-f", "-q", "-e", "trace=fdatasync,fsync", "-o", trace, "-p", strconv.Itoa(os.Getpid()))
	if err := strace.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = strace.Process.Signal(os.Interrupt)
		_ = strace.Wait()
	}()
	syncs := func() int {
		data, _ := os.ReadFile(trace)             // which is not there at first
		return bytes.Count(data, []byte("sync(")) // what is interrupted goes on as "resumed"
	}
	post := func(path, body string, status int) {
		if got := s.Post(path, body); got.Status != status {
			b.Fatalf("%s answers %+v", path, got)
		}
	}
	hookstest.Eventually(b, "strace sees waits for the disk", func() bool {
		post("/api/hooks/wake", `{"text":"the first"}`, 200)
		return syncs() > 0
	})
	counts := make(map[string]int)
	for b.Loop() {
		for _, way := range []struct {
			name, path, body string
			status           int
		}{
			{"wake", "/api/hooks/wake", `{"text":"the disk of web-3 is 91 % full"}`, 200},
			{"agent", "/api/hooks/agent", `{"message":"look at the disk of web-3"}`, 202},
			{"sync", "/api/hooks/agent", `{"message":"look at the disk of web-3","syncResponse":true}`, 200},
		} {
			before := syncs()
			post(way.path, way.body, way.status)
			settle(b, s)
			counts[way.name] += syncs() - before
		}
	}
	for name, n := range counts {
		b.ReportMetric(float64(n)/float64(b.N), name+"-syncs")
	}
	b.ReportMetric(0, "ns/op")
}
