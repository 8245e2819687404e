package caddyhooks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestPayloadsAreSignedAsTheirSendersDo(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	s.PutMapping("live", `{"action":"agent","authMode":"hmac","hmacHeader":"x-sig","hmacSecret":"`+secretsOfHooks+`"}`)
	s.PutMapping("token", `{}`)
	const payload = "{\"issue\": {\"number\":  1207}}\n"
	for name, header := range map[string]string{"signed": "X-Signature", "live": "X-Sig"} {
		resp := s.AdminRequest("POST", "/hooks/mappings/"+name+"/sign", payload)
		if resp.Status != 200 || resp.Field(t, "header") != header || strings.Contains(resp.Body, secretsOfHooks) {
			t.Fatalf("%s: got %d %s", name, resp.Status, resp.Body)
		}
		value := resp.Field(t, "value").(string)
		if got := s.Request("POST", "/api/hooks/"+name, payload, header, value); got.Status != 202 {
			t.Errorf("%s: a request with %s: %s is answered %d %s", name, header, value, got.Status, got.Body)
		}
		if got := s.Request("POST", "/api/hooks/"+name, payload+" ", header, value); got.Status != 401 {
			t.Errorf("%s: another body is answered %d", name, got.Status)
		}
	}
	s.AdminRequest("POST", "/hooks/mappings/token/sign", payload).WantAdminError(t, 409, "token", "not signed", "bearer")
	s.AdminRequest("POST", "/hooks/mappings/nobody/sign", payload).WantAdminError(t, 404, "nobody")
	s.AdminRequest("POST", "/hooks/mappings/agent/sign", payload).WantAdminError(t, 404, "agent")
	s.AdminRequest("POST", "/hooks/mappings/signed/sign", strings.Repeat(" ", 4<<20+1)).WantAdminError(t, 413, "larger")
}

func TestATryOutHasHeaders(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	s.PutMapping("live", `{"action":"agent","messageTemplate":"{@query.team}","only":["header X-Event issues"]}`)
	s.AdminRequest("POST", "/hooks/mappings/live/test", `{}`).WantAdminError(t, 409, "ignores", "header X-Event issues")
	s.AdminRequest("POST", "/hooks/mappings/live/test?headers=nonsense", `{}`).WantAdminError(t, 400, "headers")
	resp := s.AdminRequest("POST", "/hooks/mappings/live/test?headers=Accept%3A+x%0Ax-event%3A+issues&query=team%3Dblue", `{}`)
	if resp.Status != 202 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if run := s.Ended(resp.Field(t, "runId").(string)); !strings.Contains(run.Reply, "blue") {
		t.Errorf("it ended as %s", run.Body)
	}
}

func TestEverySchemeThatSignsIsTriedOut(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	var about struct {
		Schemes []struct {
			Name, Title string
			Fields      []string
			Signs       bool

			SuccessStatus int
		}
	}
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/about", "").Body), &about); err != nil || len(about.Schemes) < 15 {
		t.Fatalf("%d schemes, %v", len(about.Schemes), err)
	}
	for _, scheme := range about.Schemes {
		secret := "whsec_" + strings.Repeat("MDEy", 12)
		mapping := map[string]any{"action": "agent", "authMode": scheme.Name, "from": []string{"127.0.0.0/8"}}
		for _, field := range scheme.Fields {
			if field == "hmacSecret" || field == "authSecret" {
				mapping[field] = secret
			}
		}
		if slices.Contains(scheme.Fields, "hmacHeader") {
			mapping["hmacHeader"] = "X-Signature"
		}
		switch scheme.Name {
		case "discord":
			mapping["authSecret"] = strings.Repeat("d7", 32)
		case "sendgrid":
			mapping["authSecret"] = sendgridKey
		}
		if scheme.Name == "oidc" {
			mapping["oidcIssuer"], mapping["oidcAudience"] = "https://issuer.example", []string{"hooks"}
		}
		s.PutMapping(scheme.Name, hookstest.AsJSON(t, mapping))
		if !scheme.Signs {
			continue
		}
		const payload = `{"webhookTimestamp":1}`
		resp := s.AdminRequest("POST", "/hooks/mappings/"+scheme.Name+"/sign", payload)
		var signed struct {
			Headers []struct{ Name, Value string }
			URL     string
		}
		if err := json.Unmarshal([]byte(resp.Body), &signed); err != nil || resp.Status != 200 || strings.Contains(resp.Body, secret) {
			t.Fatalf("%s: %d %s", scheme.Name, resp.Status, resp.Body)
		}
		var headers []string
		for _, header := range signed.Headers {
			headers = append(headers, header.Name, header.Value)
		}
		path := "/api/hooks/" + scheme.Name
		if _, rest, ok := strings.Cut(signed.URL, path); ok {
			path += rest
		}
		want := 202
		if scheme.SuccessStatus != 0 {
			want = scheme.SuccessStatus
		}
		if got := s.Request("POST", path, payload, headers...); scheme.Name != "linear" && got.Status != want {
			t.Errorf("%s: a request with %v is answered %d %s", scheme.Name, headers, got.Status, got.Body)
		}
	}
}

