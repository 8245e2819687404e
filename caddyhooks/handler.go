package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func init() {
	caddy.RegisterModule(Handler{})
}

// Handler takes webhooks below a path, by default /api/hooks, and passes every other request on.
//
// While webhooks are off, which they are until they are enabled and a token is set, all paths below it are answered 404.
type Handler struct {
	// The name of the instance, which its data and its part of the admin API go by. Default: "default".
	Name string `json:"name,omitempty"`

	// The path below which hooks are served. Default: /api/hooks.
	Path string `json:"path,omitempty"`

	// What an operator sets about webhooks. What is set here is pinned: the admin API shows it and does not change it.
	Settings Settings `json:"settings,omitzero"`

	// The longest time that a request or a mapping may ask for. Default: 1h.
	MaxTimeout caddy.Duration `json:"max_timeout,omitempty"`

	// The largest body that wake and agent take, in bytes or as in "1MB". Default: 1MB.
	MaxRequest Size `json:"max_request,omitempty"`

	// What carries out turns. Default: echo.
	RunnerRaw json.RawMessage `json:"runner,omitempty" caddy:"namespace=hooks.runners inline_key=runner"`

	// Where runs and live settings are kept. Default: bolt.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=hooks.stores inline_key=store"`

	// The messaging channels that replies can be delivered to, by the name that requests and mappings use.
	ChannelsRaw map[string]json.RawMessage `json:"channels,omitempty" caddy:"namespace=hooks.channels inline_key=channel"`

	// How callbacks are sent.
	Callbacks Callbacks `json:"callbacks,omitzero"`

	// How many runs are carried out at once. Default: 16.
	Workers int `json:"workers,omitempty"`

	// How many runs may be queued. Further ones are answered 503. Default: 100000.
	QueueLimit int `json:"queue_limit,omitempty"`

	// How many runs of one chat may be queued. Default: as many as there may be in all.
	ChatLimit int `json:"chat_limit,omitempty"`

	// How often a run is started if the process dies while it is carried out. Default: 5.
	MaxAttempts int `json:"max_attempts,omitempty"`

	// How long finished runs can be asked about. Default: 168h.
	Retention caddy.Duration `json:"retention,omitempty"`

	// How long turns that are under way may take to end when Caddy shuts down. Default: 10s.
	DrainTimeout caddy.Duration `json:"drain_timeout,omitempty"`

	instance *instance
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.hooks",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision fills in defaults and joins the app.
func (h *Handler) Provision(ctx caddy.Context) error {
	if h.Name == "" {
		h.Name = "default"
	}
	if !hookName.MatchString(h.Name) {
		return fmt.Errorf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores", h.Name)
	}
	if h.Path == "" {
		h.Path = "/api/hooks"
	}
	if err := checkPath(h.Path); err != nil {
		return err
	}
	h.MaxTimeout = orDefault(h.MaxTimeout, caddy.Duration(time.Hour))
	h.MaxRequest = orDefault(h.MaxRequest, 1<<20)
	h.Workers = orDefault(h.Workers, 16)
	h.QueueLimit = orDefault(h.QueueLimit, 100_000)
	h.MaxAttempts = orDefault(h.MaxAttempts, 5)
	h.Retention = orDefault(h.Retention, caddy.Duration(7*24*time.Hour))
	h.DrainTimeout = orDefault(h.DrainTimeout, caddy.Duration(10*time.Second))
	if h.RunnerRaw == nil {
		h.RunnerRaw = json.RawMessage(`{"runner":"echo"}`)
	}
	if h.StoreRaw == nil {
		h.StoreRaw = json.RawMessage(`{"store":"bolt"}`)
	}
	if h.MaxTimeout < caddy.Duration(time.Second) || h.Workers < 1 || h.QueueLimit < 1 || h.ChatLimit < 0 ||
		h.MaxAttempts < 1 || h.Retention < caddy.Duration(time.Second) || h.DrainTimeout < 0 || h.Callbacks.Timeout < 0 || h.MaxRequest < 1 || h.MaxRequest > maxMaxPayload {
		return errors.New("max_timeout, max_request, workers, queue_limit, chat_limit, max_attempts, retention, drain_timeout and timeout of callbacks must be positive, and max_request at most 64MB")
	}
	app, err := ctx.App("hooks")
	if err != nil {
		return err
	}
	if h.instance, err = app.(*App).instance(ctx, h); err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(h.instance.serverStopping)
	}
	return nil
}

