package caddyhooks_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc/oidctest"
)

// oidcSite has a hook for the tokens of an issuer on this machine.
func oidcSite(rn *hookstest.Runner, issuer string) string {
	return hookstest.Hooks(rn, `
	keep_refused 1h
	callbacks {
		allow 127.0.0.1
		ports *
	}
	hook ci {
		action agent
		auth oidc `+issuer+` {
			audience `+oidctest.Audience+`
			claim repository octo/shop
		}
		template "{a} {@header.Authorization}"
	}`)
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

func TestHooksTakeTokensOfAnIssuer(t *testing.T) {
	issuer := oidctest.Start(t)
	rn := hookstest.StartRunner(t, nil)
	s, accessLog, defaultLog := loggedSite(t, rn, strings.Replace(oidcSite(rn, issuer.URL), "hooks {", "hooks tokens {\npath /t", 1))
	good := issuer.Token(nil)
	resp := s.Request("POST", "/t/ci", `{"a":"deploy"}`, bearer(good)...)
	run := acceptedRun(t, resp)
	if turn := rn.Next(); turn.Text("message") != "deploy <missing>" || turn.Text("runId") != run {
		t.Errorf("the agent is told %q", turn.Text("message"))
	}
	// The same token again is another request: a job has one token for all that it sends.
	if again := acceptedRun(t, s.Request("POST", "/t/ci", `{"a":"deploy"}`, bearer(good)...)); again == run {
		t.Error("the second request is taken for the first")
	}
	other := issuer.Token(map[string]any{"repository": "acme/shop"})
	refused := s.Request("POST", "/t/ci", `{}`, bearer(other)...)
	refused.WantError(t, 401, "The token is wrong.")
	if refused.Header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(refused.Body, "repository") {
		t.Errorf("%v %s", refused.Header, refused.Body)
	}
	s.Request("POST", "/t/ci", `{}`).WantError(t, 401, "No token was sent", "a token of its issuer")
	s.Request("POST", "/t/ci", `{}`, bearer(hookstest.Token)...).WantError(t, 401, "The token is wrong.")
	s.Request("POST", "/t/wake", `{"text":"a"}`, bearer(good)...).WantError(t, 401)
	const instance = "/hooks/instances/tokens"
	if listed := s.AdminRequest("GET", instance+"/refused", "").Body; !strings.Contains(listed, "the claim repository of the token has another value") {
		t.Errorf("the list is %s", listed)
	}
	// Failures are throttled, and good tokens are not.
	throttled := hookstest.Response{}
	for range 21 {
		throttled = s.Request("POST", "/t/ci", `{}`, bearer(other)...)
	}
	throttled.WantError(t, 429)
	acceptedRun(t, s.Request("POST", "/t/ci", `{"a":1}`, bearer(good)...))
	log := waitForLines(t, accessLog, 20)
	others, err := os.ReadFile(defaultLog)
	if err != nil {
		t.Fatal(err)
	}
	shown := log + string(others)
	for _, path := range []string{"/refused", "/refused/requests", "/runs", "/runs/" + run, "/settings", "/overview"} {
		resp := s.AdminRequest("GET", instance+path, "")
		if resp.Status != 200 {
			t.Errorf("%s: %+v", path, resp)
		}
		shown += resp.Body
	}
	for _, token := range []string{good, other} {
		for _, part := range strings.Split(token, ".")[1:] {
			if i := strings.Index(shown, part); i >= 0 {
				t.Errorf("a part of a token is shown: %s", shown[max(0, i-200):i])
			}
		}
	}
}

// An issuer that is away keeps no configuration from being loaded. Senders learn that they have to come again.
func TestAnIssuerThatIsAwayIsWaitedFor(t *testing.T) {
	issuer := oidctest.Start(t)
	rn := hookstest.StartRunner(t, nil)
	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	s := hookstest.StartSite(t, oidcSite(rn, issuer.URL))
	if n := issuer.Fetches(); n != 0 {
		t.Errorf("keys were fetched %d times before any request", n)
	}
	for range 25 { // more than failures of one address may be
		resp := s.Request("POST", "/api/hooks/ci", `{}`, bearer(issuer.Token(nil))...)
		resp.WantError(t, 503, "It cannot be checked right now")
		if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 1 || after > 10 {
			t.Fatalf("Retry-After is %q", resp.Header.Get("Retry-After"))
		}
	}
	if n := issuer.Fetches(); n > 2 {
		t.Errorf("the issuer was asked %d times", n)
	}
	if listed := s.AdminRequest("GET", "/hooks/refused", "").Body; !strings.Contains(listed, "the keys of the token's issuer cannot be fetched") ||
		!strings.Contains(listed, "the discovery document: the host answered 502") {
		t.Errorf("the list is %s", listed)
	}
}

func TestKeysOfIssuersOutliveReloadsAndChanges(t *testing.T) {
	issuer := oidctest.Start(t)
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, oidcSite(rn, issuer.URL))
	acceptedRun(t, s.Request("POST", "/api/hooks/ci", `{"a":1}`, bearer(issuer.Token(nil))...))
	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	s.Reload(oidcSite(rn, issuer.URL) + "\n# changed")
	live := fmt.Sprintf(`{"name":"live","action":"agent","authMode":"oidc","oidcIssuer":%q,"oidcAudience":[%q],"oidcClaims":["sub repo:octo/*"]}`,
		issuer.URL, oidctest.Audience)
	if resp := s.AdminRequest("PUT", "/hooks/mappings/live", live); resp.Status > 299 {
		t.Fatalf("%+v", resp)
	}
	s.AdminRequest("GET", "/hooks/mappings/live", "").WantJSON(t, live)
	for _, hook := range []string{"ci", "live"} {
		acceptedRun(t, s.Request("POST", "/api/hooks/"+hook, `{"a":1}`, bearer(issuer.Token(nil))...))
	}
	s.Request("POST", "/api/hooks/live", `{}`, bearer(issuer.Token(map[string]any{"sub": "repo:acme/shop"}))...).WantError(t, 401)
	s.AdminRequest("PUT", "/hooks/mappings/live", strings.Replace(live, "sub repo", "sub *repo", 1)).WantAdminError(t, 400, "oidcClaims")
	s.AdminRequest("PUT", "/hooks/mappings/live", strings.Replace(live, `["sub repo:octo/*"]`, `{"sub":"a"}`, 1)).WantAdminError(t, 400, "oidcClaims must be an array of strings")
}

func TestASlowIssuerHoldsARequestForFiveSeconds(t *testing.T) {
	issuer := oidctest.Start(t)
	asked, done := make(chan struct{}, 10), make(chan struct{})
	defer close(done)
	issuer.Answer(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})
	s := hookstest.StartSite(t, oidcSite(hookstest.StartRunner(t, nil), issuer.URL))
	answered := make(chan hookstest.Response, 1)
	token := issuer.Token(nil)
	go func() { answered <- s.Request("POST", "/api/hooks/ci", `{}`, bearer(token)...) }()
	hookstest.ReceiveWithin(t, "the issuer is asked", asked)
	begin := time.Now()
	hookstest.ReceiveWithin(t, "an answer", answered).WantError(t, 503)
	if took := time.Since(begin); took > 7*time.Second {
		t.Errorf("the answer took %s", took)
	}
}
