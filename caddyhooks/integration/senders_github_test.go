package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Of all that GitHub sends, a hook for issues that are opened makes runs of those, and of nothing else.
func TestHookForOpenedIssuesIgnoresAllElseOfGitHub(t *testing.T) {
	t.Parallel()
	dir := signerPackages(t)
	data, err := os.ReadFile(filepath.Join(dir, "node_modules/@octokit/webhooks-examples/api.github.com/index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(data, &events); err != nil {
		t.Fatal(err)
	}

	signer := startSigner(t)
	rn := hookstest.StartRunner(t, nil)
	const secret = "a-secret-of-the-tests"
	s := hookstest.StartProcess(t, hookstest.Hooks(rn, "store memory\nhook github {\naction agent\nauth github "+secret+"\nonly header X-GitHub-Event issues\n"+
		"only `$.action == 'opened'`\ntemplate \"{@header.X-GitHub-Event}: issue {issue.number} of {repository.full_name}: {issue.title}\"\nmax_payload 1MB\n}"))
	sent, want := 0, make(map[string]int)
	for _, event := range events {
		for _, payload := range event.Examples {
			sent++
			var body struct {
				Action     string
				Repository struct {
					FullName string `json:"full_name"`
				}
				Issue struct {
					Number int
					Title  string
				}
			}
			_ = json.Unmarshal(payload, &body) // some have other types in these places
			meant := event.Name == "issues" && body.Action == "opened"
			if meant {
				want[fmt.Sprintf("issues: issue %d of %s: %s", body.Issue.Number, body.Repository.FullName, body.Issue.Title)]++
			}
			signed := signer.sign(t, question{Sender: "github", Secret: secret, URL: s.URL + "/api/hooks/github", Body: string(payload), Time: time.Now().Unix(), ID: fmt.Sprint("delivery-", sent)})
			resp, err := signed.send("X-GitHub-Event", event.Name, "Content-Type", "application/json")
			switch {
			case err != nil:
				t.Fatal(err)
			case meant && resp.Status != http.StatusAccepted:
				t.Errorf("%s %s is answered %d %s", event.Name, body.Action, resp.Status, resp.Body)
			case !meant && (resp.Status != http.StatusOK || resp.Field(t, "status") != "ignored"):
				t.Errorf("%s %s is answered %d %s", event.Name, body.Action, resp.Status, resp.Body)
			}
		}
	}
	if sent != 329 {
		t.Errorf("there are %d payloads, want 329", sent)
	}
	runs := 0
	for message, n := range want {
		runs += n
		t.Logf("meant %d times: %s", n, message)
	}
	if runs == 0 {
		t.Fatal("no payload opens an issue")
	}
	for range runs {
		message := rn.Next().Text("message")
		if want[message]--; want[message] < 0 || strings.Contains(message, "<missing>") {
			t.Errorf("the agent is told %q", message)
		}
	}
	if ids, _ := s.Listed("?hook=github"); len(ids) != runs {
		t.Errorf("%d payloads started %d runs, want %d", sent, len(ids), runs)
	}
}
