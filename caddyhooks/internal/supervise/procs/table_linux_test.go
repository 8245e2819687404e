package procs_test

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/procs"
)

func TestTreeOfProcesses(t *testing.T) {
	t.Parallel()
	//   1 ─ 2 ─ 3 ─ 5     7 is its own parent, as no process is
	//   └ 4 (dead) ─ 6
	table := []procs.Stat{
		{PID: 6, Parent: 4}, {PID: 1, Parent: 0}, {PID: 2, Parent: 1}, {PID: 5, Parent: 3}, {PID: 4, Parent: 1, State: 'Z', Threads: 1}, {PID: 3, Parent: 2}, {PID: 7, Parent: 7},
	}
	for _, test := range []struct{ roots, want []int }{
		{[]int{1}, []int{2, 3, 5, 6}},
		{[]int{2}, []int{3, 5}},
		{[]int{2, 3}, []int{5}},
		{[]int{7}, nil},
		{nil, nil},
	} {
		var got []int
		for _, s := range procs.Below(table, test.roots...) {
			got = append(got, s.PID)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: got %v, want %v", test.roots, got, test.want)
		}
	}
}

func sleeper(t *testing.T, env ...string) (procs.Stat, <-chan error) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s, ok := procs.Read(cmd.Process.Pid)
	if !ok || s.PID != cmd.Process.Pid || s.Parent != os.Getpid() {
		t.Fatalf("got %+v, %v", s, ok)
	}
	return s, ended
}

// A number that another process has got meanwhile is not used.
func TestSignalsReachTheProcessThatWasMeant(t *testing.T) {
	t.Parallel()
	s, ended := sleeper(t)
	other := s
	other.Start--
	if procs.Signal(other, syscall.SIGKILL) {
		t.Error("another one was killed")
	}
	if left := procs.EndTrees([]procs.Stat{other}, time.Minute); left != nil {
		t.Errorf("left: %+v", left)
	}
	if now, ok := procs.Read(s.PID); !ok || now.Dead() {
		t.Error("it is gone")
	}
	if !procs.Signal(s, syscall.SIGKILL) {
		t.Error("it was not killed")
	}
	if err := <-ended; err == nil {
		t.Error("it ended by itself")
	}
	if procs.Signal(s, syscall.SIGKILL) {
		t.Error("it was killed twice")
	}
}

func TestVariablesOfAProcess(t *testing.T) {
	t.Parallel()
	long := make([]byte, 100<<10)
	for i := range long {
		long[i] = 'x'
	}
	s, _ := sleeper(t, "FIRST=1", "LONG="+string(long), "TURN=a=b", "NOT_TURN=c", "EMPTY=")
	for name, want := range map[string]string{"FIRST": "1", "TURN": "a=b", "EMPTY": "", "NONE": "", "LON": "", "T": ""} {
		var got string
		procs.UntilKnown(func() (known bool) {
			got, known = procs.Variable(s, name)
			return known
		})
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// While the kernel replaces one program by the next one, there is no environment to be read.
func TestAProcessThatGetsProgramAfterProgramKeepsItsVariable(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", `[ $0 = 0 ] || exec /bin/sh -c "$1" $(($0-1)) "$1"`, "2000")
	cmd.Args = append(cmd.Args, cmd.Args[2])
	cmd.Env = []string{"TURN=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s, ok := procs.Read(cmd.Process.Pid)
	if !ok {
		t.Fatal("it is gone already")
	}
	var seen, unknown int
	ends := false // from then on it has no environment
	for {
		value, known := procs.Variable(s, "TURN")
		if now, ok := procs.Read(s.PID); !ok || now.Dead() {
			break
		}
		switch {
		case !known:
			unknown++
		case value == "1" && !ends:
			seen++
		case value == "":
			ends = true
		default:
			t.Fatalf("it has %q after it was seen %d times, and ended: %v", value, seen, ends)
		}
	}
	if err := cmd.Wait(); err != nil || seen == 0 {
		t.Errorf("it was seen %d times: %v", seen, err)
	}
	t.Logf("seen %d times, not known %d times, seen ending: %v", seen, unknown, ends)
}
