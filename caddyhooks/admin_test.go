package caddyhooks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestEverythingCanBeSetUpLive(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.Post("/api/hooks/wake", `{"text":"x"}`).WantError(t, 404)
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"enabled":false,"token":null,"defaultTimeoutSeconds":300,
		"maxPayloadSize":65536,"memoryPreset":"disabled","mappings":[],"pinned":[]}`)

	s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true}`)
	s.Post("/api/hooks/wake", `{"text":"x"}`).WantError(t, 404) // no token yet
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":"`+hookstest.Token+`"}`)
	if got := s.Post("/api/hooks/wake", `{"text":"x"}`); got.Status != 200 {
		t.Fatalf("wake after it was enabled: %+v", got)
	}

	s.Post("/api/hooks/new", `{}`).WantError(t, 404)
	s.AdminRequest("PUT", "/hooks/mappings/new", `{"action":"agent","syncResponse":true,"messageTemplate":"{$.a.b}, {host}"}`).WantJSON(t,
		`{"name":"new","action":"agent","syncResponse":true,"messageTemplate":"{$.a.b}, {host}"}`)
	if got := s.Post("/api/hooks/new", `{"a":{"b":1.10},"host":"h"}`); got.Body != "1.10, h" {
		t.Errorf("the new hook answered %+v", got)
	}
	s.AdminRequest("PUT", "/hooks/mappings/new", `{"name":"new","action":"agent","syncResponse":true,"messageTemplate":"changed"}`)
	if got := s.Post("/api/hooks/new", `{}`); got.Body != "changed" {
		t.Errorf("the changed hook answered %+v", got)
	}
	if got := s.AdminRequest("DELETE", "/hooks/mappings/new", ""); got.Status != 204 || got.Body != "" {
		t.Errorf("got %+v", got)
	}
	s.Post("/api/hooks/new", `{}`).WantError(t, 404)
	s.AdminRequest("DELETE", "/hooks/mappings/new", "").WantAdminError(t, 404, "new")
	s.AdminRequest("GET", "/hooks/mappings/new", "").WantAdminError(t, 404, "new")

	s.AdminRequest("PATCH", "/hooks/settings", `{"maxPayloadSize":"1KB","memoryPreset":"general_chat","defaultTimeoutSeconds":7}`)
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"enabled":true,"token":"••••","defaultTimeoutSeconds":7,
		"maxPayloadSize":1024,"memoryPreset":"general_chat","mappings":[],"pinned":[]}`)
	s.AdminRequest("PATCH", "/hooks/settings", `{"maxPayloadSize":null,"memoryPreset":null,"defaultTimeoutSeconds":null,"token":null}`).WantMembers(t,
		`{"enabled":true,"token":null,"defaultTimeoutSeconds":300,"maxPayloadSize":65536,"memoryPreset":"disabled","mappings":[],"pinned":[]}`)
	s.Post("/api/hooks/wake", `{"text":"x"}`).WantError(t, 404)
}

func TestLiveSettingsSurviveAReload(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true,"token":"`+hookstest.Token+`","mappings":[{"name":"a"}]}`)
	s.Reload("hooks {\n\trunner echo\n\tworkers 2\n}")
	if got := s.Post("/api/hooks/a", `{}`); got.Status != 200 {
		t.Errorf("after the reload: %+v", got)
	}
	// A configuration that cannot be loaded leaves everything as it is.
	if err := s.TryLoad("hooks {\n\trunner http nowhere\n}"); err == nil {
		t.Error("a bad configuration was loaded")
	}
	s.Settle()
	if got := s.Post("/api/hooks/a", `{}`); got.Status != 200 {
		t.Errorf("after the reload that failed: %+v", got)
	}
}

