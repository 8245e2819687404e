package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkTurn measures the processor time that Caddy takes for a turn whose caller waits, beside that of its own
// reverse_proxy to the same server: the way of a request through both is the same, but a run is stored, carried out in its
// turn, and told about in the log. One Caddy serves all, in a process of its own, so that clients and upstream do not count.
// They are measured in turns; the ratios are those of the medians.
func BenchmarkTurn(b *testing.B) {
	answer := strings.Repeat("The disk is 91 % full. ", 45)[:1024]
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, answer)
	}))
	defer upstream.Close()
	hooks := func(store string) string {
		return "handle /" + store + "/* {\nhooks " + store + " {\npath /" + store + "\nenabled\ntoken " + hookstest.Token +
			"\nrunner http " + upstream.URL + "\nstore " + store + "\n}\n}\n"
	}
	caddy := hookstest.NewBinary(b).Serve(b, "", "handle /proxy/* {\nreverse_proxy "+upstream.URL+"\n}\n"+hooks("memory")+hooks("bolt")+"respond 404")

	const rounds, clients = 11, 64
	address := strings.TrimPrefix(caddy.URL, "http://")
	body := fmt.Sprintf(`{"message":%q,"syncResponse":true}`, strings.Repeat("look at the disk of web-3 ", 40)[:1024-34])
	ways := []string{"proxy", "memory", "bolt"}
	share := max(b.N/rounds, 1)
	each := make(map[string][]float64) // microseconds per request
	turn := func(way string, n int) {
		request := rawRequestTo(address, "/"+way+"/agent", "Authorization: Bearer "+hookstest.Token+"\r\n", body)
		before := processorTime(b, caddy.Cmd.Process.Pid)
		hammerAt(b, address, request, "200", clients, n)
		took := processorTime(b, caddy.Cmd.Process.Pid) - before
		each[way] = append(each[way], float64(took.Microseconds())/float64(n))
	}
	for _, way := range ways {
		turn(way, clients) // connections are made
	}
	clear(each)
	for round := range rounds {
		for i := range ways {
			turn(ways[(round+i)%len(ways)], share)
		}
	}
	median := func(way string) float64 {
		slices.Sort(each[way])
		return each[way][rounds/2]
	}
	for _, way := range ways {
		b.ReportMetric(median(way), way+"-µs")
	}
	b.ReportMetric(median("memory")/median("proxy"), "memory-ratio")
	b.ReportMetric(median("bolt")/median("proxy"), "bolt-ratio")
	b.ReportMetric(0, "ns/op")
}

// processorTime is how long a process has had a processor, in its own code and in the kernel's, to 10 ms.
func processorTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// Its name, which may hold spaces, is in parentheses. The 12th and 13th fields after it are the times.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
