//go:build agents

package agents

import (
	"strings"
	"testing"
)

// TestTiersChooseTheModel has the turns of a chat ask for different models, and for none, over a restart.
func TestTiersChooseTheModel(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		agent       *agent
		smart, deep string // as the operator writes them; deep is not on the agent's list
		wantSmart   string // a part of what the model is asked as
	}{
		{claude, "haiku", "model-of-our-own", "haiku"},
		{codex, "gpt-5.5", "", "gpt-5.5"},
		{gemini, "gemini-2.5-pro", "model-of-our-own", "gemini-2.5-pro"},
	} {
		t.Run(try.agent.name, func(t *testing.T) {
			t.Parallel()
			lines := []string{"tier smart " + try.smart}
			if try.deep != "" {
				lines = append(lines, "tier deep "+try.deep)
			}
			s := try.agent.start(t, acpRunner, lines...)
			turn := func(message, tier string) string {
				t.Helper()
				r := say(message).remember("models")
				if tier != "" {
					r["model"] = tier
				}
				s.wantReply(t, r, "You said: "+message)
				return s.asked(t, message).Model
			}
			own := turn("First, by your own.", "")
			if got := turn("Be smart.", "smart"); !strings.Contains(got, try.wantSmart) || got == own {
				t.Errorf("tier smart asked %s, without a tier %s", got, own)
			}
			if try.deep != "" {
				if got := turn("Be deep.", "deep"); got != try.deep {
					t.Errorf("tier deep asked %s", got)
				}
			}
			if got := turn("Be yourself.", ""); got != own {
				t.Errorf("after tiers, %s was asked, want %s", got, own)
			}
			if got := turn("Be smart again.", "smart"); !strings.Contains(got, try.wantSmart) {
				t.Errorf("tier smart asked %s", got)
			}
			s.Restart(s.config)
			if got := turn("Be yourself again.", ""); got != own {
				t.Errorf("after a restart, %s was asked, want %s", got, own)
			}
			if call := s.asked(t, "Be yourself again."); !call.Holds("First, by your own.") {
				t.Errorf("the chat did not go on: %q", call.Messages)
			}
		})
	}
}
