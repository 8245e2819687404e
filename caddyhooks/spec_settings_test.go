package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestDefaultSettingsAreShownByTheAdminAPI(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	resp := s.AdminRequest("GET", "/hooks/settings", "")
	if resp.Status != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(resp.Body), &got); err != nil {
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
		if body := strings.TrimSpace(s.AdminRequest("GET", "/hooks/mappings", "").Body); body != "[]" {
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
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, "hooks {\n token "+hookstest.Token+"\n runner http "+rn.URL+"\n workers 1\n hook custom\n}")
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			s.Post(e.path, e.body).WantError(t, 404)
			s.Request("POST", e.path, e.body, "Authorization", "Bearer wrong").WantError(t, 404)
			s.Request("POST", e.path, e.body).WantError(t, 404)
			s.Request("GET", e.path, "").WantError(t, 404)
		})
	}

	t.Run("until they are enabled", func(t *testing.T) {
		if got := s.PatchSettings(`{"enabled":true}`).Field(t, "enabled"); got != true {
			t.Errorf("shown as %v", got)
		}
		rn.WantNoTurn(s)
		for _, e := range endpoints {
			if resp := s.Post(e.path, e.body); resp.Status/100 != 2 {
				t.Errorf("%s: got %d %s", e.name, resp.Status, resp.Body)
			}
			rn.Next()
		}
	})

	t.Run("and again when they are switched off", func(t *testing.T) {
		s.PatchSettings(`{"enabled":false}`)
		for _, e := range endpoints {
			s.Post(e.path, e.body).WantError(t, 404)
		}
	})
}

func TestEnabledWithoutATokenIsStillOff(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n hook custom\n hook signed {\n auth hmac X-Signature secret\n }\n}")
	for _, e := range endpoints {
		s.Post(e.path, e.body).WantError(t, 404)
		s.Request("POST", e.path, e.body, "Authorization", "Bearer ").WantError(t, 404)
	}
	s.Request("POST", "/api/hooks/signed", "{}", "X-Signature", signature("secret", "{}")).WantError(t, 404)

	s.PatchSettings(`{"token":"` + hookstest.Token + `"}`)
	for _, e := range endpoints {
		if resp := s.Post(e.path, e.body); resp.Status/100 != 2 {
			t.Errorf("%s: got %d %s after a token was set", e.name, resp.Status, resp.Body)
		}
	}
	s.PatchSettings(`{"token":null}`)
	s.Post("/api/hooks/wake", `{"text":"hello"}`).WantError(t, 404)
}

func TestTokenGuardsBuiltInEndpointsAndBearerHooks(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom"))
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			s.Request("POST", e.path, e.body, "Authorization", "Bearer not-the-token").WantError(t, 401, "Authorization: Bearer")
		})
	}
	rn.WantNoTurn(s)
	for _, e := range endpoints {
		if resp := s.Post(e.path, e.body); resp.Status/100 != 2 {
			t.Errorf("%s: got %d %s", e.name, resp.Status, resp.Body)
		}
	}
}

func TestDefaultTimeoutIsThatOfRunsThatNameNone(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
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
		if resp := s.Post(path, body); resp.Status/100 != 2 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		tn := rn.Next()
		after := time.Now()
		if got := fmt.Sprint(tn.Body["timeoutSeconds"]); got != fmt.Sprint(want) {
			t.Errorf("the runner was given %s seconds, want %d", got, want)
		}
		deadline, err := time.Parse(time.RFC3339, tn.Header.Get("X-Service-Deadline"))
		limit := time.Duration(want) * time.Second
		if err != nil || deadline.Before(before.Add(limit).Truncate(time.Second)) || deadline.After(after.Add(limit)) {
			t.Errorf("the deadline is %s (%v), want %d s after %s", tn.Header.Get("X-Service-Deadline"), err, want, before)
		}
	}
	for _, e := range endpoints {
		t.Run("300 s by default for "+e.name, func(t *testing.T) { check(t, e.path, e.body, 300) })
	}
	s.PatchSettings(`{"defaultTimeoutSeconds":42}`)
	for _, e := range endpoints {
		t.Run("as it is set for "+e.name, func(t *testing.T) { check(t, e.path, e.body, 42) })
	}
	t.Run("a request's own goes first", func(t *testing.T) {
		check(t, "/api/hooks/agent", `{"message":"hello","timeoutSeconds":5}`, 5)
	})
	t.Run("a mapping's own goes first", func(t *testing.T) { check(t, "/api/hooks/own", `{}`, 7) })
}

