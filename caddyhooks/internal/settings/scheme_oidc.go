package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	registerScheme(&Scheme{
		Name: "oidc", Title: "a token of an issuer (OpenID Connect)", arguments: "<issuer>", minArgs: 1, maxArgs: 1,
		unmarshal: unmarshalOIDC,
		Fields:    []string{"oidcIssuer", "oidcAudience", "oidcClaims", "oidcKeys", "authHeader"},
		Compile:   compileOIDC,
		variant: func(m *Mapping, s Scheme) Scheme {
			if public := findPublicIssuer(m.OIDCIssuer); public != nil {
				s.idHeaders, s.idPaths = public.idHeaders, public.idPaths
			}
			return s
		},
		HeadersOnly:     true,
		SecretHeaders:   func(m *Mapping) []string { return []string{cmp.Or(m.AuthHeader, "Authorization")} },
		WwwAuthenticate: "Bearer",
		Missing:         "This hook accepts requests with a token of its issuer, by default as 'Authorization: Bearer <token>'.",
		Wrong:           "The token is wrong.",
	})
}

// accessHeader carries the tokens of Cloudflare Access. It is secret whether a hook takes them or not.
const accessHeader = "Cf-Access-Jwt-Assertion"

// publicIssuer is an issuer that gives tokens to everybody, for any audience. So a claim must say whose tokens are accepted.
type publicIssuer struct {
	name     string // that stands for its URL; "" if there is none
	url      string
	identity []string // claims that say who has the token

	// What it calls a delivery; see Scheme.
	idHeaders, idPaths []string
}

var publicIssuers = []publicIssuer{
	{
		name: "github-actions", url: "https://token.actions.githubusercontent.com",
		identity: []string{"sub", "repository", "repository_id", "repository_owner", "repository_owner_id", "enterprise", "enterprise_id"},
		// Not job_workflow_ref: everybody can call a workflow of a public repository.
	},
	{
		name: "google", url: "https://accounts.google.com", identity: []string{"email", "sub", "azp"},
		idHeaders: []string{"X-Goog-Pubsub-Message-Id"}, idPaths: []string{"message.messageId"}, // of Pub/Sub
	},
	{
		url:      "https://gitlab.com",
		identity: []string{"sub", "project_path", "project_id", "namespace_path", "namespace_id", "user_login", "user_id"},
	},
}

// findPublicIssuer finds an issuer by its name or its URL, nil if it is none of these.
func findPublicIssuer(issuer string) *publicIssuer {
	for i := range publicIssuers {
		if known := &publicIssuers[i]; issuer != "" && (issuer == known.name || issuer == known.url) {
			return known
		}
	}
	return nil
}

// ownedBy are the claims of public issuers that begin with an owner and a slash.
var ownedBy = []string{"repo", "repository", "project_path", "namespace_path"}

// checkClaims refuses claims that tokens of everybody have.
func (p *publicIssuer) checkClaims(claims []oidc.Claim) error {
	var tooMany string // a claim that says whose token it is, but for a *
	for _, claim := range claims {
		if !slices.Contains(p.identity, claim.Name) {
			continue
		}
		i := slices.IndexFunc(claim.Values, func(value string) bool { return !p.namesOwner(claim.Name, value) })
		if i < 0 {
			return nil
		}
		tooMany = claim.Name + " " + text.Abridge(claim.Values[i])
	}
	if tooMany != "" {
		return FieldErrorf("oidcClaims", "must say whose token it is: %s is also the claim of others, and everybody can get a token of "+
			"%s, for any audience. Before a *, name the owner to its end, as in repo:octo/* for the claim sub", tooMany, p.url)
	}
	return FieldErrorf("oidcClaims", "must have a claim that says whose token it is (%s): everybody can get a token of %s, for any audience",
		strings.Join(p.identity, ", "), p.url)
}

// namesOwner reports whether a value is that of one owner's tokens. A name without its end is also the beginning of others, which anybody
// can take.
func (p *publicIssuer) namesOwner(claim, value string) bool {
	begin, isOpen := strings.CutSuffix(value, "*")
	if !isOpen {
		return true
	}
	end := ""
	if claim == "sub" { // the name of a claim and its value
		claim, begin, _ = strings.Cut(begin, ":")
		end = ":"
	}
	if slices.Contains(ownedBy, claim) {
		end = "/"
	} else if !slices.Contains(p.identity, claim) {
		return false
	}
	return end != "" && strings.Index(begin, end) > 0
}

