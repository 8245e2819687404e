package acp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestACPModelsByTier(t *testing.T) {
	t.Parallel()
	for _, can := range []string{"option", "models", "option models"} {
		t.Run(can, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) {
				a.Env["ACP_TEST_CAN"] = "resume close " + can
				a.Tiers = map[string]string{"balanced": "small", "smart": "large"}
			})
			var chat testChat
			for _, turn := range []struct{ tier, model string }{{"", "usual"}, {"balanced", "small"}, {"balanced", "small"}, {"smart", "large"}, {"", "usual"}, {"balanced", "small"}} {
				reply, err := a.Run(t.Context(), engine.Turn{Message: "model", Chat: &chat, MemoryPreset: "general_chat", Tier: turn.tier})
				if turn.model == "large" && can == "option" { // which is not on the agent's list
					if err == nil || !strings.Contains(err.Error(), "setting the model large") || !strings.Contains(err.Error(), "on the list") {
						t.Errorf("got %+v, %v", reply, err)
					}
					continue
				}
				if err != nil || reply.Text != turn.model {
					t.Errorf("tier %q: got %+v, %v", turn.tier, reply, err)
				}
				chat.session = reply.Session
			}
		})
	}
}

// An agent that cannot go back to its own model by its list gets its session opened anew.
func TestACPSessionGoesBackToAModelOffTheList(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) {
		a.Env["ACP_TEST_CAN"] = "resume close option own"
		a.Tiers = map[string]string{"balanced": "small"}
	})
	var chat testChat
	for i, turn := range []struct{ tier, model string }{{"", "own"}, {"balanced", "small"}, {"", "own"}, {"", "own"}, {"balanced", "small"}} {
		reply, err := a.Run(t.Context(), engine.Turn{Message: "model", Chat: &chat, MemoryPreset: "general_chat", Tier: turn.tier})
		if err != nil || reply.Text != turn.model || reply.SessionRenewed {
			t.Errorf("turn %d: got %+v, %v", i, reply, err)
		}
		chat.session = reply.Session
	}
	data, err := os.ReadFile(filepath.Join(a.PlaceDir(), "home", "notes"))
	if text := string(data); err != nil || strings.Count(text, "new ") != 1 || strings.Count(text, "close ") != 1 || strings.Count(text, "resume ") != 1 {
		t.Errorf("the agent noted %s, %v", data, err)
	}
}

// A session whose model cannot be set is not left open, unless it was open before.
func TestACPModelThatCannotBeSet(t *testing.T) {
	t.Parallel()
	for can, want := range map[string]string{"models": "no such model", "nothing": "no option for the model"} {
		t.Run(can, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) {
				a.Env["ACP_TEST_CAN"] = "resume close " + can
				a.Tiers = map[string]string{"smart": "none"}
			})
			var chat testChat
			turn := engine.Turn{Message: "hello", Chat: &chat, MemoryPreset: "general_chat", Tier: "smart"}
			if reply, err := a.Run(t.Context(), turn); err == nil || !strings.Contains(err.Error(), "setting the model none") || !strings.Contains(err.Error(), want) || reply.Session != "" {
				t.Errorf("got %+v, %v", reply, err)
			}
			notes := func() (opened, closed int) {
				data, err := os.ReadFile(filepath.Join(a.PlaceDir(), "home", "notes"))
				if err != nil {
					t.Fatal(err)
				}
				return strings.Count(string(data), "new "), strings.Count(string(data), "close ")
			}
			eventually(t, "the session is closed", func() bool {
				opened, closed := notes()
				return opened == 1 && closed == 1
			})
			answerOf(t, &chat, a, "hello")
			if _, err := a.Run(t.Context(), turn); err == nil {
				t.Error("the model was set in an open session")
			}
			if reply := answerOf(t, &chat, a, "hello"); reply.Text != `turn 2: "hello"` || reply.SessionRenewed {
				t.Errorf("got %+v", reply)
			}
			if opened, closed := notes(); opened != 2 || closed != 1 {
				t.Errorf("%d sessions were opened, and %d closed", opened, closed)
			}
		})
	}
}

func TestClaudeIsToldItsModelWithTheSession(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(claudeMeta(sessionKind{model: "claude-x"}))
	if err != nil || !strings.Contains(string(data), `"model":"claude-x"`) {
		t.Errorf("got %s, %v", data, err)
	}
	if data, err = json.Marshal(claudeMeta(sessionKind{})); err != nil || strings.Contains(string(data), `"model"`) {
		t.Errorf("without a model, got %s, %v", data, err)
	}
}
