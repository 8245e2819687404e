package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// replies answers turns with one text after the other, and then always with the last.
func replies(texts ...string) func(http.ResponseWriter, *http.Request, turn) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request, _ turn) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, texts[0])
		if len(texts) > 1 {
			texts = texts[1:]
		}
	}
}

// withCallbacks lets callbacks go to receivers on this machine.
const withCallbacks = "callbacks {\n allow 127.0.0.1\n ports *\n }\n"

func TestPlainSyncAnswersWithTheReply(t *testing.T) {
	for name, text := range map[string]string{
		"text":          "The answer is <b>42</b> & more\n",
		"empty text":    "",
		"text like {}":  `{"status":"error"}`,
		"text in UTF-8": "žluťoučký 🐎",
	} {
		t.Run(name, func(t *testing.T) {
			rn := startRunner(t, replyText(text))
			s := startSite(t, hooks(rn, ""))
			resp := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true}`)
			if resp.status != 200 || resp.body != text || resp.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("got %d %s %q", resp.status, resp.header.Get("Content-Type"), resp.body)
			}
			tn := rn.next()
			id, chat := resp.header.Get("X-Service-Run-Id"), resp.header.Get("X-Service-Chat-Id")
			if !runID.MatchString(id) || id != tn.text("runId") || !freshChat.MatchString(chat) || chat != tn.text("chatId") {
				t.Errorf("got run %q of chat %q, the runner %q of %q", id, chat, tn.text("runId"), tn.text("chatId"))
			}
			if got, there := resp.header["X-Service-Schema-Repair-Attempts"]; there {
				t.Errorf("repair attempts are %v, and there is no schema", got)
			}
		})
	}
	t.Run("with the chat id of the request", func(t *testing.T) {
		rn := startRunner(t, nil)
		s := startSite(t, hooks(rn, ""))
		if got := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true,"chatId":"ops"}`).header.Get("X-Service-Chat-Id"); got != "ops" {
			t.Errorf("got %q", got)
		}
	})
}

const (
	numberSchema  = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`
	schemaRequest = `{"message":"count","syncResponse":true,"responseJsonSchema":` + numberSchema + `}`
)

func TestSchemaSyncAnswersWithTheValidatedJSONItself(t *testing.T) {
	for _, c := range []struct{ name, reply, want string }{
		{"as it is", `{"n":7}`, `{"n":7}`},
		{"not encoded again", "{ \"n\" : 1e1 }", "{ \"n\" : 1e1 }"},
		{"out of a fence", "Here you are:\n```json\n{\"n\": 7}\n```\nDone.", `{"n": 7}`},
		{"out of a text", `I think {"n":7} is right`, `{"n":7}`},
		{"after thinking", `<think>{"n":1}</think>{"n":7}`, `{"n":7}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn := startRunner(t, replyText(c.reply))
			s := startSite(t, hooks(rn, ""))
			resp := s.post("/api/hooks/agent", schemaRequest)
			if resp.status != 200 || resp.body != c.want || resp.header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s %s, want %s", resp.status, resp.header.Get("Content-Type"), resp.body, c.want)
			}
			tn := rn.next()
			for name, want := range map[string]string{
				"X-Service-Run-Id": tn.text("runId"), "X-Service-Chat-Id": tn.text("chatId"), "X-Service-Schema-Repair-Attempts": "0",
			} {
				if got := resp.header.Get(name); got != want || got == "" {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	t.Run("strings are not escaped", func(t *testing.T) {
		const reply = `{"html":"<a href='x'>é & \u00e9</a>"}`
		rn := startRunner(t, replyText(reply))
		s := startSite(t, hooks(rn, ""))
		if resp := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"required":["html"]}}`); resp.body != reply {
			t.Errorf("got %s", resp.body)
		}
	})
}

