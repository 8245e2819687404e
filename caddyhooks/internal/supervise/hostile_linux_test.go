package supervise_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

const (
	manyTurns = 48
	atATime   = 10
)

func TestNothingIsLeftOfHostilePrograms(t *testing.T) {
	hostile := []string{"stubborn", "outlived", "double", "chain", "headless", "bare", "killer", "bomb"}
	slots := make(chan struct{}, atATime)
	var all sync.WaitGroup
	for i := range manyTurns {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			name := hostile[i%len(hostile)]
			p := role(name)
			process, err := supervise.Start(p)
			if err != nil {
				t.Error(err)
				return
			}
			if name != "killer" {
				if _, err := io.ReadFull(process.Stdout, make([]byte, len("ready\n"))); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if name != "outlived" && name != "bare" && name != "killer" {
				process.Stop(0)
			}
			waitDone(t, process)
			if left := ofTurn(t, p.Turn); len(left) > 0 || len(process.Left()) > 0 {
				t.Errorf("%s: still there: %v %v", name, left, process.Left())
			}
			if _, err := io.Copy(io.Discard, process.Stdout); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// A process with the mark, or one below it, that was started by another one is found by the mark.
func TestMarkedProcessesOfOthersEndToo(t *testing.T) {
	p := program("cat")
	process := start(t, p)
	sleep := func(mark string) <-chan error {
		other := exec.Command("sleep", "3600")
		other.Env = []string{"HOOKS_TURN=" + mark}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Process.Kill() })
		ended := make(chan error, 1)
		go func() { ended <- other.Wait() }()
		return ended
	}
	marked := []<-chan error{sleep(p.Turn), sleep(p.Turn + "/session"), sleep(p.Turn + "/")}
	others := []<-chan error{sleep(p.Turn + "0"), sleep(p.Turn + "0/session"), sleep("/" + p.Turn), sleep(p.Turn[:len(p.Turn)-1])}
	_ = process.Stdin.Close()
	waitDone(t, process)
	for i, ended := range marked {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("process %d was not killed", i)
		}
	}
	for i, ended := range others {
		select {
		case <-ended:
			t.Errorf("process %d was killed, and is another program's", i)
		default:
		}
	}
}

// beCaddy starts a program that leaves much behind, and waits to be killed.
func beCaddy() {
	process, err := supervise.Start(supervise.Program{
		Args: []string{ownExecutable}, Env: append(os.Environ(), roleVariable+"=double"), Dir: "/", Turn: os.Getenv("TURN"),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, _ = io.CopyN(io.Discard, process.Stdout, int64(len("ready\n")))
	ready()
	forever()
}

func TestNothingIsLeftWhenCaddyIsKilled(t *testing.T) {
	t.Parallel()
	turn := newTurn()
	caddy := exec.Command(ownExecutable)
	caddy.Env = append(os.Environ(), roleVariable+"=caddy", "TURN="+turn)
	out, err := caddy.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	eventually(t, "the wrapper, the program and its tools run", func() bool { return len(ofTurn(t, turn)) >= 3 })
	if err := caddy.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caddy.Wait()
	eventually(t, "all are gone", func() bool { return len(ofTurn(t, turn)) == 0 })
}

func TestNothingIsLeftWhenTheWrapperIsKilled(t *testing.T) {
	t.Parallel()
	p := role("double")
	process := start(t, p)
	waitReady(t, process)
	if err := syscall.Kill(process.WrapperPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitDone(t, process)
	wantNothingLeft(t, p.Turn)
	if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGKILL}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What a terminal or a service manager sends to all processes does not end the wrapper: Caddy decides.
func TestSignalsDoNotEndTheWrapper(t *testing.T) {
	t.Parallel()
	p := program("cat")
	process := start(t, p)
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE,
	} {
		if err := syscall.Kill(process.WrapperPID(), s); err != nil {
			t.Fatal(err)
		}
	}
	own, err := syscall.Getpgid(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{process.WrapperPID(), process.ProgramPID()} {
		if group, err := syscall.Getpgid(pid); err != nil || group != pid || group == own {
			t.Errorf("%d is in the group %d, %v", pid, group, err)
		}
	}
	if _, err := io.WriteString(process.Stdin, "still here\n"); err != nil {
		t.Fatal(err)
	}
	_ = process.Stdin.Close()
	if out, err := io.ReadAll(process.Stdout); string(out) != "still here\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	waitDone(t, process)
	if got := process.Exit(); got != (supervise.Exit{}) {
		t.Errorf("got %+v", got)
	}
}

const (
	muchOutput  = 32 << 20
	fewBytes    = 8 << 20
	keptOfError = 8 << 10
)

func TestMuchOutputTakesNoMemory(t *testing.T) {
	before := heap()
	process := start(t, program("/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' e >&2; head -c %d /dev/zero; echo the end >&2", muchOutput, muchOutput)))
	n, err := io.Copy(io.Discard, process.Stdout)
	if n != muchOutput || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	waitDone(t, process)
	if after := heap(); after > before+fewBytes {
		t.Errorf("the heap grew from %d to %d", before, after)
	}
	got := process.Stderr()
	if len(got) != keptOfError || !strings.HasSuffix(got, "ethe end\n") {
		t.Errorf("kept %d bytes of the standard error, ending %q", len(got), got[max(0, len(got)-20):])
	}
}

// heap is how much memory was taken from the system for the heap.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapSys
}