func TestMaxPayloadSizeBoundsCustomHooks(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom"))
	body := func(size int) string { return `{"a":"` + strings.Repeat("x", size-8) + `"}` }
	check := func(t *testing.T, limit int) {
		t.Helper()
		resp := s.Post("/api/hooks/custom", body(limit+1))
		resp.WantError(t, 413, fmt.Sprint(limit))
		rn.WantNoTurn(s)
		if resp := s.Post("/api/hooks/custom", body(limit)); resp.Status != 200 {
			t.Errorf("a body of %d bytes: got %d %s", limit, resp.Status, resp.Body)
		}
		if got := rn.Next().Text("message"); !strings.Contains(got, body(limit)) {
			t.Errorf("the message has %d bytes", len(got))
		}
	}
	t.Run("64 KB by default", func(t *testing.T) { check(t, 65536) })
	t.Run("set as bytes", func(t *testing.T) {
		s.PatchSettings(`{"maxPayloadSize":100}`)
		check(t, 100)
	})
	t.Run("set with a unit and shown as bytes", func(t *testing.T) {
		if got := s.PatchSettings(`{"maxPayloadSize":"128KB"}`).Field(t, "maxPayloadSize"); got != 131072.0 {
			t.Errorf("shown as %v", got)
		}
		check(t, 131072)
	})
	t.Run("without a length", func(t *testing.T) {
		s.PatchSettings(`{"maxPayloadSize":100}`)
		s.PostChunked("/api/hooks/custom", body(101)).WantError(t, 413, "100")
		if resp := s.PostChunked("/api/hooks/custom", body(100)); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

func TestDefaultMemoryPresetIsThatOfRunsThatNameNone(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook custom"))
	for _, e := range endpoints {
		t.Run("disabled by default for "+e.name, func(t *testing.T) {
			s.Post(e.path, e.body)
			rn.Next().WantMemory(t, "disabled")
		})
	}
	s.PatchSettings(`{"memoryPreset":"ops_support"}`)
	for _, e := range endpoints {
		t.Run("as it is set for "+e.name, func(t *testing.T) {
			s.Post(e.path, e.body)
			rn.Next().WantMemory(t, "ops_support")
		})
	}
}

func TestMappingIsLiveOnTheNextRequest(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.Post("/api/hooks/deploys", `{"v":1}`).WantError(t, 404)

	s.PutMapping("deploys", `{"action":"agent","messageTemplate":"deployed {v}"}`)
	if resp := s.Post("/api/hooks/deploys", `{"v":1}`); resp.Status != 202 {
		t.Fatalf("after it was saved: got %d %s", resp.Status, resp.Body)
	}
	if got := rn.Next().Text("message"); got != "deployed 1" {
		t.Errorf("got message %q", got)
	}

	s.PutMapping("deploys", `{"action":"agent","messageTemplate":"version {v}"}`)
	s.Post("/api/hooks/deploys", `{"v":2}`)
	if got := rn.Next().Text("message"); got != "version 2" {
		t.Errorf("after it was changed: got message %q", got)
	}

	if resp := s.AdminRequest("DELETE", "/hooks/mappings/deploys", ""); resp.Status != 204 || resp.Body != "" {
		t.Errorf("DELETE: got %d %q", resp.Status, resp.Body)
	}
	s.Post("/api/hooks/deploys", `{"v":3}`).WantError(t, 404)
}

func TestMappingsCanBeSetAsAList(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.PatchSettings(`{"mappings":[{"name":"one","messageTemplate":"1"},{"name":"two","action":"agent","messageTemplate":"2"}]}`)
	if resp := s.Post("/api/hooks/one", `{}`); resp.Status != 200 {
		t.Errorf("one: got %d", resp.Status)
	}
	if resp := s.Post("/api/hooks/two", `{}`); resp.Status != 202 {
		t.Errorf("two: got %d", resp.Status)
	}
	s.PatchSettings(`{"mappings":[]}`)
	s.Post("/api/hooks/one", `{}`).WantError(t, 404)
}

func TestNullSetsASettingBackToItsDefault(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	before := s.AdminRequest("GET", "/hooks/settings", "").Body
	s.PatchSettings(`{"enabled":true,"token":"x","defaultTimeoutSeconds":9,"maxPayloadSize":9,"memoryPreset":"coding_deep","mappings":[{"name":"a"}]}`)
	if now := s.AdminRequest("GET", "/hooks/settings", "").Body; now == before {
		t.Fatal("nothing was set")
	}
	s.PatchSettings(`{"enabled":null,"token":null,"defaultTimeoutSeconds":null,"maxPayloadSize":null,"memoryPreset":null,"mappings":null}`)
	if now := s.AdminRequest("GET", "/hooks/settings", "").Body; now != before {
		t.Errorf("the settings became\n%s\nand were\n%s", now, before)
	}
}
