package supervise_test

import (
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// A wrapper that a tool has stopped does nothing any more. Stop does its work.
func TestStopDoesNotDependOnTheWrapper(t *testing.T) {
	supervise.HurryStop(t, 200*time.Millisecond)
	p := role("stopper")
	process := start(t, p)
	waitReady(t, process)
	process.Stop(0)
	wantNothingLeft(t, p.Turn)
	if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGKILL}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// beLeaver is a Caddy without rights whose program has started a process of root's.
func beLeaver() {
	process, err := supervise.Start(supervise.Program{
		Args: []string{"/bin/sh", "-c", `"$SUDO" & exec 3>&-; read line; echo $line; exit 5`},
		Env:  append(os.Environ(), roleVariable+"=root"), Dir: "/", Turn: "left-" + strconv.Itoa(os.Getpid()),
	})
	if err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	line := make([]byte, 100)
	n, _ := process.Stdout.Read(line) // the tool's number, when it is root
	_, _ = os.Stdout.Write(line[:n])
	_, _ = io.WriteString(process.Stdin, "\n")
	_, _ = io.Copy(io.Discard, process.Stdout)
	<-process.Done()
	os.Stdout.WriteString(strconv.Itoa(process.Exit().Code))
	for _, pid := range process.Left() {
		os.Stdout.WriteString(" " + strconv.Itoa(pid))
	}
}

// beRoot is a program with the rights of its file.
func beRoot() {
	for _, set := range []func() error{func() error { return syscall.Setresgid(0, 0, 0) }, func() error { return syscall.Setresuid(0, 0, 0) }} {
		if err := set(); err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
	}
	os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	forever()
}
