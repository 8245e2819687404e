//go:build agents

package agents

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
)

// TestAgentsGoOnAfterARestart tries a chat over ends of Caddy: an orderly one, and kill -9. Then the agent loses its sessions.
func TestAgentsGoOnAfterARestart(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		var told []modeltest.Message
		turn := func(message string) bool {
			t.Helper()
			run := s.wantReply(t, say(message).remember("Bob's chat"), "You said: "+message)
			told = append(told, modeltest.User(message))
			if got := s.asked(t, message).Messages; !slices.Equal(got, told) {
				t.Errorf("the model was sent %q, want %q", got, told)
			}
			told = append(told, modeltest.Assistant("You said: "+message))
			return run.SessionRenewed
		}
		turn("My name is Bob.")
		s.Restart(s.config)
		s.wantNothingLeft(t, "a restart")
		if turn("I have a cat.") {
			t.Error("after a restart the session is said to be new")
		}
		s.Kill()
		s.wantNothingLeft(t, "kill -9")
		s.Load(s.config)
		if turn("What is my name?") {
			t.Error("after kill -9 the session is said to be new")
		}
		// Another chat knows nothing of this one.
		s.wantReply(t, say("Who am I?").remember("Alice's chat"), "You said: Who am I?")
		if call := s.asked(t, "Who am I?"); len(call.Messages) != 1 {
			t.Errorf("the model was sent %q", call.Messages)
		}
		s.Stop()
		for _, name := range a.kept {
			if err := os.RemoveAll(filepath.Join(s.home, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.Load(s.config)
		told = nil
		if !turn("Are you still there?") {
			t.Error("after a loss the session is not said to be new")
		}
		if turn("And now?") {
			t.Error("a session is said to be new once too often")
		}
	})
}
