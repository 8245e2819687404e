package service

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Callbacks configures the posting of replies to callback URLs.
type Callbacks struct {
	// The secrets that callbacks are signed with, as whsec_<base64>. Set several while one replaces another.
	Secret settings.Secrets `json:"secret,omitempty"`

	// Addresses or ranges that are not public, and that callbacks may go to nevertheless.
	Allow []string `json:"allow,omitempty"`

	// The ports that callbacks may go to. Default: 80, 443, 8080, 8443.
	Ports []uint16 `json:"ports,omitempty"`

	// Allow every port.
	AnyPort bool `json:"any_port,omitempty"`

	// The longest time of one attempt. Default: 15s.
	Timeout caddy.Duration `json:"timeout,omitempty"`
}

// Guard makes the address guard that the configuration asks for.
func (c *Callbacks) Guard() (*outbound.Guard, error) {
	allow, err := parseAllowed(c.Allow)
	if err != nil {
		return nil, err
	}
	return outbound.NewGuard(allow, c.Ports, c.AnyPort), nil
}

// parseAllowed reads addresses, and ranges of them.
func parseAllowed(texts []string) ([]netip.Prefix, error) {
	var allow []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				hint := ""
				if strings.EqualFold(text, "localhost") {
					hint = "; write 127.0.0.1 ::1"
				}
				return nil, fmt.Errorf("callbacks allow: '%s' is neither an address nor a range such as 10.0.0.0/8%s", text, hint)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		allow = append(allow, prefix)
	}
	return allow, nil
}

func CheckAllowed(texts []string) error {
	_, err := parseAllowed(texts)
	return err
}

// client makes the client that sends callbacks.
func (c *Callbacks) client(guard *outbound.Guard) (*outbound.Client, error) {
	secrets, err := caddyconf.ResolveSecrets(c.Secret)
	if err != nil {
		return nil, fmt.Errorf("callbacks: a secret %w", err)
	}
	client, err := outbound.NewClient(guard, time.Duration(c.Timeout), secrets)
	if err != nil {
		return nil, fmt.Errorf("callbacks: %w", err)
	}
	return client, nil
}

// callbackSender sends deliveries to callback URLs.
type callbackSender struct{ client *outbound.Client }

func (s callbackSender) Send(ctx context.Context, d *engine.Delivery) error {
	return s.client.Post(ctx, outbound.Callback{
		URL: d.Callback, ID: d.ID, RunID: d.RunID, ChatID: d.ChatID, RunStatus: string(d.RunStatus),
		Attempt: d.Attempt, ContentType: d.ContentType, Body: []byte(d.Body), TraceParent: engine.DeliveryTraceParent(ctx),
	}).NoteIn(d)
}

// Interface guard
var _ engine.Sender = callbackSender{}
