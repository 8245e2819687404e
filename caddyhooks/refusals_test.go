package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// refused is a kind of refused requests in the admin API, or a line about one in the log.
type refused struct {
	Msg, Level                  string // of a line
	Hook, Reason, Message, Chat string
	Asked                       []string
	Clients                     []any
	Status, Count               int
	Client                      string
	Size                        int64
	FirstAt, LastAt             time.Time
}

// refusedSite is a site that logs to a file, without the configuration.
func refusedSite(t *testing.T, hooks string) (s *hookstest.Server, log string) {
	t.Helper()
	s = hookstest.NewServer(t)
	log = filepath.Join(t.TempDir(), "caddy.log")
	s.Globals = "log {\n output file " + log + "\n level INFO\n}\n"
	s.Load(hooks)
	return s, log
}

// loudHooks is a hooks directive with secrets that are easy to find.
func loudHooks(runner, more string) string {
	return "hooks {\n enabled\n token " + loudToken + "\n runner " + runner + "\n hook signed {\n auth hmac X-Loud-Signature " + loudSecret + " sha256=\n }\n" + more + "\n}"
}

func loudPost(s *hookstest.Server, path, body string, headers ...string) hookstest.Response {
	s.T.Helper()
	return s.Request("POST", "/api/hooks/"+path, body, append(headers, "Authorization", "Bearer "+loudToken)...)
}

func listRefused(t *testing.T, s *hookstest.Server, query string) (listed []refused) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/refused"+query, "")
	var page struct{ Refused []refused }
	if err := json.Unmarshal([]byte(resp.Body), &page); err != nil || resp.Status != 200 || page.Refused == nil {
		t.Fatalf("got %d %s (%v)", resp.Status, resp.Body, err)
	}
	return page.Refused
}

func loggedRefusals(t *testing.T, log string) (logged []refused) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, `"msg":"request refused"`) && !strings.Contains(line, `"msg":"requests refused"`) {
			continue
		}
		var entry refused
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		logged = append(logged, entry)
	}
	return logged
}

