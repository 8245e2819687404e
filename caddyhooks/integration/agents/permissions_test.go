//go:build agents

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
)

// TestAgentsRunNoCommandUnlessPermitted has the model ask for a command.
func TestAgentsRunNoCommandUnlessPermitted(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		file := filepath.Join(s.work, "touched")
		s.model.Answer("Touch the file", modeltest.Step{Tool: "touch " + file, Ask: true}, modeltest.Step{Text: "I tried."})
		run := s.ask(say("Touch the file.").remember("files"))
		if _, err := os.Stat(file); err == nil {
			t.Error("the command was run")
		}
		shown := s.AdminRequest("GET", "/hooks/runs/"+run.RunID, "").Body
		t.Logf("%s, asked for %v", run.Body, permissionsIn(shown))
		if runner != acpRunner || len(s.model.CallsFor("Touch the file")) == 1 { // no shell was offered
			return
		}
		if !strings.Contains(shown, `"answer":"rejected"`) || !strings.Contains(shown, `"kind":"execute"`) {
			t.Errorf("the run does not tell of the permission: %s", shown)
		}
		if strings.Contains(run.Body, "permissions") {
			t.Errorf("callers are told of the permission: %s", run.Body)
		}
	})
}

// TestAgentsRunCommandsThatArePermitted is the same with permission.
func TestAgentsRunCommandsThatArePermitted(t *testing.T) {
	t.Parallel()
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			s := a.start(t, acpRunner, "permit execute")
			file := filepath.Join(s.work, "touched")
			s.model.Answer("Touch the file", modeltest.Step{Tool: "touch " + file, Ask: true}, modeltest.Step{Text: "I did."})
			run := s.wantReply(t, say("Touch the file.").remember("files"), "I did.")
			shown := s.AdminRequest("GET", "/hooks/runs/"+run.RunID, "").Body
			if _, err := os.Stat(file); err != nil || !strings.Contains(shown, `"answer":"allowed"`) {
				t.Errorf("%v, and the run is %s", err, shown)
			}
		})
	}
}

func permissionsIn(run string) string {
	_, after, _ := strings.Cut(run, `"permissions":`)
	list, _, _ := strings.Cut(after, "]")
	return list
}
