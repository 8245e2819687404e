package caddyhooks_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// signature is the HMAC-SHA256 of body in hex.
func signature(secret, body string) string {
	return hex.EncodeToString(rawSignature(secret, body))
}

func rawSignature(secret, body string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return mac.Sum(nil)
}

// behindProxy makes the client address that of X-Forwarded-For.
const behindProxy = "servers {\n trusted_proxies static 127.0.0.1/32\n}"

// GitHub documents this signature of this body.
const (
	githubSecret    = "It's a Secret to Everybody"
	githubBody      = "Hello, World!"
	githubSignature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

func TestGitHubsDocumentedSignatureIsVerified(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.NewServer(t)
	s.Globals = behindProxy
	s.Load(hookstest.Hooks(rn, "workers 1\n hook github {\n auth hmac X-Hub-Signature-256 \""+githubSecret+"\" sha256=\n }"))

	t.Run("and then the body is no JSON", func(t *testing.T) {
		s.Request("POST", "/api/hooks/github", githubBody, "X-Hub-Signature-256", "sha256="+githubSignature).WantError(t, 400, "JSON")
	})
	t.Run("with any bit flipped it fails", func(t *testing.T) {
		for bit := range 256 {
			raw, _ := hex.DecodeString(githubSignature)
			raw[bit/8] ^= 1 << (bit % 8)
			// Every one comes from an address of its own, so that none is throttled.
			s.Request("POST", "/api/hooks/github", githubBody, "X-Hub-Signature-256", "sha256="+hex.EncodeToString(raw),
				"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", bit)).WantError(t, 401, "signature")
		}
	})
	t.Run("with any bit of the body flipped it fails", func(t *testing.T) {
		for bit := range 8 * len(githubBody) {
			body := []byte(githubBody)
			body[bit/8] ^= 1 << (bit % 8)
			s.Request("POST", "/api/hooks/github", string(body), "X-Hub-Signature-256", "sha256="+githubSignature,
				"X-Forwarded-For", fmt.Sprintf("198.51.100.%d", bit)).WantError(t, 401, "signature")
		}
	})
	rn.WantNoTurn(s)
}

func TestTokensRotate(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	wake := func(s *hookstest.Server, token string) hookstest.Response {
		return s.Request("POST", "/api/hooks/wake", `{"text":"hello"}`, "Authorization", "Bearer "+token)
	}
	block := func(tokens string) string {
		return "hooks {\n enabled\n token " + tokens + "\n runner http " + rn.URL + "\n}"
	}
	t.Run("in the configuration", func(t *testing.T) {
		s := hookstest.StartSite(t, block("old-token"))
		if resp := wake(s, "old-token"); resp.Status != 200 {
			t.Fatalf("before: got %d", resp.Status)
		}
		wake(s, "new-token").WantError(t, 401)
		s.Load(block("old-token new-token"))
		hookstest.Eventually(t, "the new configuration has taken over", func() bool {
			resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/wake", `{"text":"hello"}`, "Authorization", "Bearer new-token")
			return err == nil && resp.Status == 200
		})
		for _, token := range []string{"old-token", "new-token"} {
			if resp := wake(s, token); resp.Status != 200 {
				t.Errorf("%s while both are good: got %d", token, resp.Status)
			}
		}
		for _, token := range []string{"old-token new-token", "old-token,new-token", "old-tokennew-token", "old-toke", "old-token2"} {
			wake(s, token).WantError(t, 401)
		}
		s.Reload(block("new-token"))
		hookstest.Eventually(t, "the new configuration has taken over", func() bool {
			resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/wake", `{"text":"hello"}`, "Authorization", "Bearer old-token")
			return err == nil && resp.Status == 401
		})
		if resp := wake(s, "new-token"); resp.Status != 200 {
			t.Errorf("after: got %d", resp.Status)
		}
	})
	t.Run("through the admin API", func(t *testing.T) {
		s := hookstest.StartSite(t, "hooks {\n enabled\nrunner echo\n}")
		s.PatchSettings(`{"token":"old-token"}`)
		s.PatchSettings(`{"token":["••••","new-token"]}`)
		for _, token := range []string{"old-token", "new-token"} {
			if resp := wake(s, token); resp.Status != 200 {
				t.Errorf("%s while both are good: got %d", token, resp.Status)
			}
		}
		s.PatchSettings(`{"token":"new-token"}`)
		wake(s, "old-token").WantError(t, 401)
		wake(s, "••••").WantError(t, 401)
		if resp := wake(s, "new-token"); resp.Status != 200 {
			t.Errorf("after: got %d", resp.Status)
		}
	})
}

