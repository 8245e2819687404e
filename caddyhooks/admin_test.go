package caddyhooks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wantAdminError checks an error of the admin API, which has the shape of Caddy's own.
func (r response) wantAdminError(t testing.TB, status int, words ...string) {
	t.Helper()
	message, _ := r.field(t, "error").(string)
	if r.status != status {
		t.Errorf("got status %d, want %d; body %s", r.status, status, r.body)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message %q does not speak of %q", message, word)
		}
	}
}

func (r response) wantJSON(t testing.TB, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		t.Fatalf("status %d, the body is no JSON: %v\n%s", r.status, err, r.body)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if r.status != 200 || !reflect.DeepEqual(a, b) {
		t.Errorf("got %d %s\nwant 200 %s", r.status, r.body, want)
	}
}

func TestEverythingCanBeSetUpLive(t *testing.T) {
	s := startSite(t, "hooks")
	s.post("/api/hooks/wake", `{"text":"x"}`).wantError(t, 404)
	s.adminRequest("GET", "/hooks/settings", "").wantJSON(t, `{"enabled":false,"token":null,"defaultTimeoutSeconds":300,
		"maxPayloadSize":65536,"memoryPreset":"disabled","mappings":[],"pinned":[]}`)

	s.adminRequest("PATCH", "/hooks/settings", `{"enabled":true}`)
	s.post("/api/hooks/wake", `{"text":"x"}`).wantError(t, 404) // no token yet
	s.adminRequest("PATCH", "/hooks/settings", `{"token":"`+token+`"}`)
	if got := s.post("/api/hooks/wake", `{"text":"x"}`); got.status != 200 {
		t.Fatalf("wake after it was enabled: %+v", got)
	}

	s.post("/api/hooks/new", `{}`).wantError(t, 404)
	s.adminRequest("PUT", "/hooks/mappings/new", `{"action":"agent","syncResponse":true,"messageTemplate":"{$.a.b}, {host}"}`).wantJSON(t,
		`{"name":"new","action":"agent","syncResponse":true,"messageTemplate":"{$.a.b}, {host}"}`)
	if got := s.post("/api/hooks/new", `{"a":{"b":1.10},"host":"h"}`); got.body != "1.10, h" {
		t.Errorf("the new hook answered %+v", got)
	}
	s.adminRequest("PUT", "/hooks/mappings/new", `{"name":"new","action":"agent","syncResponse":true,"messageTemplate":"changed"}`)
	if got := s.post("/api/hooks/new", `{}`); got.body != "changed" {
		t.Errorf("the changed hook answered %+v", got)
	}
	if got := s.adminRequest("DELETE", "/hooks/mappings/new", ""); got.status != 204 || got.body != "" {
		t.Errorf("got %+v", got)
	}
	s.post("/api/hooks/new", `{}`).wantError(t, 404)
	s.adminRequest("DELETE", "/hooks/mappings/new", "").wantAdminError(t, 404, "new")
	s.adminRequest("GET", "/hooks/mappings/new", "").wantAdminError(t, 404, "new")

	s.adminRequest("PATCH", "/hooks/settings", `{"maxPayloadSize":"1KB","memoryPreset":"general_chat","defaultTimeoutSeconds":7}`)
	s.adminRequest("GET", "/hooks/settings", "").wantJSON(t, `{"enabled":true,"token":"••••","defaultTimeoutSeconds":7,
		"maxPayloadSize":1024,"memoryPreset":"general_chat","mappings":[],"pinned":[]}`)
	s.adminRequest("PATCH", "/hooks/settings", `{"maxPayloadSize":null,"memoryPreset":null,"defaultTimeoutSeconds":null,"token":null}`).wantJSON(t,
		`{"enabled":true,"token":null,"defaultTimeoutSeconds":300,"maxPayloadSize":65536,"memoryPreset":"disabled","mappings":[],"pinned":[]}`)
	s.post("/api/hooks/wake", `{"text":"x"}`).wantError(t, 404)
}

func TestLiveSettingsSurviveAReload(t *testing.T) {
	s := startSite(t, "hooks")
	s.adminRequest("PATCH", "/hooks/settings", `{"enabled":true,"token":"`+token+`","mappings":[{"name":"a"}]}`)
	s.load("hooks {\n\tworkers 2\n}")
	if got := s.post("/api/hooks/a", `{}`); got.status != 200 {
		t.Errorf("after the reload: %+v", got)
	}
	// A configuration that cannot be loaded leaves everything as it is.
	if err := s.tryLoad("hooks {\n\trunner http nowhere\n}"); err == nil {
		t.Error("a bad configuration was loaded")
	}
	if got := s.post("/api/hooks/a", `{}`); got.status != 200 {
		t.Errorf("after the reload that failed: %+v", got)
	}
}

