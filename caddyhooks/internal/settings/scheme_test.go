package settings

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

func TestSchemesAreComplete(t *testing.T) {
	for _, s := range Schemes {
		if FindScheme(s.Name) != s {
			t.Errorf("%s: the name is taken by another scheme", s.Name)
		}
		if s.Compile == nil || s.SecretHeaders == nil || s.Title == "" || s.WwwAuthenticate == "" || s.Missing == "" || s.Wrong == "" || (s.maxArgs == 0) != (s.arguments == "") {
			t.Errorf("%s: something is missing in %+v", s.Name, s)
		}
	}
}

// knock accepts requests that carry a word in a header.
type knock struct{ header, word string }

func (k knock) Verify(req *auth.Request) auth.Verdict {
	if req.Header.Get(k.header) != k.word {
		return auth.Verdict{Reason: "no knock"}
	}
	return auth.Verdict{OK: true}
}

// A scheme is usable as soon as it is registered: nothing else has to learn its name.
func TestSchemeNeedsNothingButItsRegistration(t *testing.T) {
	before := slices.Clone(Schemes)
	t.Cleanup(func() { Schemes = before })
	registerScheme(&Scheme{
		Name: "knock", arguments: "<word>", minArgs: 1, maxArgs: 1,
		unmarshal: func(d *caddyfile.Dispenser, args []string, m *Mapping, _ SettingPlaces) error {
			m.HMACSecret = Secrets{args[0]}
			return caddyconf.ReadBlock(d, "auth knock", caddyconf.Set("header", &m.HMACHeader, caddyconf.Word))
		},
		Fields: []string{"knockHeader"},
		Compile: func(m *Mapping, secrets HookSecrets) (auth.Verifier, error) {
			if m.HMACHeader == "" {
				return nil, FieldErrorf("knockHeader", "must be set")
			}
			word, err := secrets.Resolve(m.HMACSecret[0])
			return knock{m.HMACHeader, word}, err
		},
		SecretHeaders:   func(m *Mapping) []string { return []string{m.HMACHeader} },
		WwwAuthenticate: "Knock", Missing: "Knock first.", Wrong: "Knock again.",
	})

	d := caddyfile.NewTestDispenser("hook door {\nauth knock rat-tat {\nheader X-Knock\n}\n}")
	d.Next()
	hook, err := UnmarshalHook(d)
	if err != nil {
		t.Fatal(err)
	}
	secrets := HookSecrets{Resolve: func(secret string) (string, error) { return strings.ToUpper(secret), nil }}
	compiled, err := hook.Compile(new(Rules), secrets)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{"RAT-TAT": true, "rat-tat": false} {
		if got := compiled.Auth.Verifier.Verify(&auth.Request{Header: http.Header{"X-Knock": {word}}}); got.OK != want {
			t.Errorf("%s: got %+v", word, got)
		}
	}
	if place := hook.Places["knockHeader"]; place.Val() != "auth" {
		t.Errorf("errors about its fields are reported at %q", place.Val())
	}

	m := Mapping{Name: "door", AuthMode: "konck"}
	if _, err := m.Compile(new(Rules), secrets); err == nil || !strings.HasPrefix(err.Error(), "authMode must be one of ") || !strings.HasSuffix(err.Error(), "; did you mean knock?") {
		t.Errorf("a wrong authMode: got %v", err)
	}
	d = caddyfile.NewTestDispenser("auth s3cret")
	d.Next()
	if err := m.unmarshalAuth(d, make(SettingPlaces)); err == nil || strings.Contains(err.Error(), "s3cret") ||
		!strings.Contains(err.Error(), "'auth token <secret>' stands. It takes "+listSchemes()+", at ") || !strings.Contains(err.Error(), "'knock <word>'") {
		t.Errorf("a wrong scheme in a Caddyfile: got %v", err)
	}
	d = caddyfile.NewTestDispenser("auth nkock s3cret")
	d.Next()
	if err := m.unmarshalAuth(d, make(SettingPlaces)); err == nil || !strings.HasPrefix(err.Error(), "auth has no such scheme: did you mean knock? It takes '") {
		t.Errorf("a misspelt scheme in a Caddyfile: got %v", err)
	}
}

