package supervise_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// roleVariable makes this test binary a program to be supervised, or a Caddy that supervises one.
const roleVariable = "SUPERVISE_TEST_ROLE"

// roles are programs with bad habits. Each writes "ready" when it has what it wants to leave behind.
var roles = map[string]func(){
	// A process that hangs and takes no notice of being asked to end.
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		ready()
		forever()
	},
	// A tool in a session of its own, as coding agents start them, outlives its parent.
	"outlived": func() {
		spawn("stubborn")
		ready()
	},
	// The tool's own tool, whose parent has ended.
	"double": func() {
		spawn("outlived")
		ready()
		forever()
	},
	// A tool that starts the next one and ends, as fast as it can: none has the same number for long. It ends at some time, should
	// nobody end it.
	"chain": func() {
		links := exec.Command("/bin/sh", "-c", `n=0; link() { n=$((n+1)); if [ $n -lt 20000 ]; then link & fi; }; link`)
		links.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		mustStart(links)
		ready()
		forever()
	},
	// Tools that start some of their kind, which do the same.
	"bomb": func() {
		ready()
		generation, _ := strconv.Atoi(os.Getenv("GENERATION"))
		for range 3 {
			if generation < 3 {
				spawn("bomb", "GENERATION="+strconv.Itoa(generation+1))
			}
		}
		forever()
	},
	// A tool whose first thread has ended, which makes it look like a process that has ended.
	"headless": func() {
		spawn("beheaded")
		forever()
	},
	"beheaded": func() {
		go forever()
		ready()
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	},
	// A tool that does not even keep its environment.
	"bare": func() {
		tool := exec.Command("sleep", "3600")
		tool.Env, tool.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
		mustStart(tool)
		ready()
	},
	// A tool that kills the wrapper, which it finds as the parent of its parent.
	"killer": func() {
		spawn("stubborn")
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
		forever()
	},
	"stopper": func() {
		spawn("stubborn")
		_ = syscall.Kill(os.Getppid(), syscall.SIGSTOP)
		ready()
		forever()
	},
	"caddy":  beCaddy,
	"leaver": beLeaver,
	"root":   beRoot,
}

var ownExecutable = executable()

func executable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func ready() { fmt.Println("ready") }

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// spawn starts a role in a session of its own, with this process's output.
func spawn(role string, env ...string) {
	tool := exec.Command(ownExecutable)
	tool.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	tool.Stdout, tool.Stderr = os.Stdout, os.Stderr
	tool.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	mustStart(tool)
}

func mustStart(tool *exec.Cmd) {
	if err := tool.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		// Programs that escape a broken supervisor end at some time.
		time.AfterFunc(5*time.Minute, func() { os.Exit(1) })
		roles[role]()
		return
	}
	os.Exit(m.Run())
}

var turns atomic.Int64

// newTurn is a mark that no other process on this machine has.
func newTurn() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), turns.Add(1)) }

// program is a program with a mark of its own.
func program(args ...string) supervise.Program {
	return supervise.Program{Args: args, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/", Turn: newTurn()}
}

// role is this test binary in a role.
func role(name string) supervise.Program {
	p := program(ownExecutable)
	p.Env = append(p.Env, roleVariable+"="+name, "GOMAXPROCS=2")
	return p
}

func start(t testing.TB, p supervise.Program) *supervise.Process {
	t.Helper()
	process, err := supervise.Start(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Stop(0) })
	return process
}

// run runs a program to its end, and returns its output.
func run(t testing.TB, p supervise.Program, stdin string) (stdout string, process *supervise.Process) {
	t.Helper()
	process = start(t, p)
	go func() {
		_, _ = io.WriteString(process.Stdin, stdin)
		_ = process.Stdin.Close()
	}()
	out, err := io.ReadAll(process.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	waitDone(t, process)
	return string(out), process
}

// patience is for machines that have much else to do.
const patience = 60 * time.Second

func waitDone(t testing.TB, process *supervise.Process) {
	t.Helper()
	select {
	case <-process.Done():
	case <-time.After(patience):
		buffer := make([]byte, 1<<20)
		t.Fatalf("the program did not end\n%s", buffer[:runtime.Stack(buffer, true)])
	}
}

// waitReady waits until a role has done what it is for.
func waitReady(t testing.TB, process *supervise.Process) {
	t.Helper()
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(process.Stdout, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("got %q, %v; stderr: %s", line, err, process.Stderr())
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// ofTurn are the processes that have a mark in their environment, and the wrapper, which has it as an argument. It knows
// nothing of the package that it checks.
func ofTurn(t testing.TB, turn string) (found []string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(folders) == 0 {
		t.Fatal("there is no /proc", err)
	}
	for _, folder := range folders {
		environ, _ := os.ReadFile(folder + "/environ")
		arguments, _ := os.ReadFile(folder + "/cmdline")
		marked := bytes.Contains(append([]byte{0}, environ...), []byte("\x00HOOKS_TURN="+turn+"\x00"))
		if marked || bytes.HasSuffix(arguments, []byte("\x00hooks\x00exec\x00"+turn+"\x00")) {
			found = append(found, fmt.Sprintf("%s: %q", filepath.Base(folder), arguments))
		}
	}
	return found
}

func wantNothingLeft(t testing.TB, turn string) {
	t.Helper()
	if left := ofTurn(t, turn); len(left) > 0 {
		t.Errorf("still there: %s", strings.Join(left, ", "))
	}
}

func alive(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}

func itoa(n int) string { return strconv.Itoa(n) }

func goroutines() int { return runtime.NumGoroutine() }
