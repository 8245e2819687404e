package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestBinary tries the program that people build.
func TestBinary(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(*testing.T, *hookstest.Binary){
		"takes every Caddyfile of this repository":       takesEveryCaddyfile,
		"lists the modules":                              listsModules,
		"tells mistakes when it is run":                  tellsMistakes,
		"validates a configuration that is being served": validatesBesideAServer,
		"lets held callers go when it is terminated":     func(t *testing.T, b *hookstest.Binary) { letsHeldCallersGo(t, b, "", "1s") },
		"lets held callers go before Caddy drops them":   func(t *testing.T, b *hookstest.Binary) { letsHeldCallersGo(t, b, "grace_period 2s", "1m") },
		"lets a turn end when it is terminated":          letsATurnEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, hookstest.NewBinary(t))
		})
	}
}

var environmentVariable = regexp.MustCompile(`\{(?:env\.|\$)([A-Z][A-Z0-9_]*)\}`)

// warningOfHooks is a line of the log in which a module of this repository warns.
var warningOfHooks = regexp.MustCompile(`(?m)^.*"level":"(warn|error)".*"logger":"[^"]*hooks.*$`)

func tellsMistakes(t *testing.T, b *hookstest.Binary) {
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte("http://127.0.0.1:1 {\n\thooks {\n\t\thook a {\n\t\t\ttemplate New issue\n\t\t}\n\t}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--config", file}, "template takes one argument"},
		{[]string{"run", "--config=" + file, "--adapter", "caddyfile"}, file + ":4"},
		{[]string{"run", "-c", file + ".missing"}, "no such file"},
	} {
		out, err := b.Command(nil, c.args...).CombinedOutput()
		if err == nil || strings.Count(string(out), c.want) != 1 {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}

func takesEveryCaddyfile(t *testing.T, b *hookstest.Binary) {
	for _, file := range caddyfiles(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var env []string
			for _, match := range environmentVariable.FindAllSubmatch(text, -1) {
				value := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // good for every kind of secret
				if bytes.HasSuffix(match[1], []byte("_DSN")) {
					value = "host=127.0.0.1 dbname=hooks" // but for how to reach a database
				}
				env = append(env, string(match[1])+"="+value)
			}
			here := withFilesOfThisTest(t, file, string(text))
			for _, args := range [][]string{
				{"adapt", "--adapter", "caddyfile", "--config", here},
				{"validate", "--adapter", "caddyfile", "--config", here},
				{"fmt", "--diff", file},
			} {
				out, err := b.Command(env, args...).CombinedOutput()
				if err != nil || bytes.Contains(out, []byte("not formatted")) {
					t.Errorf("caddy %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				// A first try should not be greeted by one, unless for an agent that is not on this machine.
				if line := warningOfHooks.Find(out); line != nil && !bytes.Contains(line, []byte("there is no program ")) {
					t.Errorf("caddy %s: %s", strings.Join(args, " "), line)
				}
			}
		})
	}
}

var secretFile = regexp.MustCompile(`\{file\.(/run/[^}]+)\}`)

// withFilesOfThisTest is the Caddyfile itself, or a copy of one that reads secrets and writes logs where only a service can: it has files of this
// test instead.
func withFilesOfThisTest(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	edited := strings.ReplaceAll(text, "/var/log/caddy", dir)
	for _, match := range secretFile.FindAllStringSubmatch(text, -1) {
		value := "only-for-trying-it-out"
		if strings.HasSuffix(match[1], "dsn") {
			value = "host=127.0.0.1 dbname=hooks"
		}
		secret := filepath.Join(dir, filepath.Base(match[1]))
		if err := os.WriteFile(secret, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		edited = strings.ReplaceAll(edited, match[1], secret)
	}
	if edited == text {
		return file
	}
	here := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(here, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	return here
}

func listsModules(t *testing.T, b *hookstest.Binary) {
	out, err := b.Command(nil, "list-modules").Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(out))
	for _, module := range []string{"hooks", "http.handlers.hooks", "admin.api.hooks",
		"hooks.runners.echo", "hooks.runners.http", "hooks.stores.bolt", "hooks.stores.memory",
		"hooks.channels.telegram", "hooks.channels.slack", "hooks.channels.discord", "hooks.channels.matrix",
		"hooks.channels.github",
		"hooks.channels.gitlab", "hooks.channels.linear", "hooks.channels.mattermost", "hooks.channels.teams", "hooks.channels.email", "hooks.channels.webhook", "hooks.channels.log"} {
		if !slices.Contains(listed, module) {
			t.Errorf("%s is not listed", module)
		}
	}
}

func validatesBesideAServer(t *testing.T, b *hookstest.Binary) {
	p := b.Serve(t, "", `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		channel notes log
		hook echo {
			action agent
			sync
			template "{text}"
		}
	}`)
	if resp, err := hookstest.TryRequest("PUT", p.Admin+"/hooks/mappings/live", `{"action":"agent","syncResponse":true}`, "Content-Type", "application/json"); err != nil || resp.Status != 200 {
		t.Fatalf("saving a mapping: %v %v", resp, err)
	}
	if out, err := b.Command(nil, "validate", "--adapter", "caddyfile", "--config", p.Config).CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
	for _, hook := range []string{"echo", "live"} {
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/"+hook, `{"text":"hello"}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != 200 {
			t.Errorf("the server answers %s with %v %v", hook, resp, err)
		}
	}
	p.Terminate(t)
	p.WantCleanExit(t)
}

func letsHeldCallersGo(t *testing.T, b *hookstest.Binary, globals, drainTimeout string) {
	rn := hookstest.StartRunner(t, func(_ http.ResponseWriter, r *http.Request, _ hookstest.Turn) { <-r.Context().Done() })
	p := b.Serve(t, globals, `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+rn.URL+`
		drain_timeout `+drainTimeout+`
	}
	hooks another {
		path /another
		drain_timeout `+drainTimeout+`
	}`)
	running := ask(p, `{"message":"one","syncResponse":true,"chatId":"c","timeoutSeconds":300}`)
	rn.Next()
	queued := ask(p, `{"message":"two","syncResponse":true,"chatId":"c","timeoutSeconds":300}`)
	hookstest.Eventually(t, "both callers are held", func() bool {
		stacks, err := hookstest.TryRequest("GET", p.Admin+"/debug/pprof/goroutine?debug=2", "")
		return err == nil && strings.Count(stacks.Body, "engine.(*Engine).Do(") == 2
	})
	p.Terminate(t)
	for name, answer := range map[string]<-chan hookstest.Response{"running": running, "queued": queued} {
		select {
		case resp := <-answer:
			resp.WantError(t, 503)
			if resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: got no Retry-After", name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the caller is still held", name)
		}
	}
	p.WantCleanExit(t)
}

func letsATurnEnd(t *testing.T, b *hookstest.Binary) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-release:
			fmt.Fprint(w, "in the end")
		case <-r.Context().Done():
		}
	})
	p := b.Serve(t, "", `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+rn.URL+`
		drain_timeout 1m
	}`)
	held := ask(p, `{"message":"one","syncResponse":true}`)
	rn.Next()
	p.Terminate(t)
	hookstest.Eventually(t, "nothing new is taken", func() bool {
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+hookstest.Token)
		return err != nil || resp.Status == 503
	})
	close(release)
	select {
	case resp := <-held:
		if resp.Status != 200 || resp.Body != "in the end" {
			t.Errorf("got %d %q", resp.Status, resp.Body)
		}
	case <-time.After(time.Minute):
		t.Fatal("the caller is still held")
	}
	p.WantCleanExit(t)
}

// ask sends an agent request, and hands over the answer when it comes.
func ask(p *hookstest.Process, body string) <-chan hookstest.Response {
	answer := make(chan hookstest.Response, 1)
	go func() {
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token)
		if err != nil {
			resp.Body = err.Error()
		}
		answer <- resp
	}()
	return answer
}