// wantRefused checks that there is one kind of that hook, status and reason, in the log and in the admin API.
func wantRefused(t *testing.T, s *hookstest.Server, log, hook string, status int, reason string) (listed refused) {
	t.Helper()
	is := func(r refused) bool { return r.Hook == hook && r.Status == status && r.Reason == reason }
	n := 0
	all := listRefused(t, s, "")
	for _, r := range all {
		if is(r) {
			listed = r
			n++
		}
	}
	if n != 1 || listed.Count < 1 || listed.Client != "127.0.0.1" || listed.FirstAt.IsZero() || listed.LastAt.Before(listed.FirstAt) || listed.Message == "" {
		t.Errorf("there are %d kinds of %q, %d, %q in %+v", n, hook, status, reason, all)
	}
	lines := 0
	for _, r := range loggedRefusals(t, log) {
		if is(r) && r.Msg == "request refused" && r.Level == "warn" && r.Client == "127.0.0.1" {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines of the log say %q, %d, %q: %+v", lines, hook, status, reason, loggedRefusals(t, log))
	}
	return listed
}

func TestRefusedRequestsAreInTheLogAndInTheAdminAPI(t *testing.T) {
	restore := caddyhooks.ShortenBodyTime(300 * time.Millisecond)
	rn := hookstest.StartRunner(t, nil)
	s, log := refusedSite(t, loudHooks("http "+rn.URL, "max_payload 1KB\n hook blank {\n template {a}\n chat_id {b}\n }"))
	t.Cleanup(restore)
	const body = `{"text":"a"}`
	good, wrong := signature(loudSecret, body), signature("another", body)
	const badToken = "wrong-token-of-a-caller"
	key := []string{"Idempotency-Key", "k"}
	if resp := loudPost(s, "wake", body, key...); resp.Status != 200 {
		t.Fatalf("got %d", resp.Status)
	}
	ended := loudPost(s, "agent", `{"message":"a","syncResponse":true}`)
	runPath := "runs/" + ended.Header.Get("X-Service-Run-Id")
	slow := func() hookstest.Response {
		conn := dial(t, s)
		_, _ = fmt.Fprintf(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{\"text\":", loudToken)
		return readAnswer(t, conn)
	}
	for _, c := range []struct {
		name   string
		answer hookstest.Response
		hook   string
		status int
		reason string
		size   int64
	}{
		{"malformed JSON", loudPost(s, "wake", `{"text":`), "wake", 400, "the body is not the JSON that is expected here", 8},
		{"missing field", loudPost(s, "agent", `{}`), "agent", 400, "the field message is missing or wrong", 2},
		{"message in place of text", loudPost(s, "wake", `{"message":"a"}`), "wake", 400, "the field text is missing or wrong", 15},
		{"blank message", loudPost(s, "blank", `{"a":" "}`), "blank", 400, "The message made from this body is blank.", 9},
		{"bad key", loudPost(s, "wake", body, "Webhook-Id", ""), "wake", 400, "The header Webhook-Id must be sent once and hold a key of 1 to 256 characters, bare or as a quoted string.", 12},
		{"no token", s.Request("POST", "/api/hooks/wake", body), "wake", 401, "no token was sent", 12},
		{"wrong token", s.Request("POST", "/api/hooks/wake", body, "X-Service-Token", badToken), "wake", 401, "the token is not one of the accepted tokens", 12},
		{"no signature", loudPost(s, "signed", body), "signed", 401, "the header X-Loud-Signature is missing or empty", 12},
		{"no prefix", s.Request("POST", "/api/hooks/signed", body, "X-Loud-Signature", good), "signed", 401, `no signature in the header X-Loud-Signature begins with "sha256="`, 12},
		{"malformed signature", s.Request("POST", "/api/hooks/signed", body, "X-Loud-Signature", "sha256="+good[:30]), "signed", 401, "the signature has the wrong length or encoding", 12},
		{"wrong signature", s.Request("POST", "/api/hooks/signed", body, "X-Loud-Signature", "sha256="+wrong), "signed", 401, "the signature does not match the body and the secret", 12},
		{"no token for a run", s.Request("GET", "/api/hooks/"+runPath, ""), "runs", 401, "no token was sent", 0},
		{"unknown hook", loudPost(s, "singed", body), "", 404, "no hook has this name", 12},
		{"unknown run", s.Request("GET", "/api/hooks/runs/none", "", "X-Service-Token", loudToken), "runs", 404, "there is no such run", 0},
		{"no path of a run", s.Request("GET", "/api/hooks/runs/none/what", "", "X-Service-Token", loudToken), "runs", 404, "a run has no such path", 0},
		{"bad wait", s.Request("GET", "/api/hooks/"+runPath+"?wait=long", "", "X-Service-Token", loudToken), "runs", 400, "The parameter wait must be a duration of up to 5m, such as 30s.", 0},
		{"GET", s.Request("GET", "/api/hooks/wake", ""), "wake", 405, "the method is not POST", 0},
		{"POST to a run", s.Request("POST", "/api/hooks/runs/none", ""), "runs", 405, "A run is looked up with GET, and cancelled with POST below it.", 0},
		{"slow body", slow(), "wake", 408, "the body took too long to arrive", 8},
		{"key of another body", loudPost(s, "wake", `{"text":"b"}`, key...), "wake", 409, "This idempotency key was used before, with another body.", 12},
		{"run that has ended", loudPost(s, runPath+"/cancel", ""), "runs", 409, "The run has ended already: it is completed.", 0},
		{"announced body too large", loudPost(s, "blank", strings.Repeat("x", 2000)), "blank", 413, "the body is larger than 1024 bytes (max_request for wake and agent, max_payload for custom hooks)", 2000},
		{"encoded body", loudPost(s, "wake", body, "Content-Encoding", "gzip"), "wake", 415, "the body has a Content-Encoding, such as gzip", 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.answer.WantError(t, c.status)
			got := wantRefused(t, s, log, c.hook, c.status, c.reason)
			if got.Size != c.size {
				t.Errorf("the size is %d, want %d", got.Size, c.size)
			}
			if told := c.answer.Field(t, "errorMessage"); got.Message != told {
				t.Errorf("the message is %q, and the caller was told %q", got.Message, told)
			}
			if want := map[string]string{"unknown hook": "singed", "unknown run": "runs/none"}[c.name]; want != "" && !slices.Equal(got.Asked, []string{want}) {
				t.Errorf("the name that was asked for is shown as %q", got.Asked)
			}
		})
	}
	t.Run("too many bad credentials", func(t *testing.T) {
		var resp hookstest.Response
		for range 20 {
			resp = s.Request("POST", "/api/hooks/signed", body)
		}
		resp.WantError(t, 429, "Try again in "+resp.Header.Get("Retry-After")+" s.")
		wantRefused(t, s, log, "signed", 429, "too many requests with a bad credential came from one address; this one: the header X-Loud-Signature is missing or empty")
	})
	t.Run("a token in the path", func(t *testing.T) {
		loudPost(s, "wake/"+loudToken, body).WantError(t, 404)
		if got := listRefused(t, s, "?limit=1")[0]; got.Asked[0] != "wake/(21 bytes)" || got.Count != 2 {
			t.Errorf("got %+v", got)
		}
	})
	secrets := []string{badToken, good, wrong, good[:30]}
	wantNoSecrets(t, "the admin API", s.AdminRequest("GET", "/hooks/refused", "").Body, secrets...)
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	wantNoSecrets(t, "the log", string(data), secrets...)
}

// A caller learns whether a credential is missing or wrong, and no more.
func TestCallersAreToldWhetherACredentialIsMissingOrWrong(t *testing.T) {
	s := hookstest.StartSite(t, loudHooks("echo", ""))
	good := signature(loudSecret, "{}")
	const howTo = " Send the webhook token as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."
	for _, c := range []struct{ hook, header, value, want string }{
		{"wake", "X-None", "", "No token was sent." + howTo},
		{"wake", "Authorization", loudToken, "The header Authorization has no Bearer token, or an empty one." + howTo},
		{"wake", "Authorization", "Bearer wrong", "The token is wrong." + howTo},
		{"wake", "X-Service-Token", "wrong", "The token is wrong." + howTo},
		{"signed", "Authorization", "Bearer " + loudToken, "The header X-Loud-Signature is missing or empty. This hook accepts requests with a signature, not a bearer token."},
		{"signed", "X-Loud-Signature", good, "The signature is wrong."},
		{"signed", "X-Loud-Signature", "sha256=" + good[1:], "The signature is wrong."},
		{"signed", "X-Loud-Signature", "sha256=" + signature("another", "{}"), "The signature is wrong."},
	} {
		resp := s.Request("POST", "/api/hooks/"+c.hook, "{}", c.header, c.value)
		resp.WantError(t, 401)
		if got := resp.Field(t, "errorMessage"); got != c.want {
			t.Errorf("%s with %s: told %q", c.hook, c.header, got)
		}
		if got := resp.Header.Get("WWW-Authenticate"); got != map[string]string{"wake": "Bearer", "signed": "HMAC-SHA256"}[c.hook] {
			t.Errorf("%s: WWW-Authenticate is %q", c.hook, got)
		}
	}
}

func TestRequestsToWebhooksThatAreOffAreRefusedWithTheReason(t *testing.T) {
	s, log := refusedSite(t, "hooks {\n runner echo\n hook custom\n}")
	s.Request("POST", "/api/hooks/custom", "{}").WantError(t, 404)
	wantRefused(t, s, log, "custom", 404, "webhooks are off: enabled is not set, and no token is set")
	s.PatchSettings(`{"enabled":true}`)
	resp := s.Request("POST", "/api/hooks/custom", "{}")
	resp.WantError(t, 404, "Either webhooks are off, or no hook has this name")
	wantRefused(t, s, log, "custom", 404, "webhooks are off: no token is set")
	s.Request("POST", "/api/hooks/other", "{}").WantError(t, 404)
	wantRefused(t, s, log, "", 404, "webhooks are off: no token is set")
}

func TestRequestsThatCannotBeTakenNowAreRefused(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	s, log := refusedSite(t, loudHooks("http "+rn.URL, "workers 1\n queue_limit 2\n chat_limit 1\n max_memory 8MB\n max_request 1MB"))
	answers := make(chan hookstest.Response, 1)
	const held = `{"message":"hold","chatId":"1","syncResponse":true}`
	go func() {
		resp, _ := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", held, "X-Service-Token", loudToken, "Idempotency-Key", "k")
		answers <- resp
	}()
	rn.Next()
	loudPost(s, "agent", held, "Idempotency-Key", "k").WantError(t, 409)
	wantRefused(t, s, log, "agent", 409, "The first request with this idempotency key is still being carried out.")
	loudPost(s, "agent", `{"message":"a","chatId":"2"}`)
	loudPost(s, "agent", `{"message":"a","chatId":"2"}`).WantError(t, 503)
	if got := wantRefused(t, s, log, "agent", 503, "the queue of the chat is full (chat_limit)"); got.Chat != "2" {
		t.Errorf("the chat that is full is %q", got.Chat)
	}
	loudPost(s, "agent", `{"message":"a","chatId":"3"}`)
	loudPost(s, "agent", `{"message":"a","chatId":"4","syncResponse":true}`).WantError(t, 503)
	wantRefused(t, s, log, "agent", 503, "the queue is full (queue_limit)")

	conn := dial(t, s)
	large := strings.Repeat("x", 900_000)
	_, _ = fmt.Fprintf(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n%s", loudToken, large)
	wantBytesOfBodies(t, int64(len(large)))
	refusedConn := dial(t, s) // which the server closes, before all is sent
	_, _ = fmt.Fprintf(refusedConn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n%s", loudToken, large[:200_000])
	readAnswer(t, refusedConn).WantError(t, 503)
	wantRefused(t, s, log, "wake", 503, "the memory for bodies and messages is full (max_memory)")

	letGo()
	if resp := hookstest.ReceiveWithin(t, "the caller is answered", answers); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestAnAgentThatIsUnreachableRefusesCallersThatWait(t *testing.T) {
	s, log := refusedSite(t, loudHooks("http http://127.0.0.1:1/", ""))
	hookstest.Eventually(t, "the agent is known to be unreachable", func() bool {
		loudPost(s, "agent", `{"message":"a","syncResponse":true}`).WantError(t, 503)
		return len(listRefused(t, s, "?hook=agent")) == 1
	})
	wantRefused(t, s, log, "agent", 503, "the agent is unreachable")
	ids, _ := s.Listed("?status=failed")
	if len(ids) == 0 {
		t.Error("no request became a run before the agent was known to be unreachable")
	}
}

// What becomes of an accepted run is told by the run.
func TestFailedRunsAreNoRefusals(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		switch message := tn.Text("message"); {
		case strings.HasPrefix(message, "fail"):
			w.WriteHeader(http.StatusInternalServerError)
		case message == "hold":
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, "no JSON")
		}
	})
	s, log := refusedSite(t, loudHooks("http "+rn.URL, ""))
	loudPost(s, "agent", `{"message":"fail","syncResponse":true}`, "Idempotency-Key", "k").WantError(t, 502)
	loudPost(s, "agent", `{"message":"fail","syncResponse":true}`, "Idempotency-Key", "k").WantError(t, 502)
	loudPost(s, "agent", `{"message":"hold","syncResponse":true,"timeoutSeconds":1}`).WantError(t, 504)
	loudPost(s, "agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"type":"object"}}`).WantError(t, 422)
	if got := listRefused(t, s, ""); len(got) != 0 {
		t.Errorf("refused are %+v", got)
	}
	if got := loggedRefusals(t, log); len(got) != 0 {
		t.Errorf("logged are %+v", got)
	}
}

func TestStrangersCannotFlushTheListOfRefusals(t *testing.T) {
	s, log := refusedSite(t, loudHooks("echo", ""))
	const names, clients = 1000, 8
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	var callers sync.WaitGroup
	for c := range clients {
		callers.Go(func() {
			for i := range names / clients {
				path := "/api/hooks/" + url.PathEscape(fmt.Sprintf("\"%d\n/<%d>", c, i))
				if resp, err := hookstest.TryRequest("POST", s.URL+path, "{}", "X-Real-Ip", fmt.Sprint(i)); err != nil || resp.Status != 404 {
					t.Errorf("got %d, %v", resp.Status, err)
				}
			}
		})
	}
	callers.Wait()
	all := listRefused(t, s, "")
	if len(all) != 2 || all[0].Hook != "" || all[0].Count != names || all[1].Hook != "signed" {
		t.Errorf("got %+v", all)
	}
	if unknown := listRefused(t, s, "?hook="); len(unknown) != 1 || unknown[0].Reason != "no hook has this name" || len(unknown[0].Asked) == 0 || !strings.HasSuffix(unknown[0].Asked[0], " bytes)") {
		t.Errorf("of no hook are %+v", unknown)
	}
	if signed := listRefused(t, s, "?hook=signed&limit=10"); len(signed) != 1 || signed[0].Hook != "signed" {
		t.Errorf("of the hook are %+v", signed)
	}
	if got := listRefused(t, s, "?hook=none"); len(got) != 0 {
		t.Errorf("of another hook are %+v", got)
	}
	s.AdminRequest("GET", "/hooks/refused?limit=0", "").WantAdminError(t, 400, "limit")
	s.AdminRequest("POST", "/hooks/refused", "").WantAdminError(t, 405, "GET")
	s.AdminRequest("GET", "/hooks/instances/none/refused", "").WantAdminError(t, 404, "none")
	if got := loggedRefusals(t, log); len(got) != 2 {
		t.Errorf("%d lines are logged", len(got))
	}
	s.Stop()
	lines := loggedRefusals(t, log)
	if last := lines[len(lines)-1]; len(lines) != 3 || last.Msg != "requests refused" || last.Count != names-1 || last.Hook != "" {
		t.Errorf("at the end the log has %+v", lines)
	}
}

func TestRefusalsSurviveAReloadAndARestart(t *testing.T) {
	s, log := refusedSite(t, loudHooks("echo", "hook gone"))
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	s.Request("POST", "/api/hooks/gone", "{}").WantError(t, 401)
	s.Reload(loudHooks("echo", "workers 3"))
	// The log of the old configuration may be another one, so its counts do not wait for the minute.
	lines := loggedRefusals(t, log)
	if !slices.ContainsFunc(lines, func(r refused) bool { return r.Msg == "requests refused" && r.Hook == "signed" && r.Count == 1 }) {
		t.Errorf("after the reload the log has %+v", lines)
	}
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	if got := wantRefused(t, s, log, "signed", 401, "the header X-Loud-Signature is missing or empty"); got.Count != 3 {
		t.Errorf("after the reload there is %+v", got)
	}
	s.Request("POST", "/api/hooks/gone", "{}").WantError(t, 404)
	wantRefused(t, s, log, "gone", 404, "the hook was deleted")
	s.Request("POST", "/api/hooks/never", "{}").WantError(t, 404)
	if got := wantRefused(t, s, log, "", 404, "no hook has this name"); got.Asked[0] != "never" {
		t.Errorf("got %+v", got)
	}
	s.Restart(loudHooks("echo", ""))
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	counts := make(map[string]int)
	for _, kind := range listRefused(t, s, "") {
		if kind.Hook != "" { // which the harness asks for
			counts[fmt.Sprint(kind.Hook, " ", kind.Status)] = kind.Count
		}
	}
	if want := map[string]int{"signed 401": 4, "gone 401": 1, "gone 404": 1}; !maps.Equal(counts, want) {
		t.Errorf("after the restart there are %v, want %v", counts, want)
	}
	if old := listRefused(t, s, "?until="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))); len(old) != 0 {
		t.Errorf("an hour ago there were %+v", old)
	}
	if lately := listRefused(t, s, "?since=1h&hook=signed"); len(lately) != 1 {
		t.Errorf("within an hour there were %+v", lately)
	}
	s.AdminRequest("GET", "/hooks/refused?since=never", "").WantAdminError(t, 400, "since")
	s.AdminRequest("GET", "/hooks/refused?since=1h&until=2h", "").WantAdminError(t, 400, "since must be before until")
}