// Secrets that are easy to find in whatever they may have leaked into.
const (
	loudToken  = "loud-token-0123456789"
	loudSecret = "loud-secret-0123456789"
)

// wantNoSecrets checks that text holds no secret in any form, and none of the others.
func wantNoSecrets(t testing.TB, where, text string, others ...string) {
	t.Helper()
	forms := others
	for _, secret := range []string{loudToken, loudSecret} {
		sum := sha256.Sum256([]byte(secret))
		forms = append(forms, secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))[:20],
			hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]))
	}
	lower := strings.ToLower(text)
	for _, form := range forms {
		if strings.Contains(lower, strings.ToLower(form)) {
			t.Errorf("%s holds %s:\n%s", where, form, text)
		}
	}
}

// loggedSite is a site that logs everything it can to files, with its webhooks on.
func loggedSite(t *testing.T, rn *hookstest.Runner, more string, globals ...string) (s *hookstest.Server, accessLog, errorLog string) {
	t.Helper()
	dir := t.TempDir()
	accessLog, errorLog = filepath.Join(dir, "access.log"), filepath.Join(dir, "default.log")
	s = hookstest.NewServer(t)
	s.Globals = "log {\n output file " + errorLog + "\n level DEBUG\n}\n" + strings.Join(globals, "\n")
	s.Load(`
	log {
		output file ` + accessLog + `
	}
	` + more + `
	hooks {
		enabled
		token ` + loudToken + `
		runner http ` + rn.URL + `
		hook bearer
		hook signed {
			auth hmac X-Loud-Signature ` + loudSecret + ` sha256=
		}
	}`)
	return s, accessLog, errorLog
}

// waitForLines waits until a log has n entries of handled requests, and returns the log.
func waitForLines(t testing.TB, file string, n int) string {
	t.Helper()
	var data []byte
	hookstest.Eventually(t, fmt.Sprintf("%d entries in the log", n), func() bool {
		data, _ = os.ReadFile(file)
		return bytes.Count(data, []byte("\n")) >= n
	})
	return string(data)
}

