package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// told is what operators see of a run's input.
type told struct {
	Message    *string         `json:"message"`
	MessageCut bool            `json:"messageCut"`
	Metadata   json.RawMessage `json:"metadata"`
	Schema     json.RawMessage `json:"schema"`
	AgainOf    string          `json:"againOf"`
	AgainAs    string          `json:"againAs"`
}

func lookUp(t *testing.T, s *hookstest.Server, id string) (run told) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/runs/"+id, "")
	if resp.Status != 200 {
		t.Fatalf("got %+v", resp)
	}
	if err := json.Unmarshal([]byte(resp.Body), &run); err != nil {
		t.Fatal(err)
	}
	return run
}

// wantTold checks whether a run still has its message.
func wantTold(t *testing.T, s *hookstest.Server, id, message string) {
	t.Helper()
	if run := lookUp(t, s, id); run.Message == nil || *run.Message != message {
		t.Errorf("run %s shows the message %v, want %q", id, run.Message, message)
	}
}

func wantForgotten(t *testing.T, s *hookstest.Server, id string) {
	t.Helper()
	if run := lookUp(t, s, id); run.Message != nil || run.Metadata != nil || run.Schema != nil || run.MessageCut {
		t.Errorf("run %s still shows its input: %+v", id, run)
	}
}

func TestOperatorsSeeWhatARunWasToldAndCallersDoNot(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText(`{"fine":true}`)), "store "+store))
			body := `{"message":"secret words <&>","chatId":"c","metadata":{"n":12345678901234567890},"syncResponse":true,
				"responseJsonSchema":{"type":"object","required":["fine"]}}`
			id := s.Post("/api/hooks/agent", body).Header.Get("X-Service-Run-Id")
			run := lookUp(t, s, id)
			if run.Message == nil || *run.Message != "secret words <&>" || string(run.Metadata) != `{"n":12345678901234567890}` ||
				string(run.Schema) != `{"type":"object","required":["fine"]}` || run.MessageCut || run.AgainOf != "" || run.AgainAs != "" {
				t.Errorf("operators see %+v", run)
			}
			if shown := s.Run(id); strings.Contains(shown.Body, "secret words") || strings.Contains(shown.Body, "1234567") || strings.Contains(shown.Body, "required") {
				t.Errorf("callers see %s", shown.Body)
			}
			if list := s.AdminRequest("GET", "/hooks/runs", ""); !strings.Contains(list.Body, `"preview":"secret words <&>"`) || strings.Contains(list.Body, "1234567") {
				t.Errorf("a list shows %s", list.Body)
			}

			long := strings.Repeat("ü", engine.MaxInput)
			id = s.Post("/api/hooks/agent", `{"message":"`+long+`","metadata":{"a":"b"},"syncResponse":true}`).Header.Get("X-Service-Run-Id")
			if run := lookUp(t, s, id); run.Message == nil || *run.Message != long[:engine.MaxInput] || !run.MessageCut || run.Metadata != nil {
				t.Errorf("of a long message %d bytes are shown, cut: %t", len(*run.Message), run.MessageCut)
			}
			if store == "bolt" {
				s.Restart(hookstest.Hooks(hookstest.StartRunner(t, nil), "store "+store))
				if run := lookUp(t, s, id); run.Message == nil || !run.MessageCut {
					t.Errorf("after a restart operators see %+v", run)
				}
			}
		})
	}
}

func TestHistoryIsKeptAsLongAsTheHookAndTheInstanceWant(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), `
			store `+store+`
			hook payroll {
				action agent
				sync
				history off
			}
			hook alerts {
				action agent
				sync
				history 1h
			}`))
			send := func(hook, message string) string {
				t.Helper()
				resp := s.Post("/api/hooks/"+hook, `{"message":"`+message+`","syncResponse":true}`)
				if resp.Status != 200 {
					t.Fatalf("got %+v", resp)
				}
				return resp.Header.Get("X-Service-Run-Id")
			}
			agent, payroll, alert := send("agent", "one"), send("payroll", "two"), send("alerts", "three")
			wantTold(t, s, agent, "one")
			wantForgotten(t, s, payroll)
			wantTold(t, s, alert, `{"message":"three","syncResponse":true}`)

			s.PatchSettings(`{"historySeconds":600}`)
			wantTold(t, s, agent, "one")
			s.PatchSettings(`{"historySeconds":0}`)
			later := send("agent", "four")
			wantForgotten(t, s, later)
			wantForgotten(t, s, send("alerts", "five"))
			hookstest.Eventually(t, "what was kept is forgotten", func() bool {
				return lookUp(t, s, agent).Message == nil && lookUp(t, s, alert).Message == nil
			})
			if run := s.Run(agent); run.Status != "completed" || run.Reply != "ok" {
				t.Errorf("the run itself is %s", run.Body)
			}
			s.PatchSettings(`{"historySeconds":null}`)
			wantForgotten(t, s, later)
			wantTold(t, s, send("agent", "six"), "six")
		})
	}
}

// A saved setting that is longer than the retention of a new configuration is refused like others that do not go with it.
func TestHistoryIsNeverLongerThanRetention(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n\tretention 2h\n}")
	s.PatchSettings(`{"historySeconds":7200}`)
	s.PutMapping("long", `{"historySeconds":7200}`)
	s.AdminRequest("PATCH", "/hooks/settings", `{"historySeconds":7201}`).WantAdminError(t, 400, "historySeconds", "retention", "2h")
	s.AdminRequest("PUT", "/hooks/mappings/long", `{"historySeconds":7201}`).WantAdminError(t, 400, "historySeconds", "retention", "2h")
	if err := s.TryLoad("hooks {\n\tretention 1h\n}"); err == nil || !strings.Contains(err.Error(), "historySeconds") {
		t.Errorf("a shorter retention: %v", err)
	}
	s.Settle()
	s.PatchSettings(`{"historySeconds":3600}`)
	// The hook wants more than there is, which cannot come of it.
	if err := s.TryLoad("hooks {\n\tretention 1h\n}"); err == nil || !strings.Contains(err.Error(), "long") {
		t.Errorf("a shorter retention, with a hook that keeps more: %v", err)
	}
	s.Settle()
	s.PutMapping("long", `{"historySeconds":3600}`)
	s.Reload("hooks {\n\tretention 1h\n}")
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"historySeconds":3600}`)
	if err := s.TryLoad("hooks {\n\tretention 1h\n\thistory 30m\n}"); err == nil || !strings.Contains(err.Error(), "long") {
		t.Errorf("a pinned history, with a hook that keeps more: %v", err)
	}
}
