package caddyhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// endOfRun is a way in which a run ends, and what operators are told about it.
type endOfRun struct {
	name     string
	only     string // the store that it is tried with, since it takes a second; both if it is empty
	fields   string // of the request, beside the chat
	sync     bool
	callback bool
	act      func(s *hookstest.Server, id string) // once the runner has the turn
	hangUp   bool
	behind   bool // another run of its chat is under way for as long as this one is not over

	line  map[string]any // in the log, beside the fields that every line has
	admin map[string]any // in the admin API, beside the fields that callers see
}

var endsOfRuns = []endOfRun{
	{name: "failed", fields: `"message":"fail"`, sync: true, callback: true,
		line: map[string]any{"status": "failed", "reason": "the runner answered 500: Traceback (most recent call last):"},
		admin: map[string]any{"reason": "the runner answered 500: Traceback (most recent call last):",
			"lastAnswer": "Traceback (most recent call last):\n  inner words"}},
	{name: "a page", fields: `"message":"page"`, sync: true, callback: true,
		line: map[string]any{"status": "failed",
			"reason": "the runner answered 200 with text/html: <title>Log in</title>; it must answer text/plain, application/json or text/event-stream"},
		admin: map[string]any{
			"reason":     "the runner answered 200 with text/html: <title>Log in</title>; it must answer text/plain, application/json or text/event-stream",
			"lastAnswer": "<title>Log in</title>\n<p>inner words"}},
	{name: "unfit", fields: `"message":"first words","responseJsonSchema":{"type":"object","required":["n"]}`, sync: true, callback: true,
		line: map[string]any{"status": "failed", "repairs": 3.0, "reason": "the answer does not match the schema after 3 repair attempts",
			"last_answer": `{"m":"last words"}`, "validation_errors": []any{`at the top level: lacks "n", which the schema requires`}},
		admin: map[string]any{"reason": "the answer does not match the schema after 3 repair attempts",
			"lastAnswer": `{"m":"last words"}`, "validationErrors": []any{`at the top level: lacks "n", which the schema requires`}}},
	{name: "timed out", only: "bolt", fields: `"message":"hold","timeoutSeconds":1`, callback: true,
		line:  map[string]any{"status": "timed_out", "reason": "the runner did not answer within the 1s that the run had"},
		admin: map[string]any{"reason": "the runner did not answer within the 1s that the run had"}},
	{name: "left alone", fields: `"message":"hold"`, sync: true, hangUp: true,
		line:  map[string]any{"status": "cancelled", "cancelled_by": "the caller, who hung up"},
		admin: map[string]any{"cancelledBy": "the caller, who hung up"}},
	{name: "cancelled by the run API", fields: `"message":"hold"`, callback: true,
		act: func(s *hookstest.Server, id string) {
			answer := s.Post(hookstest.RunPath(id)+"/cancel", "", "X-Forwarded-For", "198.51.100.8")
			answer.Shown(s.T)
			if strings.Contains(answer.Body, "hold") || strings.Contains(answer.Body, "198.51.100.8") {
				s.T.Errorf("the answer to a caller is %s", answer.Body)
			}
		},
		line:  map[string]any{"status": "cancelled", "cancelled_by": "the run API, from 198.51.100.8"},
		admin: map[string]any{"cancelledBy": "the run API, from 198.51.100.8"}},
	{name: "cancelled by the admin API", fields: `"message":"hold"`, callback: true,
		act: func(s *hookstest.Server, id string) {
			answer := s.AdminRequest("POST", "/hooks/runs/"+id+"/cancel", "")
			for field, want := range map[string]string{"client": "203.0.113.9", "message": "hold", "cancelledBy": "the admin API, from 127.0.0.1"} {
				if got := answer.Field(s.T, field); got != want {
					s.T.Errorf("the answer to the operator has %s %v, want %q", field, got, want)
				}
			}
		},
		line:  map[string]any{"status": "cancelled", "cancelled_by": "the admin API, from 127.0.0.1"},
		admin: map[string]any{"cancelledBy": "the admin API, from 127.0.0.1"}},
	{name: "expired", only: "memory", fields: `"message":"late","queueTimeSeconds":1`, callback: true, behind: true,
		line:  map[string]any{"status": "expired", "attempts": 0.0, "reason": "no runner took the run on within its queue time of 1s"},
		admin: map[string]any{"reason": "no runner took the run on within its queue time of 1s"}},
}

