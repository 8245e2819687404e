package settings

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func oidcMapping(change func(*Mapping)) Mapping {
	m := Mapping{Name: "a", AuthMode: "oidc", OIDCIssuer: "https://issuer.example", OIDCAudience: []string{"a"}}
	if change != nil {
		change(&m)
	}
	return m
}

func TestOIDCFieldsAreChecked(t *testing.T) {
	rules := &Rules{Guard: outbound.NewGuard(nil, nil, false)}
	github := func(claims ...string) func(*Mapping) {
		return func(m *Mapping) { m.OIDCIssuer, m.OIDCClaims = "github-actions", claims }
	}
	for what, test := range map[string]struct {
		change func(*Mapping)
		want   string
	}{
		"all is there":                  {nil, ""},
		"no issuer":                     {func(m *Mapping) { m.OIDCIssuer = "" }, "oidcIssuer must be a URL"},
		"a secret for an issuer":        {func(m *Mapping) { m.OIDCIssuer = "s3cret" }, "oidcIssuer must be a URL"},
		"a user in the URL":             {func(m *Mapping) { m.OIDCIssuer = "https://a:b@issuer.example" }, "oidcIssuer must be a URL without"},
		"a port that is not open":       {func(m *Mapping) { m.OIDCIssuer = "https://issuer.example:22" }, "oidcIssuer is refused: the URL uses port 22"},
		"keys at a private address":     {func(m *Mapping) { m.OIDCKeys = "https://169.254.169.254/" }, "oidcKeys is refused: the URL points to 169.254.169.254"},
		"no audience":                   {func(m *Mapping) { m.OIDCAudience = nil }, "oidcAudience must name"},
		"an empty audience":             {func(m *Mapping) { m.OIDCAudience = []string{"a", ""} }, "oidcAudience must name"},
		"a claim without a value":       {func(m *Mapping) { m.OIDCClaims = []string{"sub"} }, "oidcClaims must have a name and one or more values"},
		"an open quote":                 {func(m *Mapping) { m.OIDCClaims = []string{`sub "a`} }, "oidcClaims is refused"},
		"a star that stands alone":      {func(m *Mapping) { m.OIDCClaims = []string{"sub a *"} }, "oidcClaims must not have the value *"},
		"a bad header":                  {func(m *Mapping) { m.AuthHeader = "Host" }, "authHeader must not be Host"},
		"everybody on GitHub":           {github(), "oidcClaims must have a claim that says whose token it is (sub, repository, "},
		"a branch of everybody":         {github("ref refs/heads/main"), "oidcClaims must have a claim that says whose token it is"},
		"a repository on GitHub":        {github("ref refs/heads/main", "repository octo/shop"), ""},
		"everybody on gitlab.com":       {func(m *Mapping) { m.OIDCIssuer = "https://gitlab.com" }, "oidcClaims must have a claim"},
		"everybody on GitHub by URL":    {func(m *Mapping) { m.OIDCIssuer = "https://token.actions.githubusercontent.com" }, "oidcClaims must have a claim"},
		"an address at Google":          {func(m *Mapping) { m.OIDCIssuer, m.OIDCClaims = "google", []string{"email a@b.example"} }, ""},
		"secrets, which it has none of": {func(m *Mapping) { m.AuthSecret = Secrets{"s3cret"} }, ""},
	} {
		_, err := oidcMapping(test.change).Compile(rules, HookSecrets{})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %s", what, err, test.want)
		}
	}
}

// Everybody can get a token of a public issuer. A claim with a * must still be that of one owner.
func TestClaimsOfPublicIssuersNameAnOwner(t *testing.T) {
	rules := &Rules{Guard: outbound.NewGuard(nil, nil, false)}
	const github, gitlab, google, other = "github-actions", "https://gitlab.com", "google", "https://issuer.example"
	for _, test := range []struct {
		issuer, claims string
		ok             bool
	}{
		{github, "sub repo:*", false},
		{github, "sub *", false},
		{github, "sub repo:*/x", false},
		{github, "sub repo:/*", false},
		{github, "sub repo:octo*", false},
		{github, "sub re*", false},
		{github, "sub environment:production:*", false},
		{github, "sub repo:octo/*", true},
		{github, "sub repo:octo/shop:*", true},
		{github, "sub repo:octo@1/shop@2:*", true},
		{github, "sub repository_owner_id:*", false},
		{github, "sub repository_owner_id:12*", false},
		{github, "sub repository_owner_id:12:*", true},
		{github, "sub repo:octo/shop:* repo:*", false},
		{github, "repository octo*", false},
		{github, "repository octo/*", true},
		{github, "repository_owner octo*", false},
		{github, "repository_id 1*", false},
		{github, "job_workflow_ref octo/shop/.github/workflows/a.yml@refs/heads/main", false},
		{github, "sub repo:*;repository octo/shop", true},
		{github, "sub repo:*;ref refs/heads/main", false},
		{"https://token.actions.githubusercontent.com", "sub repo:*", false},
		{gitlab, "sub project_path:*", false},
		{gitlab, "sub project_path:octo*", false},
		{gitlab, "sub project_path:octo/*", true},
		{gitlab, "project_path octo/*", true},
		{gitlab, "user_login o*", false},
		{google, "email ci@octo*", false},
		{google, "sub 1*", false},
		{other, "sub repo:*", true},
	} {
		_, err := oidcMapping(func(m *Mapping) { m.OIDCIssuer, m.OIDCClaims = test.issuer, strings.Split(test.claims, ";") }).Compile(rules, HookSecrets{})
		if (err == nil) != test.ok || err != nil && !strings.HasPrefix(err.Error(), "oidcClaims must ") {
			t.Errorf("%s with %s: %v", test.issuer, test.claims, err)
		}
	}
}

// Pub/Sub names its messages. Tokens of other issuers come with bodies of any form.
func TestMessagesOfPubSubHaveAnID(t *testing.T) {
	var doc any
	if err := json.Unmarshal([]byte(`{"message":{"messageId":"17","data":""}}`), &doc); err != nil {
		t.Fatal(err)
	}
	for issuer, want := range map[string]string{"google": "17", "https://accounts.google.com": "17", "github-actions": ""} {
		m := oidcMapping(func(m *Mapping) { m.OIDCIssuer, m.OIDCClaims = issuer, []string{"sub a"} })
		a, err := m.Authentication(HookSecrets{})
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := a.DeliveryID(http.Header{}, doc); id != want {
			t.Errorf("%s: the id is %q", issuer, id)
		}
		header := http.Header{"X-Goog-Pubsub-Message-Id": {"18"}}
		if id, name := a.DeliveryID(header, nil); (id == "18") != (want != "") {
			t.Errorf("%s: the id is %q in %s", issuer, id, name)
		}
		if key := a.ReplayKey("a", nil); key != nil {
			t.Error("a token is good for one request only")
		}
	}
}

func TestOIDCWarnings(t *testing.T) {
	for url, want := range map[string]bool{"http://issuer.example": true, "https://issuer.example": false, "http://127.0.0.1:1": false, "http://localhost": false, "google": false} {
		m := oidcMapping(func(m *Mapping) { m.OIDCIssuer, m.AuthTolerance = url, 1 })
		found := m.FindWarnings()
		if got := slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, "is not an https URL") }); got != want {
			t.Errorf("%s: %v", url, found)
		}
		if !slices.ContainsFunc(found, func(text string) bool {
			return strings.HasPrefix(text, `authTolerance is ignored with "authMode": "oidc"`)
		}) {
			t.Errorf("%s: %v", url, found)
		}
	}
}