func TestSchemaIsCheckedBeforeTheRunIsAccepted(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1"))
	for _, c := range []struct{ name, fields, word string }{
		{"empty", `"syncResponse":true,"responseJsonSchema":{}`, "empty"},
		{"empty without sync", `"responseJsonSchema":{}`, "responseJsonSchema"},
		{"unknown type", `"syncResponse":true,"responseJsonSchema":{"type":"objekt"}`, "type"},
		{"keyword of a wrong type", `"syncResponse":true,"responseJsonSchema":{"required":"n"}`, "required"},
		{"invalid further down", `"syncResponse":true,"responseJsonSchema":{"properties":{"n":{"minimum":"1"}}}`, "minimum"},
		{"bad pattern", `"syncResponse":true,"responseJsonSchema":{"pattern":"("}`, "pattern"},
		{"another draft", `"syncResponse":true,"responseJsonSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, "2020-12"},
		{"reference to a file", `"syncResponse":true,"responseJsonSchema":{"$ref":"file:///etc/passwd"}`, "$defs"},
		{"reference to nowhere", `"syncResponse":true,"responseJsonSchema":{"$ref":"#/$defs/nope"}`, "$defs"},
		{"no object", `"syncResponse":true,"responseJsonSchema":true`, "an object"},
		{"a string", `"syncResponse":true,"responseJsonSchema":"{}"`, "an object"},
		{"without syncResponse", `"responseJsonSchema":{"type":"object"}`, "syncResponse"},
		{"with syncResponse false", `"syncResponse":false,"responseJsonSchema":{"type":"object"}`, "syncResponse"},
		{"with syncResponse null", `"syncResponse":null,"responseJsonSchema":{"type":"object"}`, "syncResponse"},
		{"huge", `"syncResponse":true,"responseJsonSchema":{"const":"` + strings.Repeat("x", 70<<10) + `"}`, "64 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.post("/api/hooks/agent", `{"message":"a",`+c.fields+`}`).wantError(t, 400, "responseJsonSchema", c.word)
		})
	}
	rn.wantNoTurn(s)
	t.Run("2020-12 by name is taken", func(t *testing.T) {
		rn.reply = replyText("3")
		resp := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"string"}],"type":"integer"}}`)
		if resp.status != 200 || resp.body != "3" {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
	})
}

func TestSchemaInstructionsAreInTheSystemPromptOfTheTurn(t *testing.T) {
	rn := startRunner(t, replyText(`{"n":1}`))
	s := startSite(t, hooks(rn, ""))
	s.post("/api/hooks/agent", schemaRequest)
	tn := rn.next()
	if !strings.Contains(tn.text("system"), numberSchema) || !strings.Contains(tn.text("system"), "JSON") {
		t.Errorf("the system prompt is %q", tn.text("system"))
	}
	if tn.text("message") != "count" {
		t.Errorf("the message is %q", tn.text("message"))
	}
	if got := asJSON(t, tn.body["responseSchema"]); got == "null" || !strings.Contains(got, `"additionalProperties":false`) {
		t.Errorf("the runner got the schema %s", got)
	}
	s.post("/api/hooks/agent", `{"message":"a","syncResponse":true}`)
	tn = rn.next()
	if tn.text("system") != "" || tn.body["responseSchema"] != nil {
		t.Errorf("a run without a schema has system %q and schema %v", tn.text("system"), tn.body["responseSchema"])
	}
}