// A secret that vanished, with its environment variable, leaves the prefix in its place.
func TestPrefixIsNotTakenForASecret(t *testing.T) {
	t.Parallel()
	unmarshal := func(secret string) error {
		d := caddyfile.NewTestDispenser("auth hmac X-Signature " + secret)
		d.Next()
		return new(Mapping).unmarshalAuth(d, make(SettingPlaces))
	}
	for _, prefix := range []string{"sha256=", "sha1=", "SHA256=", "sha512=", "sha-256=", "md5=", "v0=", "v1=", "hmac-sha256=", "HMAC_SHA256=", "hmac=", "sig=",
		"signature=", "t=", "sha256:", "sha3-256="} {
		if err := unmarshal(prefix); err == nil || !strings.Contains(err.Error(), "{$NAME} is not set") {
			t.Errorf("%s: got %v", prefix, err)
		}
	}
	// Secrets in base64 end with =, too.
	for _, secret := range []string{"c2VjcmV0IQ==", "MTIzNDU2Nzg=", "7mBvq0jVw2vC1oF3HhJ8bEw1T2QxYw5zj3Xn8dA9u0E=", "sha256", "a=b", "=", "{env.SECRET}", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if err := unmarshal(secret); err != nil {
			t.Errorf("%s: got %v", secret, err)
		}
	}
}

// A secret that a scheme adds to mappings must be marked as one, or the admin API would show it.
func TestSecretFieldsOfMappingsAreMarked(t *testing.T) {
	t.Parallel()
	marked := make(map[string]bool)
	for _, field := range SecretFields {
		marked[field.Name] = true
	}
	for _, name := range MappingFields {
		looksSecret := regexp.MustCompile(`(?i)secret|password|token`).MatchString(name)
		if looksSecret != marked[name] {
			t.Errorf("%s: has the tag secret: %t", name, marked[name])
		}
	}
}

// Callers learn which header is missing, unless its name may be a secret: whoever swaps the arguments of auth hmac puts one there.
func TestCallersLearnWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ auth, header, want string }{
		{"github s3cret", "", "The header X-Hub-Signature-256 is missing or empty. This hook accepts requests from GitHub, not a bearer token."},
		{"slack s3cret", "X-Slack-Signature", "The header X-Slack-Request-Timestamp, which is signed, is missing or repeated. This hook accepts requests from Slack, not a bearer token."},
		{"gitlab s3cret", "", "The header X-Gitlab-Token is missing or empty. This hook accepts requests from GitLab, not a bearer token."},
		{"hmac Acme-Signature s3cret", "", "The header Acme-Signature is missing or empty. This hook accepts requests with a signature, not a bearer token."},
		{"hmac s3cret X-Signature", "", "The signature is missing. This hook accepts requests with a signature, not a bearer token."},
		{"token s3cret", "", "No token was sent. Send the token of this hook as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."},
	} {
		d := caddyfile.NewTestDispenser("auth " + c.auth)
		d.Next()
		m := Mapping{Name: "a"}
		if err := m.unmarshalAuth(d, make(SettingPlaces)); err != nil {
			t.Fatal(err)
		}
		a, err := m.Authentication(HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }})
		if err != nil {
			t.Fatal(err)
		}
		var refused *RefusedCredential
		err = a.Authenticate(&auth.Request{Header: http.Header{c.header: {"v0=" + strings.Repeat("0", 64)}}})
		if !errors.As(err, &refused) || refused.Message() != c.want {
			t.Errorf("%s: a caller is told %q", c.auth, refused.Message())
		}
	}
}