func TestHooksThatAreGoneAreRefusedByName(t *testing.T) {
	s, log := refusedSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n channel notes log\n}")
	s.PutMapping("deleted", `{}`)
	s.PutMapping("notes", `{"action":"agent","deliver":true,"channel":"notes","to":"x"}`)
	s.AdminRequest("DELETE", "/hooks/mappings/deleted", "")
	s.Post("/api/hooks/deleted", "{}").WantError(t, 404)
	wantRefused(t, s, log, "deleted", 404, "the hook was deleted")
	s.PutMapping("deleted", `{}`)
	if resp := s.Post("/api/hooks/deleted", "{}"); resp.Status != 200 {
		t.Errorf("a hook that is there again is answered %d %s", resp.Status, resp.Body)
	}
	s.Restart("hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n}")
	s.Post("/api/hooks/notes", "{}").WantError(t, 404)
	wantRefused(t, s, log, "notes", 404, "the hook is left out: see problems in GET /hooks/settings")
}

func TestInstancesHaveTheirOwnRefusals(t *testing.T) {
	s, _ := refusedSite(t, "hooks {\n enabled\n runner echo\n token a\n}\nhooks other {\n path /other\n enabled\n runner echo\n token b\n}")
	s.Request("POST", "/other/wake", "{}").WantError(t, 401)
	if got := listRefused(t, s, ""); len(got) != 0 {
		t.Errorf("the default instance has %+v", got)
	}
	resp := s.AdminRequest("GET", "/hooks/instances/other/refused", "")
	if !strings.Contains(resp.Body, "no token was sent") {
		t.Errorf("the other instance has %s", resp.Body)
	}
}

