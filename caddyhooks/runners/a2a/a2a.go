// Package a2a has the runner that speaks the Agent2Agent protocol. It imports engine, caddyconf and the packages below
// runners/internal, and no other runner.
package a2a

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

func init() {
	caddy.RegisterModule(A2A{})
}

// A2A is a runner that hands every turn to an agent by the Agent2Agent protocol, version 1.0, over JSON-RPC or REST. The agent
// tells by its card how it is reached, and whether it can tell its answer piece by piece. A chat is a context of the agent.
type A2A struct {
	// The URL of the agent card, which ends with .json, or the base URL that has it below /.well-known/agent-card.json.
	// Placeholders such as {env.X} are replaced.
	URL string `json:"url,omitempty"`

	// A token to send as `Authorization: Bearer`. Placeholders such as {env.X} and {file.X} are replaced.
	Token string `json:"token,omitempty"`

	// More headers to send, by name. Placeholders in their values are replaced.
	Headers map[string]string `json:"headers,omitempty"`

	// Other places that the card may point to, such as https://agents.example.com. Messages, the token and the headers are sent
	// there too. Default: none but the place of the card.
	AllowTo []string `json:"allow_to,omitempty"`

	// How long the agent may be silent before the turn fails. Default: 2m; for an agent that cannot stream, as long as the turn
	// may take.
	IdleTimeout caddy.Duration `json:"idle_timeout,omitempty"`

	// How long a task may take. A run whose agent needs more than a moment is put aside then, and found again by its task. An agent that
	// offers push notifications says when there is news, and others are asked. Default: the runner waits within the time of the run.
	Push caddy.Duration `json:"push,omitempty"`

	// Where people are asked if the agent needs more input. Default: the run fails then.
	Ask *caddyconf.AskPlace `json:"ask,omitempty"`

	httpcall.ServerTLS
	httpcall.Client

	card    string // its URL
	user    *url.Userinfo
	origins []string
	token   string
	headers map[string]string
	agents  *agentCards
	log     *zap.Logger

	firstPoll  time.Duration // before a task is asked for while the runner waits …
	firstPause time.Duration // … and after it was put aside
	asideAfter time.Duration // how long the runner waits before it puts a task aside
}

// CaddyModule returns the Caddy module information.
func (A2A) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.a2a",
		New: func() caddy.Module { return new(A2A) },
	}
}

// Usage describes the runner in a list of choices.
func (A2A) Usage() (arguments, agent string) {
	return "<url>", "an agent that speaks A2A"
}

// Uses says that the agent is told the tier, and that a chat goes on or not.
func (*A2A) Uses() (tiers, memoryPresets []string) { return engine.Tiers, []string{engine.MemoryPlain} }

// Provision sets up the runner. The card is read when the first turn needs it.
func (a *A2A) Provision(ctx caddy.Context) (err error) {
	a.log, a.firstPoll, a.firstPause, a.asideAfter = ctx.Logger(), firstPoll, turns.FirstPause, asideAfter
	if a.Token != "" {
		if a.token, err = caddyconf.ResolveToken(a.Token); err != nil {
			return fmt.Errorf("runner a2a: the token %w", err)
		}
	}
	if a.headers, err = httpcall.ResolveHeaders(a.Headers, checkHeader); err != nil {
		return fmt.Errorf("runner a2a: %w", err)
	}
	address := caddy.NewReplacer().ReplaceKnown(a.URL, "")
	if err := checkURL(address); err != nil {
		return err
	}
	a.card, a.user = cardURL(address)
	a.Redactor = answers.NewRedactor(a.token, address, httpcall.HeaderSecrets(a.headers)...)
	a.origins = []string{httpcall.OriginOf(a.card)}
	for _, place := range a.AllowTo {
		place = caddy.NewReplacer().ReplaceKnown(place, "")
		if err := checkPlace(place); err != nil {
			return fmt.Errorf("runner a2a: %w", err)
		}
		a.origins = append(a.origins, httpcall.OriginOf(place))
	}
	a.agents = newAgentCards(a.readCard)
	err = a.Connect(&a.ServerTLS, func(t *http.Transport) http.RoundTripper {
		t.DisableCompression = true // what is compressed arrives in lumps
		return &callTransport{t, a}
	})
	if err != nil {
		return fmt.Errorf("runner a2a: %w", err)
	}
	return nil
}

// Validate checks the configuration.
func (a *A2A) Validate() error {
	if err := a.check(); err != nil {
		return fmt.Errorf("runner a2a: %w", err)
	}
	return nil
}

