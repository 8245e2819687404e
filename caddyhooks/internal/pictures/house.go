package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // for the Caddyfile
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// house is a Caddy with hooks and a dashboard, in this process.
type house struct {
	data      string // its directory
	agent     string // URLs
	callbacks string

	running bool
	client  *http.Client // of senders
	admin   *http.Client
}

const (
	site         = "hooks.example.com"
	token        = "only-for-pictures-2f1c9a7e"
	githubSecret = "only-for-pictures-77d0b3a1"
)

//go:embed template.caddyfile
var caddyfile string

// config is the configuration as JSON, with further channels.
func (h *house) config(channels string) ([]byte, error) {
	text := strings.NewReplacer("{$SITE}", site, "{$TOKEN}", token, "{$AGENT}", h.agent, "{$CALLBACKS}", h.callbacks, "{$DATA}", h.data,
		"{$CHANNELS}", channels).Replace(caddyfile)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return config, err
}

// githubHook is saved while Caddy runs, so that it can be edited on its page.
var githubHook = map[string]any{
	"action": "agent", "authMode": "hmac", "hmacHeader": "X-Hub-Signature-256", "hmacPrefix": "sha256=", "hmacSecret": githubSecret,
	"messageTemplate": `Issue #{issue.number} {action} by {issue.user.login} in {repository.full_name}: "{issue.title}"
First label: {issue.labels[0].name}
Milestone: {issue.milestone.title}

Use the triage skill. Label it, and look for duplicates.`,
	"chatId": "repo:{repository.full_name}", "model": "smart", "timeoutSeconds": 300, "idempotencyHeader": "X-GitHub-Delivery",
	"deliver": true, "channel": "ops", "to": "triage",
}

// prepare saves hooks, one of which will not be in force, and what was counted before.
func (h *house) prepare(ctx context.Context) error {
	if err := h.load("channel pager log"); err != nil {
		return err
	}
	for name, mapping := range map[string]any{
		"github-issues": githubHook,
		"old-alerts":    map[string]any{"action": "agent", "messageTemplate": "Alert {name}", "deliver": true, "channel": "pager", "to": "oncall"},
	} {
		if _, err := h.call(ctx, "PUT", "/hooks/mappings/"+name, mapping); err != nil {
			return err
		}
	}
	h.stop()
	database, err := bolt.Open(filepath.Join(h.data, "hooks.db"))
	if err != nil {
		return err
	}
	store := database.Store()
	return errors.Join(store.Minutes().Save(ctx, lastHour()...), store.Close())
}

// start starts Caddy without the channel that a saved hook needs, and waits until the site has its certificate.
func (h *house) start(ctx context.Context) error {
	if err := h.load(""); err != nil {
		return err
	}
	for {
		_, _, err := send(ctx, h.client, "GET", "https://"+site, nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until the site is served: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (h *house) load(channels string) error {
	config, err := h.config(channels)
	if err != nil {
		return err
	}
	if err := caddy.Load(config, true); err != nil {
		return err
	}
	h.running = true
	root, err := os.ReadFile(filepath.Join(h.data, "caddy", "pki", "authorities", "local", "root.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	h.client = clientOf("tcp", listeners.at("443"), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	h.admin = clientOf("unix", filepath.Join(h.data, "admin.sock"), nil)
	return nil
}

// stop stops Caddy, if it runs.
func (h *house) stop() {
	if !h.running {
		return
	}
	h.running = false
	h.client.CloseIdleConnections()
	h.admin.CloseIdleConnections()
	if err := caddy.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping Caddy:", err)
	}
}

// page is the address of the dashboard.
func (h *house) page() string { return "http://" + listeners.at("8081") + "/" }

// clientOf is a client whose requests all go to one address.
func clientOf(network, address string, config *tls.Config) *http.Client {
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}}
}

// call calls the admin API.
func (h *house) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	status, answer, err := send(ctx, h.admin, method, "http://127.0.0.1"+path, data, "Content-Type", "application/json")
	if err == nil && status >= 300 {
		err = fmt.Errorf("%s %s was answered %d: %s", method, path, status, answer)
	}
	return answer, err
}

// send sends a request. headers are pairs of name and value.
func send(ctx context.Context, client *http.Client, method, url string, body []byte, headers ...string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// pretend is a network whose ports are others in truth: the page shows the usual address of a site, and needs no right to
// listen there.
type pretend struct {
	mu     sync.Mutex
	byPort map[string]string
}

var listeners = pretend{byPort: make(map[string]string)}

func init() { caddy.RegisterNetwork("pretend", listeners.listen) }

func (p *pretend) listen(ctx context.Context, _, _, port string, _ uint, config net.ListenConfig) (any, error) {
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPort[port] = l.Addr().String()
	return l, nil
}

// at is the address that stands for a port.
func (p *pretend) at(port string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byPort[port]
}
