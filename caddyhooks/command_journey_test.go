package caddyhooks_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// From a bare hooks directive on, an operator uses every verb that acts, and looks at nothing else.
func TestVerbsThatActOverTCPAndAUnixSocket(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Setenv("HOOKS_SECRET", "")
			t.Setenv("HOOKS_TOKEN", "")
			rn, gone, _ := hookstest.HeldRunner(t)
			rc := startMoodyReceiver(t, "")
			s := hookstest.NewServer(t)
			address := s.Admin
			if network == "unix" {
				dir, err := os.MkdirTemp("", "hooks") // paths of sockets are short
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				address = "unix/" + filepath.Join(dir, "admin.sock")
				s.Admin = "http://" + address
			}
			s.Load("hooks {\nrunner http " + rn.URL + "\n" + hookstest.WithCallbacks + "}")
			run := func(args ...string) map[string]any {
				t.Helper()
				out, errs, err := command(t, append(args, "--address", address, "--json")...)
				wantExit(t, 0, errs, err)
				var shown map[string]any
				if err := json.Unmarshal([]byte(out), &shown); err != nil {
					t.Fatalf("%q prints no JSON: %v\n%s", args, err, out)
				}
				return shown
			}
			field := func(shown map[string]any, name string) string {
				text, _ := shown[name].(string)
				return text
			}
			payload := writeInput(t, "issue.json", issuePayload)

			run("token", "generate")
			run("set", "token", "--secret-file", writeInput(t, "token", hookstest.Token), "--yes")
			t.Setenv("HOOKS_TOKEN", hookstest.Token)
			run("set", "enabled", "on")
			run("hook", "put", "issues", "-f", writeInput(t, "hook.json",
				`{"action":"agent","authMode":"github","authSecret":"geheim","messageTemplate":"#{issue.number}","callbackUrl":"`+rc.URL+`"}`))
			if message := run("render", "issues", "--payload", payload)["message"].([]any); len(message) != 2 {
				t.Errorf("the message is %v", message)
			}
			if header := field(run("sign", "issues", "--payload", payload), "header"); header != "X-Hub-Signature-256" {
				t.Errorf("signed by %s", header)
			}
			s.Ended(field(run("try", "issues", "--payload", payload), "runId"))
			s.Ended(field(run("send", "issues", "--payload", payload), "runId"))
			hookstest.ReceiveWithin(t, "the delivery is tried", rc.bodies)
			rc.status.Store(http.StatusOK)
			givenUp := func() bool {
				out, errs, err := command(t, "deliveries", "--status", "dead", "--address", address, "--json")
				wantExit(t, 0, errs, err)
				return strings.Contains(out, "msg_")
			}
			hookstest.Eventually(t, "the delivery is given up", givenUp)
			if sum := run("retry", "--dead", "--yes", "--wait", "2m"); sum["delivered"] != 1.0 {
				t.Errorf("sent again: %v", sum)
			}
			rc.status.Store(http.StatusGone)
			s.Ended(field(run("send", "issues", "--payload", payload), "runId"))
			hookstest.Eventually(t, "the next delivery is given up", givenUp)
			if sum := run("drop", "--dead", "--yes"); sum["dropped"] != 1.0 {
				t.Errorf("dropped: %v", sum)
			}
			failed := field(run("send", "agent", "--payload", writeInput(t, "fail.json", `{"message":"fail"}`)), "runId")
			s.Ended(failed)
			s.Ended(field(run("again", failed), "runId"))
			held := field(run("send", "agent", "--payload", writeInput(t, "hold.json", `{"message":"hold"}`)), "runId")
			for turn := rn.Next(); turn.Text("runId") != held; {
				turn = rn.Next()
			}
			run("cancel", held)
			if id := hookstest.ReceiveWithin(t, "the runner is told", gone); id != held {
				t.Errorf("%s is cancelled", id)
			}
			run("token", "generate", "--keep-old")
			run("token", "retire", "--yes")
			if etag := field(run("hook", "get", "issues"), "etag"); etag == "" {
				t.Error("the hook has no ETag")
			}
			run("hook", "rm", "issues", "--yes")
			_, errs, err := command(t, "send", "agent", "--payload", payload, "--address", address)
			wantExit(t, 1, errs, err, "401") // the token is retired
			if strings.Contains(errs, hookstest.Token) {
				t.Errorf("the token is shown: %s", errs)
			}
		})
	}
}