// TestOperatorsAreToldOfEndsAndNobodyElse looks at the log and at the admin API, and then at all that others get to see.
func TestOperatorsAreToldOfEndsAndNobodyElse(t *testing.T) { checkEndsOfRuns(t, "bolt") }

func TestOperatorsAreToldOfEndsInMemoryAndNobodyElse(t *testing.T) { checkEndsOfRuns(t, "memory") }

func checkEndsOfRuns(t *testing.T, store string) {
	t.Helper()
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		switch message := tn.Text("message"); {
		case tn.Text("phase") == "repair":
			_, _ = io.WriteString(w, `{"m":"last words"}`)
		case message == "fail":
			http.Error(w, "\nTraceback (most recent call last):\n  inner words", http.StatusInternalServerError)
		case message == "page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<title>Log in</title>\n<p>inner words")
		case message == "hold":
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, message)
		}
	})
	callbacks := hookstest.StartReceiver(t)
	log := filepath.Join(t.TempDir(), "default.log")
	s := hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n}\n" + behindProxy
	s.Load(hookstest.Hooks(rn, "store "+store+"\n"+hookstest.WithCallbacks))
	for _, end := range endsOfRuns {
		if end.only == "" || end.only == store {
			t.Run(end.name, func(t *testing.T) { end.check(t, s, rn, callbacks, log) })
		}
	}
}

func (end *endOfRun) check(t *testing.T, s *hookstest.Server, rn *hookstest.Runner, callbacks *hookstest.Receiver, log string) {
	const client, keyHeader = "203.0.113.9", "Idempotency-Key"
	chat := "chat " + end.name
	behind := ""
	if end.behind {
		behind = s.Accept(fmt.Sprintf(`{"message":"hold","chatId":%q}`, chat))
		rn.Next()
	}
	body := fmt.Sprintf(`{%s,"chatId":%q,"name":"nightly","syncResponse":%t`, end.fields, chat, end.sync)
	if end.callback {
		body += fmt.Sprintf(`,"callbackUrl":%q`, callbacks.URL)
	}
	body += "}"
	headers := []string{"X-Forwarded-For", client, keyHeader, end.name}
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	var others []string // what anybody but an operator gets to see
	var id string
	if end.sync {
		answer := s.Hold(ctx, body, headers...)
		id = rn.Next().Text("runId")
		if end.hangUp {
			hangUp()
		}
		resp := hookstest.ReceiveWithin(t, "the caller is answered", answer)
		others = append(others, resp.Body, fmt.Sprint(resp.Header))
	} else {
		id = s.Accept(body, headers...)
		if !end.behind {
			rn.Next()
		}
	}
	if end.act != nil {
		end.act(s, id)
	}
	public := s.Ended(id)
	others = append(others, public.Body)
	if end.behind {
		s.CancelRun(behind)
	}
	if end.callback {
		got := callbacks.Next()
		others = append(others, got.Path, got.Body, fmt.Sprint(got.Header))
	}
	for len(rn.Turns) > 0 { // repairs
		rn.Next()
	}

	line := lineOf(t, log, id)
	want := map[string]any{"level": "warn", "logger": "http.handlers.hooks", "msg": "run finished", "instance": "default", "run_id": id, "hook": "agent", "name": "nightly", "chat": chat, "action": "agent",
		"runner": "default", "client": client, "key_header": keyHeader, "request_id": end.name, "repairs": 0.0, "attempts": 1.0}
	for field, value := range end.line {
		want[field] = value
	}
	if want["status"] == "cancelled" {
		want["level"] = "info"
	}
	for _, field := range []string{"ts", "took"} {
		if _, ok := line[field].(float64); !ok {
			t.Errorf("the line has no %s: %v", field, line)
		}
		delete(line, field)
	}
	if got, want := hookstest.AsJSON(t, line), hookstest.AsJSON(t, want); got != want {
		t.Errorf("the log says\n%s\nwant\n%s", got, want)
	}

	var shown, seen map[string]any
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/runs/"+id, "").Body), &shown); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(s.Run(id).Body), &seen); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"message", "schema", "steps", "keptUntil", "memoryPreset", "queueTimeSeconds", "timeoutSeconds", "sentOut", "sync", "queuedMs", "durationMs"} {
		delete(shown, field)
	}
	inner := []string{client, keyHeader, "inner words"}
	seen["client"], seen["keyHeader"], seen["requestId"] = client, keyHeader, end.name
	for field, value := range end.admin {
		seen[field] = value
		if texts, ok := value.([]any); ok {
			value = texts[0]
		}
		inner = append(inner, value.(string))
	}
	delete(shown, "deliveries") // which may have been settled in between
	delete(seen, "deliveries")
	if got, want := hookstest.AsJSON(t, shown), hookstest.AsJSON(t, seen); got != want {
		t.Errorf("the admin API shows\n%s\nwant\n%s", got, want)
	}
	list := s.AdminRequest("GET", "/hooks/runs?limit=1&chatId="+strings.ReplaceAll(chat, " ", "+"), "").Body
	for _, field := range []string{"client", "cancelledBy", "reason"} {
		if value, ok := seen[field]; ok && !strings.Contains(list, fmt.Sprintf(`%q:%q`, field, value)) {
			t.Errorf("a list does not show %s: %s", field, list)
		}
	}

	for _, text := range others {
		for _, word := range append(inner, "Traceback", "last words", "Log in", "hung up", "198.51.100.8") {
			if strings.Contains(text, word) {
				t.Errorf("%q is shown to others: %s", word, text)
			}
		}
	}
}

