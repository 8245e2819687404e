package supervise_test

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// commandLine is how a process was called, or "" if it is gone.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-o", "args=", "-p", itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func TestChildrenAreKnownAndKilledOneByOne(t *testing.T) {
	realtest.Needs(t, "setsid and ps")
	t.Parallel()
	const tools = `
		HOOKS_TURN=first setsid sh -c 'sleep 3601 & setsid sleep 3602 & wait' &
		(HOOKS_TURN=second setsid sleep 3603 &)
		env -i sleep 3604 &
		echo ready; read line; echo "$line"`
	p := program("/bin/sh", "-c", tools)
	process := start(t, p)
	waitReady(t, process)
	want := map[string]string{"sleep 3601": "first", "sleep 3602": "first", "sleep 3603": "second", "sleep 3604": ""}
	var children map[string]supervise.Child
	eventually(t, "all tools run", func() bool {
		children = make(map[string]supervise.Child)
		for _, child := range process.Children() {
			children[commandLine(child.PID)] = child
			if child.PID == process.ProgramPID() || child.PID == process.WrapperPID() {
				t.Fatalf("got the program itself: %+v", child)
			}
		}
		for args, turn := range want {
			if child, ok := children[args]; !ok || child.Turn != turn {
				return false
			}
		}
		return true
	})
	var first supervise.Child
	for args, child := range children {
		if strings.HasPrefix(args, "sh -c sleep 3601") {
			first = child
		}
	}
	stale := children["sleep 3604"]
	stale.Start--
	process.Kill([]supervise.Child{first, stale})
	for args, there := range map[string]bool{"sleep 3601": false, "sleep 3602": false, "sleep 3603": true, "sleep 3604": true} {
		if got := commandLine(children[args].PID) == args; got != there {
			t.Errorf("%s: there: %v, want %v", args, got, there)
		}
	}
	if slices.ContainsFunc(process.Children(), func(c supervise.Child) bool { return c.Turn == "first" }) {
		t.Error("children of the first turn are still known")
	}
	if _, err := io.WriteString(process.Stdin, "still here\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(process.Stdout); string(out) != "still here\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	waitDone(t, process)
	for _, child := range children {
		if alive(child.PID) {
			t.Errorf("%+v is still there", child)
		}
	}
	if got := process.Children(); got != nil {
		t.Errorf("got %+v after the end", got)
	}
}

// Processes that lost their parent are waited for while the program goes on.
func TestWrapperKeepsNoZombies(t *testing.T) {
	t.Parallel()
	process := start(t, program("/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do (true &); done; echo ready; read line`))
	waitReady(t, process)
	eventually(t, "the wrapper has one child", func() bool {
		out, err := realtest.Command(t, "ps", "-o", "pid=", "--ppid", itoa(process.WrapperPID())).Output()
		return err == nil && strings.TrimSpace(string(out)) == itoa(process.ProgramPID())
	})
}

func TestProgramsLeaveNoDescriptorsAndGoroutines(t *testing.T) {
	run(t, program("true"), "") // the first one makes what is kept
	files, routines := openFiles(t), goroutines()
	for range manyTurns {
		run(t, program("true"), "")
		if _, err := supervise.Start(program("no-such-program")); err == nil {
			t.Fatal("it was started")
		}
		noise := program("/dev/null")
		if _, err := supervise.Start(noise); err == nil {
			t.Fatal("it was started")
		}
	}
	eventually(t, "as many descriptors as before", func() bool { return openFiles(t) <= files })
	eventually(t, "as many goroutines as before", func() bool { return goroutines() <= routines })
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

const manyAtOnce = 50

func TestManyProgramsAtOnce(t *testing.T) {
	realtest.Needs(t, "setsid")
	t.Parallel()
	results := make(chan string)
	for range manyAtOnce {
		go func() {
			p := program("/bin/sh", "-c", `cat; (setsid sleep 3600 &); echo "$HOOKS_TURN" >&2`)
			process, err := supervise.Start(p)
			if err != nil {
				results <- err.Error()
				return
			}
			_, _ = io.WriteString(process.Stdin, p.Turn)
			_ = process.Stdin.Close()
			out, err := io.ReadAll(process.Stdout)
			<-process.Done()
			switch left := ofTurn(t, p.Turn); {
			case err != nil:
				results <- err.Error()
			case string(out) != p.Turn || process.Stderr() != p.Turn+"\n":
				results <- "mixed up: " + string(out) + process.Stderr()
			case len(left) > 0:
				results <- strings.Join(left, ", ")
			default:
				results <- ""
			}
		}()
	}
	for range manyAtOnce {
		if problem := <-results; problem != "" {
			t.Error(problem)
		}
	}
}
