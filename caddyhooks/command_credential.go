package caddyhooks

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// credential makes requests that a hook accepts, as its sender does.
type credential struct {
	scheme   *scheme
	mapping  *Mapping
	secret   string
	verifier auth.Verifier
}

// newCredential is for the scheme of a mapping, with a secret in the place of its own.
func newCredential(m Mapping, secret string) (*credential, error) {
	c := &credential{scheme: bearerScheme, mapping: &m, secret: secret}
	if m.AuthMode != "" {
		c.scheme = findScheme(m.AuthMode)
	}
	if c.scheme == nil {
		return nil, &usageError{fmt.Sprintf("there is no scheme %q; there are %s", text.Abridge(m.AuthMode), text.List(schemeNames()))}
	}
	secrets := hookSecrets{resolve: func(secret string) (string, error) { return secret, nil }}
	if c.scheme == bearerScheme {
		secrets.tokens = auth.NewTokens(secret)
	}
	for _, field := range secretFields {
		*field.in(&m) = nil
		if slices.Contains(c.scheme.fields, field.name) {
			*field.in(&m) = Secrets{secret}
		}
	}
	var err error
	if c.verifier, err = c.scheme.compile(&m, secrets); err != nil {
		return nil, fmt.Errorf("auth %s: %w", c.scheme.name, err)
	}
	return c, nil
}

// needsSecret reports whether a scheme has a secret of its own, and not the token of all hooks.
func (s *scheme) needsSecret() bool {
	return slices.ContainsFunc(secretFields, func(field secretField) bool { return slices.Contains(s.fields, field.name) })
}

// headers are those with which a request to a URL is accepted. A scheme may add to the URL.
func (c *credential) headers(url string, header http.Header, payload []byte, now time.Time) (headers []auth.Header, called string, err error) {
	req := &auth.Request{Header: header, URL: func() string { return url }, Body: payload, Now: now}
	if signer, ok := c.verifier.(auth.Signer); ok {
		if headers, called = signer.Sign(req); len(headers) > 0 {
			return headers, called, nil
		}
		return nil, "", fmt.Errorf("a request of %s cannot be signed like this: %s", c.scheme.titled(), c.whyUnsigned(url))
	}
	for _, headers := range [][]auth.Header{nil, {{Name: "Authorization", Value: "Bearer " + c.secret}}, c.ownHeader()} {
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
	return nil, "", fmt.Errorf("a request of %s cannot be made here: only the sender has the key to sign it", c.scheme.titled())
}

// ownHeader is the header in which the sender sends its secret as it is.
func (c *credential) ownHeader() []auth.Header {
	if names := c.scheme.secretHeaders(c.mapping); len(names) > 0 {
		return []auth.Header{{Name: names[0], Value: c.secret}}
	}
	return nil
}

func (c *credential) whyUnsigned(url string) string {
	if url == "" {
		return "the URL is signed, too, so name it by --url"
	}
	return "something that is signed is missing in its headers or its body"
}

// titled is how people call the scheme.
func (s *scheme) titled() string { return cmp.Or(s.title, s.name) }

// isSigned reports whether the headers have signatures, and no secret.
func (c *credential) isSigned() bool {
	_, ok := c.verifier.(auth.Signer)
	return ok
}

// headerLines are headers as curl and HTTP write them.
func headerLines(headers []auth.Header) string {
	var lines strings.Builder
	for _, h := range headers {
		lines.WriteString(h.Name + ": " + h.Value + "\n")
	}
	return lines.String()
}
