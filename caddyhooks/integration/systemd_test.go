//go:build linux

package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

const systemdDir = root + "/examples/systemd"

// maxExposure is the most that systemd-analyze may say, in tenths.
const maxExposure = "15"

func TestSystemdLikesTheUnit(t *testing.T) {
	t.Parallel()
	u := newUnit(t)
	if out := u.verify(t, u.text); out != "" {
		t.Errorf("systemd-analyze: %s", out)
	}
	if out := u.verify(t, strings.Replace(u.text, "TimeoutStopSec=90s", "TimeoutStopSec=soon", 1)); !strings.Contains(out, "Failed to parse") {
		t.Errorf("systemd-analyze does not find a mistake: %s", out)
	}
	lint(t, "systemd-analyze", "security", "--offline=true", "--threshold="+maxExposure, filepath.Join(systemdDir, "caddy.service"))
	if stop, drain := u.duration(t, `TimeoutStopSec=(\S+)`, u.text), u.duration(t, `drain_timeout (\S+)`, u.caddyfile); stop <= drain {
		t.Errorf("systemd kills Caddy after %s, and turns may go on for %s", stop, drain)
	}
}

// The commands of the unit, as systemd would run them: Caddy says that it is ready, is reloaded, and lets a turn end when it is stopped.
func TestSystemdUnitStartsReloadsAndDrains(t *testing.T) {
	t.Parallel()
	rn, _, release := hookstest.HeldRunner(t)
	u := newUnit(t)
	d := u.deploy(t, strings.NewReplacer("http://127.0.0.1:9000/turn", rn.URL))
	states := u.listen(t, d)
	p := d.Start(t)
	want := func(state string) {
		t.Helper()
		hookstest.Eventually(t, "Caddy tells systemd "+state, func() bool { return strings.Contains(<-states, state) })
	}
	want("READY=1")
	post := func(body string) hookstest.Response {
		resp, err := hookstest.TryRequest("POST", d.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token)
		if err != nil {
			t.Error(err)
		}
		return resp
	}
	answer := make(chan hookstest.Response, 1)
	go func() { answer <- post(`{"message":"hold","syncResponse":true}`) }()
	rn.Next()

	reload := u.command(t, "ExecReload", d)
	if out, err := reload.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want("RELOADING=1")
	want("READY=1")

	p.Terminate(t)
	want("STOPPING=1")
	close(release)
	if resp := hookstest.ReceiveWithin(t, "the caller is answered", answer); resp.Status != 200 || resp.Body != "hold" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	p.WantCleanExit(t)

	// It is where the README restores it. A shell without the unit's environment would look elsewhere.
	const store = "/caddy/hooks/default.db"
	if _, err := os.Stat(filepath.Join(u.dir, "lib", store)); err != nil {
		t.Error(err)
	}
	page := string(readFile(t, filepath.Join(systemdDir, "README.md")))
	for _, command := range []string{"restore /var/lib/caddy/monday.db --to ", "compact "} {
		if !strings.Contains(page, "caddy hooks "+command+"/var/lib"+store) {
			t.Errorf("the README does not say: %s/var/lib%s", command, store)
		}
	}
}

