package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// checkSignature looks for the key that signed a token. A token with an unknown key, or one that names none and matches none, may be
// signed with a new one.
func (v *Verifier) checkSignature(t *token, now time.Time) auth.Verdict {
	keys := v.keys.known(now)
	var stale, away *unavailable
	for refreshed := false; ; refreshed = true {
		isKnown := false
		for _, key := range keys {
			if t.kid != "" && key.KeyID != t.kid {
				continue
			}
			isKnown = t.kid != ""
			if t.isSignedBy(&key) {
				return auth.Accept()
			}
		}
		switch {
		case isKnown:
			return auth.Refuse(SignatureWrong)
		case stale != nil: // such requests need no throttle: they fetch nothing, and nobody can guess a key
			return auth.Undecided(KeyMaybeNew, stale.retryAfter, stale.cause)
		case refreshed:
			return auth.Refuse(KeyUnknown)
		}
		if keys, stale, away = v.keys.refreshed(now); away != nil {
			return auth.Undecided(KeysUnavailable, away.retryAfter, away.cause)
		}
	}
}

// isSignedBy checks the signature with a key that is made for its algorithm.
func (t *token) isSignedBy(key *jose.JSONWebKey) bool {
	if key.Algorithm != "" && key.Algorithm != string(t.algorithm) {
		return false
	}
	fits := false
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		fits = strings.HasPrefix(string(t.algorithm), "RS") || strings.HasPrefix(string(t.algorithm), "PS")
	case *ecdsa.PublicKey:
		fits = public.Curve == curves[t.algorithm]
	case ed25519.PublicKey:
		fits = t.algorithm == jose.EdDSA
	}
	if !fits {
		return false
	}
	_, err := t.signed.Verify(key.Key)
	return err == nil
}

var curves = map[jose.SignatureAlgorithm]elliptic.Curve{
	jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
}

// fetchKeys gets the keys that an issuer publishes. keysURL is "" if its discovery document names them.
func fetchKeys(ctx context.Context, fetch Fetch, issuer, keysURL string) ([]jose.JSONWebKey, error) {
	if keysURL == "" {
		document, err := fetch(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", maxDocument)
		if err != nil {
			return nil, fmt.Errorf("the discovery document: %w", err)
		}
		if keysURL, err = readDiscovery(document, issuer); err != nil {
			return nil, err
		}
	}
	document, err := fetch(ctx, keysURL, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("the key set: %w", err)
	}
	return readKeys(document)
}

// readDiscovery returns the URL of the keys. It is as safe from others as that of the issuer.
func readDiscovery(document []byte, issuer string) (keysURL string, err error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	switch err := json.Unmarshal(document, &discovery); {
	case err != nil:
		return "", errors.New("the discovery document is not the JSON that is expected")
	case discovery.Issuer != issuer:
		return "", errors.New("the discovery document is that of another issuer")
	case discovery.Keys == "":
		return "", errors.New("the discovery document names no key set (jwks_uri)")
	case !strings.HasPrefix(discovery.Keys, "https://") && !strings.HasPrefix(issuer, "http://"):
		return "", errors.New("the key set (jwks_uri) must be at an https URL")
	}
	return discovery.Keys, nil
}

const (
	// maxDocument is the size of a discovery document or a key set.
	maxDocument = 1 << 20

	// maxKeys is how many keys of a set are used.
	maxKeys = 64

	leastRSABits, mostRSABits = 2048, 8192
)

// readKeys returns the keys of a set that can check signatures. Others are left out, as RFC 7517 recommends.
func readKeys(document []byte) (keys []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(document, &set) != nil {
		return nil, errors.New("the key set is not the JSON that is expected")
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if len(keys) < maxKeys && key.UnmarshalJSON(raw) == nil && canCheck(&key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no public key that can be used")
	}
	return keys, nil
}

// canCheck reports whether a key is a public one for signatures. A secret or private key that is published is known to everybody.
func canCheck(key *jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		bits := public.N.BitLen()
		return bits >= leastRSABits && bits <= mostRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
