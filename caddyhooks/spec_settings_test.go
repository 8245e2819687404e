package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// patchSettings changes live settings, which must go well.
func (s *server) patchSettings(body string) response {
	s.t.Helper()
	resp := s.adminRequest("PATCH", "/hooks/settings", body)
	if resp.status != 200 {
		s.t.Fatalf("PATCH settings %s: got %d %s", body, resp.status, resp.body)
	}
	return resp
}

// putMapping saves a live mapping, which must go well.
func (s *server) putMapping(name, body string) {
	s.t.Helper()
	resp := s.adminRequest("PUT", "/hooks/mappings/"+name, body)
	if resp.status != 200 {
		s.t.Fatalf("PUT mapping %s %s: got %d %s", name, body, resp.status, resp.body)
	}
}

func TestDefaultSettingsAreShownByTheAdminAPI(t *testing.T) {
	s := startSite(t, "hooks")
	resp := s.adminRequest("GET", "/hooks/settings", "")
	if resp.status != 200 || resp.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d, %s", resp.status, resp.header.Get("Content-Type"))
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(resp.body), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"enabled":               false,
		"token":                 nil,
		"defaultTimeoutSeconds": 300.0,
		"maxPayloadSize":        65536.0,
		"memoryPreset":          "disabled",
	} {
		t.Run(field, func(t *testing.T) {
			if value, there := got[field]; value != want || !there {
				t.Errorf("got %v, want %v", value, want)
			}
		})
	}
	t.Run("mappings", func(t *testing.T) {
		if list, ok := got["mappings"].([]any); !ok || len(list) != 0 {
			t.Errorf("got %v, want an empty list", got["mappings"])
		}
		if body := strings.TrimSpace(s.adminRequest("GET", "/hooks/mappings", "").body); body != "[]" {
			t.Errorf("got %s", body)
		}
	})
	t.Run("nothing is pinned", func(t *testing.T) {
		if list, ok := got["pinned"].([]any); !ok || len(list) != 0 {
			t.Errorf("got %v, want an empty list", got["pinned"])
		}
	})
}

// endpoints are requests to all kinds of endpoint that a site with a hook called custom has.
var endpoints = []struct{ name, path, body string }{
	{"wake", "/api/hooks/wake", `{"text":"hello"}`},
	{"agent", "/api/hooks/agent", `{"message":"hello"}`},
	{"custom hook", "/api/hooks/custom", `{"hello":"there"}`},
}

func TestEverythingIsNotFoundWhileWebhooksAreOff(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, "hooks {\n token "+token+"\n runner http "+rn.URL+"\n workers 1\n hook custom\n}")
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			s.post(e.path, e.body).wantError(t, 404)
			s.request("POST", e.path, e.body, "Authorization", "Bearer wrong").wantError(t, 404)
			s.request("POST", e.path, e.body).wantError(t, 404)
			s.request("GET", e.path, "").wantError(t, 404)
		})
	}

	t.Run("until they are enabled", func(t *testing.T) {
		if got := s.patchSettings(`{"enabled":true}`).field(t, "enabled"); got != true {
			t.Errorf("shown as %v", got)
		}
		rn.wantNoTurn(s)
		for _, e := range endpoints {
			if resp := s.post(e.path, e.body); resp.status/100 != 2 {
				t.Errorf("%s: got %d %s", e.name, resp.status, resp.body)
			}
			rn.next()
		}
	})

	t.Run("and again when they are switched off", func(t *testing.T) {
		s.patchSettings(`{"enabled":false}`)
		for _, e := range endpoints {
			s.post(e.path, e.body).wantError(t, 404)
		}
	})
}

