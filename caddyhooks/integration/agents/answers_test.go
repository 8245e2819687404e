//go:build agents

package agents

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestAgentsAnswer tries what needs a Caddy and an agent, but no other of either.
func TestAgentsAnswer(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		// One after the other: all at once would only wait for each other.
		t.Run("a caller who waits, and one who does not", s.answers)
		t.Run("by a schema", s.repairs)
		t.Run("in pieces", s.streams)
		t.Run("and forget", s.forgets)
		t.Run("or say that the model failed", s.fails)
		if a != gemini { // which waits by itself, longer than anybody has patience
			t.Run("or wait for it", s.waits)
		}
	})
}

func (s *site) answers(t *testing.T) {
	resp := s.Post("/api/hooks/agent", `{"message":"Is anybody there?","syncResponse":true}`)
	if resp.Status != 200 || resp.Body != "You said: Is anybody there?" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	s.wantReply(t, say("Grüße, 你好 \U0001F44B"), "You said: Grüße, 你好 \U0001F44B")
}

func (s *site) repairs(t *testing.T) {
	ask := func(message string) hookstest.Response {
		schema := request{"type": "object", "properties": request{"urgency": request{"type": "integer"}}, "required": []string{"urgency"}, "additionalProperties": false}
		return s.Post("/api/hooks/agent", hookstest.AsJSON(t, request{"message": message, "syncResponse": true, "responseJsonSchema": schema}.remember("urgencies")))
	}
	// An answer that matches.
	s.model.Answer("How urgent is the flood?", modeltest.Step{JSON: `{"urgency":3}`})
	if resp := ask("How urgent is the flood?"); resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"urgency":3}` || resp.Header.Get("X-Service-Schema-Repair-Attempts") != "0" {
		t.Errorf("got %d %s %v, because %s", resp.Status, resp.Body, resp.Header, s.ReasonOf(resp.Header.Get("X-Service-Run-Id")))
	}
	if !s.asked(t, "How urgent is the flood?").Holds("urgency") {
		t.Error("the model was not told of the schema")
	}
	// One that does not.
	s.model.Answer("How urgent is the fire?", modeltest.Step{Text: "Very urgent, fire number 4711."})
	s.model.Answer("fire number 4711", modeltest.Step{JSON: `{"urgency":5}`})
	if resp := ask("How urgent is the fire?"); resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"urgency":5}` || resp.Header.Get("X-Service-Schema-Repair-Attempts") != "1" {
		t.Errorf("got %d %s %v, because %s", resp.Status, resp.Body, resp.Header, s.ReasonOf(resp.Header.Get("X-Service-Run-Id")))
	}
	// A repair has neither tools nor history.
	repair := s.asked(t, "fire number 4711")
	tools := slices.DeleteFunc(slices.Clone(repair.Tools), func(name string) bool { return slices.Contains(harmless, name) })
	if len(tools) > 0 {
		t.Errorf("the repair had the tools %q", tools)
	}
	if len(repair.Messages) != 1 {
		t.Errorf("the repair was sent with %.1000q", repair.Messages)
	}
}

// harmless are tools that do nothing but answer, or ask a user who is not there.
var harmless = []string{"StructuredOutput", "request_user_input", "update_plan", "ask_user"}

func (s *site) streams(t *testing.T) {
	goOn := make(chan struct{})
	s.model.Answer("Tell me a story", modeltest.Step{Text: "Once upon a time.", Wait: goOn})
	id := s.accept(say("Tell me a story.").remember("stories"))
	text, told := "", sync.OnceFunc(func() { close(goOn) })
	if s.agent == codex && s.runner == commandRunner {
		told() // it says all at once
	}
	defer told()
	var last hookstest.RunEvent
	for event := range s.Follow("GET", hookstest.RunPath(id)+"/events", "") {
		switch last = event; event.Name {
		case "delta":
			text += event.Data["text"].(string)
		case "reset":
			text = event.Data["text"].(string)
		}
		if strings.HasPrefix(text, "Once") { // while the model has more to say
			told()
		}
	}
	if text != "Once upon a time." || last.Name != "result" || last.Data["reply"] != text {
		t.Errorf("the events told %q, and at last came %+v", text, last)
	}
}

// forgets tries turns without memory: the next one recalls nothing, and nothing of the message is left in files.
func (s *site) forgets(t *testing.T) {
	for _, message := range []string{"The secret is porcupine.", "What is the secret?"} {
		s.wantReply(t, request{"message": message, "chatId": "forgetful", "memoryPreset": "disabled"}, "You said: "+message)
		for _, call := range s.model.CallsFor(message) {
			if len(call.Messages) != 1 {
				t.Errorf("the model was sent %q", call.Messages)
			}
		}
	}
	for _, dir := range []string{s.home, s.work, s.Data} {
		for _, file := range filesWith(t, dir, "porcupine") {
			if !strings.HasSuffix(file, ".db") { // Caddy's own history
				t.Errorf("%s tells the message", file)
			}
		}
	}
}

// fails has the model fail: its errors are never taken for answers.
func (s *site) fails(t *testing.T) {
	fails := map[string]modeltest.Step{
		"Fail with 400.": {Status: 400}, "Fail with 401.": {Status: 401}, "Fail with 429.": {Status: 429}, "Fail with 500.": {Status: 500},
		"Fail with 529.": {Status: 529}, "Break off.": {Text: "One, two, three, four", Cut: true},
	}
	timeout := map[*agent]int{claude: 60, codex: 120, gemini: 15}[s.agent] // Gemini CLI asks again for longer than anybody has patience
	ids := make(map[string]string)
	for message, step := range fails {
		s.model.Answer(message, step)
		ids[message] = s.accept(request{"message": message, "timeoutSeconds": timeout}.remember(message))
	}
	for message, id := range ids {
		var run hookstest.RunView
		hookstest.Within(t, modeltest.Patience, "the turn ends", func() bool {
			run = s.Run(id)
			return run.WaitingFor != "" || run.Status != "queued" && run.Status != "running"
		})
		reason := s.ReasonOf(id)
		t.Logf("%s %s %s after %v, because %.300s", message, run.Status, run.WaitingFor, run.FinishedAt.Sub(run.StartedAt), reason)
		waits := s.agent != gemini && (strings.Contains(message, "429") || strings.Contains(message, "500") || strings.Contains(message, "529"))
		switch {
		case run.WaitingFor != "": // the model is busy, or fails
			s.CancelRun(id)
		case waits:
			t.Errorf("%s is not waited for: %s, because %s", message, run.Body, reason)
		case run.Status == "timed_out" && s.agent != codex: // some try again for longer than that
		case run.Status != "failed" || run.Reply != "" || reason == "":
			t.Errorf("got %s, because %s", run.Body, reason)
		}
		if strings.Contains(reason, keyOfModel) {
			t.Error("the reason holds the key")
		}
	}
}

// waits has the model be overloaded, and then not. The run completes in a session that knows of one message.
func (s *site) waits(t *testing.T) {
	const message = "Is it quiet now?"
	busy := modeltest.Step{Status: 529}
	s.model.Answer(message, busy, busy, busy, busy, modeltest.Step{Text: "Quite."})
	s.wantReply(t, say(message).remember("quiet"), "Quite.")
	if call := s.asked(t, message); len(call.Messages) != 1 {
		t.Errorf("the model was sent %q", call.Messages)
	}
}
