package hookstest

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// RunTests runs the tests of a package, and then removes what they share. So many of them run at once, which may be more than
// there are processors if they wait for time to pass and for disks more than they compute.
func RunTests(m *testing.M, atOnce int) int {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if raceDetected() {
		atOnce = min(atOnce, 4) // the race detector has them compute
	}
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0))))
	}
	http.DefaultClient.Timeout = 3 * time.Minute // a test that waits for longer fails, instead of all when the time of the package is over
	defer RemoveShared()
	return m.Run()
}

// RemoveShared removes what the tests of a package share, when they are over.
func RemoveShared() {
	if dir, err := SharedDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
}

// SharedDir is a directory for what is made once for all tests of a package.
var SharedDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "caddyhooks-test-") })

// builtBinary is set in the environment of tests that others start: to the program, so that they need not build it again.
const builtBinary = "CADDYHOOKS_TEST_BINARY"

// buildBinary builds the program that people build, once for all tests, and with the race detector if they have it.
var buildBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(builtBinary); path != "" {
		return path, nil
	}
	dir, err := SharedDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "caddy")
	args := []string{"build", "-o", path}
	if raceDetected() {
		args = append(args, "-race")
	}
	// In its own module: that of integration tests has other programs' modules beside it.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/caddy-hooks/caddy-hooks").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	build := exec.Command("go", append(args, "./xcaddy")...)
	build.Dir = strings.TrimSpace(string(module))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return path, nil
})

// raceDetected reports whether the tests have the race detector.
func raceDetected() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Binary is the program, with directories of its own to keep things in.
type Binary struct {
	path string
	home string
}

// NewBinary is the program with directories that nobody has used yet.
func NewBinary(t testing.TB) *Binary {
	t.Helper()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	return &Binary{path: path, home: t.TempDir()}
}

// ForOtherTests is for the environment of a test process that uses the same program.
func (b *Binary) ForOtherTests() string { return builtBinary + "=" + b.path }

// Folder has the program, by the name caddy.
func (b *Binary) Folder() string { return filepath.Dir(b.path) }

// Command is a call of the program, with more in its environment.
func (b *Binary) Command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(b.path, args...)
	cmd.Env = append(os.Environ(), "HOME="+b.home, "XDG_DATA_HOME="+b.home, "XDG_CONFIG_HOME="+b.home)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// Deployment is a configuration that one process after the other serves, at the same addresses.
type Deployment struct {
	*Binary
	URL, Admin, Config string

	Env     []string        // of its processes, beside that of the tests
	Prepare func(*exec.Cmd) // changes how a process is started, unless it is nil
}

// Deploy writes down a configuration with global options and one site that has the given directives.
func (b *Binary) Deploy(t testing.TB, globals, directives string) *Deployment {
	t.Helper()
	d := &Deployment{
		Binary: b,
		URL:    "http://127.0.0.1:" + FreePort(t),
		Admin:  "http://127.0.0.1:" + FreePort(t),
		Config: filepath.Join(t.TempDir(), "Caddyfile"),
	}
	text := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\t%s\n}\n%s {\n%s\n}\n",
		strings.TrimPrefix(d.Admin, "http://"), globals, d.URL, directives)
	if err := os.WriteFile(d.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// Process is the binary serving a configuration.
type Process struct {
	*Deployment

	Cmd    *exec.Cmd
	Log    ProcessLog
	Exited chan struct{}
	err    error // how it exited
	Over   bool  // there is nothing more to be said about it
}

// Serve starts the binary with global options and one site that has the given directives.
func (b *Binary) Serve(t testing.TB, globals, directives string) *Process {
	t.Helper()
	return b.Deploy(t, globals, directives).Start(t)
}

// Start starts a process and waits until it serves.
func (d *Deployment) Start(t testing.TB) *Process {
	t.Helper()
	p := d.Launch(t)
	p.WaitUntilServing(t)
	return p
}

// Launch starts a process.
func (d *Deployment) Launch(t testing.TB) *Process {
	t.Helper()
	p := &Process{Deployment: d, Exited: make(chan struct{})}
	p.Cmd = d.Command(d.Env, "run", "--adapter", "caddyfile", "--config", d.Config)
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Log, &p.Log
	p.Cmd.WaitDelay = patience // for what it has started, if that still writes to its log
	if d.Prepare != nil {
		d.Prepare(p.Cmd)
	}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.Exited)
	}()
	t.Cleanup(func() {
		p.Kill() // if it is still there
		if t.Failed() && !p.Over {
			t.Logf("what Caddy logged at last:\n%s", p.Log.Last(40))
		}
	})
	return p
}

// WaitUntilServing waits until the site answers.
func (p *Process) WaitUntilServing(t testing.TB) {
	t.Helper()
	Within(t, time.Minute, "Caddy starts", func() bool {
		select {
		case <-p.Exited:
			t.Fatalf("Caddy exited: %v\n%s", p.err, p.Log.Last(20))
		default:
		}
		resp, err := TryRequest("POST", p.URL+"/api/hooks/none", "")
		return err == nil && resp.Status == 404
	})
}

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Exited
}

// Signal sends a signal to the process.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Terminate asks the process to end, as service managers do.
func (p *Process) Terminate(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
}

// WantCleanExit waits until the process has exited, and checks that it did so without an error.
func (p *Process) WantCleanExit(t testing.TB) {
	t.Helper()
	select {
	case <-p.Exited:
		if p.err != nil {
			t.Errorf("exited with %v", p.err)
		}
	case <-time.After(patience):
		t.Error("does not exit")
	}
}

// WantNoCrash checks that the process has logged no panic.
func (p *Process) WantNoCrash(t testing.TB) {
	t.Helper()
	for _, sign := range SignsOfACrash {
		if line, found := p.Log.Find(sign); found {
			t.Errorf("Caddy logged:\n%s", line)
		}
	}
}

// WantQuietLog checks that the process has logged neither an error nor a panic.
func (p *Process) WantQuietLog(t testing.TB) {
	t.Helper()
	p.WantNoCrash(t)
	if line, found := p.Log.Find(`"level":"error"`); found {
		t.Errorf("Caddy logged:\n%s", line)
	}
}

// SignsOfACrash are what Go says when it ends a process, or our code when it kept it from doing so.
var SignsOfACrash = []string{"panic", "goroutine ", "fatal error", "DATA RACE", "unexpected fault"}

// ProcessLog keeps the end of what a process logs.
type ProcessLog struct {
	mu    sync.Mutex
	text  []byte
	total int
}

const keptLog = 4 << 20

func (l *ProcessLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += len(p)
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptLog {
		l.text = append([]byte(nil), l.text[len(l.text)-keptLog:]...)
	}
	return len(p), nil
}

// Size is how many bytes have been logged in all.
func (l *ProcessLog) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// All is what has been kept.
func (l *ProcessLog) All() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Last is the last lines.
func (l *ProcessLog) Last(lines int) string {
	all := bytes.SplitAfter([]byte(l.All()), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], nil))
}

// Find returns the first line that holds a word.
func (l *ProcessLog) Find(word string) (line string, found bool) {
	for line := range strings.Lines(l.All()) {
		if strings.Contains(line, word) {
			return line, true
		}
	}
	return "", false
}
