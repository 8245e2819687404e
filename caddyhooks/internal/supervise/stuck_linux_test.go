package supervise_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// A wrapper that a tool has stopped does nothing any more. Stop does its work.
func TestStopDoesNotDependOnTheWrapper(t *testing.T) {
	t.Parallel()
	p := role("stopper")
	process := start(t, p)
	waitReady(t, process)
	process.Stop(0)
	wantNothingLeft(t, p.Turn)
	if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGKILL}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
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
