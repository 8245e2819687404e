package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// credential makes requests that a hook accepts, as its sender does.
type credential struct {
	scheme   *settings.Scheme
	mapping  *settings.Mapping
	secret   string
	verifier auth.Verifier
}

// newCredential is for the scheme of a mapping, with a secret in the place of its own.
func newCredential(m settings.Mapping, secret string) (*credential, error) {
	c := &credential{scheme: settings.BearerScheme, mapping: &m, secret: secret}
	if m.AuthMode != "" {
		c.scheme = settings.FindScheme(m.AuthMode)
	}
	if c.scheme == nil {
		return nil, &usageError{fmt.Sprintf("there is no scheme %q; there are %s", text.Abridge(m.AuthMode), text.List(settings.SchemeNames()))}
	}
	secrets := settings.HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }}
	if c.scheme == settings.BearerScheme {
		secrets.Tokens = auth.NewTokens(secret)
	}
	for _, field := range settings.SecretFields {
		*field.In(&m) = nil
		if slices.Contains(c.scheme.Fields, field.Name) {
			*field.In(&m) = settings.Secrets{secret}
		}
	}
	var err error
	if c.verifier, err = c.scheme.Compile(&m, secrets); err != nil {
		return nil, fmt.Errorf("auth %s: %w", c.scheme.Name, err)
	}
	return c, nil
}

// needsSecret reports whether a scheme has a secret of its own, and not the token of all hooks.
func needsSecret(s *settings.Scheme) bool {
	return slices.ContainsFunc(settings.SecretFields, func(field settings.SecretField) bool { return slices.Contains(s.Fields, field.Name) })
}

// headers are those with which a request to a URL is accepted. A scheme may add to the URL.
func (c *credential) headers(url string, header http.Header, payload []byte, now time.Time) (headers []auth.Header, called string, err error) {
	req := &auth.Request{Header: header, URL: func() string { return url }, Body: payload, Now: now}
	if signer, ok := c.verifier.(auth.Signer); ok {
		if headers, called = signer.Sign(req); len(headers) > 0 {
			return headers, called, nil
		}
		return nil, "", fmt.Errorf("a request of %s cannot be signed like this: %s", titled(c.scheme), c.whyUnsigned(url))
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
	return nil, "", fmt.Errorf("a request of %s cannot be made here: only the sender has the key to sign it", titled(c.scheme))
}

// ownHeader is the header in which the sender sends its secret as it is.
func (c *credential) ownHeader() []auth.Header {
	if names := c.scheme.SecretHeaders(c.mapping); len(names) > 0 {
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
func titled(s *settings.Scheme) string { return cmp.Or(s.Title, s.Name) }

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
