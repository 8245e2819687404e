package settings

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// Credential makes requests that a hook accepts, as its sender does.
type Credential struct {
	Scheme   *Scheme
	mapping  *Mapping
	Secret   string
	verifier auth.Verifier
}

// NewCredential is for the scheme of a mapping, which there is, with a secret in the place of its own.
func NewCredential(m Mapping, secret string) (*Credential, error) {
	c := &Credential{Scheme: FindScheme(cmp.Or(m.AuthMode, BearerScheme.Name)), mapping: &m, Secret: secret}
	secrets := HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }}
	if c.Scheme == BearerScheme {
		secrets.Tokens = auth.NewTokens(secret)
	}
	for _, field := range SecretFields {
		*field.In(&m) = nil
		if slices.Contains(c.Scheme.Fields, field.Name) {
			*field.In(&m) = Secrets{secret}
		}
	}
	var err error
	if c.verifier, err = c.Scheme.Compile(&m, secrets); err != nil {
		return nil, fmt.Errorf("auth %s: %w", c.Scheme.Name, err)
	}
	return c, nil
}

// NeedsSecret reports whether the scheme has a secret of its own, and not the token of all hooks.
func (s *Scheme) NeedsSecret() bool {
	return slices.ContainsFunc(SecretFields, func(field SecretField) bool { return slices.Contains(s.Fields, field.Name) })
}

// Headers are those with which a request to a URL is accepted. A scheme may add to the URL.
func (c *Credential) Headers(url string, header http.Header, payload []byte, now time.Time) (headers []auth.Header, called string,
	err error) {
	req := &auth.Request{Header: header, URL: func() string { return url }, Body: payload, Now: now}
	if signer, ok := c.verifier.(auth.Signer); ok {
		if headers, called = signer.Sign(req); len(headers) > 0 {
			return headers, called, nil
		}
		why := "something that is signed is missing in its headers or its body"
		if url == "" {
			why = "the URL is signed, too, so name it by --url"
		}
		return nil, "", fmt.Errorf("a request of %s cannot be signed like this: %s", c.Scheme.Titled(), why)
	}
	for _, headers := range [][]auth.Header{nil, {{Name: "Authorization", Value: "Bearer " + c.Secret}}, c.OwnHeader()} {
		req.Header = header.Clone()
		if req.Header == nil {
			req.Header = make(http.Header)
		}
		for _, h := range headers {
			req.Header.Set(h.Name, h.Value)
		}
		if c.verifier.Verify(req).OK {
			return headers, url, nil
		}
	}
	return nil, "", fmt.Errorf("a request of %s cannot be made here: only the sender has the key to sign it", c.Scheme.Titled())
}

// OwnHeader is the header in which the sender sends its secret as it is.
func (c *Credential) OwnHeader() []auth.Header {
	if names := c.Scheme.SecretHeaders(c.mapping); len(names) > 0 {
		return []auth.Header{{Name: names[0], Value: c.Secret}}
	}
	return nil
}

// Titled is how people call the scheme.
func (s *Scheme) Titled() string { return cmp.Or(s.Title, s.Name) }

// IsSigned reports whether the headers have signatures, and no secret.
func (c *Credential) IsSigned() bool {
	_, ok := c.verifier.(auth.Signer)
	return ok
}