func TestEnabledWithoutATokenIsStillOff(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n hook custom\n hook signed {\n auth hmac X-Signature secret\n }\n}")
	for _, e := range endpoints {
		s.post(e.path, e.body).wantError(t, 404)
		s.request("POST", e.path, e.body, "Authorization", "Bearer ").wantError(t, 404)
	}
	s.request("POST", "/api/hooks/signed", "{}", "X-Signature", signature("secret", "{}")).wantError(t, 404)

	s.patchSettings(`{"token":"` + token + `"}`)
	for _, e := range endpoints {
		if resp := s.post(e.path, e.body); resp.status/100 != 2 {
			t.Errorf("%s: got %d %s after a token was set", e.name, resp.status, resp.body)
		}
	}
	s.patchSettings(`{"token":null}`)
	s.post("/api/hooks/wake", `{"text":"hello"}`).wantError(t, 404)
}

func TestTokenGuardsBuiltInEndpointsAndBearerHooks(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1\n hook custom"))
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			s.request("POST", e.path, e.body, "Authorization", "Bearer not-the-token").wantError(t, 401, "Authorization: Bearer")
		})
	}
	rn.wantNoTurn(s)
	for _, e := range endpoints {
		if resp := s.post(e.path, e.body); resp.status/100 != 2 {
			t.Errorf("%s: got %d %s", e.name, resp.status, resp.body)
		}
	}
}

func TestDefaultTimeoutIsThatOfRunsThatNameNone(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, `
		hook custom {
			action agent
		}
		hook own {
			action agent
			timeout 7s
		}`))
	check := func(t *testing.T, path, body string, want int) {
		t.Helper()
		before := time.Now()
		if resp := s.post(path, body); resp.status/100 != 2 {
			t.Fatalf("got %d %s", resp.status, resp.body)
		}
		tn := rn.next()
		after := time.Now()
		if got := fmt.Sprint(tn.body["timeoutSeconds"]); got != fmt.Sprint(want) {
			t.Errorf("the runner was given %s seconds, want %d", got, want)
		}
		deadline, err := time.Parse(time.RFC3339, tn.header.Get("X-Service-Deadline"))
		limit := time.Duration(want) * time.Second
		if err != nil || deadline.Before(before.Add(limit).Truncate(time.Second)) || deadline.After(after.Add(limit)) {
			t.Errorf("the deadline is %s (%v), want %d s after %s", tn.header.Get("X-Service-Deadline"), err, want, before)
		}
	}
	for _, e := range endpoints {
		t.Run("300 s by default for "+e.name, func(t *testing.T) { check(t, e.path, e.body, 300) })
	}
	s.patchSettings(`{"defaultTimeoutSeconds":42}`)
	for _, e := range endpoints {
		t.Run("as it is set for "+e.name, func(t *testing.T) { check(t, e.path, e.body, 42) })
	}
	t.Run("a request's own goes first", func(t *testing.T) {
		check(t, "/api/hooks/agent", `{"message":"hello","timeoutSeconds":5}`, 5)
	})
	t.Run("a mapping's own goes first", func(t *testing.T) { check(t, "/api/hooks/own", `{}`, 7) })
}

func TestMaxPayloadSizeBoundsCustomHooks(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1\n hook custom"))
	body := func(size int) string { return `{"a":"` + strings.Repeat("x", size-8) + `"}` }
	check := func(t *testing.T, limit int) {
		t.Helper()
		resp := s.post("/api/hooks/custom", body(limit+1))
		resp.wantError(t, 413, fmt.Sprint(limit))
		rn.wantNoTurn(s)
		if resp := s.post("/api/hooks/custom", body(limit)); resp.status != 200 {
			t.Errorf("a body of %d bytes: got %d %s", limit, resp.status, resp.body)
		}
		if got := rn.next().text("message"); !strings.Contains(got, body(limit)) {
			t.Errorf("the message has %d bytes", len(got))
		}
	}
	t.Run("64 KB by default", func(t *testing.T) { check(t, 65536) })
	t.Run("set as bytes", func(t *testing.T) {
		s.patchSettings(`{"maxPayloadSize":100}`)
		check(t, 100)
	})
	t.Run("set with a unit and shown as bytes", func(t *testing.T) {
		if got := s.patchSettings(`{"maxPayloadSize":"128KB"}`).field(t, "maxPayloadSize"); got != 131072.0 {
			t.Errorf("shown as %v", got)
		}
		check(t, 131072)
	})
	t.Run("without a length", func(t *testing.T) {
		s.patchSettings(`{"maxPayloadSize":100}`)
		s.postChunked("/api/hooks/custom", body(101)).wantError(t, 413, "100")
		if resp := s.postChunked("/api/hooks/custom", body(100)); resp.status != 200 {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
	})
}

func TestDefaultMemoryPresetIsThatOfRunsThatNameNone(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "hook custom"))
	for _, e := range endpoints {
		t.Run("disabled by default for "+e.name, func(t *testing.T) {
			s.post(e.path, e.body)
			rn.next().wantMemory(t, "disabled")
		})
	}
	s.patchSettings(`{"memoryPreset":"ops_support"}`)
	for _, e := range endpoints {
		t.Run("as it is set for "+e.name, func(t *testing.T) {
			s.post(e.path, e.body)
			rn.next().wantMemory(t, "ops_support")
		})
	}
}

