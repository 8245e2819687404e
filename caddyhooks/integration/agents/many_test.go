//go:build agents

package agents

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestManyChatsShareOneProcess has many chats go on side by side: none sees words of another, one process of the agent serves
// them all, and Caddy needs no more memory for more turns.
func TestManyChatsShareOneProcess(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		agent        *agent
		turns, chats int
	}{{codex, 200, 20}, {claude, 24, 6}} {
		t.Run(try.agent.name, func(t *testing.T) {
			t.Parallel()
			s := try.agent.startAs(t, acpRunner, try.agent.name, "")
			var early int
			most, stop := s.countProcesses(try.agent.acp[0])
			rounds := try.turns / try.chats
			for round := range rounds {
				var wg sync.WaitGroup
				for chat := range try.chats {
					wg.Go(func() {
						message := fmt.Sprintf("Chat %d, round %d.", chat, round)
						s.wantReply(t, say(message).remember(fmt.Sprintf("chat %d", chat)), "You said: "+message)
					})
				}
				wg.Wait()
				if round == rounds/4 {
					early = residentKB(t, s.PID())
				}
			}
			stop()
			late := residentKB(t, s.PID())
			t.Logf("%d turns in %d chats; Caddy had %d KB early and %d KB late; %d process(es) of the agent", try.turns, try.chats, early, late, *most)
			if *most != 1 {
				t.Errorf("there were %d processes of the agent", *most)
			}
			const slack = 32 << 10
			if late > early+slack {
				t.Errorf("Caddy's memory grew from %d to %d KB", early, late)
			}
			words := regexp.MustCompile(`Chat (\d+), round (\d+)\.`)
			seen := make(map[string]bool)
			for _, call := range s.model.CallsFor("round") {

				asked := words.FindStringSubmatch(call.Asked)
				seen[asked[0]] = true
				round, _ := strconv.Atoi(asked[2])
				if want := 2*round + 1; len(call.Messages) != want {
					t.Errorf("%s came with %d messages, want %d", call.Asked, len(call.Messages), want)
				}
				for _, message := range call.Messages {
					if found := words.FindStringSubmatch(message.Text); found == nil || found[1] != asked[1] {
						t.Errorf("%s came with %q", call.Asked, message.Text)
					}
				}
			}
			if len(seen) != try.turns { // Codex asks once more for the title of a session
				t.Errorf("the model was asked %d different messages", len(seen))
			}
		})
	}
}

// countProcesses counts the agent's processes again and again. What it returns is the most that there were at once, after stop.
func (s *site) countProcesses(program string) (most *int, stop func()) {
	most = new(int)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			found := make(map[string]bool)
			for _, pid := range hookstest.ProcessesAtHome(s.home) {
				words := strings.Fields(hookstest.CommandLine(pid))
				if len(words) > 1 && strings.HasSuffix(words[0], "node") && strings.HasSuffix(words[1], "/"+program) {
					found[pid] = true
				}
			}
			n := 0
			for pid := range found {
				if !found[parentOf(pid)] { // a child is the same program until it is another one
					n++
				}
			}
			*most = max(*most, n)
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	return most, func() {
		close(over)
		<-done
	}
}

// parentOf is the process that started another one.
func parentOf(pid string) string {
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	if found := regexp.MustCompile(`PPid:\s+(\d+)`).FindSubmatch(status); found != nil {
		return string(found[1])
	}
	return ""
}

// residentKB is how much memory a process has.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kb, _ := strconv.Atoi(string(found[1]))
	return kb
}

// BenchmarkTurnByACP compares a turn in a warm process with the same turn of the same program without Caddy, by turns.
func BenchmarkTurnByACP(b *testing.B) {
	for _, a := range agents {
		b.Run(a.name, func(b *testing.B) {
			model := modeltest.Start(b)
			d := startDirect(b, a, model)
			session := d.session()
			s := a.startWith(b, model, acpRunner, a.name)
			ask := func() {
				body := hookstest.AsJSON(b, request{"message": "Good morning.", "syncResponse": true}.remember("bench"))
				if resp := s.Post("/api/hooks/agent", body); resp.Status != 200 {
					b.Fatalf("got %d %s", resp.Status, resp.Body)
				}
			}
			tell := func() {
				if _, err := d.ask(session, "Good morning."); err != nil {
					b.Fatal(err)
				}
			}
			ask()
			tell()
			b.ResetTimer()
			b.StopTimer()
			for range b.N {
				b.StartTimer()
				ask()
				b.StopTimer()
			}
			through := b.Elapsed()
			b.ResetTimer()
			for range b.N {
				b.StartTimer()
				tell()
				b.StopTimer()
			}
			own := b.Elapsed()
			b.ReportMetric(float64(through.Milliseconds())/float64(b.N), "ms/turn")
			b.ReportMetric(float64(own.Milliseconds())/float64(b.N), "ms/own-turn")
			b.ReportMetric(0, "ns/op")
		})
	}
}
