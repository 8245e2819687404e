// Package oidctest has an OpenID Connect issuer for tests.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is that of tokens which do not say another one.
const Audience = "https://hooks.example.com"

// Issuer publishes its keys, and signs tokens.
type Issuer struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	public  []jose.JSONWebKey
	private map[string]crypto.Signer
	fetches int
	instead http.HandlerFunc
}

// Start starts an issuer with the key "first" for RS256.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, private: make(map[string]crypto.Signer)}
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.Server.Close)
	i.AddKey("first", jose.RS256)
	return i
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.fetches++
	instead, set := i.instead, jose.JSONWebKeySet{Keys: slices.Clone(i.public)}
	i.mu.Unlock()
	switch {
	case instead != nil:
		instead(w, r)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case r.URL.Path == "/keys":
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

// Fetches is how many requests came. The first keys take two.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Answer has all requests answered by another handler. Nil is the usual one.
func (i *Issuer) Answer(instead http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.instead = instead
}

// AddKey publishes one more key.
func (i *Issuer) AddKey(kid string, algorithm jose.SignatureAlgorithm) {
	i.t.Helper()
	key := NewKey(i.t, algorithm)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = append(i.public, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Use: "sig"})
	i.private[kid] = key
}

// Withdraw publishes a key no more. It can still sign.
func (i *Issuer) Withdraw(kid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = slices.DeleteFunc(i.public, func(key jose.JSONWebKey) bool { return key.KeyID == kid })
}

// Publish publishes keys that it does not have, and no others.
func (i *Issuer) Publish(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = keys
}

// PublicKey is a key that signs.
func (i *Issuer) PublicKey(kid string) crypto.PublicKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.private[kid].Public()
}

// Claims are those of a token that is good for five minutes, with changes. A nil value takes a claim out.
func (i *Issuer) Claims(changes map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "aud": Audience, "sub": "repo:octo/shop:ref:refs/heads/main", "repository": "octo/shop",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Token signs Claims with the first key.
func (i *Issuer) Token(changes map[string]any) string {
	i.t.Helper()
	return i.TokenBy("first", jose.RS256, changes)
}

// TokenBy signs Claims.
func (i *Issuer) TokenBy(kid string, algorithm jose.SignatureAlgorithm, changes map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	key := i.private[kid]
	i.mu.Unlock()
	return Sign(i.t, algorithm, jose.JSONWebKey{Key: key, KeyID: kid}, i.Claims(changes))
}

// Sign makes a token.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// NewKey makes a private key for an algorithm.
func NewKey(t testing.TB, algorithm jose.SignatureAlgorithm) (key crypto.Signer) {
	t.Helper()
	var err error
	switch algorithm {
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.ES512:
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}
