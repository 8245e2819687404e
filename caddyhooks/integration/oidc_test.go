package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var installIssuer = npmtest.Packages("testdata/issuer")

// TestTokensOfOIDCProvider tries auth oidc with oidc-provider, an issuer that nobody here wrote and that is certified.
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
			startProcess(t, port, "node", script, packages, port, algorithm)
			issuer := "http://127.0.0.1:" + port
			s := hookstest.StartProcess(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\nstore memory\n"+
				"callbacks {\nallow 127.0.0.1\nports *\n}\n"+
				"hook deploys {\naction agent\nauth oidc "+issuer+" {\naudience https://hooks.example.com\nclaim client_id robot\nclaim scope deploy\n}\n}\n}")
			good := tokenFrom(t, issuer, "https://hooks.example.com", "deploy")
			for _, request := range []struct {
				what, token string
				want        int
			}{
				{"a good token", good, 202},
				{"the same again", good, 202},
				{"another audience", tokenFrom(t, issuer, "https://other.example.com", "deploy"), 401},
				{"another scope", tokenFrom(t, issuer, "https://hooks.example.com", "read"), 401},
				{"a token that was cut", good[:len(good)-8], 401},
				{"no algorithm", "eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".", 401},
			} {
				resp := s.Request("POST", "/api/hooks/deploys", `{"n":1}`, "Authorization", "Bearer "+request.token)
				if resp.Status != request.want {
					t.Errorf("%s is answered %d %s", request.what, resp.Status, resp.Body)
				}
			}
		})
	}
}

// tokenFrom gets a token from an issuer, as a program does that has an account there.
func tokenFrom(t *testing.T, issuer, audience, scope string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {audience}, "scope": {scope}}
	req, err := http.NewRequest(http.MethodPost, issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("robot", "a-secret-of-the-robot")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var granted struct {
		Token string `json:"access_token"`
	}
	if err == nil {
		err = json.Unmarshal(body, &granted)
	}
	if err != nil || granted.Token == "" {
		t.Fatalf("%d %s %v", resp.StatusCode, body, err)
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