// check finds mistakes that do not depend on the machine.
func (a *A2A) check() error {
	if a.IdleTimeout < 0 {
		return errors.New("idle_timeout must not be negative")
	}
	if a.Push < 0 {
		return errors.New("push must not be negative")
	}
	if a.Ask != nil {
		if err := checkAsk(a.Ask); err != nil {
			return fmt.Errorf("ask %w", err)
		}
	}
	for name := range a.Headers {
		if a.Token != "" && http.CanonicalHeaderKey(name) == "Authorization" {
			return errors.New("token and header Authorization are the same header; use one of them")
		}
	}
	return a.CheckTLS(a.URL)
}

// checkHeader refuses the headers that every request has.
func checkHeader(name string) error {
	if name == "A2a-Version" {
		return errors.New("header A2A-Version is set by the runner itself")
	}
	return httpcall.CheckHeader(name)
}

// checkURL quotes nothing of the URL, which may hold a secret.
func checkURL(raw string) error {
	if httpcall.ParseURL(raw) == nil {
		return errors.New("runner a2a needs the URL of an agent or of its card, which starts with http:// or https:// and names a host")
	}
	return nil
}

// checkPlace checks a line of allow_to.
func checkPlace(raw string) error {
	u := httpcall.ParseURL(raw)
	if u == nil || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errors.New("allow_to takes the beginnings of URLs, up to the host and port, as in: allow_to https://agents.example.com")
	}
	return nil
}

// Address is the scheme and the host of the URL, for logs. The rest of it may be secret.
func (a *A2A) Address() string { return httpcall.OriginOf(a.card) }

// UnmarshalCaddyfile parses:
//
//	runner a2a <url of the agent or its card> {
//		token                    <secret>
//		header                   <name> <value>
//		allow_to                 <origin>...
//		idle_timeout             <duration>
//		push                     [<duration>]
//		ask                      input-required in <channel> <to> [<duration>] [by <id>...] [else <text>]
//		tls_ca                   <file>
//		tls_client_auth          <cert_file> <key_file>
//		tls_server_name          <name>
//		tls_insecure_skip_verify
//	}
func (a *A2A) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	place := *d
	const missing = "runner a2a needs the URL of an agent or of its card, as in: runner a2a https://agent.example.com"
	if err := httpcall.CheckArguments(d, "a2a", "one URL", missing); err != nil {
		return err
	}
	address, err := caddyconf.Text(d)
	if err != nil {
		return err
	}
	if err := checkURL(address); err != nil && !caddyconf.HasPlaceholder(address) {
		return place.WrapErr(err)
	}
	a.URL = address
	if err := caddyconf.ReadBlock(d, "runner a2a", slices.Concat([]caddyconf.Directive{
		caddyconf.Set("token", &a.Token, caddyconf.Secret),
		httpcall.HeaderDirective(&a.Headers, checkHeader),
		{Word: "allow_to", Read: a.readAllowTo},
		caddyconf.Set("idle_timeout", &a.IdleTimeout, caddyconf.Duration(time.Second)),
		caddyconf.Set("push", &a.Push, caddyconf.DurationOr(turns.LaterTime)),
		caddyconf.Set("ask", &a.Ask, readAsk),
	}, a.TLSDirectives())...); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return place.Errf("runner a2a: %w", err)
	}
	return nil
}

func (a *A2A) readAllowTo(d *caddyfile.Dispenser) error {
	places, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	for _, place := range places {
		if err := checkPlace(place); err != nil && !caddyconf.HasPlaceholder(place) {
			return d.WrapErr(err)
		}
	}
	a.AllowTo = places
	return nil
}

// Run sends the message and waits for the answer.
func (a *A2A) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	reply, err := a.converse(ctx, &turn)
	return reply, a.CleanTurn(&turn, err)
}

// Interface guards
var (
	_ engine.Runner         = (*A2A)(nil)
	_ engine.Redactor       = (*A2A)(nil)
	_ engine.Abandoner      = (*A2A)(nil)
	_ engine.Postponer      = (*A2A)(nil)
	_ engine.Asker          = (*A2A)(nil)
	_ caddy.Provisioner     = (*A2A)(nil)
	_ caddy.Validator       = (*A2A)(nil)
	_ caddy.CleanerUpper    = (*A2A)(nil)
	_ caddyfile.Unmarshaler = (*A2A)(nil)
)
