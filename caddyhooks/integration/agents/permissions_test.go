//go:build agents

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
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

// TestAgentsWaitForPeople has people decide about commands, and about files that are read.
func TestAgentsWaitForPeople(t *testing.T) {
	t.Parallel()
	for _, a := range []*agent{claude, codex} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			chats := hookstest.StartButtonChats(t)
			place := hookstest.ButtonPlaces[0]
			s := a.startBeside(t, chats.Lines(), modeltest.Start(t), acpRunner, a.name, "ask execute read in "+place.Channel+" "+place.To)
			decide := func(n int, message, shown, answer string) hookstest.RunView {
				t.Helper()
				id := s.accept(say(message).remember("files"))
				question := chats.Asked(place.Chat, n)
				if !strings.Contains(question.Text, shown) {
					t.Errorf("asked is %q, want %q", question.Text, shown)
				}
				chats.Press(s.Server, question, answer, "U1", "Ann")
				run := s.EndedWithin(modeltest.Patience, id)
				permissions := permissionsIn(s.AdminRequest("GET", "/hooks/runs/"+id, "").Body)
				if want := map[string]string{"allow": "allowed", "reject": "rejected"}[answer] + " by Ann"; !strings.Contains(permissions, want) {
					t.Errorf("the permissions are %s, want %s", permissions, want)
				}
				return run
			}
			file := filepath.Join(s.work, "touched")
			s.model.Answer("Touch the file", modeltest.Step{Tool: "touch " + file, Ask: true}, modeltest.Step{Text: "I did."})
			if run := decide(1, "Touch the file.", "touch "+file, "allow"); run.Reply != "I did." {
				t.Errorf("got %s", run.Body)
			}
			if err := os.Remove(file); err != nil {
				t.Error("the command that was allowed was not run: ", err)
			}
			if a == claude { // others read without asking
				secret := write(t, s.work, "notes.txt", "the word is heron")
				s.model.Answer("Read the file", modeltest.Step{Read: secret}, modeltest.Step{Text: "I did."})
				decide(2, "Read the file.", secret, "reject")
				if calls := s.model.CallsFor("Read the file"); strings.Contains(calls[len(calls)-1].Body, "heron") {
					t.Error("the file was read")
				}
			}
			s.model.Answer("Touch it again", modeltest.Step{Tool: "touch " + file, Ask: true}, modeltest.Step{Text: "I tried."})
			decide(len(chats.Messages(place.Chat))+1, "Touch it again.", "touch "+file, "reject")
			if _, err := os.Stat(file); err == nil {
				t.Error("the command that was rejected was run")
			}
		})
	}
}

func permissionsIn(run string) string {
	_, after, _ := strings.Cut(run, `"permissions":`)
	list, _, _ := strings.Cut(after, "]")
	return list
}
