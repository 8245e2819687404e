package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
)

var installIssuer = npmtest.Packages("testdata/issuer")

// TestTokensOfOIDCProvider tries auth oidc with oidc-provider, an issuer that nobody here wrote and that is certified. It goes away, and
// comes back with another key.
func TestTokensOfOIDCProvider(t *testing.T) {
	t.Parallel()
	packages := installIssuer(t)
	script, err := filepath.Abs("testdata/issuer/issuer.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []string{"RS256", "ES256", "EdDSA"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			port := hookstest.FreePort(t)
			start := func() (stop func()) { return startProcess(t, port, "node", script, packages, port, algorithm) }
			issuer, stop := "http://127.0.0.1:"+port, start()
			hook := func(name, keys string) string {
				return "hook " + name + " {\naction agent\nauth oidc " + issuer + " {\naudience " + audience + "\nclaim client_id robot\nclaim scope deploy\n" + keys + "\n}\n}\n"
			}
			s := hookstest.StartProcess(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\nstore memory\ncallbacks {\nallow 127.0.0.1\nports *\n}\n"+
				hook("deploys", "")+hook("later", "keys "+issuer+"/jwks")+"}") // each has keys of its own
			send := func(hook, token string) hookstest.Response {
				t.Helper()
				return s.Request("POST", "/api/hooks/"+hook, `{"n":1}`, "Authorization", "Bearer "+token)
			}
			changed := func(changes string, args ...any) string {
				t.Helper()
				return tokenFrom(t, issuer, audience, "deploy", "Changes", fmt.Sprintf(changes, args...))
			}
			now, good := time.Now().Unix(), tokenFrom(t, issuer, audience, "deploy")
			for _, request := range []struct {
				what, token string
				want        auth.Reason // "" if it is accepted
			}{
				{"an unknown key", changed(`{"header":{"kid":"unknown"}}`), oidc.KeyUnknown}, // the first one: the keys are fetched for it
				{"a good token", good, ""},
				{"the same again", good, ""},
				{"another audience", tokenFrom(t, issuer, "https://other.example.com", "deploy"), oidc.OtherAudience},
				{"another scope", tokenFrom(t, issuer, audience, "read"), "the claim scope of the token has another value"},
				{"a token that was cut", good[:len(good)-8], oidc.SignatureWrong},
				{"no algorithm", "eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".", oidc.OtherAlgorithm},
				{"an HMAC with the public key", signedWithPublicKey(t, issuer, good), oidc.OtherAlgorithm},
				{"expired", changed(`{"payload":{"exp":%d}}`, now-90), oidc.Expired},
				{"expired a moment ago", changed(`{"payload":{"exp":%d}}`, now-1), ""},
				{"valid later", changed(`{"payload":{"nbf":%d}}`, now+300), oidc.TooEarly},
				{"made later", changed(`{"payload":{"iat":%d}}`, now+300), oidc.TooEarly},
			} {
				resp, reason := send("deploys", request.token), auth.Reason("")
				if resp.Status == http.StatusUnauthorized {
					reason = lastReason(t, s)
				}
				if accepted := resp.Status == http.StatusAccepted; accepted != (request.want == "") || reason != request.want {
					t.Errorf("%s is answered %d %s: %s", request.what, resp.Status, resp.Body, reason)
				}
			}

			stop()
			if resp := send("deploys", good); resp.Status != http.StatusAccepted {
				t.Errorf("while the issuer is away, a token with a known key is answered %d %s", resp.Status, resp.Body)
			}
			resp := send("later", good)
			resp.WantError(t, http.StatusServiceUnavailable, "It cannot be checked right now")
			if reason := lastReason(t, s); reason != oidc.KeysUnavailable || resp.Header.Get("Retry-After") == "" {
				t.Errorf("while the issuer is away, the first token is answered %v: %s", resp.Header, reason)
			}

			start()
			another := tokenFrom(t, issuer, audience, "deploy")
			// A sender repeats what is answered 503.
			finally := func(hook, token string) (resp hookstest.Response) {
				t.Helper()
				hookstest.Within(t, 15*time.Second, "an answer other than 503", func() bool {
					if resp = send(hook, token); resp.Status != http.StatusServiceUnavailable {
						return true
					}
					after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
					if err != nil || after < 1 || after > 10 {
						t.Fatalf("Retry-After is %q", resp.Header.Get("Retry-After"))
					}
					time.Sleep(time.Duration(after) * time.Second)
					return false
				})
				return resp
			}
			if resp := finally("deploys", another); resp.Status != http.StatusAccepted {
				t.Errorf("a token with the new key is answered %d %s", resp.Status, resp.Body)
			}
			if resp := send("deploys", good); resp.Status != http.StatusServiceUnavailable || lastReason(t, s) != oidc.KeyMaybeNew {
				t.Errorf("just after the keys were fetched, a token with the old one is answered %d %s: %s", resp.Status, resp.Body, lastReason(t, s))
			}
			if resp := finally("later", good); resp.Status != http.StatusUnauthorized || lastReason(t, s) != oidc.KeyUnknown {
				t.Errorf("a token with the old key is answered %d %s: %s", resp.Status, resp.Body, lastReason(t, s))
			}
			if resp := send("later", another); resp.Status != http.StatusAccepted {
				t.Errorf("after the issuer was away, a token is answered %d %s", resp.Status, resp.Body)
			}
		})
	}
}