// wantMemory checks what the runner was told about memory.
func (t turn) wantMemory(tb testing.TB, preset string) {
	tb.Helper()
	on := preset != "disabled"
	want := asJSON(tb, map[string]any{"preset": preset, "recall": on, "persist": on})
	if got := asJSON(tb, t.body["memory"]); got != want {
		tb.Errorf("the runner was given memory %s, want %s", got, want)
	}
}

func TestMappingIsLiveOnTheNextRequest(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, ""))
	s.post("/api/hooks/deploys", `{"v":1}`).wantError(t, 404)

	s.putMapping("deploys", `{"action":"agent","messageTemplate":"deployed {v}"}`)
	if resp := s.post("/api/hooks/deploys", `{"v":1}`); resp.status != 202 {
		t.Fatalf("after it was saved: got %d %s", resp.status, resp.body)
	}
	if got := rn.next().text("message"); got != "deployed 1" {
		t.Errorf("got message %q", got)
	}

	s.putMapping("deploys", `{"action":"agent","messageTemplate":"version {v}"}`)
	s.post("/api/hooks/deploys", `{"v":2}`)
	if got := rn.next().text("message"); got != "version 2" {
		t.Errorf("after it was changed: got message %q", got)
	}

	if resp := s.adminRequest("DELETE", "/hooks/mappings/deploys", ""); resp.status != 204 || resp.body != "" {
		t.Errorf("DELETE: got %d %q", resp.status, resp.body)
	}
	s.post("/api/hooks/deploys", `{"v":3}`).wantError(t, 404)
}

func TestMappingsCanBeSetAsAList(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, ""))
	s.patchSettings(`{"mappings":[{"name":"one","messageTemplate":"1"},{"name":"two","action":"agent","messageTemplate":"2"}]}`)
	if resp := s.post("/api/hooks/one", `{}`); resp.status != 200 {
		t.Errorf("one: got %d", resp.status)
	}
	if resp := s.post("/api/hooks/two", `{}`); resp.status != 202 {
		t.Errorf("two: got %d", resp.status)
	}
	s.patchSettings(`{"mappings":[]}`)
	s.post("/api/hooks/one", `{}`).wantError(t, 404)
}

func TestNullSetsASettingBackToItsDefault(t *testing.T) {
	s := startSite(t, "hooks")
	before := s.adminRequest("GET", "/hooks/settings", "").body
	s.patchSettings(`{"enabled":true,"token":"x","defaultTimeoutSeconds":9,"maxPayloadSize":9,"memoryPreset":"coding_deep","mappings":[{"name":"a"}]}`)
	if now := s.adminRequest("GET", "/hooks/settings", "").body; now == before {
		t.Fatal("nothing was set")
	}
	s.patchSettings(`{"enabled":null,"token":null,"defaultTimeoutSeconds":null,"maxPayloadSize":null,"memoryPreset":null,"mappings":null}`)
	if now := s.adminRequest("GET", "/hooks/settings", "").body; now != before {
		t.Errorf("the settings became\n%s\nand were\n%s", now, before)
	}
}
