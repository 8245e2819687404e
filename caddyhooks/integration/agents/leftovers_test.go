//go:build agents

package agents

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// tricks are commands that leave processes behind, or would like to. %s is a number of seconds that tells their processes from all
// others. A command that ends in wait does not end by itself.
var tricks = []string{
	"sleep %[1]s & sleep %[1]s & true",
	"for i in 1 2 3 4 5 6 7 8; do sleep %[1]s & done; true",
	"(trap '' TERM HUP INT; sleep %[1]s; sleep %[1]s) & true",
	"setsid sleep %[1]s & true",
	"setsid sh -c \"trap '' TERM; sleep %[1]s; sleep %[1]s\" & true",
	"(setsid sh -c 'sleep %[1]s & sleep %[1]s' &) ; true",
	"(cd / && env -i setsid sleep %[1]s >/dev/null 2>&1 </dev/null &) ; true",
	"nohup sleep %[1]s >/dev/null 2>&1 & true",
	"head -c 100000000 /dev/zero | tr '\\0' x; sleep %[1]s & true",
	"trap '' TERM; sleep %[1]s & wait",
	"setsid sleep %[1]s & sleep %[1]s & wait",
}

// trick is one of the tricks, with a number of seconds of its own.
func trick(i int) (command, seconds string, hangs bool) {
	seconds = fmt.Sprintf("%d.%09d", 3000+i, rand.IntN(1_000_000_000))
	command = fmt.Sprintf(tricks[i%len(tricks)], seconds)
	return command, seconds, strings.HasSuffix(command, "wait")
}

// wantGone checks that no process of a trick is left.
func wantGone(t *testing.T, command, seconds string) {
	t.Helper()
	if left := hookstest.ProcessesWith(seconds); len(left) > 0 {
		t.Errorf("of %q there is left:%s", command, describe(left))
	}
}

// TestCommandLeavesNothingBehind has a program do what tools of agents do, 80 times.
func TestCommandLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	home, work := t.TempDir(), t.TempDir()
	script := write(t, t.TempDir(), "agent.sh", "read -r message\neval \"$message\"\necho Done.\n")
	config := fmt.Sprintf("hooks {\n enabled\n token %s\n runner command sh %s {\n home %s\n dir %s\n }\n }", hookstest.Token, script, home, work)
	s := &site{Server: hookstest.StartProcess(t, config), home: home, work: work}
	const turns = 80
	for i := range turns {
		command, seconds, hangs := trick(i)
		id := s.accept(say(command))
		if hangs {
			hookstest.Eventually(t, "the trick runs", func() bool { return len(hookstest.ProcessesWith(seconds)) > 0 })
			s.CancelRun(id)
		}
		run := s.EndedWithin(modeltest.Patience, id)
		wantGone(t, command, seconds)
		s.wantNothingNow(t, command)
		if much := strings.Contains(command, "head"); run.Status != "completed" && !hangs && !much || run.Status == "completed" && (hangs || much) {
			t.Errorf("%s: %.300s", command, run.Body)
		}
	}
}

// TestAgentsLeaveNothingBehind has real agents run such commands as their tools.
func TestAgentsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		agent  *agent
		runner string
		lines  string
		words  string
	}{
		{claude, commandRunner, "", "claude --allowedTools Bash"},
		{codex, commandRunner, "", "codex -s danger-full-access"},
		{claude, acpRunner, "permit execute read", "claude"},
		{codex, acpRunner, "permit execute read edit", "codex"},
	} {
		t.Run(try.agent.name+" "+try.runner, func(t *testing.T) {
			t.Parallel()
			s := try.agent.startAs(t, try.runner, try.words, try.lines)
			for i := range tricks {
				command, seconds, hangs := trick(i)
				message := fmt.Sprintf("Do trick %d.", i)
				s.model.Answer(message, modeltest.Step{Tool: command}, modeltest.Step{Text: "Done."})
				id := s.accept(say(message).remember("tricks"))
				began := true
				if hangs {
					hookstest.Within(t, modeltest.Patience, "the trick runs", func() bool {
						began = len(hookstest.ProcessesWith(seconds)) > 0
						status := s.Run(id).Status
						return began || status != "running" && status != "queued"
					})
					s.CancelRun(id)
				}
				run := s.EndedWithin(modeltest.Patience, id)
				t.Logf("%q: %s %s, and the tool said %.100q", command, run.Status, run.Reply, resultOf(s, message))
				if !began {
					t.Errorf("%q did not run: %s", command, run.Body)
				}
				wantGone(t, command, seconds)
				if try.runner == commandRunner {
					s.wantNothingNow(t, command)
				}
			}
		})
	}
}

// resultOf is what a tool put out.
func resultOf(s *site, message string) (text string) {
	for _, call := range s.model.CallsFor(message) {
		if last := call.Messages[len(call.Messages)-1]; last.Role == "tool" {
			text = last.Text
		}
	}
	return text
}

// TestNothingIsLeftOfAKilledCaddy kills Caddy while agents run such commands.
func TestNothingIsLeftOfAKilledCaddy(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		agent         *agent
		runner, lines string
		words         string
	}{
		{claude, commandRunner, "", "claude --allowedTools Bash"},
		{codex, commandRunner, "", "codex -s danger-full-access"},
		{claude, acpRunner, "permit execute read", "claude"},
	} {
		t.Run(try.agent.name+" "+try.runner, func(t *testing.T) {
			t.Parallel()
			s := try.agent.startAs(t, try.runner, try.words, try.lines)
			command, seconds, _ := trick(len(tricks) - 1)
			s.model.Answer("Do a trick.", modeltest.Step{Tool: command}, modeltest.Step{Text: "Done."})
			s.accept(say("Do a trick.").remember("tricks"))
			hookstest.Within(t, modeltest.Patience, "the trick runs", func() bool { return len(hookstest.ProcessesWith(seconds)) > 0 })
			s.Kill()
			hookstest.Eventually(t, "all processes are gone", func() bool { return len(hookstest.ProcessesWith(seconds)) == 0 })
			s.wantNothingLeft(t, "kill -9")
		})
	}
}