// Cleanup lets go of the instance.
func (h *Handler) Cleanup() error {
	if h.instance != nil {
		h.instance.cleanup()
	}
	return nil
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "{}*?#") {
		return fmt.Errorf("the path '%s' is refused: it must begin with a slash, not end with one, and hold no placeholder or wildcard", path)
	}
	return nil
}

// ServeHTTP answers a webhook.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	in := h.instance
	rest, ok := strings.CutPrefix(r.URL.Path, h.Path)
	if !ok || rest != "" && rest[0] != '/' {
		return in.passOn(w, r, next)
	}
	v := in.current(r.Context())
	if entry := in.cleanedEntry(v, w, r); entry != nil {
		defer entry.write()
	}
	if v == nil {
		writeError(w, errStarting, in.log)
		return nil
	}
	if err := h.serve(w, r, v, strings.TrimPrefix(rest, "/")); err != nil {
		writeError(w, err, in.log)
	}
	return nil
}

// passOn has the rest of the site answer a request. A webhook that was sent to a wrong path carries its secret all the
// same. An error is left to Caddy to answer and to log, since only it knows what becomes of it.
func (in *instance) passOn(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	entry := in.cleanedEntry(in.view.Load(), w, r)
	err := next.ServeHTTP(w, r)
	if entry != nil {
		if err != nil {
			entry.leaveToCaddy()
		} else {
			entry.write()
		}
	}
	return err
}

// serve is the way of a request: gate, route, authenticate, read, intake, submit, answer.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, v *view, name string) error {
	in := h.instance
	if !v.on {
		return errNotFound
	}
	if run, ok := strings.CutPrefix(name, "runs/"); ok {
		return h.serveRun(w, r, v, run)
	}
	var custom *hook
	if name != "wake" && name != "agent" {
		if custom = v.hooks[name]; custom == nil {
			return errNotFound
		}
	}
	if r.Method != http.MethodPost {
		return errMethod
	}
	limit, auth := in.maxRequest, v.bearer
	if custom != nil {
		limit, auth = v.maxPayload, custom.auth
	}
	if auth.headersOnly {
		if err := in.authenticate(auth, r, nil); err != nil {
			return err
		}
	}
	body, err := readBody(w, r, limit)
	if err != nil {
		return err
	}
	defer body.release()
	if !auth.headersOnly {
		if err := in.authenticate(auth, r, body.Bytes()); err != nil {
			return err
		}
	}

	run, err := in.intake(v, name, custom, body.Bytes())
	if err != nil {
		return err
	}
	run.TraceParent = traceParent(r.Header)
	if run.Key, err = idempotencyKey(r.Header, auth, run, custom, body.Bytes()); err != nil {
		return err
	}
	err = errKeyFreed
	for range maxReplays {
		if !errors.Is(err, errKeyFreed) {
			break
		}
		err = h.submit(w, r, name, run)
	}
	return err
}

// submit has the engine carry out a run, and answers.
func (h *Handler) submit(w http.ResponseWriter, r *http.Request, name string, run *engine.Run) error {
	var outcome engine.Outcome
	var err error
	if run.Sync {
		outcome, err = h.instance.shared.engine.Do(r.Context(), run)
	} else {
		err = h.instance.shared.engine.Submit(r.Context(), run)
	}
	var duplicate *engine.DuplicateError
	switch {
	case errors.As(err, &duplicate):
		return h.replay(w, r, name, duplicate)
	case err != nil:
		return err
	case run.Sync:
		return writeOutcome(w, run, outcome)
	default:
		h.writeAccepted(w, r, name, run)
		return nil
	}
}

// unauthorized is the answer to a bad credential. A client address that has sent too many is told to slow down.
func (in *instance) unauthorized(r *http.Request, scheme, message string) error {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, _ := netip.ParseAddr(ip)
	if after, throttled := in.shared.throttle().Fail(addr, time.Now()); throttled {
		return &answer{status: http.StatusTooManyRequests, retryAfter: after,
			message: "Too many requests with a bad credential came from this address."}
	}
	return &answer{status: http.StatusUnauthorized, header: [2]string{"WWW-Authenticate", scheme}, message: message}
}

// traceParent returns the trace that the caller is part of, if it says so in the form of W3C Trace Context.
func traceParent(h http.Header) string {
	value := h.Get("Traceparent")
	if len(value) != 55 || strings.Trim(value, "0123456789abcdef-") != "" ||
		value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return ""
	}
	return value
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
