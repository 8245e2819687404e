package integration

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// dashboardProcess is `caddy hooks dashboard`.
type dashboardProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	links chan string
}

// enteredDashboard is the page for a browser that a link let in.
type enteredDashboard struct {
	t           *testing.T
	url, cookie string
}

// startDashboardProgram runs the command and waits for nothing.
func startDashboardProgram(t *testing.T, b *hookstest.Binary, args ...string) *dashboardProcess {
	t.Helper()
	p := &dashboardProcess{t: t, links: make(chan string, 10)}
	p.cmd = b.Command([]string{"DISPLAY=", "WAYLAND_DISPLAY="}, append([]string{"hooks", "dashboard"}, args...)...)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "http://") {
				p.links <- lines.Text()
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // if it is still there
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

// enter uses the next link.
func (p *dashboardProcess) enter() enteredDashboard {
	p.t.Helper()
	link := hookstest.ReceiveWithin(p.t, "a link is printed", p.links)
	resp := p.get(link)
	cookie, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	if resp.StatusCode != http.StatusSeeOther || cookie == "" {
		p.t.Fatalf("%s: got %d %v", link, resp.StatusCode, resp.Header)
	}
	base, _, _ := strings.Cut(link, "?")
	page := enteredDashboard{p.t, base + strings.TrimPrefix(resp.Header.Get("Location"), "./"), cookie}
	if again := p.get(link); again.StatusCode != http.StatusForbidden {
		p.t.Errorf("the second use of a link: got %d", again.StatusCode)
	}
	return page
}

// get follows no redirect.
func (p *dashboardProcess) get(url string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

func (p enteredDashboard) api(method, path, body string) hookstest.Response {
	p.t.Helper()
	resp, err := hookstest.TryRequest(method, p.url+"api/"+path, body, "Cookie", p.cookie, "X-Hooks-Dashboard", "1")
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// interrupt is Ctrl-C.
func (p *dashboardProcess) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	if err := hookstest.ReceiveWithin(p.t, "the dashboard ends", done); err != nil {
		p.t.Errorf("the dashboard ended with %v", err)
	}
}

func TestDashboardCommandStaysThroughRestarts(t *testing.T) {
	t.Parallel()
	b := hookstest.NewBinary(t)
	caddy := b.Serve(t, "", "hooks {\n runner echo\n}")
	port := hookstest.FreePort(t)
	p := startDashboardProgram(t, b, "--address", strings.TrimPrefix(caddy.Admin, "http://"), "--port", port)
	first := p.enter()
	if !strings.HasPrefix(first.url, "http://127.0.0.1:"+port+"/") {
		t.Errorf("the page is at %s", first.url)
	}
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	second := p.enter()
	for _, page := range []enteredDashboard{first, second} {
		if resp := page.api("GET", "settings", ""); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	}
	caddy.Kill()
	first.api("GET", "settings", "").WantAdminError(t, 502, "cannot be reached", "is Caddy running?")
	first.api("GET", "me", "").WantAdminError(t, 502, "cannot be reached")
	caddy.Start(t)
	if resp := first.api("PATCH", "settings", `{"enabled":true}`); resp.Status != 200 {
		t.Errorf("after the restart: got %d %s", resp.Status, resp.Body)
	}
	first.api("GET", "me", "").WantMembers(t, `{"instances":["default"]}`)
	p.interrupt()
}

func TestDashboardCommandOverASocket(t *testing.T) {
	t.Parallel()
	b := hookstest.NewBinary(t)
	dir, err := os.MkdirTemp("", "hooks") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address := "unix/" + filepath.Join(dir, "admin.sock") + "|0600"
	d := b.Deploy(t, "", "")
	if err := os.WriteFile(d.Config, []byte("{\n\tadmin "+address+"\n\tpersist_config off\n}\n"+d.URL+" {\n\thooks {\n\t\trunner echo\n\t}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start(t)
	p := startDashboardProgram(t, b, "--address", address)
	page := p.enter()
	if resp := page.api("PATCH", "settings", `{"enabled":true,"token":"a"}`); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if changes := page.api("GET", "changes", ""); !strings.Contains(changes.Body, `"address":"unix socket"`) {
		t.Errorf("got %s", changes.Body)
	}
	p.interrupt()
}

func TestDashboardCommandSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := hookstest.NewBinary(t)
	caddy := b.Serve(t, "", "hooks\nhooks ops {\npath /ops\n}")
	admin := strings.TrimPrefix(caddy.Admin, "http://")
	without := b.Deploy(t, "", "respond 404")
	without.Start(t)
	bare := strings.TrimPrefix(without.Admin, "http://")
	nothing := "127.0.0.1:" + hookstest.FreePort(t)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"dashboard --address " + nothing, 1, "Error: the admin endpoint " + nothing + " of Caddy cannot be reached (connect: connection refused): is Caddy running?"},
		{"dashboard --address unix//nowhere/admin.sock", 1, "no such file or directory"},
		{"dashboard --address " + strings.TrimPrefix(caddy.URL, "http://"), 1, "has no hooks: it is not a Caddy, or a Caddy without this module"},
		{"dashboard --address " + bare, 1, "has no hooks: add a line with the word hooks to a site in its Caddyfile"},
		{"dashboard --address " + admin + " --instance nope", 1, `there is no hooks instance "nope"; there is default and ops`},
		{"dashboard --address " + admin + " --port " + admin[strings.LastIndex(admin, ":")+1:], 1, "address already in use"},
		{"dashboard --address " + admin + " --port 65536", 2, "--port must be a number up to 65535"},
		{"dashboard --address " + admin + " --port x", 2, "--port"},
		{"dashboard --address a-b:1-2", 2, "use host:port or unix//path"},
		{"dashboard --address off", 2, "use host:port or unix//path"},
		{"dashboard --nope", 2, "unknown flag: --nope"},
		{"dashboard now", 2, "now"},
		{"nope", 2, `there is no verb "nope"; use `},
		{"", 2, "a verb is missing; use "},
	} {
		cmd := b.Command(nil, append([]string{"hooks"}, strings.Fields(test.args)...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		var exited *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exited) || exited.ExitCode() != test.code || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: %v, says %s", test.args, err, stderr.String())
		}
		if strings.Count(stderr.String(), "Error:") != 1 || strings.Contains(stderr.String(), "exiting with status") {
			t.Errorf("%q says %s", test.args, stderr.String())
		}
	}
}