// A runner may answer with the request that it got, token and all.
func TestOperatorsAreShownNoSecretOfARunner(t *testing.T) {
	token := "the/runner's~token-" + strings.Repeat("x", 100)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		authorization := r.Header.Get("Authorization")
		if tn.Text("message") == "fail" {
			http.Error(w, "Traceback:\n  "+authorization, http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, `{"n":%q,%q:%q}`, authorization, authorization, strings.TrimPrefix(authorization, "Bearer "))
	})
	log := filepath.Join(t.TempDir(), "default.log")
	s := hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n}\n"
	s.Load("hooks {\n enabled\n token " + hookstest.Token + "\n runner http " + rn.URL + " {\n token " + token + "\n }\n}")
	const schema = `{"properties":{"n":{"const":"x"}},"additionalProperties":{"enum":["y"]}}`
	resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true,"responseJsonSchema":`+schema+`}`)
	if resp.Status != 422 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	id := resp.Header.Get("X-Service-Run-Id")
	line := lineOf(t, log, id)
	failed := s.Accept(`{"message":"fail"}`)
	s.Ended(failed)
	if shown := s.AdminRequest("GET", "/hooks/runs/"+failed, ""); shown.Field(t, "lastAnswer") != "Traceback:\n  Bearer REDACTED" {
		t.Errorf("of a failed turn is shown %s", shown.Body)
	}
	shown := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body + s.AdminRequest("GET", "/hooks/runs/"+failed, "").Body
	logged, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{shown, string(logged)} {
		for _, secret := range []string{"the/runner", "the~1runner", token[len(token)-20:]} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is shown: %s", secret, text)
			}
		}
	}
	if line["last_answer"] != `{"n":"Bearer REDACTED","Bearer REDACTED":"REDACTED"}` {
		t.Errorf("the last answer is %v", line["last_answer"])
	}
	if wrong, _ := line["validation_errors"].([]any); len(wrong) != 2 || !strings.Contains(fmt.Sprint(wrong), "at /Bearer REDACTED…") {
		t.Errorf("the errors are %v", wrong)
	}

	// The reply of a run that completes is as the runner wrote it.
	if run := s.Ended(s.Accept(`{"message":"hello"}`)); !strings.Contains(run.Reply, token) {
		t.Errorf("the reply is %s", run.Reply)
	}
}

// lineOf is the one line about the end of a run.
func lineOf(t *testing.T, log, id string) (line map[string]any) {
	t.Helper()
	hookstest.Eventually(t, "the end is in the log", func() bool {
		data, _ := os.ReadFile(log)
		line = nil
		for text := range strings.Lines(string(data)) {
			if strings.Contains(text, `"run finished"`) && strings.Contains(text, id) {
				if line != nil {
					t.Fatalf("it is there twice: %s", data)
				}
				if err := json.Unmarshal([]byte(text), &line); err != nil && strings.HasSuffix(text, "\n") {
					t.Fatal(err)
				}
			}
		}
		return line != nil
	})
	return line
}
