package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var installA2A = npmtest.Packages("testdata/a2a")

// TestA2A tries the a2a runner with an agent on the JavaScript SDK of the A2A project, which testdata/a2a/server.mjs is.
func TestA2A(t *testing.T) {
	t.Parallel()
	packages := installA2A(t)
	server, err := filepath.Abs("testdata/a2a/server.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		for _, form := range []string{"stream", "whole"} {
			t.Run(binding+" "+form, func(t *testing.T) {
				t.Parallel()
				port := hookstest.FreePort(t)
				startProcess(t, port, "node", server, packages, port, binding, form)
				agent := "http://127.0.0.1:" + port
				s := hookstest.StartProcess(t, fmt.Sprintf("hooks {\n enabled\n token %s\n runner a2a %s {\n token token-of-the-agent\n }\n }", hookstest.Token, agent))
				answersThroughA2A(t, s)
				failsThroughA2A(t, s)
				keepsContextsThroughA2A(t, s)
				keepsManyChatsApart(t, s)
				if form == "stream" {
					streamsThroughA2A(t, s)
				}
				cancelsThroughA2A(t, s, agent)
			})
		}
	}
}

// askA2A asks the agent and waits for the answer.
func askA2A(t *testing.T, s *hookstest.Server, message string, more map[string]any) hookstest.Response {
	t.Helper()
	request := map[string]any{"message": message, "syncResponse": true}
	for name, value := range more {
		request[name] = value
	}
	return s.Post("/api/hooks/agent", hookstest.AsJSON(t, request))
}

func answersThroughA2A(t *testing.T, s *hookstest.Server) {
	t.Helper()
	for message, want := range map[string]string{
		"say hello":              "hello",
		"stream Hel lo":          "Hello\n\nthe end",
		`json {"urgency":3}`:     `{"urgency":3}`,
		"become COMPLETED Done.": "Done.",
	} {
		if resp := askA2A(t, s, message, nil); resp.Status != 200 || resp.Body != want {
			t.Errorf("%s: got %d %q, want %q", message, resp.Status, resp.Body, want)
		}
		if r := s.Ended(s.Accept(hookstest.AsJSON(t, map[string]any{"message": message}))); r.Status != "completed" || r.Reply != want {
			t.Errorf("%s: got %s", message, r.Body)
		}
	}
	schema := map[string]any{"responseJsonSchema": map[string]any{"type": "object", "required": []string{"urgency"}}}
	if resp := askA2A(t, s, `json {"urgency":3}`, schema); resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"urgency":3}` {
		t.Errorf("for a schema: got %d %s", resp.Status, resp.Body)
	}
}

func failsThroughA2A(t *testing.T, s *hookstest.Server) {
	t.Helper()
	for message, want := range map[string]string{
		"become INPUT_REQUIRED Which one?": "the agent asks for more input (input-required): Which one?; nobody is there to give it",
		"become AUTH_REQUIRED Log in":      "the agent asks for an authorization (auth-required): Log in; nobody is there to give it",
		"become FAILED Oh no":              "the agent says that the task failed: Oh no",
		"become REJECTED Never":            "the agent rejected the task: Never",
		"break":                            "the agent says that the task failed: ",
	} {
		r := s.Ended(s.Accept(hookstest.AsJSON(t, map[string]any{"message": message})))
		got := s.ReasonOf(r.RunID)
		if r.Status != "failed" || r.Reply != "" || r.Attempts != 1 || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, because %q, want %q", message, r.Body, got, want)
		}
	}
}

func keepsContextsThroughA2A(t *testing.T, s *hookstest.Server) {
	t.Helper()
	for _, step := range []struct{ chat, preset, message, want string }{
		{"one", "general_chat", "say a", "a"}, {"two", "general_chat", "say b", "b"},
		{"one", "disabled", "say x", "x"}, // it recalls nothing, and leaves nothing
		{"one", "general_chat", "say c", "a, c"}, {"two", "general_chat", "say d", "b, d"},
	} {
		resp := askA2A(t, s, step.message, map[string]any{"chatId": step.chat, "memoryPreset": step.preset})
		if resp.Status != 200 || resp.Body != step.want {
			t.Errorf("%+v: got %d %s", step, resp.Status, resp.Body)
		}
	}
}

// keepsManyChatsApart has the turns of many chats at the same time. Each answer is what was said in its chat, and nothing else.
func keepsManyChatsApart(t *testing.T, s *hookstest.Server) {
	t.Helper()
	const chats, turns = 20, 10
	var wg sync.WaitGroup
	for chat := range chats {
		wg.Go(func() {
			want := ""
			for turn := range turns {
				word := fmt.Sprintf("%d-%d", chat, turn)
				want = strings.TrimPrefix(want+", "+word, ", ")
				resp := askA2A(t, s, "say "+word, map[string]any{"chatId": fmt.Sprintf("many-%d", chat), "memoryPreset": "general_chat"})
				if resp.Status != 200 || resp.Body != want {
					t.Errorf("got %d %q, want %q", resp.Status, resp.Body, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func streamsThroughA2A(t *testing.T, s *hookstest.Server) {
	t.Helper()
	const answer = "Hello\n\nthe end"
	for range 20 { // a run that ends before it is read is told by its result alone
		text, deltas := "", 0
		var last hookstest.RunEvent
		for event := range s.Follow(http.MethodPost, "/api/hooks/agent", `{"message":"stream Hel lo","syncResponse":true}`) {
			switch last = event; event.Name {
			case "delta":
				piece, _ := event.Data["text"].(string)
				text += piece
				deltas++
			case "reset":
				text, _ = event.Data["text"].(string)
			}
		}
		if last.Name != "result" || last.Data["reply"] != answer || text != answer && text != "" {
			t.Errorf("%d deltas told %q, and at last came %+v", deltas, text, last)
		}
		if deltas > 0 {
			return
		}
	}
	t.Error("of 20 answers no part was told")
}

func cancelsThroughA2A(t *testing.T, s *hookstest.Server, agent string) {
	t.Helper()
	cancelled := func() int {
		resp, err := hookstest.TryRequest(http.MethodGet, agent+"/cancelled", "")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(resp.Body, "-") / 4 // of the ids
	}
	before := cancelled()
	id := s.Accept(`{"message":"hang"}`)
	for event := range s.Follow(http.MethodGet, "/api/hooks/runs/"+id+"/events", "") {
		if event.Name == "delta" || event.Name == "reset" {
			s.CancelRun(id)
		}
	}
	if r := s.Ended(id); r.Status != "cancelled" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
	hookstest.Eventually(t, "the task is cancelled", func() bool { return cancelled() == before+1 })
	if r := s.Ended(s.Accept(`{"message":"hang","timeoutSeconds":2}`)); r.Status != "timed_out" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
	hookstest.Eventually(t, "the task of a turn without time is cancelled", func() bool { return cancelled() == before+2 })
}
