package supervise_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

func TestProgramHasItsInputOutputFolderAndEnvironment(t *testing.T) {
	t.Parallel()
	p := program("/bin/sh", "-c", `cat; pwd; echo "$GIVEN $HOOKS_TURN"; echo problem >&2; exit 7`)
	p.Dir = t.TempDir()
	p.Env = append(p.Env, "GIVEN=first", "GIVEN=last", "HOOKS_TURN=not this")
	out, process := run(t, p, "message\n")
	if want := "message\n" + p.Dir + "\nlast " + p.Turn + "\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if got := process.Stderr(); got != "problem\n" {
		t.Errorf("got %q as standard error", got)
	}
	if process.Alone() {
		t.Error("it has no wrapper")
	}
	if got := process.Exit(); got != (supervise.Exit{Code: 7}) {
		t.Errorf("got %+v", got)
	}
	wantNothingLeft(t, p.Turn)
}

func TestExitTellsTheSignal(t *testing.T) {
	t.Parallel()
	_, process := run(t, program("/bin/sh", "-c", "kill -USR1 $$"), "")
	if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGUSR1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The program gets nothing of Caddy's or of the wrapper's but its three files. No signal is blocked in it, and none is ignored but
// those that Caddy was started with, as by nohup.
func TestNothingElseIsHandedToTheProgram(t *testing.T) {
	t.Parallel()
	turn := newTurn()
	ignored := 0
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			ignored |= 1 << (s - 1)
		}
	}
	for _, test := range []struct {
		want string
		args []string
	}{
		{"0\n1\n2\n3\n", []string{"ls", "/proc/self/fd"}}, // the last one is the folder that ls reads
		{fmt.Sprintf("SigBlk:\t0000000000000000\nSigIgn:\t%016x\n", ignored), []string{"grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}},
		{"HOOKS_TURN=" + turn + "\nPATH=/usr/bin:/bin\n", []string{"env"}},
	} {
		out, _ := run(t, supervise.Program{Args: test.args, Env: []string{"PATH=/usr/bin:/bin"}, Turn: turn}, "")
		if out != test.want {
			t.Errorf("%s: got %q, want %q", test.args, out, test.want)
		}
	}
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	lost := write("lost", "#!/no/such/interpreter\n", 0o755)
	noise := write("noise", "\x01\x02\x03", 0o755)
	path := "PATH=" + dir + ":/usr/bin:/bin"
	for want, p := range map[string]supervise.Program{
		"there is no program": {},
		"the program no-such-program was not found in PATH (" + path[len("PATH="):] + ")":                    {Args: []string{"no-such-program"}, Env: []string{path}},
		"the program true was not found: there is no PATH in its environment":                                {Args: []string{"true"}},
		"the program " + dir + "/gone does not exist":                                                        {Args: []string{"./gone"}, Dir: dir},
		dir + " is a folder, not a program":                                                                  {Args: []string{dir}},
		"the program " + plain + " may not be executed: permission denied":                                   {Args: []string{"plain"}, Env: []string{path}},
		"the program " + lost + " cannot be started: the interpreter that it names does not exist":           {Args: []string{lost}},
		"the file " + noise + " is neither a program for this machine nor a script with #! at its beginning": {Args: []string{noise}},
		"the folder " + dir + "/none does not exist":                                                         {Args: []string{"/bin/true"}, Dir: dir + "/none"},
		plain + " is not a folder":                                                                           {Args: []string{"/bin/true"}, Dir: plain},
		`there is no user "no-such-user" on this machine`:                                                    {Args: []string{"/bin/true"}, User: "no-such-user"},
		"an argument or a variable of the program holds a NUL character":                                     {Args: []string{"/bin/true", "a\x00b"}},
		"the program /bin/true cannot be started: its arguments and environment are too long":                {Args: []string{"/bin/true", strings.Repeat("a", 1<<20)}},
		"the program true was not found in PATH (bin:.)":                                                     {Args: []string{"true"}, Env: []string{"PATH=bin:."}, Dir: "/"},
	} {
		process, err := supervise.Start(p)
		var notStarted *supervise.NotStartedError
		if process != nil || !errors.As(err, &notStarted) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestStopLetsTheProgramEndByItself(t *testing.T) {
	t.Parallel()
	p := program("/bin/sh", "-c", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	process := start(t, p)
	waitReady(t, process)
	process.Stop(patience)
	if out, err := io.ReadAll(process.Stdout); string(out) != "bye\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if got := process.Exit(); got != (supervise.Exit{Code: 3}) {
		t.Errorf("got %+v", got)
	}
	wantNothingLeft(t, p.Turn)
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, 50 * time.Millisecond} {
		p := role("stubborn")
		process := start(t, p)
		waitReady(t, process)
		process.Stop(grace)
		if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGKILL}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		wantNothingLeft(t, p.Turn)
		process.Stop(grace) // once more does no harm
	}
}

// A second Stop may be in more of a hurry than the first.
func TestStopWithLessGrace(t *testing.T) {
	t.Parallel()
	p := role("stubborn")
	process := start(t, p)
	waitReady(t, process)
	first := make(chan struct{})
	go func() {
		defer close(first)
		process.Stop(time.Hour)
	}()
	process.Stop(0)
	<-first
	wantNothingLeft(t, p.Turn)
}

func TestProgramRunsAsAnotherUser(t *testing.T) {
	t.Parallel()
	p := program("/bin/sh", "-c", "id -u; id -g; echo $HOME; echo through a name > /dev/stderr; echo > /dev/stdout")
	p.User, p.Env = "nobody", append(p.Env, "HOME=/somewhere")
	if os.Geteuid() != 0 {
		p.User = "root"
		if _, err := supervise.Start(p); err == nil || err.Error() != `only root may run a program as another user ("root")` {
			t.Errorf("got %v", err)
		}
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		p.User = me.Username
		run(t, p, "")
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{nobody.Username, nobody.Uid} {
		p.User = name
		out, process := run(t, p, "")
		if want := fmt.Sprintf("%s\n%s\n/somewhere\n\n", nobody.Uid, nobody.Gid); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
		if got := process.Stderr(); got != "through a name\n" {
			t.Errorf("got %q", got)
		}
	}
	p.Dir = t.TempDir()
	if err := os.Chmod(p.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("in the folder %s as the user with the number %s: permission denied", p.Dir, nobody.Uid)
	if _, err := supervise.Start(p); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The output ends with the program, though a process that has nothing to do with it holds the pipe.
func TestOutputEndsThoughAStrangerHoldsIt(t *testing.T) {
	t.Parallel()
	process := start(t, program("/bin/sh", "-c", "echo ready; read line; echo done; echo problem >&2"))
	waitReady(t, process)
	for _, fd := range []string{"1", "2"} {
		held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%s", process.ProgramPID(), fd), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = held.Close() })
	}
	if _, err := io.WriteString(process.Stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	reading := make(chan string)
	go func() {
		out, err := io.ReadAll(process.Stdout)
		reading <- fmt.Sprint(string(out), err)
	}()
	waitDone(t, process)
	select {
	case got := <-reading:
		if got != "done\n<nil>" {
			t.Errorf("got %q", got)
		}
	case <-time.After(patience):
		t.Error("the output did not end")
	}
	if process.Stderr() != "problem\n" {
		t.Errorf("got %q", process.Stderr())
	}
}

// The program's pipes are not held by the wrapper.
func TestPipesEndWhenTheProgramClosesThem(t *testing.T) {
	t.Parallel()
	process := start(t, program("/bin/sh", "-c", "exec <&- >&- 2>&-; exec sleep 3600"))
	if out, err := io.ReadAll(process.Stdout); err != nil || len(out) > 0 {
		t.Errorf("got %q, %v", out, err)
	}
	eventually(t, "an error of writing", func() bool {
		_, err := io.WriteString(process.Stdin, "x")
		return errors.Is(err, syscall.EPIPE)
	})
}

// A program need not wait until its last words are read.
func TestMuchOutputIsKeptForALateReader(t *testing.T) {
	const much = 900_000
	process := start(t, program("head", "-c", strconv.Itoa(much), "/dev/zero"))
	waitDone(t, process)
	if n, err := io.Copy(io.Discard, process.Stdout); n != much || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
