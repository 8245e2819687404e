package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// replies answers turns with one text after the other, and then always with the last.
func replies(texts ...string) func(http.ResponseWriter, *http.Request, hookstest.Turn) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, texts[0])
		if len(texts) > 1 {
			texts = texts[1:]
		}
	}
}

func TestPlainSyncAnswersWithTheReply(t *testing.T) {
	for name, text := range map[string]string{
		"text":          "The answer is <b>42</b> & more\n",
		"empty text":    "",
		"text like {}":  `{"status":"error"}`,
		"text in UTF-8": "žluťoučký 🐎",
	} {
		t.Run(name, func(t *testing.T) {
			rn := hookstest.StartRunner(t, hookstest.ReplyText(text))
			s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
			resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`)
			if resp.Status != 200 || resp.Body != text || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("got %d %s %q", resp.Status, resp.Header.Get("Content-Type"), resp.Body)
			}
			tn := rn.Next()
			id, chat := resp.Header.Get("X-Service-Run-Id"), resp.Header.Get("X-Service-Chat-Id")
			if !hookstest.RunIDPattern.MatchString(id) || id != tn.Text("runId") || !hookstest.FreshChatPattern.MatchString(chat) || chat != tn.Text("chatId") {
				t.Errorf("got run %q of chat %q, the runner %q of %q", id, chat, tn.Text("runId"), tn.Text("chatId"))
			}
			if got, there := resp.Header["X-Service-Schema-Repair-Attempts"]; there {
				t.Errorf("repair attempts are %v, and there is no schema", got)
			}
		})
	}
	t.Run("with the chat id of the request", func(t *testing.T) {
		rn := hookstest.StartRunner(t, nil)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		if got := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"chatId":"ops"}`).Header.Get("X-Service-Chat-Id"); got != "ops" {
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
			rn := hookstest.StartRunner(t, hookstest.ReplyText(c.reply))
			s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
			resp := s.Post("/api/hooks/agent", schemaRequest)
			if resp.Status != 200 || resp.Body != c.want || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s %s, want %s", resp.Status, resp.Header.Get("Content-Type"), resp.Body, c.want)
			}
			tn := rn.Next()
			for name, want := range map[string]string{
				"X-Service-Run-Id": tn.Text("runId"), "X-Service-Chat-Id": tn.Text("chatId"), "X-Service-Schema-Repair-Attempts": "0",
			} {
				if got := resp.Header.Get(name); got != want || got == "" {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	t.Run("strings are not escaped", func(t *testing.T) {
		const reply = `{"html":"<a href='x'>é & \u00e9</a>"}`
		rn := hookstest.StartRunner(t, hookstest.ReplyText(reply))
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		if resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"required":["html"]}}`); resp.Body != reply {
			t.Errorf("got %s", resp.Body)
		}
	})
}

func TestSchemaIsCheckedBeforeTheRunIsAccepted(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
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
			s.Post("/api/hooks/agent", `{"message":"a",`+c.fields+`}`).WantError(t, 400, "responseJsonSchema", c.word)
		})
	}
	rn.WantNoTurn(s)
	t.Run("2020-12 by name is taken", func(t *testing.T) {
		rn.Reply = hookstest.ReplyText("3")
		resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"string"}],"type":"integer"}}`)
		if resp.Status != 200 || resp.Body != "3" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

func TestSchemaInstructionsAreInTheSystemPromptOfTheTurn(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText(`{"n":1}`))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.Post("/api/hooks/agent", schemaRequest)
	tn := rn.Next()
	if !strings.Contains(tn.Text("system"), numberSchema) || !strings.Contains(tn.Text("system"), "JSON") {
		t.Errorf("the system prompt is %q", tn.Text("system"))
	}
	if tn.Text("message") != "count" {
		t.Errorf("the message is %q", tn.Text("message"))
	}
	if got := hookstest.AsJSON(t, tn.Body["responseSchema"]); got == "null" || !strings.Contains(got, `"additionalProperties":false`) {
		t.Errorf("the runner got the schema %s", got)
	}
	s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`)
	tn = rn.Next()
	if tn.Text("system") != "" || tn.Body["responseSchema"] != nil {
		t.Errorf("a run without a schema has system %q and schema %v", tn.Text("system"), tn.Body["responseSchema"])
	}
}

func TestMismatchIsRepaired(t *testing.T) {
	wrong := []string{"no JSON here", `{"n":"seven"}`, `{"m":7}`}
	for repairs := 1; repairs <= 3; repairs++ {
		t.Run(fmt.Sprintf("in %d calls", repairs), func(t *testing.T) {
			rn := hookstest.StartRunner(t, replies(append(append([]string{}, wrong[:repairs]...), `{"n":7}`)...))
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "memory_preset general_chat"))
			resp := s.Post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"metadata":{"a":1},"message"`, 1))
			if resp.Status != 200 || resp.Body != `{"n":7}` {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			if got := resp.Header.Get("X-Service-Schema-Repair-Attempts"); got != fmt.Sprint(repairs) {
				t.Errorf("%s repair attempts are told, want %d", got, repairs)
			}
			tn := rn.Next()
			tn.WantMemory(t, "general_chat")
			if tn.Text("phase") != "turn" || tn.Body["isolated"] != false {
				t.Errorf("the turn is of phase %q, isolated %v", tn.Text("phase"), tn.Body["isolated"])
			}
			for n := 1; n <= repairs; n++ {
				repair := rn.Next()
				if repair.Text("phase") != "repair" || repair.Body["isolated"] != true {
					t.Errorf("repair %d is of phase %q, isolated %v", n, repair.Text("phase"), repair.Body["isolated"])
				}
				repair.WantMemory(t, "disabled")
				if got, want := repair.Header.Get("Idempotency-Key"), fmt.Sprintf("%s:repair-%d", tn.Text("runId"), n); got != want {
					t.Errorf("repair %d has the key %q, want %q", n, got, want)
				}
				if repair.Text("runId") != tn.Text("runId") || hookstest.AsJSON(t, repair.Body["metadata"]) != `{}` {
					t.Errorf("repair %d is %v", n, repair.Body)
				}
				// It has the schema, what is wrong and the answer, and not the prompt.
				message := repair.Text("message")
				if !strings.Contains(message, numberSchema) || !strings.Contains(message, wrong[n-1]) || !strings.Contains(message, "[EXTERNAL WEBHOOK DATA]") {
					t.Errorf("the message of repair %d is %q", n, message)
				}
				if strings.Contains(message+repair.Text("system"), "count") {
					t.Errorf("repair %d sees the prompt: %q", n, message)
				}
			}
		})
	}
	t.Run("with the errors in it", func(t *testing.T) {
		rn := hookstest.StartRunner(t, replies(`{"n":"seven","extra":1}`, `{"n":7}`))
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		s.Post("/api/hooks/agent", schemaRequest)
		rn.Next()
		message := rn.Next().Text("message")
		for _, word := range []string{"integer", "extra"} {
			if !strings.Contains(strings.Replace(message, numberSchema, "", 1), word) {
				t.Errorf("the message says nothing of %s: %q", word, message)
			}
		}
	})
}

