//go:build real

package supervise_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

func TestChildrenAreKnownAndKilledOneByOne(t *testing.T) {
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

func TestManyProgramsAtOnce(t *testing.T) {
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

// A tool without the mark is found by its parents.
func TestProcessesWithoutAMarkEndToo(t *testing.T) {
	p := program("/bin/sh", "-c", "env -i setsid sleep 3600 & echo $!")
	out, _ := run(t, p, "")
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("it is still there")
	}
}

// A tool with a mark of its own is found when the wrapper is killed, though it is nobody's child then.
func TestToolsWithMarksOfTheirOwnEndWithAKilledWrapper(t *testing.T) {
	t.Parallel()
	p := program("/bin/sh", "-c", `(HOOKS_TURN=$HOOKS_TURN/session setsid sleep 3600 &); echo ready; read line`)
	process := start(t, p)
	waitReady(t, process)
	eventually(t, "the tool runs", func() bool { return len(ofTurn(t, p.Turn+"/session")) == 1 })
	if err := syscall.Kill(process.WrapperPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitDone(t, process)
	wantNothingLeft(t, p.Turn+"/session")
}

// A process that may not be killed, as of a program that belongs to root and has become root, is told and not waited for.
func TestProcessesThatCannotBeEndedAreTold(t *testing.T) {
	t.Parallel()
	realtest.Root(t) // who alone can make a program of root's
	// Below the temporary folder of tests only root may look, and here only who is to be Caddy: one of the programs makes root of anyone.
	dir, err := os.MkdirTemp("", "supervise")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"caddy": 0o755, "sudo": 0o755 | os.ModeSetuid} {
		binary, err := os.ReadFile(ownExecutable)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), binary, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	caddy := exec.Command(filepath.Join(dir, "caddy"))
	caddy.Env = append(os.Environ(), roleVariable+"=leaver", "SUDO="+filepath.Join(dir, "sudo"))
	caddy.Dir = "/"
	caddy.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := caddy.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	words := strings.Fields(string(out)) // the tool's number, the exit code, what was left
	if len(words) != 3 || words[1] != "5" || words[2] != words[0] {
		t.Fatalf("got %q", out)
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// A process that has left the group of its program goes on, and holds the output.
func TestOutputThatAStrangerHolds(t *testing.T) {
	supervise.WithoutWrapper(t)
	process := start(t, program("/bin/sh", "-c", "setsid sleep 5 & echo done"))
	out, err := io.ReadAll(process.Stdout)
	if string(out) != "done\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	waitDone(t, process)
}