func TestPinnedSettingsAreShownAndNotChanged(t *testing.T) {
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token the-first-of-the-tokens the-second-of-the-tokens
		runner echo
		default_timeout 60s
		max_payload 1KB
		memory_preset ops_support
		history 1h
		keep_refused 1m
		hook pinned {
			auth hmac X-Sig s3cret
			template "{a}"
		}
	}`)
	const shown = `{"enabled":true,"token":["••••","••••"],"defaultTimeoutSeconds":60,"maxPayloadSize":1024,"memoryPreset":"ops_support",
		"historySeconds":3600,"keepRefusedSeconds":60,"mappings":[{"name":"pinned","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••","messageTemplate":"{a}","pinned":true}],
		"pinned":["defaultTimeoutSeconds","enabled","historySeconds","keepRefusedSeconds","maxPayloadSize","memoryPreset","token"],"saved":[]}`
	s.AdminRequest("GET", "/hooks/settings", "").WantJSON(t, shown)
	// What is shown may be sent back, and setting a value to itself is no change.
	s.AdminRequest("PATCH", "/hooks/settings", shown).WantJSON(t, shown)
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":["the-first-of-the-tokens","the-second-of-the-tokens"],"maxPayloadSize":"1KB"}`).WantJSON(t, shown)
	s.AdminRequest("PUT", "/hooks/mappings/pinned", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret","messageTemplate":"{a}"}`)

	for _, patch := range []string{
		`{"enabled":false}`, `{"enabled":null}`, `{"token":"the-first-of-the-tokens"}`, `{"token":["the-second-of-the-tokens","the-first-of-the-tokens"]}`, `{"token":null}`, `{"defaultTimeoutSeconds":61}`,
		`{"maxPayloadSize":1025}`, `{"memoryPreset":"disabled"}`, `{"historySeconds":0}`, `{"mappings":[]}`, `{"mappings":[{"name":"pinned"}]}`,
		`{"defaultTimeoutSeconds":60,"enabled":false}`,
	} {
		s.AdminRequest("PATCH", "/hooks/settings", patch).WantAdminError(t, 409, "configuration")
	}
	s.AdminRequest("PUT", "/hooks/mappings/pinned", `{"messageTemplate":"{b}"}`).WantAdminError(t, 409, "pinned")
	s.AdminRequest("DELETE", "/hooks/mappings/pinned", "").WantAdminError(t, 409, "pinned")
	s.AdminRequest("GET", "/hooks/settings", "").WantJSON(t, shown)
}

func TestMaskedSecretsAreKept(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true,"token":["`+hookstest.Token+`","old"]}`)
	s.AdminRequest("PUT", "/hooks/mappings/signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret"}`)
	const body = `{"a":1}`
	s.Request("POST", "/api/hooks/signed", body, "X-Sig", hexHMAC("other", body)).WantError(t, 401)

	shown := s.AdminRequest("GET", "/hooks/mappings/signed", "")
	shown.WantJSON(t, `{"name":"signed","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••"}`)
	s.AdminRequest("PUT", "/hooks/mappings/signed", shown.Body)
	if got := s.Request("POST", "/api/hooks/signed", body, "X-Sig", hexHMAC("s3cret", body)).Status; got != 200 {
		t.Errorf("after a masked secret was sent back: %d", got)
	}
	s.AdminRequest("PUT", "/hooks/mappings/other", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••"}`).WantAdminError(t, 400, "hmacSecret")

	s.AdminRequest("PATCH", "/hooks/settings", `{"token":["••••","new"]}`)
	for candidate, want := range map[string]int{hookstest.Token: 200, "new": 200, "old": 401} {
		if got := s.Request("POST", "/api/hooks/wake", `{"text":"x"}`, "X-Service-Token", candidate).Status; got != want {
			t.Errorf("token %s: got %d, want %d", candidate, got, want)
		}
	}
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":["a","b","••••"]}`).WantAdminError(t, 400, "token")
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":["••••"]}`).WantAdminError(t, 400, "ambiguous")
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":"••••"}`).WantAdminError(t, 400, "ambiguous")

	// An empty string takes out the token in its place.
	s.AdminRequest("PATCH", "/hooks/settings", `{"token":["••••","","next"]}`).WantMembers(t, `{"token":["••••","••••"]}`)
	for candidate, want := range map[string]int{hookstest.Token: 200, "new": 401, "next": 200} {
		if got := s.Request("POST", "/api/hooks/wake", `{"text":"x"}`, "X-Service-Token", candidate).Status; got != want {
			t.Errorf("token %s: got %d, want %d", candidate, got, want)
		}
	}
	for _, tokens := range []string{`["",""]`, `["next",""]`, `["••••"," "]`, `["••••","••••",""]`} {
		s.AdminRequest("PATCH", "/hooks/settings", `{"token":`+tokens+`}`).WantAdminError(t, 400, "token must not be blank")
	}
}

func TestPinnedSecretsAreReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(hookstest.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := hookstest.StartSite(t, "hooks {\n\tenabled\n\trunner echo\n\ttoken {file."+file+"}\n}")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.AdminRequest("PUT", "/hooks/mappings/later", `{}`).WantJSON(t, `{"name":"later"}`)
	if got := s.Post("/api/hooks/later", `{}`); got.Status != 200 {
		t.Errorf("got %+v", got)
	}
}

