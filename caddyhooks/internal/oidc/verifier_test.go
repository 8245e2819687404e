package oidc_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc/oidctest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// guard lets keys be fetched from this machine.
var guard = outbound.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil, true)

// newIssuers remembers keys for the time of the test.
func newIssuers(t testing.TB) *oidc.Issuers {
	s := oidc.NewIssuers(zap.NewNop)
	t.Cleanup(s.Close)
	return s
}

// newVerifier accepts tokens of an issuer.
func newVerifier(t testing.TB, issuer *oidctest.Issuer, claims ...oidc.Claim) *oidc.Verifier {
	return oidc.NewVerifier(oidc.Policy{Issuer: issuer.URL, Audience: []string{"other", oidctest.Audience}, Claims: claims},
		newIssuers(t).Of(issuer.URL, "", guard.Fetch))
}

func send(v *oidc.Verifier, token string, now time.Time) auth.Verdict {
	return v.Verify(&auth.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, Now: now})
}

// verdictName is short for a verdict.
func verdictName(v auth.Verdict) string {
	switch {
	case v.OK:
		return "accepted"
	case v.RetryAfter > 0:
		return "undecided"
	case v.Missing:
		return "missing: " + string(v.Reason)
	default:
		return string(v.Reason)
	}
}

func wantVerdict(t *testing.T, what string, got auth.Verdict, want string) {
	t.Helper()
	if verdictName(got) != want {
		t.Errorf("%s: %s (%v), want %s", what, verdictName(got), got.Cause, want)
	}
}

func TestTokensAreCheckedAgainstThePolicy(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	now := time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for what, test := range map[string]struct {
		changes map[string]any
		want    auth.Reason
	}{
		"a good one":                            {nil, "accepted"},
		"one of several audiences":              {map[string]any{"aud": []string{"else", oidctest.Audience}}, "accepted"},
		"another audience":                      {map[string]any{"aud": "else"}, oidc.OtherAudience},
		"other audiences":                       {map[string]any{"aud": []any{"else", 1, nil}}, oidc.OtherAudience},
		"no audience":                           {map[string]any{"aud": nil}, oidc.OtherAudience},
		"an audience that is longer":            {map[string]any{"aud": oidctest.Audience + "/"}, oidc.OtherAudience},
		"another issuer":                        {map[string]any{"iss": "https://example.com"}, oidc.OtherIssuer},
		"an issuer with a slash":                {map[string]any{"iss": issuer.URL + "/"}, oidc.OtherIssuer},
		"no issuer":                             {map[string]any{"iss": nil}, oidc.OtherIssuer},
		"a list of issuers":                     {map[string]any{"iss": []string{issuer.URL}}, oidc.OtherIssuer},
		"no expiry":                             {map[string]any{"exp": nil}, oidc.NoExpiry},
		"an expiry in words":                    {map[string]any{"exp": "2099-01-01"}, oidc.NoExpiry},
		"expired":                               {map[string]any{"exp": at(-61 * time.Second)}, oidc.Expired},
		"expired within the leeway":             {map[string]any{"exp": at(-58 * time.Second)}, "accepted"},
		"a fraction of a second":                {map[string]any{"exp": float64(at(time.Minute)) + 0.5}, "accepted"},
		"an expiry beyond all time":             {map[string]any{"exp": json.Number("1e999")}, oidc.NoExpiry},
		"not yet valid":                         {map[string]any{"nbf": at(62 * time.Second)}, oidc.TooEarly},
		"not yet valid, but nearly":             {map[string]any{"nbf": at(58 * time.Second)}, "accepted"},
		"issued in the future":                  {map[string]any{"iat": at(62 * time.Second)}, oidc.TooEarly},
		"issued at a time in words":             {map[string]any{"iat": "now"}, oidc.BadTime},
		"without the times that are not needed": {map[string]any{"iat": nil, "nbf": nil}, "accepted"},
	} {
		wantVerdict(t, what, send(v, issuer.Token(test.changes), now), string(test.want))
	}
	if n := issuer.Fetches(); n != 2 {
		t.Errorf("the issuer was asked %d times, want 2", n)
	}
}