// lastReason is why the last request was refused.
func lastReason(t *testing.T, s *hookstest.Server) auth.Reason {
	t.Helper()
	var list api.RefusedList
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/refused", "").Body), &list); err != nil || len(list.Refused) == 0 {
		t.Fatalf("%v %v", list, err)
	}
	return auth.Reason(list.Refused[0].Reason)
}

// signedWithPublicKey signs what a token says with the public key of its issuer, taken for the secret of an HMAC.
func signedWithPublicKey(t *testing.T, issuer, token string) string {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", issuer+"/jwks", "")
	var set jose.JSONWebKeySet
	if err == nil {
		err = json.Unmarshal([]byte(resp.Body), &set)
	}
	if err != nil || len(set.Keys) != 1 {
		t.Fatalf("%s %v", resp.Body, err)
	}
	public, err := x509.MarshalPKIXPublicKey(set.Keys[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode(fmt.Appendf(nil, `{"alg":"HS256","kid":%q}`, set.Keys[0].KeyID)) + "." + strings.Split(token, ".")[1]
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// tokenFrom gets a token from an issuer, as a program does that has an account there.
func tokenFrom(t *testing.T, issuer, audience, scope string, headers ...string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {audience}, "scope": {scope}}
	headers = append(headers, "Content-Type", "application/x-www-form-urlencoded",
		"Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("robot:a-secret-of-the-robot")))
	resp, err := hookstest.TryRequest("POST", issuer+"/token", form.Encode(), headers...)
	var granted struct {
		Token string `json:"access_token"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(resp.Body), &granted)
	}
	if err != nil || granted.Token == "" {
		t.Fatalf("%d %s %v", resp.Status, resp.Body, err)
	}
	return granted.Token
}

// A hook for tokens of an issuer is written on the page, and is what was written when it is read again.
func TestDashboardEditsAHookForTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, hookstest.Hooks(hookstest.StartRunner(t, nil), ""), openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "actions")
	tab.WaitNoText("Issuer")
	tab.Choose("Authentication", "a token of an issuer (OpenID Connect)")
	tab.WaitNoText("Secret")
	tab.Fill("Issuer", "github-actions")
	tab.Fill("Audience", "https://hooks.example.com hooks")
	tab.Fill("Claims", "ref refs/heads/main")
	tab.Click("button", "Add the hook")
	tab.WaitText("Claims must have a claim that says whose token it is")
	tab.Fill("Claims, line 2", "repository octo/shop octo/site")
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "actions")
	d.AdminRequest("GET", "/hooks/mappings/actions", "").WantJSON(t, `{"name":"actions","authMode":"oidc","oidcIssuer":"github-actions",
		"oidcAudience":["https://hooks.example.com","hooks"],"oidcClaims":["ref refs/heads/main","repository octo/shop octo/site"]}`)
	tab.Forgive("400")
	tab.WantNoComplaint()
}