func TestBadSettingsChangeNothing(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n\trunner echo\n\tchannel notes log\n}")
	before := s.AdminRequest("GET", "/hooks/settings", "").Body
	for body, words := range map[string][]string{
		``: {"JSON"}, `[]`: {"object"}, `{"enabled":true} x`: {"JSON"}, `{"enabled":true,"enabled":false}`: {"twice"},
		`{"enabled":"yes"}`: {"enabled"}, `{"enabled":1}`: {"enabled"}, `{"tokens":"x"}`: {"tokens"}, `{"token":1}`: {"token"},
		`{"token":[1]}`: {"token"}, `{"token":["a",""]}`: {"token"}, `{"token":"{env.CADDYHOOKS_NOT_SET}"}`: {"token"},
		`{"defaultTimeoutSeconds":0}`: {"defaultTimeoutSeconds"}, `{"defaultTimeoutSeconds":1.5}`: {"defaultTimeoutSeconds"},
		`{"defaultTimeoutSeconds":3601}`: {"defaultTimeoutSeconds", "3600"}, `{"maxPayloadSize":0}`: {"maxPayloadSize"},
		`{"maxPayloadSize":-1}`: {"maxPayloadSize"}, `{"maxPayloadSize":"much"}`: {"maxPayloadSize"}, `{"maxPayloadSize":"1TB"}`: {"maxPayloadSize"},
		`{"memoryPreset":"all"}`: {"memoryPreset", "general_chat"}, `{"memoryPreset":""}`: {"memoryPreset"},
		`{"enabled":true,"memoryPreset":"all"}`: {"memoryPreset"},
		`{"historySeconds":604801}`:             {"historySeconds", "retention", "168h"}, `{"historySeconds":-1}`: {"historySeconds"}, `{"historySeconds":"1h"}`: {"historySeconds"},
		`{"mappings":{}}`: {"mappings"}, `{"mappings":[{"name":"a"},{"name":"a"}]}`: {"two", "a"}, `{"mappings":[{}]}`: {"name"},
		`{"mappings":[{"name":"a"},{"name":"b","action":"x"}]}`: {"action", "b"},
	} {
		s.AdminRequest("PATCH", "/hooks/settings", body).WantAdminError(t, 400, words...)
	}
	for body, words := range map[string][]string{
		`{`: {"JSON"}, `null`: {"object"}, `{"name":"other"}`: {"name"}, `{"path":"/x"}`: {"path"}, `{"skill":"x"}`: {"skill"},
		`{"action":"run"}`: {"action", "wake"}, `{"action":1}`: {"action", "string"}, `{"authMode":"none"}`: {"authMode"}, `{"authMode":"hmac"}`: {"hmac"},
		`{"authMode":"hmac","hmacHeader":"X-Sig"}`: {"hmacSecret"}, `{"authMode":"hmac","hmacSecret":"x"}`: {"hmacHeader"},
		`{"authMode":"hmac","hmacSecret":"x","hmacHeader":"X Sig"}`: {"hmacHeader"},
		`{"authMode":"hmac","hmacSecret":"x","hmacHeader":"host"}`:  {"hmacHeader", "Host"},
		`{"messageTemplate":"{$..[}"}`:                              {"messageTemplate"}, `{"chatId":"{$..[}"}`: {"chatId"}, `{"untrusted":"maybe"}`: {"untrusted"},
		`{"model":"large"}`: {"model", "balanced"}, `{"memoryPreset":"x"}`: {"memoryPreset"}, `{"syncResponse":"yes"}`: {"syncResponse", "true or false"},
		`{"responseJsonSchema":{"type":"object"}}`: {"responseJsonSchema", "syncResponse"}, `{"syncResponse":true,"responseJsonSchema":{}}`: {"responseJsonSchema"},
		`{"syncResponse":true,"responseJsonSchema":"x"}`:                                                 {"responseJsonSchema"},
		`{"syncResponse":true,"responseJsonSchema":{"type":"thing"}}`:                                    {"responseJsonSchema"},
		`{"syncResponse":true,"responseJsonSchema":{"type":"object"},"responseValidationModelTier":"x"}`: {"responseValidationModelTier"},
		`{"callbackUrl":"ftp://example.com"}`:                                                            {"callbackUrl"}, `{"callbackUrl":"http://127.0.0.1/"}`: {"callbackUrl"},
		`{"deliver":true}`: {"channel"}, `{"deliver":true,"channel":"notes"}`: {"to"}, `{"deliver":true,"channel":"x","to":"y"}`: {"channel"},
		`{"timeoutSeconds":3601}`: {"timeoutSeconds"}, `{"timeoutSeconds":-1}`: {"timeoutSeconds"}, `{"timeoutSeconds":0}`: {"timeoutSeconds"},
		`{"Action":"agent"}`: {"Action"}, `{"action":"wake","action":"agent"}`: {"twice"}, `{"timeoutSeconds":"1"}`: {"timeoutSeconds", "whole number"}, `{"timeoutSeconds":1.5}`: {"timeoutSeconds", "whole number"},
		`{"metadata":[]}`: {"metadata"}, `{"metadata":"x"}`: {"metadata"},
		`{"historySeconds":604801}`: {"historySeconds", "retention"}, `{"historySeconds":-1}`: {"historySeconds"}, `{"historySeconds":"1h"}`: {"historySeconds", "whole number"},
	} {
		s.AdminRequest("PUT", "/hooks/mappings/bad", body).WantAdminError(t, 400, words...)
	}
	for _, name := range []string{"wake", "agent", "runs", ".x", "-x", "a%20b", strings.Repeat("x", 65), "%C3%A4"} {
		s.AdminRequest("PUT", "/hooks/mappings/"+name, `{}`).WantAdminError(t, 400, "name")
	}
	if after := s.AdminRequest("GET", "/hooks/settings", "").Body; after != before {
		t.Errorf("settings changed from\n%s\nto\n%s", before, after)
	}
}

