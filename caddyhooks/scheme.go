package caddyhooks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

// scheme is a way for the callers of a custom hook to authenticate. To add one, write a file scheme_<name>.go that registers
// it in init, and holds an auth.Verifier of its own if none of package auth fits. No other file knows the names of schemes.
type scheme struct {
	// The value of authMode, and the first argument of auth in a Caddyfile.
	name string

	// The further arguments of auth, as errors show them, and how many there may be.
	arguments        string
	minArgs, maxArgs int

	// unmarshal puts these arguments in the mapping. A scheme that takes a block reads it from d. Nil: nothing to do.
	unmarshal func(d *caddyfile.Dispenser, args []string, m *Mapping) error

	// The fields of a mapping that unmarshal sets, by their names in JSON. An error about them is reported at the line of
	// auth. hmacHeader, hmacSecret and hmacPrefix are for all schemes; a field of a scheme alone goes into Mapping.
	fields []string

	// compile makes the verifier of a mapping. Its errors are about fields, and are not wrapped. A verifier of signatures is an
	// auth.Signer, so that operators can try a hook out.
	compile func(m *Mapping, secrets hookSecrets) (auth.Verifier, error)

	// Whether the verifier looks at headers alone. Then the body of a refused request is not read.
	headersOnly bool

	// secretHeaders returns the names of the headers that are kept out of access logs.
	secretHeaders func(m *Mapping) []string

	// The answer to a refused caller: the WWW-Authenticate header, and a sentence for one that sent no credential and for one
	// that sent a wrong one. A caller is told no more.
	challenge, missing, wrong string
}

// hookSecrets are the secrets that a verifier can be made of.
type hookSecrets struct {
	tokens  auth.Tokens                  // shared by all hooks
	resolve func(string) (string, error) // turns a secret as it was configured into the secret itself
}

// schemes has all schemes, sorted by name.
var schemes []*scheme

func registerScheme(s *scheme) {
	schemes = append(schemes, s)
	slices.SortFunc(schemes, func(a, b *scheme) int { return strings.Compare(a.name, b.name) })
}

// findScheme returns nil if there is no scheme of that name.
func findScheme(name string) *scheme {
	for _, s := range schemes {
		if s.name == name {
			return s
		}
	}
	return nil
}

// authentication is how the callers of one hook authenticate.
type authentication struct {
	*scheme
	verifier auth.Verifier
}

// authentication makes the scheme of a mapping ready for requests.
func (m *Mapping) authentication(secrets hookSecrets) (authentication, error) {
	s := bearerScheme
	if m.AuthMode != "" {
		s = findScheme(m.AuthMode)
	}
	if s == nil {
		var names []string
		for _, s := range schemes {
			names = append(names, s.name)
		}
		return authentication{}, oneOf("authMode", m.AuthMode, names)
	}
	verifier, err := s.compile(m, secrets)
	return authentication{s, verifier}, err
}

// authenticate returns a *refusedCredential for a request that is refused. The body is nil if the scheme looks at headers
// alone.
func (a authentication) authenticate(header http.Header, body []byte) error {
	verdict := a.verifier.Verify(auth.Request{Header: header, Body: body, Now: time.Now()})
	if verdict.OK {
		return nil
	}
	return &refusedCredential{a.scheme, verdict}
}

// refusedCredential says that a credential is missing or wrong. The reason in the verdict is not for callers.
type refusedCredential struct {
	*scheme
	verdict auth.Verdict
}

func (e *refusedCredential) Error() string {
	return fmt.Sprintf("the credential is refused: %s", e.verdict.Reason)
}

// answer is the answer to the caller.
func (e *refusedCredential) answer() *httpError {
	message := e.wrong
	if e.verdict.Missing {
		message = e.missing
	}
	return &httpError{status: http.StatusUnauthorized, header: [2]string{"WWW-Authenticate", e.challenge}, message: message,
		reason: string(e.verdict.Reason)}
}

// unmarshalAuth parses:
//
//	auth <scheme> [<args...>]
//
// Its errors quote no argument: each may be a secret.
func (m *Mapping) unmarshalAuth(d *caddyfile.Dispenser) error {
	var s *scheme
	if d.NextArg() {
		s = findScheme(d.Val())
	}
	if s == nil {
		return d.Err("auth takes " + listSchemes())
	}
	args := d.RemainingArgs()
	if len(args) < s.minArgs || len(args) > s.maxArgs {
		unset := ""
		if len(args) < s.minArgs {
			unset = caddyconf.Unset
		}
		return d.Errf("auth %s takes %s%s", s.name, orDefault(s.arguments, "no arguments"), unset)
	}
	for i, arg := range args {
		if arg == "" && i < s.minArgs {
			return d.Errf("an argument of auth %s is empty%s", s.name, caddyconf.Unset)
		}
		args[i] = shorthand.Undo(arg)
	}
	m.AuthMode = s.name
	if s.unmarshal == nil {
		return nil
	}
	return s.unmarshal(d, args, m)
}

// listSchemes lists the schemes with their arguments, for errors.
func listSchemes() string {
	var usages []string
	for _, s := range schemes {
		usages = append(usages, fmt.Sprintf("'%s'", strings.TrimSpace(s.name+" "+s.arguments)))
	}
	last := len(usages) - 1
	if last == 0 {
		return usages[0]
	}
	return strings.Join(usages[:last], ", ") + " or " + usages[last]
}

// authFields are the fields of a mapping that auth sets in a Caddyfile, by their names in JSON.
func authFields() []string {
	fields := []string{"authMode"}
	for _, s := range schemes {
		fields = append(fields, s.fields...)
	}
	return fields
}
