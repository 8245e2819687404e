package caddyhooks_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkRunReaders measures what 1,000 readers of one run cost, 50 of which do not read, while the run says 10,000 words in
// ten seconds: by how much fewer wake requests Caddy accepts meanwhile than during the same run without readers. Caddy and the
// readers have a process each. cpu-ratio is for accepted requests per second of Caddy's processor time, ratio for requests per
// second, for which all processes and the clients share the machine's cores. Both are medians over rounds in which each is
// measured, one after the other. Before that there are two runs without requests: readers-ms is by how much more of Caddy's
// processor time the one with readers takes in a second, heap-KB and rss-KB how much memory Caddy takes from the first quarter to
// the end of it. Requests are stored in memory, since disks are slower at one time than at another. Run it with -benchtime 1x:
// that is seven rounds of 20 seconds.
func BenchmarkRunReaders(b *testing.B) {
	for _, length := range []int{24, 100} {
		b.Run(fmt.Sprint(length, "-bytes"), func(b *testing.B) { benchmarkRunReaders(b, length) })
	}
}

func benchmarkRunReaders(b *testing.B, length int) {
	const readers, notReading, words, perBeat = 1000, 50, 10_000, 10
	const rounds, clients = 7, 64
	type spoken struct{ begun, speak, quarter, said, end chan struct{} }
	var now spoken
	runner := hookstest.StartRunner(b, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		turn := now
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		_ = out.Flush()
		close(turn.begun)
		<-turn.speak
		beats := time.NewTicker(10 * time.Millisecond)
		defer beats.Stop()
		for i := range words {
			if i == words/4 {
				close(turn.quarter)
			}
			if i%perBeat == 0 {
				<-beats.C
			}
			fmt.Fprintf(w, "event: delta\ndata: {\"text\":\"%*d \"}\n\n", length-1, i)
			if i%perBeat == perBeat-1 {
				_ = out.Flush()
			}
		}
		close(turn.said)
		<-turn.end
		_, _ = io.WriteString(w, "event: result\ndata: {}\n\n")
	})
	caddy := hookstest.NewBinary(b).Serve(b, "", "hooks {\nenabled\ntoken "+hookstest.Token+"\nqueue_limit 100000000\ndrain_timeout 1ms\nstore memory\n"+
		"runner echo\nrunner words http "+runner.URL+"\nrunner_for deep words\nhistory off\n}")
	address := strings.TrimPrefix(caddy.URL, "http://")
	pid := caddy.Cmd.Process.Pid
	wake := rawRequestTo(address, "/api/hooks/wake", "Authorization: Bearer "+hookstest.Token+"\r\n", `{"text":"look at the disk of web-3"}`)

	type measured struct{ perSecond, perCPU, cpu, heap, rss float64 }
	// turn has a run speak, and measures meanwhile.
	turn := func(followed, hammered bool) (m measured) {
		now = spoken{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
		resp, err := hookstest.TryRequest("POST", caddy.URL+"/api/hooks/agent", `{"message":"speak","model":"deep"}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != 202 {
			b.Fatalf("got %+v, %v", resp, err)
		}
		id := resp.Field(b, "runId").(string)
		<-now.begun
		if followed {
			stop := startReaders(b, address, id, readers, notReading)
			defer stop()
		}
		close(now.speak)
		start, cpu, n := time.Now(), processorTime(b, pid), 0
		if hammered {
			for over := false; !over; {
				hammerAt(b, address, wake, "200", clients, 1000)
				n += 1000
				select {
				case <-now.said:
					over = true
				default:
				}
			}
		} else {
			<-now.quarter
			heap, rss := heapOf(b, caddy.Admin), residentMemoryOf(b, pid)
			<-now.said
			m.heap, m.rss = heapOf(b, caddy.Admin)-heap, residentMemoryOf(b, pid)-rss
		}
		took, cpuTook := time.Since(start), processorTime(b, pid)-cpu
		m.perSecond, m.perCPU, m.cpu = float64(n)/took.Seconds(), float64(n)/cpuTook.Seconds(), cpuTook.Seconds()/took.Seconds()
		if followed {
			hookstest.Within(b, 20*time.Second, "those who do not read are cut off", func() bool {
				stacks, err := hookstest.TryRequest("GET", caddy.Admin+"/debug/pprof/goroutine?debug=2", "")
				return err == nil && strings.Count(stacks.Body, "serveRunEvents(") == readers-notReading
			})
		}
		close(now.end)
		hookstest.Within(b, time.Minute, "the run ends", func() bool {
			resp, err := hookstest.TryRequest("GET", caddy.URL+hookstest.RunPath(id), "", "Authorization", "Bearer "+hookstest.Token)
			return err == nil && strings.Contains(resp.Body, `"status":"completed"`)
		})
		return m
	}
	quiet, silent := turn(true, false), turn(false, false)
	turn(false, true) // the first one is slower
	var alone, followed []measured
	for round := range rounds {
		for i := range 2 { // each is the first in every other round
			if (round+i)%2 == 0 {
				alone = append(alone, turn(false, true))
			} else {
				followed = append(followed, turn(true, true))
			}
		}
	}
	median := func(of func(i int) float64) float64 {
		var all []float64
		for i := range rounds {
			all = append(all, of(i))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.ReportMetric(median(func(i int) float64 { return followed[i].perCPU / alone[i].perCPU }), "cpu-ratio")
	b.ReportMetric(median(func(i int) float64 { return followed[i].perSecond / alone[i].perSecond }), "ratio")
	b.ReportMetric(median(func(i int) float64 { return followed[i].perSecond }), "requests/s")
	b.ReportMetric(median(func(i int) float64 { return alone[i].perSecond }), "requests/s-alone")
	b.ReportMetric(median(func(i int) float64 { return alone[i].cpu }), "cores-alone")
	b.ReportMetric((quiet.cpu-silent.cpu)*1000, "readers-ms")
	b.ReportMetric(quiet.heap, "heap-KB")
	b.ReportMetric(quiet.rss, "rss-KB")
	b.ReportMetric(0, "ns/op")
}

// heapOf is how many KB a Caddy has on its heap.
func heapOf(b *testing.B, admin string) float64 {
	profile, err := hookstest.TryRequest("GET", admin+"/debug/pprof/heap?gc=1&debug=1", "")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(profile.Body, "# HeapAlloc = ")
	bytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(bytes) / 1024
}

// residentMemoryOf is how many KB of memory a process has.
func residentMemoryOf(b *testing.B, pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kb)
}

// readersVariable names, in the environment of a process of this program, what it reads.
const readersVariable = "CADDYHOOKS_TEST_READERS"

// startReaders follows a run in another process. It returns when all streams have begun.
func startReaders(b *testing.B, address, id string, readers, notReading int) (stop func()) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", readersVariable, address, id, readers, notReading), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		b.Fatalf("the readers say %q, %v", line, err)
	}
	return stop
}

// readRuns is what a process of readers does. It ends with its readers.
func readRuns(order string) error {
	var address, id string
	var readers, notReading int
	if _, err := fmt.Sscan(order, &address, &id, &readers, &notReading); err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range readers {
		dialer := net.Dialer{}
		if i < notReading { // little is on its way to them
			dialer.Control = withSmallBuffers
		}
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			return err
		}
		fmt.Fprintf(conn, "GET %s/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", hookstest.RunPath(id), address, hookstest.Token)
		first := make([]byte, 12)
		if _, err := io.ReadFull(conn, first); err != nil || string(first[9:]) != "200" {
			return fmt.Errorf("got %q, %w", first, err)
		}
		all.Go(func() {
			defer conn.Close()
			if i < notReading {
				select {}
			}
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	fmt.Println("all read")
	all.Wait()
	return nil
}