// sendgridKey is the public key in the recipe for SendGrid.
const sendgridKey = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIxnXxZxEsNYXF/TUFutVUEUJaZAknmFfLHogzGc2rFa1TaYc1JfO/J7k+o/OWvY5Qa1U9ptxV9i2vC4bH5J7zg=="

// GitLab signs with some secrets, and sends others as they are.
func TestATokenIsNotSigned(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	s.PutMapping("classic", `{"authMode":"gitlab","authSecret":"`+secretsOfHooks+`"}`)
	resp := s.AdminRequest("POST", "/hooks/mappings/classic/sign", `{}`)
	if resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"headers":[],"url":"","header":"","value":""}` {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	s.PutMapping("own", `{"authMode":"token","authSecret":"`+secretsOfHooks+`"}`)
	s.AdminRequest("POST", "/hooks/mappings/own/sign", `{}`).WantAdminError(t, 409, "own", "not signed", "token")
}

func TestAHookIsTriedOut(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn := hookstest.StartRunner(t, hookstest.ReplyText(`{"n":1}`))
			callbacks := hookstest.StartReceiver(t)
			log := filepath.Join(t.TempDir(), "default.log")
			s := hookstest.NewServer(t)
			s.Globals = "log {\n output file " + log + "\n}\n"
			site := hookstest.Hooks(rn, "store "+store+"\nchannel notes log\n"+hookstest.WithCallbacks)
			s.Load(site)
			s.PutMapping("full", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"`+secretsOfHooks+`","messageTemplate":"Issue {n}",
				"untrusted":"wrap","chatId":"chat {n}","model":"smart","syncResponse":true,"responseJsonSchema":{"required":["n"]},"responseValidationModelTier":"deep",
				"callbackUrl":"`+callbacks.URL+`","deliver":true,"channel":"notes","to":"somebody","metadata":{"a":1},"timeoutSeconds":77,"queueTimeSeconds":7}`)
			s.PutMapping("waking", `{"messageTemplate":"Wake {n}"}`)

			test := func(name, payload string) string {
				t.Helper()
				resp := s.AdminRequest("POST", "/hooks/mappings/"+name+"/test", payload)
				if resp.Status != 202 || resp.Field(t, "chatId") != "test:"+name || strings.Contains(resp.Body, secretsOfHooks) {
					t.Fatalf("got %d %s", resp.Status, resp.Body)
				}
				return resp.Field(t, "runId").(string)
			}
			id := test("full", `{"n":7}`)
			turn := rn.Next()
			if message := turn.Text("message"); !strings.HasPrefix(message, "Issue [EXTERNAL WEBHOOK DATA id=") || turn.Text("chatId") != "test:full" || turn.Text("tier") != "deep" {
				t.Errorf("the agent got %v", turn.Body)
			}
			run := s.Ended(id)
			if run.Status != "completed" || run.Hook != "full" || run.Reply != `{"n":1}` || run.Deliveries != nil {
				t.Errorf("it ended as %s", run.Body)
			}
			record := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body
			if strings.Contains(record, `"client"`) || strings.Contains(record, secretsOfHooks) {
				t.Errorf("the run is shown as %s", record)
			}
			test("waking", `{"n":8}`)
			if got := rn.Next().WakeText(t); got != "Wake 8" {
				t.Errorf("the agent got %s", got)
			}

			// A request after the tests: nothing of them is sent out before it, or at all.
			if got := s.CallBack("after all that", callbacks.URL); got == "" {
				t.Fatal("there is no run")
			}
			rn.Next()
			if got := callbacks.Next(); !strings.Contains(got.Body, `{"n":1}`) {
				t.Errorf("received %+v", got)
			}
			if all := s.Deliveries(""); len(all) != 1 || all[0].Kind != "callback" || all[0].RunID == id {
				t.Errorf("there are the deliveries %+v", all)
			}

			lines := linesOf(t, log, id) // the run may be quicker than the one who started it
			slices.SortFunc(lines, func(a, b map[string]any) int { return strings.Compare(a["msg"].(string), b["msg"].(string)) })
			if len(lines) != 2 || lines[0]["msg"] != "hook tried" || lines[0]["by"] != "the admin API, from 127.0.0.1" || lines[0]["hook"] != "full" ||
				lines[1]["msg"] != "run finished" || lines[1]["test"] != true || lines[1]["client"] != "" {
				t.Errorf("the log says %v", lines)
			}

			s.Reload(strings.Replace(site, "enabled", "", 1))
			if resp := s.Post("/api/hooks/waking", "{}"); resp.Status != 404 {
				t.Fatalf("webhooks are not off: %d %s", resp.Status, resp.Body)
			}
			test("full", `{"n":9}`)
			rn.Next()
			s.AdminRequest("POST", "/hooks/mappings/full/test", `{`).WantAdminError(t, 400, "JSON")
			s.AdminRequest("POST", "/hooks/mappings/nobody/test", `{}`).WantAdminError(t, 404, "nobody")
			s.AdminRequest("POST", "/hooks/mappings/wake/test", `{}`).WantAdminError(t, 404, "wake")
			s.PatchSettings(`{"maxPayloadSize":10}`)
			s.AdminRequest("POST", "/hooks/mappings/full/test", `{"n":"0123456789"}`).WantAdminError(t, 413, "maxPayloadSize", "10")
		})
	}
}