// Nothing is unpacked here, so an encoded body would be refused as malformed JSON, or its signature as wrong.
func TestContentEncodingIsRefusedByItsName(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\nmax_payload 1KB\nhook signed {\nauth hmac X-Signature "+loudSecret+"\n}"))
	const body = `{"text":"a"}`
	refused := func(resp hookstest.Response, name string) {
		t.Helper()
		resp.WantError(t, 415, fmt.Sprintf("The Content-Encoding %q is not accepted", name))
		if got := resp.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding is %q", got)
		}
	}
	for value, name := range map[string]string{
		"gzip": "gzip", "GZIP": "GZIP", "identity, br": "br", "deflate,gzip": "deflate", strings.Repeat("z", 90): strings.Repeat("z", 80) + "…",
	} {
		for _, path := range []string{"wake", "agent"} {
			refused(s.Post("/api/hooks/"+path, body, "Content-Encoding", value), name)
		}
		refused(s.Request("POST", "/api/hooks/signed", body, "Content-Encoding", value, "X-Signature", hexSum(loudSecret, body)), name)
	}
	refused(s.Request("POST", "/api/hooks/signed", strings.Repeat("x", 2000), "Content-Encoding", "gzip"), "gzip")
	s.Request("POST", "/api/hooks/wake", body, "Content-Encoding", "gzip").WantError(t, 401)
	s.Post("/api/hooks/none", body, "Content-Encoding", "gzip").WantError(t, 404)
	rn.WantNoTurn(s)
	for _, value := range []string{"", "identity", "Identity , identity"} {
		s.Post("/api/hooks/wake", body, "Content-Encoding", value).WantBody(t, 200, "status", "chatId")
	}
}