func TestAccessLogsHoldNoSecrets(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s, accessLog, defaultLog := loggedSite(t, rn, "respond /elsewhere \"elsewhere\" 201\n error /broken \"broken\" 500\n error /gone 410")
	const body = `{"text":"a","message":"b"}`
	good, bad := signature(loudSecret, body), signature(loudSecret, "another body")
	tokenHeader := []string{"X-Service-Token", loudToken}
	nearly := []string{"X-Service-Token", loudToken + "x"}
	requests := []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"wake with its token in a header of its own", "POST", "/api/hooks/wake", tokenHeader, 200},
		{"wake with Authorization", "POST", "/api/hooks/wake", []string{"Authorization", "Bearer " + loudToken}, 200},
		{"wake with both", "POST", "/api/hooks/wake", append([]string{"Authorization", "Bearer " + loudToken}, tokenHeader...), 200},
		{"wake with a token in two lines", "POST", "/api/hooks/wake", append(tokenHeader, nearly...), 200},
		{"wake with a wrong token", "POST", "/api/hooks/wake", nearly, 401},
		{"wake with a token in another scheme", "POST", "/api/hooks/wake", []string{"Authorization", "Token " + loudToken}, 401},
		{"agent", "POST", "/api/hooks/agent", tokenHeader, 202},
		{"custom hook", "POST", "/api/hooks/bearer", tokenHeader, 200},
		{"signed hook", "POST", "/api/hooks/signed", []string{"X-Loud-Signature", "sha256=" + good}, 200},
		{"signed hook with a wrong signature", "POST", "/api/hooks/signed", []string{"X-Loud-Signature", "sha256=" + bad}, 401},
		{"signed hook with a token beside it", "POST", "/api/hooks/signed", append([]string{"X-Loud-Signature", "sha256=" + good}, tokenHeader...), 200},
		{"signature sent to wake", "POST", "/api/hooks/wake", []string{"X-Loud-Signature", "sha256=" + good}, 401},
		{"unknown hook", "POST", "/api/hooks/unknown", tokenHeader, 404},
		{"wrong method", "GET", "/api/hooks/wake", tokenHeader, 405},
		{"another path", "POST", "/elsewhere", append([]string{"X-Loud-Signature", "sha256=" + good}, tokenHeader...), 201},
		{"a path that nothing serves", "POST", "/nowhere", tokenHeader, 200},
		{"a path with an error of the client", "POST", "/gone", tokenHeader, 410},
		{"a path with an error of the server", "POST", "/broken", append([]string{"X-Loud-Signature", "sha256=" + good}, tokenHeader...), 500},
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, r := range requests {
		req, err := http.NewRequest(r.method, s.URL+r.path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Name", r.name)
		for i := 0; i < len(r.headers); i += 2 {
			req.Header.Add(r.headers[i], r.headers[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != r.status {
			t.Errorf("%s: got %d, want %d", r.name, resp.StatusCode, r.status)
		}
	}

	entries := make(map[string]string)
	headers := make(map[string]http.Header)
	status := make(map[string]float64)
	for line := range strings.Lines(waitForLines(t, accessLog, len(requests))) {
		var entry struct {
			Status  float64
			Msg     string
			Request struct{ Headers http.Header }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		name := entry.Request.Headers.Get("X-Request-Name")
		entries[name] += line
		headers[name] = entry.Request.Headers
		if entry.Status != 0 {
			status[name] = entry.Status
		}
	}
	others, _ := os.ReadFile(defaultLog)
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			entry := entries[r.name]
			if r.path != "/nowhere" && status[r.name] != float64(r.status) {
				t.Errorf("there is no entry with status %d: %s", r.status, entry)
			}
			for line := range strings.Lines(string(others)) {
				if strings.Contains(line, r.name) {
					entry += line
				}
			}
			if r.status == 410 || r.status == 500 {
				return // another handler's error, which Caddy alone can log
			}
			wantNoSecrets(t, "the log", entry, good, bad)
			for i := 0; i < len(r.headers); i += 2 {
				if got := headers[r.name][r.headers[i]]; !slices.Equal(got, []string{"REDACTED"}) {
					t.Errorf("%s is %v in the log", r.headers[i], got)
				}
			}
		})
	}
}

// Senders and gateways write names of headers in many ways, and a secret is one in each of them. Caddy drops some of them
// before any handler runs, unless it is told not to, and has them in its access log.
// The first instance on a site writes the entry of a request with a token, whichever instance the request is for.
func TestAccessLogHidesSecretsOfAllInstances(t *testing.T) {
	s, accessLog, _ := loggedSite(t, hookstest.StartRunner(t, nil), "hooks other {\n path /other\n enabled\n runner echo\n token "+loudToken+"\n hook signed {\n auth hmac X-Other-Signature "+loudSecret+"\n}\n}")
	for i, path := range []string{"/other/signed", "/api/hooks/signed"} {
		s.Request("POST", path+"?token="+loudToken+"&wait=1s&"+loudToken, "{}", "X-Service-Token", loudToken, "X-Other-Signature", "abcabc", "X-Loud-Signature", "defdef")
		log := waitForLines(t, accessLog, i+1)
		wantInLog(t, log, 0, loudToken, "abcabc", "defdef")
		wantInLog(t, log, i+1, "?token=REDACTED&wait=1s&REDACTED")
	}
}

// A sender whose hook is gone, or not there yet, still sends its secret.
func TestAccessLogHidesTheHeadersOfAllSenders(t *testing.T) {
	s, accessLog, _ := loggedSite(t, hookstest.StartRunner(t, nil), "respond /elsewhere \"elsewhere\" 201")
	var headers []string
	for _, name := range []string{"X-Gitlab-Token", "X-Telegram-Bot-Api-Secret-Token", "Stripe-Signature", "X-Slack-Signature", "Webhook-Signature"} {
		headers = append(headers, name, loudSecret)
	}
	for i, path := range []string{"/api/hooks/none", "/api/hooks/bearer", "/elsewhere"} {
		s.Request("POST", path, "{}", headers...)
		log := waitForLines(t, accessLog, i+1)
		wantInLog(t, log, 0, loudSecret)
		wantInLog(t, log, i+1, `"X-Gitlab-Token":["REDACTED"]`, `"Stripe-Signature":["REDACTED"]`)
	}
}

func TestAccessLogsHoldNoSecretsInHeadersOfOtherSpellings(t *testing.T) {
	good := signature(loudSecret, "{}")
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("Caddy keeps them: %v", keeps), func(t *testing.T) {
			rn := hookstest.StartRunner(t, nil)
			var globals []string
			if keeps {
				globals = []string{"servers {\n expected_underscore_headers X_Service_Token X_Loud_Signature\n}"}
			}
			s, accessLog, defaultLog := loggedSite(t, rn, "respond /elsewhere \"elsewhere\" 201", globals...)
			var requests int
			send := func(path, name, value string) {
				t.Helper()
				conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: %s\r\nX-Kept: kept\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", path, name, value)
				if _, err := io.ReadAll(conn); err != nil {
					t.Fatal(err)
				}
				requests++
			}
			for name, value := range map[string]string{
				"X_Service_Token": loudToken, "x_service_token": loudToken, "X_SERVICE_TOKEN": loudToken, "X_Service-Token": loudToken,
				"x-sERVICE-tOKEN": loudToken, "X.Service.Token": loudToken, "X-Service_token": loudToken, "X_Service.Token": loudToken,
				"X_Loud_Signature": "sha256=" + good, "x-loud_signature": "sha256=" + good, "X-lOUD-sIGNATURE": "sha256=" + good,
				"aUTHORIZATION": "Bearer " + loudToken, "AUTHORIZATION": loudToken,
			} {
				for _, path := range []string{"wake", "signed", "unknown", "runs/x"} {
					send("/api/hooks/"+path, name, value)
				}
			}
			send("/elsewhere", "AUTHORIZATION", loudToken)
			if keeps {
				send("/elsewhere", "X_Service_Token", loudToken)
				send("/elsewhere", "x_loud_signature", good)
			} else {
				send("/elsewhere", "x-sERVICE-tOKEN", loudToken)
			}
			log := waitForLines(t, accessLog, requests)
			if kept := strings.Count(log, "X-Kept"); kept != requests {
				t.Errorf("%d of %d entries have the headers that are no secrets", kept, requests)
			}
			wantNoSecrets(t, "the access log", log, good)
			for name, shown := range map[string]bool{"X-Service-Token": !keeps, "X-Loud-Signature": !keeps, "X_service_token": keeps, "X_loud_signature": keeps} {
				if got := strings.Contains(log, `"`+name+`":["REDACTED"]`); got != shown {
					t.Errorf("%s is shown as redacted: %v", name, got)
				}
			}
			others, err := os.ReadFile(defaultLog)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(others)) {
				if !strings.Contains(line, "adjusted config") { // at this level Caddy logs the configuration itself
					wantNoSecrets(t, "the log", line, good)
				}
			}
		})
	}
}