// linesOf are the lines of a log about a run.
func linesOf(t *testing.T, log, id string) (lines []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["run_id"] == id {
			lines = append(lines, fields)
		}
	}
	return lines
}

func TestSamplesOfAHookAreShown(t *testing.T) {
	site := strings.Replace(signedSite, "runner echo", "runner echo\nstore memory", 1)
	s := hookstest.StartSite(t, site)
	s.PutMapping("live", `{"action":"agent"}`)
	samples := func(hook string) (payloads []string) {
		t.Helper()
		resp := s.AdminRequest("GET", "/hooks/samples?hook="+hook, "")
		var shown struct {
			Samples []struct {
				At, ContentType, Payload string
				Bytes                    int
			}
		}
		if err := json.Unmarshal([]byte(resp.Body), &shown); err != nil || resp.Status != 200 || shown.Samples == nil {
			t.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
		}
		for _, sample := range shown.Samples {
			payloads = append(payloads, sample.Payload)
			if sample.Bytes != len(sample.Payload) || sample.At == "" || sample.ContentType != "text/x-test" {
				t.Errorf("a sample is %+v", sample)
			}
		}
		return payloads
	}
	want := func(hook string, payloads ...string) {
		t.Helper()
		if got := samples(hook); strings.Join(got, "|") != strings.Join(payloads, "|") {
			t.Errorf("the samples of %s are %q, want %q", hook, got, payloads)
		}
	}
	kind := []string{"Content-Type", "text/x-test"}
	want("live")
	s.Post("/api/hooks/live", `{"a": 1}`, kind...)
	s.Post("/api/hooks/live", `{"too": "soon"}`, kind...)
	s.Post("/api/hooks/agent", `{"message":"hello"}`, kind...)
	s.Post("/api/hooks/wake", `{"text":"hello"}`, kind...)
	s.Request("POST", "/api/hooks/signed", `{"not": "signed"}`, kind...)
	want("live", `{"a": 1}`)
	want("agent") // it has no template to try out, and its payload may hold the secret URL of a callback
	want("wake")
	want("signed")
	s.AdminRequest("GET", "/hooks/samples", "").WantAdminError(t, 400, "hook")
	s.AdminRequest("GET", "/hooks/samples?hook=nobody", "").WantAdminError(t, 404, "nobody")

	s.Reload(site)
	want("live", `{"a": 1}`)
	s.PutMapping("live", `{"action":"agent","historySeconds":0}`)
	want("live")
	s.Post("/api/hooks/live", `{"a": 2}`, kind...)
	s.PutMapping("live", `{"action":"agent"}`)
	want("live")
	s.Post("/api/hooks/live", `{"a": 2}`, kind...)
	s.PatchSettings(`{"historySeconds":0}`)
	want("live")
	s.PatchSettings(`{"historySeconds":null}`)
	s.Post("/api/hooks/live", `{"a": 3}`, kind...)
	want("live", `{"a": 3}`)
	s.Reload(strings.Replace(site, "enabled", "enabled\nhistory off", 1))
	s.Reload(site)
	want("live")
}
