package caddyhooks_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binaryDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// binaryDir is where the program is built to.
var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "caddyhooks-test-") })

// buildBinary builds the program that people build, once for all tests, and with the race detector if they have it.
var buildBinary = sync.OnceValues(func() (string, error) {
	dir, err := binaryDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "caddy")
	args := []string{"build", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if out, err := exec.Command("go", append(args, "../xcaddy")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return path, nil
})

// caddyBinary is the program, with directories of its own to keep things in.
type caddyBinary struct {
	path string
	home string
}

func newBinary(t *testing.T) *caddyBinary {
	t.Helper()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	return &caddyBinary{path: path, home: t.TempDir()}
}

func (b *caddyBinary) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(b.path, args...)
	cmd.Env = append(os.Environ(), "HOME="+b.home, "XDG_DATA_HOME="+b.home, "XDG_CONFIG_HOME="+b.home)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// deployment is a configuration that one process after the other serves, at the same addresses.
type deployment struct {
	*caddyBinary
	url, admin, config string
}

// deploy writes down a configuration with global options and one site that has the given directives.
func (b *caddyBinary) deploy(t *testing.T, globals, directives string) *deployment {
	t.Helper()
	d := &deployment{
		caddyBinary: b,
		url:         "http://127.0.0.1:" + freePort(t),
		admin:       "http://127.0.0.1:" + freePort(t),
		config:      filepath.Join(t.TempDir(), "Caddyfile"),
	}
	text := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\t%s\n}\n%s {\n%s\n}\n",
		strings.TrimPrefix(d.admin, "http://"), globals, d.url, directives)
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// process is the binary serving a configuration.
type process struct {
	*deployment

	cmd    *exec.Cmd
	log    processLog
	exited chan struct{}
	err    error // how it exited
	over   bool  // there is nothing more to be said about it
}

// serve starts the binary with global options and one site that has the given directives.
func (b *caddyBinary) serve(t *testing.T, globals, directives string) *process {
	t.Helper()
	return b.deploy(t, globals, directives).start(t)
}

// start starts a process and waits until it serves.
func (d *deployment) start(t *testing.T) *process {
	t.Helper()
	p := d.launch(t)
	p.waitUntilServing(t)
	return p
}

// launch starts a process.
func (d *deployment) launch(t *testing.T) *process {
	t.Helper()
	p := &process{deployment: d, exited: make(chan struct{})}
	p.cmd = d.command(nil, "run", "--adapter", "caddyfile", "--config", d.config)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill() // if it is still there
		if t.Failed() && !p.over {
			t.Logf("what Caddy logged at last:\n%s", p.log.last(40))
		}
	})
	return p
}

func (p *process) waitUntilServing(t *testing.T) {
	t.Helper()
	within(t, time.Minute, "Caddy starts", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("Caddy exited: %v\n%s", p.err, p.log.last(20))
		default:
		}
		resp, err := tryRequest("POST", p.url+"/api/hooks/none", "")
		return err == nil && resp.status == 404
	})
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
}

func (p *process) wantCleanExit(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		if p.err != nil {
			t.Errorf("exited with %v", p.err)
		}
	case <-time.After(20 * time.Second):
		t.Error("does not exit")
	}
}

// wantNoCrash checks that the process has logged no panic.
func (p *process) wantNoCrash(t *testing.T) {
	t.Helper()
	for _, sign := range signsOfACrash {
		if line, found := p.log.find(sign); found {
			t.Errorf("Caddy logged:\n%s", line)
		}
	}
}

// wantQuietLog checks that the process has logged neither an error nor a panic.
func (p *process) wantQuietLog(t *testing.T) {
	t.Helper()
	p.wantNoCrash(t)
	if line, found := p.log.find(`"level":"error"`); found {
		t.Errorf("Caddy logged:\n%s", line)
	}
}

// signsOfACrash are what Go says when it ends a process, or our code when it kept it from doing so.
var signsOfACrash = []string{"panic", "goroutine ", "fatal error", "DATA RACE", "unexpected fault"}

// within is eventually with a time of its own.
func within(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processLog keeps the end of what a process logs.
type processLog struct {
	mu    sync.Mutex
	text  []byte
	total int
}

const keptLog = 4 << 20

func (l *processLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += len(p)
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptLog {
		l.text = append([]byte(nil), l.text[len(l.text)-keptLog:]...)
	}
	return len(p), nil
}

// size is how many bytes have been logged in all.
func (l *processLog) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *processLog) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func (l *processLog) last(lines int) string {
	all := bytes.SplitAfter([]byte(l.all()), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], nil))
}

// find returns the first line that holds a word.
func (l *processLog) find(word string) (line string, found bool) {
	for line := range strings.Lines(l.all()) {
		if strings.Contains(line, word) {
			return line, true
		}
	}
	return "", false
}
