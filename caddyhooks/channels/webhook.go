package channels

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Webhook{})
}

// Webhook is a channel that posts answers as JSON to a URL of the operator, for chats of any name. Every status of 2xx means
// that the answer has arrived. A token is sent as `Authorization: Bearer`.
type Webhook struct {
	API

	// Secrets, as whsec_<base64>, that requests are signed with. Several: one is being replaced by another.
	Secret []string `json:"secret,omitempty"`

	signer outbound.Signer
}

// CaddyModule returns the Caddy module information.
func (Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.webhook",
		New: func() caddy.Module { return new(Webhook) },
	}
}

// Provision sets up the channel.
func (w *Webhook) Provision(caddy.Context) error {
	if err := w.provision("webhook", "", checkURL, w.ValidTo); err != nil {
		return err
	}
	secrets, err := caddyconf.ResolveSecrets(w.Secret)
	if err != nil {
		return fmt.Errorf("channel webhook: a secret %w", err)
	}
	if w.signer, err = outbound.NewSigner(secrets); err != nil {
		return fmt.Errorf("channel webhook: %w", err)
	}
	w.secrets = slices.Concat(secretsInURL(w.url), w.secrets, secrets)
	return nil
}

// secretsInURL returns the parts of a URL that may be secret, in case a receiver repeats them in its answer: the longest first,
// each as it is written and without its escapes.
func secretsInURL(raw string) (secrets []string) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	for _, part := range []string{u.RequestURI(), u.EscapedPath(), "?" + u.RawQuery} {
		if len(part) <= len("/") {
			continue
		}
		secrets = append(secrets, part)
		if plain, err := url.PathUnescape(part); err == nil && plain != part {
			secrets = append(secrets, plain)
		}
	}
	return secrets
}

// UnmarshalCaddyfile parses:
//
//	channel <name> webhook <url> {
//		token    <secret>
//		secret   <whsec>...
//		timeout  <duration>
//		allow_to <to>...
//	}
func (w *Webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := w.unmarshalURL(d, "webhook"); err != nil {
		return err
	}
	return caddyconf.ReadBlock(d, "channel webhook",
		caddyconf.Set("token", &w.Token, caddyconf.Secret),
		caddyconf.Set("secret", &w.Secret, caddyconf.Checked(caddyconf.Secrets, outbound.CheckSecrets)),
		timeoutDirective(&w.Timeout),
		w.allowDirective(w.ValidTo))
}

// ValidTo takes any name that can be printed.
func (*Webhook) ValidTo(to string) error { return checkChatName(to) }

// checkChatName is for channels that have no chats of their own.
func checkChatName(to string) error {
	if to == "" || len(to) > 256 || !utf8.ValidString(to) || strings.ContainsFunc(to, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("a chat on this channel is a text of up to 256 bytes without control characters")
	}
	return nil
}

// webhookMessage is the body of a request.
type webhookMessage struct {
	RunID  string        `json:"runId"`
	ChatID string        `json:"chatId"`
	To     string        `json:"to"`
	Status engine.Status `json:"status"`
	Text   string        `json:"text"`
}

// Send posts the answer, whole and as it is.
func (w *Webhook) Send(ctx context.Context, d *engine.Delivery) error {
	body := encodeJSON(webhookMessage{RunID: d.RunID, ChatID: d.ChatID, To: d.To, Status: d.RunStatus, Text: d.Body})
	req, err := w.request(ctx, http.MethodPost, "", body)
	if err != nil {
		return err
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	w.signer.Sign(req.Header, outbound.HeaderValue(d.ID), time.Now(), body)
	return w.call(d, req, nil)
}

// Interface guards
var (
	_ engine.Channel        = (*Webhook)(nil)
	_ caddy.Provisioner     = (*Webhook)(nil)
	_ caddy.CleanerUpper    = (*Webhook)(nil)
	_ caddyfile.Unmarshaler = (*Webhook)(nil)
)
