package caddyhooks_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkLone measures requests of a single caller, one after the other, beside what the disk takes: a program that hashes a kilobyte,
// appends it to a file in the same directory, and waits until it is on the disk. All are measured in turns. x/disk is the median of each,
// without that of a bare respond, in units of the disk's. commits is how many transactions of the store a request and its run take.
// BenchmarkSyncs counts how often they wait for the disk.
func BenchmarkLone(b *testing.B) {
	b.Run("bolt", func(b *testing.B) { benchmarkLone(b, "") })
	b.Run("memory", func(b *testing.B) { benchmarkLone(b, "store memory") })
}

// benchmarkLone is BenchmarkLone with a store.
func benchmarkLone(b *testing.B, store string) {
	s := hookstest.StartSite(b, "respond /bare \"ok\"\nhooks {\nenabled\ntoken "+hookstest.Token+
		"\nrunner echo\nqueue_limit 100000000\n"+store+"\n}")
	file, err := os.Create(filepath.Join(s.Data, "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	record := make([]byte, 1024)
	post := func(path, body string, status int) func() {
		return func() {
			if got := s.Post(path, body); got.Status != status {
				b.Fatalf("%s answers %d %s", path, got.Status, got.Body)
			}
		}
	}
	ways := []struct {
		name string
		do   func()
	}{
		{"disk", func() {
			sum := sha256.Sum256(record)
			copy(record, sum[:])
			if _, err := file.Write(record); err != nil {
				b.Fatal(err)
			}
			if err := toDisk(file); err != nil {
				b.Fatal(err)
			}
		}},
		{"bare", post("/bare", "{}", 200)},
		{"wake", post("/api/hooks/wake", `{"text":"the disk of web-3 is 91 % full"}`, 200)},
		{"agent", post("/api/hooks/agent", `{"message":"look at the disk of web-3"}`, 202)},
		{"sync", post("/api/hooks/agent", `{"message":"look at the disk of web-3","syncResponse":true}`, 200)},
	}
	took, commits := make(map[string][]time.Duration), make(map[string]int)
	for b.Loop() {
		for _, way := range ways {
			before := committed(b, s)
			began := time.Now()
			way.do()
			took[way.name] = append(took[way.name], time.Since(began))
			settle(b, s)
			commits[way.name] += committed(b, s) - before
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return took[name][len(took[name])/2].Seconds()
	}
	b.ReportMetric(median("disk")*1e6, "disk-us")
	b.ReportMetric(median("bare")*1e6, "bare-us")
	for _, way := range ways[2:] {
		b.ReportMetric((median(way.name)-median("bare"))/median("disk"), way.name+"-x/disk")
		b.ReportMetric(float64(commits[way.name])/float64(len(took[way.name])), way.name+"-commits")
	}
	b.ReportMetric(0, "ns/op")
}

// settle waits until all runs are over.
func settle(b *testing.B, s *hookstest.Server) {
	b.Helper()
	hookstest.Within(b, time.Minute, "all runs are over", func() bool {
		for _, status := range []string{"queued", "running"} {
			if resp := s.AdminRequest("GET", "/hooks/runs?limit=1&status="+status, ""); !strings.HasPrefix(resp.Body, `{"runs":[]`) {
				return false
			}
		}
		return true
	})
}

var commitCount = regexp.MustCompile(`(?m)^caddy_hooks_store_commit_changes_count\S* (\d+)$`)

// committed is how many transactions the store has made so far.
func committed(b *testing.B, s *hookstest.Server) int {
	b.Helper()
	found := commitCount.FindStringSubmatch(s.AdminRequest("GET", "/metrics", "").Body)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