func TestPinnedSettingsAreShownAndNotChanged(t *testing.T) {
	s := startSite(t, `
	hooks {
		enabled
		token one two
		default_timeout 60s
		max_payload 1KB
		memory_preset ops_support
		hook pinned {
			auth hmac X-Sig s3cret
			template "{a}"
		}
	}`)
	const shown = `{"enabled":true,"token":["••••","••••"],"defaultTimeoutSeconds":60,"maxPayloadSize":1024,"memoryPreset":"ops_support",
		"mappings":[{"name":"pinned","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••","messageTemplate":"{a}","pinned":true}],
		"pinned":["defaultTimeoutSeconds","enabled","maxPayloadSize","memoryPreset","token"]}`
	s.adminRequest("GET", "/hooks/settings", "").wantJSON(t, shown)
	// What is shown may be sent back, and setting a value to itself is no change.
	s.adminRequest("PATCH", "/hooks/settings", shown).wantJSON(t, shown)
	s.adminRequest("PATCH", "/hooks/settings", `{"token":["one","two"],"maxPayloadSize":"1KB"}`).wantJSON(t, shown)
	s.adminRequest("PUT", "/hooks/mappings/pinned", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret","messageTemplate":"{a}"}`)

	for _, patch := range []string{
		`{"enabled":false}`, `{"enabled":null}`, `{"token":"one"}`, `{"token":["two","one"]}`, `{"token":null}`, `{"defaultTimeoutSeconds":61}`,
		`{"maxPayloadSize":1025}`, `{"memoryPreset":"disabled"}`, `{"mappings":[]}`, `{"mappings":[{"name":"pinned"}]}`,
		`{"defaultTimeoutSeconds":60,"enabled":false}`,
	} {
		s.adminRequest("PATCH", "/hooks/settings", patch).wantAdminError(t, 409, "configuration")
	}
	s.adminRequest("PUT", "/hooks/mappings/pinned", `{"messageTemplate":"{b}"}`).wantAdminError(t, 409, "pinned")
	s.adminRequest("DELETE", "/hooks/mappings/pinned", "").wantAdminError(t, 409, "pinned")
	s.adminRequest("GET", "/hooks/settings", "").wantJSON(t, shown)
}

func TestMaskedSecretsAreKept(t *testing.T) {
	s := startSite(t, "hooks")
	s.adminRequest("PATCH", "/hooks/settings", `{"enabled":true,"token":["`+token+`","old"]}`)
	s.adminRequest("PUT", "/hooks/mappings/signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret"}`)
	const body = `{"a":1}`
	s.request("POST", "/api/hooks/signed", body, "X-Sig", hexHMAC("other", body)).wantError(t, 401)

	shown := s.adminRequest("GET", "/hooks/mappings/signed", "")
	shown.wantJSON(t, `{"name":"signed","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••"}`)
	s.adminRequest("PUT", "/hooks/mappings/signed", shown.body)
	if got := s.request("POST", "/api/hooks/signed", body, "X-Sig", hexHMAC("s3cret", body)).status; got != 200 {
		t.Errorf("after a masked secret was sent back: %d", got)
	}
	s.adminRequest("PUT", "/hooks/mappings/other", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••"}`).wantAdminError(t, 400, "hmacSecret")

	s.adminRequest("PATCH", "/hooks/settings", `{"token":["••••","new"]}`)
	for candidate, want := range map[string]int{token: 200, "new": 200, "old": 401} {
		if got := s.request("POST", "/api/hooks/wake", `{"text":"x"}`, "X-Service-Token", candidate).status; got != want {
			t.Errorf("token %s: got %d, want %d", candidate, got, want)
		}
	}
	s.adminRequest("PATCH", "/hooks/settings", `{"token":["a","b","••••"]}`).wantAdminError(t, 400, "token")
	s.adminRequest("PATCH", "/hooks/settings", `{"token":["••••"]}`).wantAdminError(t, 400, "ambiguous")
	s.adminRequest("PATCH", "/hooks/settings", `{"token":"••••"}`).wantAdminError(t, 400, "ambiguous")
}

func TestPinnedSecretsAreReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startSite(t, "hooks {\n\tenabled\n\ttoken {file."+file+"}\n}")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.adminRequest("PUT", "/hooks/mappings/later", `{}`).wantJSON(t, `{"name":"later"}`)
	if got := s.post("/api/hooks/later", `{}`); got.status != 200 {
		t.Errorf("got %+v", got)
	}
}

func TestBadSettingsChangeNothing(t *testing.T) {
	s := startSite(t, "hooks {\n\tchannel notes log\n}")
	before := s.adminRequest("GET", "/hooks/settings", "").body
	for body, words := range map[string][]string{
		``: {"JSON"}, `[]`: {"object"}, `{"enabled":true} x`: {"JSON"}, `{"enabled":true,"enabled":false}`: {"twice"},
		`{"enabled":"yes"}`: {"enabled"}, `{"enabled":1}`: {"enabled"}, `{"tokens":"x"}`: {"tokens"}, `{"token":1}`: {"token"},
		`{"token":[1]}`: {"token"}, `{"token":["a",""]}`: {"token"}, `{"token":"{env.CADDYHOOKS_NOT_SET}"}`: {"token"},
		`{"defaultTimeoutSeconds":0}`: {"defaultTimeoutSeconds"}, `{"defaultTimeoutSeconds":1.5}`: {"defaultTimeoutSeconds"},
		`{"defaultTimeoutSeconds":3601}`: {"defaultTimeoutSeconds", "3600"}, `{"maxPayloadSize":0}`: {"maxPayloadSize"},
		`{"maxPayloadSize":-1}`: {"maxPayloadSize"}, `{"maxPayloadSize":"much"}`: {"maxPayloadSize"}, `{"maxPayloadSize":"1TB"}`: {"maxPayloadSize"},
		`{"memoryPreset":"all"}`: {"memoryPreset", "general_chat"}, `{"memoryPreset":""}`: {"memoryPreset"},
		`{"enabled":true,"memoryPreset":"all"}`: {"memoryPreset"},
		`{"mappings":{}}`:                       {"mappings"}, `{"mappings":[{"name":"a"},{"name":"a"}]}`: {"two", "a"}, `{"mappings":[{}]}`: {"name"},
		`{"mappings":[{"name":"a"},{"name":"b","action":"x"}]}`: {"action", "b"},
	} {
		s.adminRequest("PATCH", "/hooks/settings", body).wantAdminError(t, 400, words...)
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
	} {
		s.adminRequest("PUT", "/hooks/mappings/bad", body).wantAdminError(t, 400, words...)
	}
	for _, name := range []string{"wake", "agent", "runs", ".x", "-x", "a%20b", strings.Repeat("x", 65), "%C3%A4"} {
		s.adminRequest("PUT", "/hooks/mappings/"+name, `{}`).wantAdminError(t, 400, "name")
	}
	if after := s.adminRequest("GET", "/hooks/settings", "").body; after != before {
		t.Errorf("settings changed from\n%s\nto\n%s", before, after)
	}
}

func TestEveryFieldOfAMappingIsKept(t *testing.T) {
	s := startSite(t, "hooks {\n\tchannel notes log\n}")
	mapping := `{"name":"full","action":"agent","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"••••","hmacPrefix":"sha256=",
		"messageTemplate":"{a}","message":"unused","untrusted":"wrap","chatId":"c:{a}","model":"smart","memoryPreset":"general_chat","syncResponse":true,
		"responseJsonSchema":{"type":"object","z":1.10,"a":"<>"},"responseValidationModelTier":"deep","callbackUrl":"https://example.com/x?a=1&b=2",
		"deliver":true,"channel":"notes","to":"me","timeoutSeconds":5,"metadata":{"n":12345678901234567890}}`
	got := s.adminRequest("PUT", "/hooks/mappings/full", strings.Replace(mapping, "••••", "s3cret", 1))
	got.wantJSON(t, mapping)
	if !strings.Contains(got.body, "12345678901234567890") || !strings.Contains(got.body, "1.10") || strings.Contains(got.body, `\u003c`) {
		t.Errorf("numbers or text changed: %s", got.body)
	}
	s.adminRequest("GET", "/hooks/mappings", "").wantJSON(t, "["+mapping+"]")
}