func TestAccessLogIsThatOfCaddyButForTheSecrets(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s, accessLog, _ := loggedSite(t, rn, "respond /elsewhere \"elsewhere\" 201")
	s.Request("POST", "/elsewhere?a=b", `{"text":"a"}`, "Authorization", "Bearer "+loudToken, "X-Kept", "kept")
	s.Request("POST", "/elsewhere?a=b", `{"text":"a"}`, "Authorization", "Bearer "+loudToken, "X-Kept", "kept", "X-Service-Token", loudToken)
	var entries []map[string]any
	for line := range strings.Lines(waitForLines(t, accessLog, 2)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		// What differs from one request to the next.
		delete(entry, "ts")
		delete(entry, "duration")
		delete(entry["request"].(map[string]any), "remote_port")
		delete(entry["request"].(map[string]any)["headers"].(map[string]any), "X-Service-Token")
		entries = append(entries, entry)
	}
	if len(entries) != 2 || hookstest.AsJSON(t, entries[0]) != hookstest.AsJSON(t, entries[1]) {
		t.Errorf("got\n%s\nwhere Caddy has\n%s", hookstest.AsJSON(t, entries[1]), hookstest.AsJSON(t, entries[0]))
	}
}

func TestLogsHoldNoSecretsOfRuns(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		if strings.Contains(tn.Text("message"), "fail") {
			http.Error(w, "only the first line is logged\nthe runner knows "+loudSecret, http.StatusInternalServerError)
		}
	})
	s, _, defaultLog := loggedSite(t, rn, "")
	resp := s.Request("POST", "/api/hooks/agent", `{"message":"fail","syncResponse":true}`, "X-Service-Token", loudToken)
	resp.WantError(t, 502)
	wantNoSecrets(t, "the answer", resp.Body)
	if resp := s.Request("POST", "/api/hooks/agent", `{"message":"go","syncResponse":true}`, "X-Service-Token", loudToken); resp.Status != 200 {
		t.Fatalf("got %d", resp.Status)
	}
	var log string
	hookstest.Eventually(t, "both runs are in the log", func() bool {
		data, _ := os.ReadFile(defaultLog)
		log = string(data)
		return strings.Count(log, "run finished") == 2
	})
	for line := range strings.Lines(log) {
		// At this level Caddy logs the configuration itself.
		if !strings.Contains(line, "adjusted config") {
			wantNoSecrets(t, "the log", line)
		}
	}
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s, _, _ := loggedSite(t, rn, "")
	const body = `{"a":1}`
	good := signature(loudSecret, body)
	for _, r := range []struct {
		path    string
		body    string
		headers []string
		status  int
	}{
		{"/api/hooks/wake", body, []string{"Authorization", "Bearer " + loudToken + "x"}, 401},
		{"/api/hooks/wake", body, []string{"X-Service-Token", loudToken + "x"}, 401},
		{"/api/hooks/signed", body, []string{"X-Loud-Signature", good}, 401},
		{"/api/hooks/signed", "{", []string{"X-Loud-Signature", "sha256=" + signature(loudSecret, "{")}, 400},
		{"/api/hooks/wake", `{"text":"` + loudToken, []string{"X-Service-Token", loudToken}, 400},
		{"/api/hooks/agent", `{"message":"a","model":"` + loudToken + `"}`, []string{"X-Service-Token", loudToken}, 400},
		{"/api/hooks/" + loudToken, `{}`, []string{"X-Service-Token", loudToken}, 404},
	} {
		resp := s.Request("POST", r.path, r.body, r.headers...)
		resp.WantError(t, r.status)
		wantNoSecrets(t, fmt.Sprintf("the answer %d", r.status), fmt.Sprint(resp.Header, resp.Body), good)
	}
}