func TestMismatchIsRepaired(t *testing.T) {
	wrong := []string{"no JSON here", `{"n":"seven"}`, `{"m":7}`}
	for repairs := 1; repairs <= 3; repairs++ {
		t.Run(fmt.Sprintf("in %d calls", repairs), func(t *testing.T) {
			rn := startRunner(t, replies(append(append([]string{}, wrong[:repairs]...), `{"n":7}`)...))
			s := startSite(t, hooks(rn, "memory_preset general_chat"))
			resp := s.post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"metadata":{"a":1},"message"`, 1))
			if resp.status != 200 || resp.body != `{"n":7}` {
				t.Errorf("got %d %s", resp.status, resp.body)
			}
			if got := resp.header.Get("X-Service-Schema-Repair-Attempts"); got != fmt.Sprint(repairs) {
				t.Errorf("%s repair attempts are told, want %d", got, repairs)
			}
			tn := rn.next()
			tn.wantMemory(t, "general_chat")
			if tn.text("phase") != "turn" || tn.body["isolated"] != false {
				t.Errorf("the turn is of phase %q, isolated %v", tn.text("phase"), tn.body["isolated"])
			}
			for n := 1; n <= repairs; n++ {
				repair := rn.next()
				if repair.text("phase") != "repair" || repair.body["isolated"] != true {
					t.Errorf("repair %d is of phase %q, isolated %v", n, repair.text("phase"), repair.body["isolated"])
				}
				repair.wantMemory(t, "disabled")
				if got, want := repair.header.Get("Idempotency-Key"), fmt.Sprintf("%s:repair-%d", tn.text("runId"), n); got != want {
					t.Errorf("repair %d has the key %q, want %q", n, got, want)
				}
				if repair.text("runId") != tn.text("runId") || asJSON(t, repair.body["metadata"]) != `{}` {
					t.Errorf("repair %d is %v", n, repair.body)
				}
				// It has the schema, what is wrong and the answer, and not the prompt.
				message := repair.text("message")
				if !strings.Contains(message, numberSchema) || !strings.Contains(message, wrong[n-1]) || !strings.Contains(message, "[EXTERNAL WEBHOOK DATA]") {
					t.Errorf("the message of repair %d is %q", n, message)
				}
				if strings.Contains(message+repair.text("system"), "count") {
					t.Errorf("repair %d sees the prompt: %q", n, message)
				}
			}
		})
	}
	t.Run("with the errors in it", func(t *testing.T) {
		rn := startRunner(t, replies(`{"n":"seven","extra":1}`, `{"n":7}`))
		s := startSite(t, hooks(rn, ""))
		s.post("/api/hooks/agent", schemaRequest)
		rn.next()
		message := rn.next().text("message")
		for _, word := range []string{"integer", "extra"} {
			if !strings.Contains(strings.Replace(message, numberSchema, "", 1), word) {
				t.Errorf("the message says nothing of %s: %q", word, message)
			}
		}
	})
}

func TestThreeFailedRepairsAre422(t *testing.T) {
	rn := startRunner(t, replies("zero", "one", "two", "three", `{"n":7}`))
	callbacks := startReceiver(t)
	s := startSite(t, hooks(rn, "workers 1\n"+withCallbacks))
	resp := s.post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"callbackUrl":"`+callbacks.URL+`","message"`, 1))
	resp.wantError(t, 422, "responseJsonSchema", "3")
	for _, phase := range []string{"turn", "repair", "repair", "repair"} {
		if got := rn.next().text("phase"); got != phase {
			t.Errorf("got phase %q, want %q", got, phase)
		}
	}
	// The callback gets what the turn said, and how the run ended.
	if got := callbacks.next(); got.body != "zero" || got.header.Get("X-Service-Run-Status") != "failed" {
		t.Errorf("the callback is %+v", got)
	}
	rn.wantNoTurn(s)
	if got := resp.header.Get("X-Service-Schema-Repair-Attempts"); got != "3" {
		t.Errorf("%q repair attempts are told", got)
	}
}

func TestCallbackGoesWithEitherKindOfSync(t *testing.T) {
	for _, c := range []struct{ name, fields, answer string }{
		{"plain", ``, `The answer is {"n": 7}.`},
		{"schema", `,"responseJsonSchema":` + numberSchema, `{"n": 7}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn := startRunner(t, replyText(`The answer is {"n": 7}.`))
			callbacks := startReceiver(t)
			s := startSite(t, hooks(rn, withCallbacks))
			resp := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true,"callbackUrl":"`+callbacks.URL+`"`+c.fields+`}`)
			if resp.status != 200 || resp.body != c.answer {
				t.Errorf("got %d %s", resp.status, resp.body)
			}
			got := callbacks.next()
			if got.body != `The answer is {"n": 7}.` || got.header.Get("X-Service-Run-Status") != "completed" ||
				got.header.Get("X-Service-Run-Id") != resp.header.Get("X-Service-Run-Id") ||
				got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("the callback is %+v", got)
			}
		})
	}
	t.Run("schema with a repair", func(t *testing.T) {
		rn := startRunner(t, replies("not yet", `{"n":7}`))
		callbacks := startReceiver(t)
		s := startSite(t, hooks(rn, withCallbacks))
		if resp := s.post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"callbackUrl":"`+callbacks.URL+`","message"`, 1)); resp.body != `{"n":7}` {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
		if got := callbacks.next(); got.body != "not yet" || got.header.Get("X-Service-Run-Status") != "completed" {
			t.Errorf("the callback is %+v", got)
		}
	})
}

func TestTierResolution(t *testing.T) {
	for _, c := range []struct{ name, fields, turn, repair string }{
		{"no schema, no model", ``, "", "none"},
		{"no schema, model", `"model":"smart"`, "smart", "none"},
		{"no schema, validation tier is ignored", `"responseValidationModelTier":"deep"`, "", "none"},
		{"no schema, model, validation tier is ignored", `"model":"smart","responseValidationModelTier":"deep"`, "smart", "none"},
		{"no schema, unknown validation tier is ignored", `"model":"smart","responseValidationModelTier":"nonsense"`, "smart", "none"},
		{"no schema, validation tier of a wrong type is ignored", `"model":"smart","responseValidationModelTier":7`, "smart", "none"},
		{"schema, no model", `"responseJsonSchema":` + numberSchema, "", "balanced"},
		{"schema, model", `"model":"coding","responseJsonSchema":` + numberSchema, "coding", "coding"},
		{"schema, validation tier", `"responseValidationModelTier":"deep","responseJsonSchema":` + numberSchema, "deep", "deep"},
		{"schema, validation tier supersedes model", `"model":"coding","responseValidationModelTier":"special5","responseJsonSchema":` + numberSchema, "special5", "special5"},
		{"schema, validation tier null", `"model":"coding","responseValidationModelTier":null,"responseJsonSchema":` + numberSchema, "coding", "coding"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn := startRunner(t, replies("wrong", "wrong again", `{"n":1}`))
			s := startSite(t, hooks(rn, "workers 1"))
			fields := c.fields
			if fields != "" {
				fields = "," + fields
			}
			if resp := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true`+fields+`}`); resp.status != 200 {
				t.Fatalf("got %d %s", resp.status, resp.body)
			}
			tier := func(tn turn) string {
				if tn.body["tier"] == nil {
					return ""
				}
				return tn.text("tier")
			}
			if got := tier(rn.next()); got != c.turn {
				t.Errorf("the turn has tier %q, want %q", got, c.turn)
			}
			if c.repair == "none" {
				rn.wantNoTurn(s)
				return
			}
			for range 2 {
				if got := tier(rn.next()); got != c.repair {
					t.Errorf("a repair has tier %q, want %q", got, c.repair)
				}
			}
		})
	}
	t.Run("unknown validation tier with a schema", func(t *testing.T) {
		rn := startRunner(t, nil)
		s := startSite(t, hooks(rn, "workers 1"))
		s.post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseValidationModelTier":"nonsense","responseJsonSchema":`+numberSchema+`}`).
			wantError(t, 400, "responseValidationModelTier", "balanced", "special5")
		rn.wantNoTurn(s)
	})
}

func TestTiersDoNotStickToAChat(t *testing.T) {
	rn := startRunner(t, replyText("/tier deep"))
	s := startSite(t, hooks(rn, ""))
	for _, c := range []struct{ path, body, tier string }{
		{"/api/hooks/agent", `{"message":"a","chatId":"c","model":"deep"}`, "deep"},
		{"/api/hooks/agent", `{"message":"a","chatId":"c"}`, "<nil>"},
		{"/api/hooks/agent", `{"message":"/tier smart","chatId":"c"}`, "<nil>"},
		{"/api/hooks/agent", `{"message":"a","chatId":"c","model":"coding"}`, "coding"},
		{"/api/hooks/wake", `{"text":"a","chatId":"c"}`, "<nil>"},
	} {
		s.post(c.path, c.body)
		if got := fmt.Sprint(rn.next().body["tier"]); got != c.tier {
			t.Errorf("%s: got tier %s, want %s", c.body, got, c.tier)
		}
	}
}