func TestAlgorithmsWithAPublicKeyAreAccepted(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA} {
		issuer.AddKey(string(algorithm), algorithm)
	}
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA} {
		wantVerdict(t, string(algorithm), send(v, issuer.TokenBy(string(algorithm), algorithm, nil), time.Now()), "accepted")
	}
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestForgedTokensAreRefused(t *testing.T) {
	issuer := oidctest.Start(t)
	issuer.AddKey("curve", jose.ES256)
	v := newVerifier(t, issuer)
	good := issuer.Token(nil)
	parts := strings.Split(good, ".")
	claims, err := json.Marshal(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(issuer.PublicKey("first"))
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	stranger := oidctest.NewKey(t, jose.RS256)
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: stranger}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	byEmbedded, err := embedded.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	withOwnKey, err := byEmbedded.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, "the good one, with which keys are fetched", send(v, good, time.Now()), "accepted")
	altered := strings.Replace(string(claims), "octo/shop", "octo/evil", 1)
	for what, test := range map[string]struct {
		token string
		want  auth.Reason
	}{
		"none":                              {encode(`{"alg":"none","kid":"first"}`) + "." + parts[1] + ".", oidc.OtherAlgorithm},
		"none in other letters":             {encode(`{"alg":"nOnE"}`) + "." + parts[1] + ".", oidc.OtherAlgorithm},
		"no algorithm":                      {encode(`{"kid":"first"}`) + "." + parts[1] + "." + parts[2], oidc.OtherAlgorithm},
		"HS256 with the public key":         {oidctest.Sign(t, jose.HS256, jose.JSONWebKey{Key: public, KeyID: "first"}, issuer.Claims(nil)), oidc.OtherAlgorithm},
		"HS512 with the DER of that key":    {oidctest.Sign(t, jose.HS512, jose.JSONWebKey{Key: der, KeyID: "first"}, issuer.Claims(nil)), oidc.OtherAlgorithm},
		"other claims":                      {parts[0] + "." + encode(altered) + "." + parts[2], oidc.SignatureWrong},
		"no signature":                      {parts[0] + "." + parts[1] + ".", oidc.SignatureWrong},
		"the key of another":                {oidctest.Sign(t, jose.RS256, jose.JSONWebKey{Key: stranger, KeyID: "first"}, issuer.Claims(nil)), oidc.SignatureWrong},
		"a key in the token":                {withOwnKey, oidc.KeyUnknown},
		"an algorithm for another key":      {oidctest.Sign(t, jose.ES256, jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256), KeyID: "first"}, issuer.Claims(nil)), oidc.SignatureWrong},
		"another curve":                     {oidctest.Sign(t, jose.ES384, jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES384), KeyID: "curve"}, issuer.Claims(nil)), oidc.SignatureWrong},
		"an unknown extension":              {encode(`{"alg":"RS256","kid":"first","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2], oidc.SignatureWrong},
		"two parts":                         {parts[0] + "." + parts[1], oidc.Malformed},
		"five parts, as if encrypted":       {good + ".a.b", oidc.Malformed},
		"no JWT":                            {"a-token", oidc.Malformed},
		"JSON instead of the short form":    {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, oidc.Malformed},
		"claims that are no object":         {parts[0] + "." + encode(`[]`) + "." + parts[2], oidc.Malformed},
		"a claim that stands twice":         {parts[0] + "." + encode(`{"iss":"a","iss":"b"}`) + "." + parts[2], oidc.Malformed},
		"a token that is longer than 16 KB": {issuer.Token(map[string]any{"groups": strings.Repeat("a", 13<<10)}), oidc.TooLong},
	} {
		now := time.Now()
		if test.want == oidc.KeyUnknown { // which is known after another fetch
			now = now.Add(11 * time.Second)
		}
		verdict := send(v, test.token, now)
		wantVerdict(t, what, verdict, string(test.want))
		if strings.Contains(string(verdict.Reason), parts[1][:20]) {
			t.Errorf("%s: the reason has the token in it", what)
		}
	}
	wantVerdict(t, "the good one", send(v, good, time.Now()), "accepted")
	if n := issuer.Fetches(); n != 4 {
		t.Errorf("the issuer was asked %d times, want 4", n)
	}
}

func TestTokensMayStandInAnotherHeader(t *testing.T) {
	issuer := oidctest.Start(t)
	own := oidc.NewVerifier(oidc.Policy{Issuer: issuer.URL, Audience: []string{oidctest.Audience}, Header: "cf-access-jwt-assertion"},
		newIssuers(t).Of(issuer.URL, issuer.URL+"/keys", guard.Fetch))
	usual := newVerifier(t, issuer)
	token := issuer.Token(nil)
	for what, test := range map[string]struct {
		v      *oidc.Verifier
		header http.Header
		want   string
	}{
		"in its own header":        {own, http.Header{"Cf-Access-Jwt-Assertion": {token}}, "accepted"},
		"in the usual one":         {own, http.Header{"Authorization": {"Bearer " + token}}, "missing: the header Cf-Access-Jwt-Assertion is missing or empty"},
		"after another scheme":     {usual, http.Header{"Authorization": {"Basic YTpi", "bearer  " + token}}, "accepted"},
		"with another scheme":      {usual, http.Header{"Authorization": {"Basic " + token}}, "missing: " + string(auth.TokenNotBearer)},
		"nowhere":                  {usual, http.Header{}, "missing: " + string(auth.TokenMissing)},
		"in the header of another": {usual, http.Header{"X-Service-Token": {token}}, "missing: " + string(auth.TokenMissing)},
	} {
		wantVerdict(t, what, test.v.Verify(&auth.Request{Header: test.header, Now: time.Now()}), test.want)
	}
	if n := issuer.Fetches(); n != 3 {
		t.Errorf("the issuer was asked %d times, want once for the keys that are named, and twice for the others", n)
	}
}

func TestClaims(t *testing.T) {
	issuer := oidctest.Start(t)
	keys := newIssuers(t).Of(issuer.URL, "", guard.Fetch)
	said := map[string]any{
		"email": "robot@octo.example", "email_verified": true, "run": 7, "private": false, "groups": []any{"a", "ops", 3},
		"kubernetes.io": map[string]any{"namespace": "prod", "pod": map[string]any{"name": "web-1"}}, "a.b": "top", "a": map[string]any{"b": "inner"},
		"empty": "", "nothing": map[string]any{},
	}
	const none, other = "the token has no claim ", "the claim %s of the token has another value"
	for _, test := range []struct {
		name   string
		values []string
		want   string
	}{
		{"repository", []string{"octo/shop"}, ""},
		{"repository", []string{"octo/other", "octo/shop"}, ""},
		{"repository", []string{"octo/sho"}, other},
		{"repository", []string{"Octo/Shop"}, other},
		{"repository", []string{"octo/*"}, ""},
		{"repository", []string{"octo/shop*"}, ""},
		{"repository", []string{"acme/*"}, other},
		{"sub", []string{"repo:octo/shop:ref:refs/heads/*"}, ""},
		{"email", []string{"robot@octo.example"}, ""},
		{"email_verified", []string{"true"}, ""},
		{"private", []string{"false"}, ""},
		{"private", []string{"true"}, other},
		{"run", []string{"7"}, ""},
		{"run", []string{"7.0"}, other},
		{"groups", []string{"ops"}, ""},
		{"groups", []string{"3"}, ""},
		{"groups", []string{"dev"}, other},
		{"kubernetes.io.namespace", []string{"prod"}, ""},
		{"kubernetes.io.pod.name", []string{"web-*"}, ""},
		{"kubernetes.io.pod", []string{"web-1"}, other},
		{"kubernetes.io.node", []string{"x"}, none},
		{"a.b", []string{"top"}, ""},
		{"a.b", []string{"inner"}, other},
		{"actor", []string{"mona"}, none},
		{"empty", []string{"a"}, other},
		{"nothing", []string{"{}"}, other},
	} {
		v := oidc.NewVerifier(oidc.Policy{Issuer: issuer.URL, Audience: []string{oidctest.Audience},
			Claims: []oidc.Claim{{Name: "repository", Values: []string{"octo/shop"}}, {Name: test.name, Values: test.values}}}, keys)
		want := test.want
		switch want {
		case "":
			want = "accepted"
		case none:
			want += test.name
		case other:
			want = strings.Replace(other, "%s", test.name, 1)
		}
		wantVerdict(t, test.name+" "+strings.Join(test.values, " "), send(v, issuer.Token(said), time.Now()), want)
	}
	v := newVerifier(t, issuer, oidc.Claim{Name: "email", Values: []string{"robot@octo.example"}})
	said["email_verified"] = false
	wantVerdict(t, "an address that is not verified", send(v, issuer.Token(said), time.Now()), "the email address in the token is not verified")
	delete(said, "email_verified")
	wantVerdict(t, "an issuer that does not say", send(v, issuer.Token(said), time.Now()), "accepted")
}

func TestKeysAreFetchedWhenTheyChange(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	now := time.Now()
	wantVerdict(t, "the first key", send(v, issuer.Token(nil), now), "accepted")
	issuer.AddKey("second", jose.ES256)
	now = now.Add(10 * time.Second)
	wantVerdict(t, "a new key", send(v, issuer.TokenBy("second", jose.ES256, nil), now), "accepted")
	wantVerdict(t, "the first of two keys", send(v, issuer.Token(nil), now), "accepted")
	issuer.Withdraw("first")
	issuer.AddKey("third", jose.EdDSA)
	now = now.Add(10 * time.Second)
	wantVerdict(t, "a third key", send(v, issuer.TokenBy("third", jose.EdDSA, nil), now), "accepted")
	wantVerdict(t, "a key that was withdrawn", send(v, issuer.Token(nil), now), string(oidc.KeyUnknown))
	if n := issuer.Fetches(); n != 6 {
		t.Errorf("the issuer was asked %d times, want 6", n)
	}
}

// Somebody who sends a forged token just before a genuine one of a new key does not have that refused.
func TestAForgedTokenDoesNotHaveANewKeyRefused(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	now := time.Now()
	wantVerdict(t, "the first key", send(v, issuer.Token(nil), now), "accepted")
	now = now.Add(30 * time.Second)
	forged := oidctest.Sign(t, jose.ES256, jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256), KeyID: "forged"}, issuer.Claims(nil))
	wantVerdict(t, "a forged token", send(v, forged, now), string(oidc.KeyUnknown))
	issuer.AddKey("second", jose.ES256)
	genuine := issuer.TokenBy("second", jose.ES256, nil)
	verdict := send(v, genuine, now.Add(3*time.Second))
	wantVerdict(t, "a new key", verdict, "undecided")
	if verdict.Reason != oidc.KeyMaybeNew || verdict.RetryAfter != 7*time.Second {
		t.Errorf("it is to come again after %s, since %s", verdict.RetryAfter, verdict.Reason)
	}
	wantVerdict(t, "a forged token again", send(v, forged, now.Add(4*time.Second)), "undecided")
	wantVerdict(t, "a known key with a wrong signature", send(v, issuer.Token(nil)+"A", now.Add(5*time.Second)), string(oidc.SignatureWrong))
	wantVerdict(t, "the new key again", send(v, genuine, now.Add(3*time.Second+verdict.RetryAfter)), "accepted")
	if n := issuer.Fetches(); n != 6 {
		t.Errorf("the issuer was asked %d times, want 6", n)
	}
}

// Known keys are fetched again after an hour, and nobody waits for that.
func TestOldKeysAreFetchedAgain(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	now := time.Now()
	token := issuer.Token(map[string]any{"exp": now.Add(2 * time.Hour).Unix()})
	for _, age := range []time.Duration{0, 59 * time.Minute, time.Hour} {
		if n := issuer.Fetches(); age > 0 && n != 2 {
			t.Errorf("the issuer was asked %d times before %s", n, age)
		}
		wantVerdict(t, age.String(), send(v, token, now.Add(age)), "accepted")
	}
	// A token with an unknown key waits for the fetch that is under way, and starts no other.
	forged := oidctest.Sign(t, jose.ES256, jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256), KeyID: "forged"}, issuer.Claims(map[string]any{"exp": now.Add(2 * time.Hour).Unix()}))
	wantVerdict(t, "an unknown key", send(v, forged, now.Add(time.Hour)), string(oidc.KeyUnknown))
	if n := issuer.Fetches(); n != 4 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// A token without a kid is tried with all keys.
func TestTokensNeedNotNameTheirKey(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	now := time.Now()
	wantVerdict(t, "the first key", send(v, issuer.Token(nil), now), "accepted")
	second := oidctest.NewKey(t, jose.ES256)
	issuer.Publish(jose.JSONWebKey{Key: issuer.PublicKey("first"), KeyID: "first"}, jose.JSONWebKey{Key: second.Public(), Algorithm: "ES256"})
	token := oidctest.Sign(t, jose.ES256, second, issuer.Claims(nil))
	wantVerdict(t, "a new key, too early", send(v, token, now.Add(time.Second)), "undecided")
	now = now.Add(10 * time.Second)
	wantVerdict(t, "a new key", send(v, token, now), "accepted")
	wantVerdict(t, "that of a stranger", send(v, oidctest.Sign(t, jose.ES256, oidctest.NewKey(t, jose.ES256), issuer.Claims(nil)), now),
		string(oidc.KeyUnknown))
	issuer.Publish(jose.JSONWebKey{Key: second.Public(), Algorithm: "ES384"})
	now = now.Add(10 * time.Second)
	wantVerdict(t, "a stranger again", send(v, oidctest.Sign(t, jose.ES256, oidctest.NewKey(t, jose.ES256), issuer.Claims(nil)), now),
		string(oidc.KeyUnknown))
	wantVerdict(t, "a key that is for another algorithm now", send(v, token, now), string(oidc.KeyUnknown))
}

// Many forged tokens at once make one fetch, and no more than one in ten seconds.
func TestAFloodOfForgedTokensMakesFewRequests(t *testing.T) {
	issuer := oidctest.Start(t)
	v := newVerifier(t, issuer)
	forged := oidctest.Sign(t, jose.ES256, jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256), KeyID: "forged"}, issuer.Claims(nil))
	now := time.Now()
	flood := func(now time.Time) {
		t.Helper()
		var senders sync.WaitGroup
		for i := range 200 {
			senders.Go(func() {
				// They come in another order than they read the clock.
				verdict := send(v, forged, now.Add(-time.Duration(i)*time.Millisecond))
				if verdict.OK || verdict.Reason != oidc.KeyUnknown && verdict.Reason != oidc.KeyMaybeNew {
					t.Errorf("a forged token: %+v", verdict)
				}
			})
		}
		senders.Wait()
	}
	for i := range 3 {
		flood(now)
		send(v, forged, now.Add(-time.Second))
		flood(now.Add(9 * time.Second))
		if n := issuer.Fetches(); n != 2*(i+1) {
			t.Fatalf("the issuer was asked %d times in %d rounds", n, i+1)
		}
		now = now.Add(11 * time.Second)
	}
}

func away(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

func TestKnownKeysGoOnWorkingWhileTheIssuerIsAway(t *testing.T) {
	issuer := oidctest.Start(t)
	logged, lines := observer.New(zapcore.WarnLevel)
	issuers := oidc.NewIssuers(func() *zap.Logger { return zap.New(logged) })
	defer issuers.Close()
	v := oidc.NewVerifier(oidc.Policy{Issuer: issuer.URL, Audience: []string{oidctest.Audience}}, issuers.Of(issuer.URL, "", guard.Fetch))
	start := time.Now()
	long := map[string]any{"exp": start.Add(72 * time.Hour).Unix()}
	token := issuer.Token(long)
	issuer.Answer(away)
	verdict := send(v, token, start)
	wantVerdict(t, "no keys yet", verdict, "undecided")
	if verdict.RetryAfter > 10*time.Second || verdict.RetryAfter < 9*time.Second || verdict.Cause == nil || !strings.Contains(verdict.Cause.Error(), "502") {
		t.Errorf("come again after %s because of %v", verdict.RetryAfter, verdict.Cause)
	}
	verdict = send(v, token, start.Add(6*time.Second))
	wantVerdict(t, "a moment later", verdict, "undecided")
	if n := issuer.Fetches(); n != 1 || verdict.RetryAfter != 4*time.Second {
		t.Errorf("the issuer was asked %d times; come again after %s", n, verdict.RetryAfter)
	}
	issuer.Answer(nil)
	start = start.Add(10 * time.Second)
	wantVerdict(t, "the issuer is back", send(v, token, start), "accepted")
	issuer.Answer(away)
	issuer.AddKey("second", jose.ES256)
	for _, age := range []time.Duration{59 * time.Minute, time.Hour, 12 * time.Hour, 24*time.Hour - time.Second} {
		wantVerdict(t, "known keys of the age "+age.String(), send(v, token, start.Add(age)), "accepted")
		wantVerdict(t, "a new key at the age "+age.String(), send(v, issuer.TokenBy("second", jose.ES256, long), start.Add(age)), "undecided")
	}
	wantVerdict(t, "keys that are too old", send(v, token, start.Add(24*time.Hour+10*time.Second)), "undecided")
	if lines.Len() != 1 {
		t.Errorf("logged %v", lines.All())
	}
	issuer.Answer(nil)
	wantVerdict(t, "back again", send(v, issuer.TokenBy("second", jose.ES256, long), start.Add(24*time.Hour+20*time.Second)), "accepted")
}

// stuck is an issuer that does not answer, in a bubble of synctest, where its time passes at once.
func stuck(ctx context.Context, _ string, _ int64) ([]byte, error) {
	<-ctx.Done()
	return nil, errors.New("the answer took too long")
}

func TestASlowIssuerHoldsNobodyForLong(t *testing.T) {
	issuer := oidctest.Start(t)
	token := issuer.Token(map[string]any{"exp": time.Now().Add(3 * time.Hour).Unix()})
	document := []byte(`{"issuer":"` + issuer.URL + `","jwks_uri":"` + issuer.URL + `/keys"}`)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: issuer.PublicKey("first"), KeyID: "first"}}})
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Now() // in the bubble, the clock is another one
	synctest.Test(t, func(t *testing.T) {
		issuers := oidc.NewIssuers(zap.NewNop)
		policy := oidc.Policy{Issuer: issuer.URL, Audience: []string{oidctest.Audience}}
		v := oidc.NewVerifier(policy, issuers.Of(issuer.URL, "", stuck))
		begin := time.Now()
		var waiting sync.WaitGroup
		var atOnce atomic.Int32
		for range 1100 {
			waiting.Go(func() {
				if verdict := send(v, token, issued); verdictName(verdict) != "undecided" {
					t.Errorf("%+v", verdict)
				}
				if time.Since(begin) == 0 {
					atOnce.Add(1)
				}
			})
		}
		waiting.Wait()
		if took := time.Since(begin); took != 5*time.Second || atOnce.Load() != 100 {
			t.Errorf("the requests took %s; %d did not wait", took, atOnce.Load())
		}
		// Once keys are known, a slow issuer holds nobody who has one of them.
		quick := func(_ context.Context, url string, _ int64) ([]byte, error) {
			if strings.HasSuffix(url, "/keys") {
				return keys, nil
			}
			return document, nil
		}
		v2 := oidc.NewVerifier(policy, issuers.Of(issuer.URL, "", quick))
		if verdict := send(v2, token, issued.Add(20*time.Second)); !verdict.OK {
			t.Errorf("%+v", verdict)
		}
		begin = time.Now()
		later := issued.Add(2 * time.Hour)
		if verdict := send(v, token, later); !verdict.OK || time.Since(begin) != 0 {
			t.Errorf("%+v after %s", verdict, time.Since(begin))
		}
		issuers.Close()
		if verdict := send(v, token, later); !verdict.OK {
			t.Errorf("known keys after the end: %+v", verdict)
		}
	})
}

func TestBadAnswersOfAnIssuer(t *testing.T) {
	issuer := oidctest.Start(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // to be refused
	if err != nil {
		t.Fatal(err)
	}
	set := func(keys ...jose.JSONWebKey) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" {
				_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"})
		}
	}
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	var megabytes atomic.Int32
	hmac := jose.JSONWebKey{Key: []byte("a-secret-of-thirty-two-characters"), KeyID: "first"}
	for what, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"50 MB": {func(w http.ResponseWriter, _ *http.Request) {
			megabyte := bytes.Repeat([]byte(" "), 1<<20)
			for range 50 {
				if _, err := w.Write(megabyte); err != nil {
					return
				}
				megabytes.Add(1)
			}
		}, "the discovery document: the answer is larger than 1048576 bytes"},
		"no JSON":                 {text("hello"), "the discovery document is not the JSON that is expected"},
		"another issuer":          {text(`{"issuer":"https://example.com","jwks_uri":"` + issuer.URL + `/keys"}`), "the discovery document is that of another issuer"},
		"no key set":              {text(`{"issuer":"` + issuer.URL + `"}`), "the discovery document names no key set (jwks_uri)"},
		"a key set elsewhere":     {text(`{"issuer":"` + issuer.URL + `","jwks_uri":"http://10.0.0.1/keys"}`), "points to 10.0.0.1, which is not a public address"},
		"a key set in a file":     {text(`{"issuer":"` + issuer.URL + `","jwks_uri":"file:///etc/passwd"}`), "must begin with http"},
		"a redirect":              {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) }, "the host answered 302, and redirects are not followed"},
		"no keys":                 {set(), "no public key that can be used"},
		"a secret":                {set(hmac), "no public key that can be used"},
		"a private key":           {set(jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256), KeyID: "first"}), "no public key that can be used"},
		"a key for encryption":    {set(jose.JSONWebKey{Key: issuer.PublicKey("first"), KeyID: "first", Use: "enc"}), "no public key that can be used"},
		"a key that is too small": {set(jose.JSONWebKey{Key: small.Public(), KeyID: "first"}), "no public key that can be used"},
		"a broken answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "the answer broke off before its end"},
	} {
		issuer.Answer(test.answer)
		verdict := send(newVerifier(t, issuer), issuer.Token(nil), time.Now())
		wantVerdict(t, what, verdict, "undecided")
		if verdict.Cause == nil || !strings.Contains(verdict.Cause.Error(), test.want) {
			t.Errorf("%s: %v, want %s", what, verdict.Cause, test.want)
		}
	}
	if n := megabytes.Load(); n > 25 { // the network has room for some
		t.Errorf("%d MB were taken", n)
	}
	issuer.Answer(set(hmac, jose.JSONWebKey{Key: issuer.PublicKey("first"), KeyID: "first"}))
	wantVerdict(t, "a good key among others", send(newVerifier(t, issuer), issuer.Token(nil), time.Now()), "accepted")
}

func TestKeysOfAnHTTPSIssuerComeByHTTPS(t *testing.T) {
	issuer := oidctest.Start(t)
	const url = "https://issuer.example"
	fetch := func(_ context.Context, at string, _ int64) ([]byte, error) {
		if at != url+"/.well-known/openid-configuration" {
			t.Errorf("fetched %s", at)
		}
		return []byte(`{"issuer":"https://issuer.example","jwks_uri":"http://issuer.example/keys"}`), nil
	}
	v := oidc.NewVerifier(oidc.Policy{Issuer: url, Audience: []string{oidctest.Audience}}, newIssuers(t).Of(url, "", fetch))
	verdict := send(v, issuer.Token(map[string]any{"iss": url}), time.Now())
	if verdict.Cause == nil || verdict.Cause.Error() != "the key set (jwks_uri) must be at an https URL" {
		t.Errorf("%+v", verdict)
	}
}

// Private addresses are as closed as they are to callbacks.
func TestKeysAreNotFetchedFromPrivateAddresses(t *testing.T) {
	issuer := oidctest.Start(t)
	closed := outbound.NewGuard(nil, nil, true)
	named := strings.Replace(issuer.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{issuer.URL, named} {
		v := oidc.NewVerifier(oidc.Policy{Issuer: url, Audience: []string{oidctest.Audience}}, newIssuers(t).Of(url, "", closed.Fetch))
		verdict := send(v, issuer.Token(map[string]any{"iss": url}), time.Now())
		if verdict.RetryAfter == 0 || !strings.Contains(verdict.Cause.Error(), "callbacks block") || strings.Contains(verdict.Cause.Error(), "the callback ") {
			t.Errorf("%s: %+v", url, verdict)
		}
	}
	if issuer.Fetches() != 0 {
		t.Error("the issuer was asked")
	}
}

func FuzzTokens(f *testing.F) {
	issuer := oidctest.Start(f)
	v := newVerifier(f, issuer, oidc.Claim{Name: "kubernetes.io.namespace", Values: []string{"a*"}})
	now := time.Now()
	good := issuer.Token(map[string]any{"kubernetes.io": map[string]any{"namespace": "ab"}, "exp": now.Add(240 * time.Hour).Unix()})
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add(parts[0] + "." + parts[1])
	f.Add(encode(`{"alg":"none"}`) + "." + parts[1] + ".")
	f.Add(encode(`{"alg":"RS256","kid":"first","b64":false,"crit":["b64"]}`) + "." + parts[1] + "." + parts[2])
	f.Add(parts[0] + "." + encode(`{"aud":[[]],"exp":1e400}`) + "." + parts[2])
	if verdict := send(v, good, now); !verdict.OK {
		f.Fatalf("%+v", verdict)
	}
	f.Fuzz(func(t *testing.T, token string) {
		verdict := v.Verify(&auth.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, Now: now})
		if verdict.OK && !strings.HasPrefix(strings.Trim(token, " \t"), parts[0]+"."+parts[1]+".") {
			t.Errorf("accepted %q", token)
		}
		if !verdict.OK && verdict.Reason == "" {
			t.Errorf("no reason for %q", token)
		}
	})
}

func FuzzDocumentsOfAnIssuer(f *testing.F) {
	issuer := oidctest.Start(f)
	token, now := issuer.Token(nil), time.Now()
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: oidctest.NewKey(f, jose.RS256).Public(), KeyID: "first"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"issuer":"`+issuer.URL+`","jwks_uri":"https://example.com/keys"}`, string(keys))
	f.Add(`{"issuer":"`+issuer.URL+`","jwks_uri":"x"}`, `{"keys":[{"kty":"EC","crv":"P-256","kid":"first","x":"AA","y":"AA"},{"kty":"oct","k":"AA"},null,1]}`)
	f.Add(`[]`, `{"keys":{}}`)
	f.Fuzz(func(t *testing.T, discovery, keys string) {
		fetch := func(_ context.Context, url string, _ int64) ([]byte, error) {
			if strings.HasSuffix(url, "/openid-configuration") {
				return []byte(discovery), nil
			}
			return []byte(keys), nil
		}
		for _, keysURL := range []string{"", "https://example.com/keys"} {
			issuers := oidc.NewIssuers(zap.NewNop)
			v := oidc.NewVerifier(oidc.Policy{Issuer: issuer.URL, Audience: []string{oidctest.Audience}}, issuers.Of(issuer.URL, keysURL, fetch))
			if verdict := send(v, token, now); verdict.OK {
				t.Errorf("%q with the keys %q makes a token good", discovery, keys)
			}
			issuers.Close()
		}
	})
}
