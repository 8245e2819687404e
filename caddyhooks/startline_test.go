package caddyhooks_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestAStartIsToldInOneLine(t *testing.T) {
	s, lines := loggedHooks(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		http.Error(w, "away", http.StatusServiceUnavailable)
	})
	started, reloaded := 0, 0
	// want checks the last line of a start, and that there is one for every start.
	want := func(fields map[string]any) {
		t.Helper()
		starts, reloads := lines("hooks started"), lines("hooks reloaded")
		if len(starts) != started || len(reloads) != reloaded {
			t.Fatalf("%d lines tell about %d starts, and %d about %d reloads", len(starts), started, len(reloads), reloaded)
		}
		line := starts[started-1]
		if fields["reload"] != nil {
			line = reloads[reloaded-1]
			delete(fields, "reload")
		}
		fields["level"], fields["instance"] = "info", "default"
		for name, value := range fields {
			if fmt.Sprint(line[name]) != fmt.Sprint(value) {
				t.Errorf("%s is %v, want %v: %v", name, line[name], value, line)
			}
		}
	}
	file := "bolt " + filepath.Join(s.Data, "caddy", "hooks", "default.db")

	s.Load("hooks {\nrunner echo\n}")
	started++
	want(map[string]any{"on": false, "off_because": "enabled is not set, and no token is set", "hooks": 0, "runner": "echo", "store": file, "queued": 0, "path": "/api/hooks"})
	s.Reload("hooks {\n token " + hookstest.Token + "\n}")
	reloaded++
	want(map[string]any{"reload": true, "on": false, "off_because": "enabled is not set"})
	s.Reload("hooks {\n token " + hookstest.Token + "\nrunner echo\n}")
	s.PatchSettings(`{"enabled":true}`)
	s.Reload("hooks {\n token " + hookstest.Token + "\n runner echo\n}")
	reloaded += 2
	want(map[string]any{"reload": true, "on": true, "enabled_by": "saved"})
	s.Restart("hooks {\n enabled\n runner echo\n path /in\n}")
	started++
	want(map[string]any{"on": false, "off_because": "no token is set", "path": "/in"})

	const hooks = "enabled\n token " + hookstest.Token + "\n hook a {\n template a\n }\n hook b {\n template b\n }\n"
	config := "hooks {\n" + hooks + "runner http " + strings.Replace(rn.URL, "//", "//user:"+loudSecret+"@", 1) + "/" + loudSecret + "?" + loudToken + "\n}"
	s.Restart(config)
	started++
	want(map[string]any{"on": true, "off_because": nil, "enabled_by": "config", "hooks": 2, "runner": "http " + rn.URL, "queued": 0})
	for range 3 {
		s.Accept(`{"message":"wait for the agent","chatId":"a"}`)
	}
	s.PutMapping("live", "{}")
	s.Restart(config)
	started++
	want(map[string]any{"on": true, "hooks": 3, "queued": 3})
	s.Reload("hooks {\n" + hooks + "runner echo\n store memory\n}") // another store is opened
	started++
	want(map[string]any{"on": true, "hooks": 2, "runner": "echo", "store": "memory", "queued": 0})
	s.PatchSettings(`{"defaultTimeoutSeconds":9}`)
	s.Reload("hooks {\n" + hooks + "runner echo\n store memory\n}\nrespond /version new")
	reloaded++
	want(map[string]any{"reload": true, "on": true, "hooks": 2})
}

func TestAStartSaysThatItsTokenIsLeftOut(t *testing.T) {
	s, lines := loggedHooks(t)
	t.Setenv("CADDYHOOKS_TEST_TOKEN", hookstest.Token)
	s.Load("hooks {\n enabled\nrunner echo\n}")
	s.PatchSettings(`{"token":"{env.CADDYHOOKS_TEST_TOKEN}"}`)
	if err := os.Unsetenv("CADDYHOOKS_TEST_TOKEN"); err != nil { // Setenv puts it back
		t.Fatal(err)
	}
	s.Restart("hooks {\n enabled\nrunner echo\n}")
	starts := lines("hooks started")
	if last := starts[len(starts)-1]; last["on"] != false || last["off_because"] != "the token that was saved is left out" {
		t.Errorf("the log says %v", last)
	}
	s.PatchSettings(`{"token":"` + hookstest.Token + `"}`)
	changed := lines("live settings changed")
	if last := changed[len(changed)-1]; last["on"] != true {
		t.Errorf("the log says %v", last)
	}
}