func TestAdminAnswersHoldNoSecrets(t *testing.T) {
	t.Setenv("HOOKS_LOUD", loudSecret)
	s := hookstest.StartSite(t, `hooks {
		enabled
		runner echo
		hook pinned {
			auth hmac X-Signature {env.HOOKS_LOUD}
		}
	}`)
	for _, r := range []struct{ method, path, body string }{
		{"PATCH", "/hooks/settings", `{"token":"` + loudToken + `"}`},
		{"PATCH", "/hooks/settings", `{"token":["` + loudToken + `","` + loudToken + `2"]}`},
		{"PATCH", "/hooks/settings", `{"token":["` + loudToken + `",""]}`},
		{"PATCH", "/hooks/settings", `{"token":{"a":"` + loudToken + `"}}`},
		{"PUT", "/hooks/mappings/live", `{"authMode":"hmac","hmacHeader":"X-Signature","hmacSecret":"` + loudSecret + `"}`},
		{"PUT", "/hooks/mappings/live", `{"authMode":"hmac","hmacHeader":"X_Signature","hmacSecret":"` + loudSecret + `"}`},
		{"PUT", "/hooks/mappings/live", `{"authMode":"hmac","hmacHeader":"` + loudSecret + ` ","hmacSecret":["` + loudSecret + `"]}`},
		{"GET", "/hooks/settings", ""},
		{"GET", "/hooks/mappings", ""},
		{"GET", "/hooks/mappings/live", ""},
		{"GET", "/hooks/mappings/pinned", ""},
		{"GET", "/hooks/instances/default/settings", ""},
		{"PATCH", "/hooks/settings", `{"mappings":[{"name":"a","hmacSecret":"` + loudSecret + `"}]}`},
	} {
		resp := s.AdminRequest(r.method, r.path, r.body)
		wantNoSecrets(t, fmt.Sprintf("%s %s (%d)", r.method, r.path, resp.Status), resp.Body)
	}
	if shown := s.AdminRequest("GET", "/hooks/settings", "").Field(t, "token"); hookstest.AsJSON(t, shown) != `["••••","••••"]` {
		t.Errorf("tokens are shown as %v", shown)
	}
}

