package httpcall

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// HeaderDirective is the directive `header <name> <value>`, which may stand in a block once for each name. check refuses names.
func HeaderDirective(to *map[string]string, check func(name string) error) caddyconf.Directive {
	return caddyconf.Directive{Word: "header", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
		place := *d // no error may quote the value
		words, err := caddyconf.List(d)
		if err != nil {
			return err
		}
		if len(words) != 2 {
			return place.Err("header takes a name and a value; a value with spaces stands in \"double quotes\" or backquotes")
		}
		name := http.CanonicalHeaderKey(words[0])
		if err := check(name); err != nil {
			return place.WrapErr(err)
		}
		if _, ok := (*to)[name]; ok {
			return place.Errf("header %s is set already", name)
		}
		if *to == nil {
			*to = make(map[string]string)
		}
		(*to)[name] = words[1]
		return nil
	}}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$")

// ownHeaders are those that a request of the http runner has anyway, and those of the connection.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key",
	"Keep-Alive", "Proxy-Connection", "Te", "Traceparent", "Trailer", "Transfer-Encoding", "Upgrade",
}

// CheckHeader refuses what is no name, and the headers that the runner sets itself.
func CheckHeader(name string) error {
	if !headerName.MatchString(name) {
		return errors.New("the name of a header must consist of letters, digits and dashes") // it may be a secret, with the name left out
	}
	if slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "X-Service-") {
		return fmt.Errorf("header %s is set by the runner itself", name)
	}
	return nil
}

// ResolveHeaders replaces the placeholders in the values of headers. An error names the header, and never a value.
func ResolveHeaders(configured map[string]string, check func(name string) error) (map[string]string, error) {
	resolved := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		canonical := http.CanonicalHeaderKey(name)
		if err := check(canonical); err != nil {
			return nil, err
		}
		if _, ok := resolved[canonical]; ok {
			return nil, fmt.Errorf("header %s is set already", canonical)
		}
		value, err := caddyconf.ResolveSecret(configured[name])
		if err != nil {
			return nil, fmt.Errorf("the value of header %s %w", canonical, err)
		}
		value = strings.TrimSpace(value)
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			return nil, fmt.Errorf("the value of header %s is blank, or has characters in it that cannot be sent", canonical)
		}
		resolved[canonical] = value
	}
	return resolved, nil
}

// HeaderSecrets are what an answer must not repeat of the values of headers. A short value is no secret, and may be part of
// any word, unless it is that of a header for secrets.
func HeaderSecrets(headers map[string]string) (secrets []string) {
	const shortest = 8
	for name, value := range headers {
		scheme, credentials, _ := strings.Cut(value, " ")
		if name == "Authorization" || name == "Proxy-Authorization" {
			secrets = append(secrets, credentials)
			if pair, err := base64.StdEncoding.DecodeString(credentials); err == nil && strings.EqualFold(scheme, "basic") {
				_, password, _ := strings.Cut(string(pair), ":")
				secrets = append(secrets, string(pair), password)
			}
		}
		if len(value) >= shortest || secretHeader.MatchString(name) {
			secrets = append(secrets, value)
		}
		if len(credentials) >= shortest { // of `Bearer <token>`, the token may be repeated alone
			secrets = append(secrets, credentials)
		}
	}
	return secrets
}

var secretHeader = regexp.MustCompile(`(?i)auth|cookie|key|passw|secret|token`)