func TestInstancesAreApart(t *testing.T) {
	s := startSite(t, `
	hooks {
		enabled
		token first
	}
	hooks ops {
		path /ops
		enabled
		token second
	}`)
	s.adminRequest("GET", "/hooks/instances", "").wantJSON(t, `["default","ops"]`)
	s.adminRequest("PUT", "/hooks/instances/ops/mappings/only", `{}`)
	s.adminRequest("GET", "/hooks/mappings", "").wantJSON(t, `[]`)
	s.adminRequest("GET", "/hooks/instances/ops/mappings", "").wantJSON(t, `[{"name":"only"}]`)
	s.adminRequest("GET", "/hooks/instances/default/mappings", "").wantJSON(t, `[]`)
	for _, tc := range []struct {
		path, token string
		want        int
	}{
		{"/api/hooks/wake", "first", 200}, {"/api/hooks/wake", "second", 401}, {"/api/hooks/only", "first", 404},
		{"/ops/wake", "second", 200}, {"/ops/wake", "first", 401}, {"/ops/only", "second", 200},
	} {
		if got := s.request("POST", tc.path, `{"text":"x"}`, "X-Service-Token", tc.token).status; got != tc.want {
			t.Errorf("%s with the token %s: got %d, want %d", tc.path, tc.token, got, tc.want)
		}
	}
	s.adminRequest("GET", "/hooks/instances/nope/settings", "").wantAdminError(t, 404, "nope")
	s.adminRequest("GET", "/hooks/nope", "").wantAdminError(t, 404)
}

func TestAdminMethods(t *testing.T) {
	s := startSite(t, "hooks")
	for path, allowed := range map[string]string{
		"/hooks/settings": "GET, PATCH", "/hooks/mappings": "GET", "/hooks/mappings/x": "GET, PUT, DELETE", "/hooks/instances": "GET",
	} {
		got := s.adminRequest("POST", path, `{}`)
		got.wantAdminError(t, 405)
		if got.header.Get("Allow") != allowed {
			t.Errorf("%s allows %q, want %q", path, got.header.Get("Allow"), allowed)
		}
	}
}

// Requests race with changes of the very mapping they use, and with reloads. Each answer must be one that some setting
// between the start and the end of the request gives.
func TestRequestsRacingWithChangesAreAnsweredRightly(t *testing.T) {
	s := newServer(t)
	config := func(workers int) string {
		return fmt.Sprintf("hooks {\n\tenabled\n\ttoken %s\n\tworkers %d\n}", token, workers)
	}
	s.load(config(4))
	var sent, saved atomic.Int64
	put := func(n int64) {
		sent.Store(n)
		for {
			// Caddy restarts its admin endpoint at every reload.
			got, err := tryRequest("PUT", s.admin+"/hooks/mappings/racing",
				fmt.Sprintf(`{"action":"agent","syncResponse":true,"messageTemplate":"%d {n}"}`, n))
			if err != nil {
				continue
			}
			if got.status != 200 {
				t.Errorf("PUT: %+v", got)
			}
			saved.Store(n)
			return
		}
	}
	put(0)

	const requests, clients = 2000, 8
	done := make(chan struct{})
	var changes, load sync.WaitGroup
	changes.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-done:
				return
			default:
				put(n)
			}
		}
	})
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				s.load(config(4 + n%4))
			}
		}
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var answered atomic.Int64
	for c := range clients {
		load.Go(func() {
			for i := range requests / clients {
				n := fmt.Sprint(c*requests + i)
				before := saved.Load()
				answer, status := askRetrying(t, client, s.url+"/api/hooks/racing", `{"n":`+n+`}`)
				after := sent.Load()
				var v int64
				var echoed string
				if _, err := fmt.Sscanf(answer, "%d %s", &v, &echoed); err != nil || status != 200 || echoed != n || v < before || v > after {
					t.Errorf("got %d %q for %s between versions %d and %d", status, answer, n, before, after)
				}
				answered.Add(1)
			}
		})
	}
	load.Wait()
	close(done)
	changes.Wait()
	if answered.Load() != requests {
		t.Errorf("%d of %d requests were answered", answered.Load(), requests)
	}
	t.Logf("%d requests beside %d changes", answered.Load(), saved.Load())
}

// askRetrying sends a request. At a reload Caddy closes idle connections and resets fresh ones it has not taken yet;
// only such a request, which has not been answered at all, is sent again.
func askRetrying(t *testing.T, client *http.Client, url, body string) (string, int) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		req, err := http.NewRequest("POST", url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return "", 0
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Errorf("an answer broke off: %v", err)
		}
		return string(data), resp.StatusCode
	}
	t.Error("a request was never answered")
	return "", 0
}

func hexHMAC(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}