func TestThreeFailedRepairsAre422(t *testing.T) {
	rn := hookstest.StartRunner(t, replies("zero", "one", "two", "three", `{"n":7}`))
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n"+hookstest.WithCallbacks))
	resp := s.Post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"callbackUrl":"`+callbacks.URL+`","message"`, 1))
	resp.WantError(t, 422, "responseJsonSchema", "3")
	for _, phase := range []string{"turn", "repair", "repair", "repair"} {
		if got := rn.Next().Text("phase"); got != phase {
			t.Errorf("got phase %q, want %q", got, phase)
		}
	}
	// The callback gets what the turn said, and how the run ended.
	if got := callbacks.Next(); got.Body != "zero" || got.Header.Get("X-Service-Run-Status") != "failed" {
		t.Errorf("the callback is %+v", got)
	}
	rn.WantNoTurn(s)
	if got := resp.Header.Get("X-Service-Schema-Repair-Attempts"); got != "3" {
		t.Errorf("%q repair attempts are told", got)
	}
}

func TestCallbackGoesWithEitherKindOfSync(t *testing.T) {
	for _, c := range []struct{ name, fields, answer string }{
		{"plain", ``, `The answer is {"n": 7}.`},
		{"schema", `,"responseJsonSchema":` + numberSchema, `{"n": 7}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn := hookstest.StartRunner(t, hookstest.ReplyText(`The answer is {"n": 7}.`))
			callbacks := hookstest.StartReceiver(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
			resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"callbackUrl":"`+callbacks.URL+`"`+c.fields+`}`)
			if resp.Status != 200 || resp.Body != c.answer {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			got := callbacks.Next()
			if got.Body != `The answer is {"n": 7}.` || got.Header.Get("X-Service-Run-Status") != "completed" ||
				got.Header.Get("X-Service-Run-Id") != resp.Header.Get("X-Service-Run-Id") ||
				got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("the callback is %+v", got)
			}
		})
	}
	t.Run("schema with a repair", func(t *testing.T) {
		rn := hookstest.StartRunner(t, replies("not yet", `{"n":7}`))
		callbacks := hookstest.StartReceiver(t)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
		if resp := s.Post("/api/hooks/agent", strings.Replace(schemaRequest, `"message"`, `"callbackUrl":"`+callbacks.URL+`","message"`, 1)); resp.Body != `{"n":7}` {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		if got := callbacks.Next(); got.Body != "not yet" || got.Header.Get("X-Service-Run-Status") != "completed" {
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
			rn := hookstest.StartRunner(t, replies("wrong", "wrong again", `{"n":1}`))
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
			fields := c.fields
			if fields != "" {
				fields = "," + fields
			}
			if resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true`+fields+`}`); resp.Status != 200 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			tier := func(tn hookstest.Turn) string {
				if tn.Body["tier"] == nil {
					return ""
				}
				return tn.Text("tier")
			}
			if got := tier(rn.Next()); got != c.turn {
				t.Errorf("the turn has tier %q, want %q", got, c.turn)
			}
			if c.repair == "none" {
				rn.WantNoTurn(s)
				return
			}
			for range 2 {
				if got := tier(rn.Next()); got != c.repair {
					t.Errorf("a repair has tier %q, want %q", got, c.repair)
				}
			}
		})
	}
	t.Run("unknown validation tier with a schema", func(t *testing.T) {
		rn := hookstest.StartRunner(t, nil)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
		s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseValidationModelTier":"nonsense","responseJsonSchema":`+numberSchema+`}`).
			WantError(t, 400, "responseValidationModelTier", "balanced", "special5")
		rn.WantNoTurn(s)
	})
}

func TestTiersDoNotStickToAChat(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("/tier deep"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	for _, c := range []struct{ path, body, tier string }{
		{"/api/hooks/agent", `{"message":"a","chatId":"c","model":"deep"}`, "deep"},
		{"/api/hooks/agent", `{"message":"a","chatId":"c"}`, "<nil>"},
		{"/api/hooks/agent", `{"message":"/tier smart","chatId":"c"}`, "<nil>"},
		{"/api/hooks/agent", `{"message":"a","chatId":"c","model":"coding"}`, "coding"},
		{"/api/hooks/wake", `{"text":"a","chatId":"c"}`, "<nil>"},
	} {
		s.Post(c.path, c.body)
		if got := fmt.Sprint(rn.Next().Body["tier"]); got != c.tier {
			t.Errorf("%s: got tier %s, want %s", c.body, got, c.tier)
		}
	}
}