// unmarshalOIDC parses:
//
//	auth oidc <issuer> {
//		audience <audience>...
//		claim    <name> <value>...
//		header   <name>
//		keys     <url>
//	}
func unmarshalOIDC(d *caddyfile.Dispenser, args []string, m *Mapping, places SettingPlaces) error {
	m.OIDCIssuer = args[0]
	return caddyconf.ReadBlock(d, "auth oidc",
		places.Note(caddyconf.Set("audience", &m.OIDCAudience, caddyconf.List), "oidcAudience"),
		places.Note(caddyconf.Directive{Word: "claim", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
			place := *d
			args := d.RemainingArgs()
			if len(args) < 2 || slices.Contains(args, "") {
				return place.Err("claim takes a name and one or more values, as in: claim repository octo/shop" + caddyconf.Unset)
			}
			m.OIDCClaims = append(m.OIDCClaims, quotedWords(args))
			return nil
		}}, "oidcClaims"),
		places.Note(caddyconf.Set("header", &m.AuthHeader, caddyconf.Word), "authHeader"),
		places.Note(caddyconf.Set("keys", &m.OIDCKeys, caddyconf.Word), "oidcKeys"),
	)
}

// compileOIDC makes a verifier. Nothing is fetched: an issuer that is away must not keep Caddy from starting.
func compileOIDC(m *Mapping, secrets HookSecrets) (auth.Verifier, error) {
	policy := oidc.Policy{Issuer: m.OIDCIssuer, Audience: m.OIDCAudience}
	public := findPublicIssuer(m.OIDCIssuer)
	if public != nil {
		policy.Issuer = public.url
	}
	if err := checkIssuerURL("oidcIssuer", policy.Issuer, secrets); err != nil {
		return nil, err
	}
	if len(policy.Audience) == 0 || slices.Contains(policy.Audience, "") {
		return nil, FieldErrorf("oidcAudience", "must name the audience that tokens are for: without it, tokens for others would be accepted")
	}
	for _, line := range m.OIDCClaims {
		claim, err := parseClaim(line)
		if err != nil {
			return nil, FieldErrorf("oidcClaims", "%v", err)
		}
		policy.Claims = append(policy.Claims, claim)
	}
	if public != nil {
		if err := public.checkClaims(policy.Claims); err != nil {
			return nil, err
		}
	}
	if m.OIDCKeys != "" {
		if err := checkIssuerURL("oidcKeys", m.OIDCKeys, secrets); err != nil {
			return nil, err
		}
	}
	if m.AuthHeader != "" {
		var err error
		if policy.Header, err = checkHeader("authHeader", m.AuthHeader); err != nil {
			return nil, err
		}
	}
	var keys oidc.Keys
	if secrets.keysOf != nil {
		keys = secrets.keysOf(policy.Issuer, m.OIDCKeys)
	}
	return oidc.NewVerifier(policy, keys), nil
}

// checkIssuerURL checks a URL that keys are fetched from.
func checkIssuerURL(field, raw string, secrets HookSecrets) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		hint := ""
		if field == "oidcIssuer" {
			hint = ", or one of " + text.List(issuerNames())
		}
		return FieldErrorf(field, "must be a URL that begins with https://%s", hint)
	case u.User != nil || u.Fragment != "" || field == "oidcIssuer" && (u.RawQuery != "" || u.ForceQuery):
		return FieldErrorf(field, "must be a URL without a user, a query and a fragment")
	case secrets.checkFetch != nil:
		if err := secrets.checkFetch(raw); err != nil {
			return FieldErrorf(field, "is refused: %v", err)
		}
	}
	return nil
}

// issuerNames are the names that stand for URLs.
func issuerNames() (names []string) {
	for _, known := range publicIssuers {
		if known.name != "" {
			names = append(names, known.name)
		}
	}
	return names
}

// parseClaim reads a claim and the values that it may have.
func parseClaim(line string) (oidc.Claim, error) {
	words, err := template.SplitWords(line)
	if err != nil {
		return oidc.Claim{}, fmt.Errorf("is refused: %w", err)
	}
	if len(words) < 2 || slices.Contains(words, "") {
		return oidc.Claim{}, fmt.Errorf("must have a name and one or more values, as in: repository octo/shop")
	}
	for _, value := range words[1:] {
		if i := strings.IndexByte(value, '*'); i == 0 || i > 0 && i < len(value)-1 {
			return oidc.Claim{}, fmt.Errorf("must not have the value %s: a * stands at the end, after other text", text.Abridge(value))
		}
	}
	return oidc.Claim{Name: words[0], Values: words[1:]}, nil
}

// warningsAboutOIDC looks for mistakes in the fields of auth oidc.
func (m *Mapping) warningsAboutOIDC() (found []string) {
	for _, field := range []struct{ name, url string }{{"oidcIssuer", m.OIDCIssuer}, {"oidcKeys", m.OIDCKeys}} {
		if u, err := url.Parse(field.url); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			found = append(found, bothNames(field.name)+" is not an https URL: whoever is on the way can replace the keys, and so make tokens")
		}
	}
	return found
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