func TestFailedCredentialsAreThrottledByAddress(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.NewServer(t)
	s.Globals = behindProxy
	s.Load(hookstest.Hooks(rn, "workers 1\n hook signed {\n auth hmac X-Signature secret\n }"))
	wake := func(addr, token string) hookstest.Response {
		return s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+token, "X-Forwarded-For", addr)
	}
	// A wrong method is no bad credential.
	for range 30 {
		s.Request("GET", "/api/hooks/wake", "", "X-Forwarded-For", "192.0.2.1").WantError(t, 405)
	}
	// An address counts as one however it is written, and all hooks count together.
	for i := range 20 {
		switch i % 4 {
		case 0:
			wake("192.0.2.1", "wrong").WantError(t, 401)
		case 1:
			wake("::ffff:192.0.2.1", "wrong").WantError(t, 401)
		case 2:
			wake("::ffff:c000:201", "wrong").WantError(t, 401)
		case 3:
			s.Request("POST", "/api/hooks/signed", `{}`, "X-Forwarded-For", "192.0.2.1").WantError(t, 401)
		}
	}
	for _, addr := range []string{"192.0.2.1", "::ffff:192.0.2.1"} {
		resp := wake(addr, "wrong")
		resp.WantError(t, 429, "address")
		seconds, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
		if err != nil || seconds < time.Second || seconds > time.Minute {
			t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
		}
	}
	s.Request("POST", "/api/hooks/signed", `{}`, "X-Signature", "wrong", "X-Forwarded-For", "192.0.2.1").WantError(t, 429)
	rn.WantNoTurn(s)

	t.Run("another address is not", func(t *testing.T) { wake("192.0.2.2", "wrong").WantError(t, 401) })
	t.Run("an IPv6 network is one", func(t *testing.T) {
		for i := range 20 {
			wake(fmt.Sprintf("2001:db8:1:2::%x", i), "wrong").WantError(t, 401)
		}
		wake("2001:db8:1:2:ffff:ffff:ffff:ffff", "wrong").WantError(t, 429)
		wake("2001:db8:1:3::1", "wrong").WantError(t, 401)
	})
	t.Run("a good credential passes", func(t *testing.T) {
		if resp := wake("192.0.2.1", hookstest.Token); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		if resp := s.Request("POST", "/api/hooks/signed", `{}`, "X-Signature", signature("secret", "{}"), "X-Forwarded-For", "192.0.2.1"); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}