func TestEveryFieldOfAMappingIsKept(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n\tchannel notes log\n}")
	mapping := `{"name":"full","action":"agent","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••","hmacPrefix":"sha256=",
		"messageTemplate":"{a}","message":"unused","untrusted":"wrap","chatId":"c:{a}","model":"smart","memoryPreset":"general_chat","syncResponse":true,
		"responseJsonSchema":{"type":"object","z":1.10,"a":"<>"},"responseValidationModelTier":"deep","callbackUrl":"https://example.com/x?••••",
		"deliver":true,"channel":"notes","to":"me","timeoutSeconds":5,"historySeconds":0,"metadata":{"n":12345678901234567890}}`
	got := s.AdminRequest("PUT", "/hooks/mappings/full", strings.NewReplacer(`x?••••`, `x?a=1&b=2`, "••••", "s3cret").Replace(mapping))
	got.WantJSON(t, mapping)
	s.AdminRequest("PUT", "/hooks/mappings/full", mapping).WantJSON(t, mapping) // masks keep what is there
	if !strings.Contains(got.Body, "12345678901234567890") || !strings.Contains(got.Body, "1.10") || strings.Contains(got.Body, `\u003c`) {
		t.Errorf("numbers or text changed: %s", got.Body)
	}
	s.AdminRequest("GET", "/hooks/mappings", "").WantJSON(t, "["+mapping+"]")
}

func TestInstancesAreApart(t *testing.T) {
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token first
		runner echo
	}
	hooks ops {
		path /ops
		enabled
		token second
		runner echo
	}`)
	s.AdminRequest("GET", "/hooks/instances", "").WantJSON(t, `["default","ops"]`)
	s.AdminRequest("PUT", "/hooks/instances/ops/mappings/only", `{}`)
	s.AdminRequest("GET", "/hooks/mappings", "").WantJSON(t, `[]`)
	s.AdminRequest("GET", "/hooks/instances/ops/mappings", "").WantJSON(t, `[{"name":"only"}]`)
	s.AdminRequest("GET", "/hooks/instances/default/mappings", "").WantJSON(t, `[]`)
	for _, tc := range []struct {
		path, token string
		want        int
	}{
		{"/api/hooks/wake", "first", 200}, {"/api/hooks/wake", "second", 401}, {"/api/hooks/only", "first", 404},
		{"/ops/wake", "second", 200}, {"/ops/wake", "first", 401}, {"/ops/only", "second", 200},
	} {
		if got := s.Request("POST", tc.path, `{"text":"x"}`, "X-Service-Token", tc.token).Status; got != tc.want {
			t.Errorf("%s with the token %s: got %d, want %d", tc.path, tc.token, got, tc.want)
		}
	}
	s.AdminRequest("GET", "/hooks/instances/nope/settings", "").WantAdminError(t, 404, "nope")
	s.AdminRequest("GET", "/hooks/nope", "").WantAdminError(t, 404)
}

func TestAdminMethods(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	for path, allowed := range map[string]string{
		"/hooks/settings": "GET, PATCH", "/hooks/mappings": "GET", "/hooks/mappings/x": "GET, PUT, DELETE", "/hooks/instances": "GET",
	} {
		got := s.AdminRequest("POST", path, `{}`)
		got.WantAdminError(t, 405)
		if got.Header.Get("Allow") != allowed {
			t.Errorf("%s allows %q, want %q", path, got.Header.Get("Allow"), allowed)
		}
	}
}

func hexHMAC(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}