// Caddy begins a new log when one is full, and no line is lost.
func TestSystemdExampleRollsItsLogs(t *testing.T) {
	t.Parallel()
	u := newUnit(t)
	d := u.deploy(t, strings.NewReplacer("http http://127.0.0.1:9000/turn", "echo", "roll_size 50MiB", "roll_size 1MiB\nroll_uncompressed"))
	p := d.Start(t)
	const requests, padding = 250, 6 << 10
	for range requests {
		resp, err := hookstest.TryRequest("GET", d.URL+"/api/hooks/none", "", "User-Agent", strings.Repeat("x", padding))
		if err != nil || resp.Status != 404 {
			t.Fatalf("got %d, %v", resp.Status, err)
		}
	}
	p.Terminate(t)
	p.WantCleanExit(t)
	files, err := filepath.Glob(filepath.Join(u.dir, "log", "access*.log"))
	if err != nil || len(files) < 2 {
		t.Errorf("the access log is %v, %v", files, err)
	}
	lines := 0
	for _, file := range files {
		lines += strings.Count(string(readFile(t, file)), strings.Repeat("x", padding))
	}
	if lines != requests {
		t.Errorf("%d requests have %d lines", requests, lines)
	}
	if log := string(readFile(t, filepath.Join(u.dir, "log", "hooks.log"))); !strings.Contains(log, "hooks started") {
		t.Errorf("the log of the webhooks is %q", log)
	}
	if line, found := p.Log.Find("http.handlers.hooks"); found {
		t.Errorf("the journal has a line of the webhooks: %s", line)
	}
}

// unit is the example's unit with its Caddyfile, for paths of a test.
type unit struct {
	dir             string
	text, caddyfile string
}

func newUnit(t *testing.T) *unit {
	t.Helper()
	return &unit{dir: t.TempDir(), text: string(readFile(t, filepath.Join(systemdDir, "caddy.service"))), caddyfile: string(readFile(t, filepath.Join(systemdDir, "Caddyfile")))}
}

// verify is what systemd-analyze has to say about a unit whose programs are there. Of a mistake in a value it only warns.
func (u *unit) verify(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "caddy.service")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/local/bin/caddy", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := realtest.Command(t, "systemd-analyze", "verify", path).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze: %v", err)
	}
	return string(out)
}

func (u *unit) duration(t *testing.T, pattern, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(regexp.MustCompile(pattern).FindStringSubmatch(text)[1])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// deploy writes the edited Caddyfile and the secret, at paths of the test.
func (u *unit) deploy(t *testing.T, edit *strings.Replacer) *hookstest.Deployment {
	t.Helper()
	d := &hookstest.Deployment{Binary: hookstest.NewBinary(t), Config: filepath.Join(u.dir, "Caddyfile"),
		URL: "http://127.0.0.1:" + hookstest.FreePort(t), Admin: "127.0.0.1:" + hookstest.FreePort(t)}
	text := strings.NewReplacer("/run/credentials/caddy.service", u.dir, "/var/log/caddy", filepath.Join(u.dir, "log"),
		"log default {", "admin "+d.Admin+"\n\tpersist_config off\n\tlog default {").Replace(edit.Replace(u.caddyfile))
	for name, data := range map[string]string{"Caddyfile": text, "hooks-token": hookstest.Token + "\n"} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environment := regexp.MustCompile(`(?m)^Environment=(.+)$`).FindStringSubmatch(u.text)[1]
	d.Env = append(strings.Fields(strings.ReplaceAll(environment, "%S", filepath.Join(u.dir, "lib"))), "HOOKS_SITE="+d.URL)
	start := u.command(t, "ExecStart", d)
	d.Prepare = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args[:1], start.Args[1:]...) }
	return d
}

// command is a command of the unit.
func (u *unit) command(t *testing.T, name string, d *hookstest.Deployment) *exec.Cmd {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + `=/usr/local/bin/caddy (.+)$`).FindStringSubmatch(u.text)
	if line == nil {
		t.Fatalf("the unit has no %s", name)
	}
	cmd := d.Command(d.Env, strings.Fields(strings.ReplaceAll(line[1], "/etc/caddy/Caddyfile", d.Config))...)
	if name == "ExecReload" {
		cmd.Args = append(cmd.Args, "--address", d.Admin)
	}
	return cmd
}

// listen is systemd's ear.
func (u *unit) listen(t *testing.T, d *hookstest.Deployment) <-chan string {
	t.Helper()
	path := filepath.Join(u.dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	d.Env = append(d.Env, "NOTIFY_SOCKET="+path)
	states := make(chan string, 100)
	go func() {
		defer close(states)
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			states <- string(buf[:n])
		}
	}()
	return states
}
