package caddyhooks

import (
	"cmp"
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

// Handler answers webhooks below a path, by default /api/hooks. Other requests go to the next handler.
//
// Webhooks are off until they are enabled, which needs a runner, and a token is set. While they are off, every path below is answered 404.
type Handler struct {
	// The name of the instance. It is part of the path of its store and of its admin endpoints. Default: "default".
	Name string `json:"name,omitempty"`

	// The path below which hooks are served. Default: /api/hooks.
	Path string `json:"path,omitempty"`

	// The webhook settings. A setting that is given here is pinned: the admin API shows it and refuses to change it.
	Settings Settings `json:"settings,omitzero"`

	// The longest time that a request or a mapping may ask for. Default: 1h.
	MaxTimeout caddy.Duration `json:"max_timeout,omitempty"`

	// The largest body that wake and agent take, in bytes or as in "1MB". Default: 1MB.
	MaxRequest Size `json:"max_request,omitempty"`

	// How many bytes all requests together may have until they are stored: each counts by what has arrived of its body or, if they are
	// larger, by the messages that its hook makes of it. A request beyond that is answered 503, one that is larger on its own 413.
	// At least 1MB, and at least max_request and the largest body of custom hooks. Default: 256MB.
	MaxMemory Size `json:"max_memory,omitempty"`

	// The runners, which carry out turns, by the names that mappings use. Webhooks can be enabled only if there is one.
	RunnersRaw map[string]json.RawMessage `json:"runners,omitempty" caddy:"namespace=hooks.runners inline_key=runner"`

	// The name of the runner for runs that no mapping and no tier sends to another one. Default: the only one, or "default".
	DefaultRunner string `json:"default_runner,omitempty"`

	// The names of the runners for some model tiers. A mapping that names a runner goes before.
	RunnerFor map[string]string `json:"runner_for,omitempty"`

	// The store of runs and live settings. Default: bolt.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=hooks.stores inline_key=store"`

	// The messaging channels that replies can be delivered to, by the name that requests and mappings use.
	ChannelsRaw map[string]json.RawMessage `json:"channels,omitempty" caddy:"namespace=hooks.channels inline_key=channel"`

	// How callbacks are sent.
	Callbacks Callbacks `json:"callbacks,omitzero"`

	// How many runs are carried out at once. Default: 16.
	Workers int `json:"workers,omitempty"`

	// How many runs may be queued. A request beyond that is answered 503. Default: 100000.
	QueueLimit int `json:"queue_limit,omitempty"`

	// How many runs of one chat may be queued, so that no chat fills the queue for all others. A request beyond that is
	// answered 503. 0 is as many as queue_limit. Default: a tenth of queue_limit, rounded up.
	ChatLimit *int `json:"chat_limit,omitempty"`

	// How often a run is started. A run interrupted by that many crashes, of Caddy or of the agent, is marked
	// failed. Default: 5.
	MaxAttempts int `json:"max_attempts,omitempty"`

	// How long finished runs are kept. Default: 168h.
	Retention caddy.Duration `json:"retention,omitempty"`

	// How long a run may wait until an agent takes it on, if neither its request nor its mapping sets a shorter time. A run
	// that waited longer has expired. Default: 24h.
	QueueTime caddy.Duration `json:"queue_time,omitempty"`

	// How many bytes of messages, metadata and schemas of finished runs are kept, in bytes or as in "1GB". The oldest go
	// first. Default: 1GB.
	HistoryLimit Size `json:"history_limit,omitempty"`

	// How long running turns may go on when Caddy shuts down. Default: 10s.
	DrainTimeout caddy.Duration `json:"drain_timeout,omitempty"`

	instance *instance
}

const (
	defaultPath       = "/api/hooks"
	defaultMaxRequest = 1 << 20
	defaultMaxMemory  = 256 << 20
	minMaxMemory      = 1 << 20
	defaultQueueTime  = caddy.Duration(24 * time.Hour)
	defaultStore      = `{"store":"bolt"}`
)

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
		h.Path = defaultPath
	}
	if err := checkPath(h.Path); err != nil {
		return err
	}
	h.MaxTimeout = cmp.Or(h.MaxTimeout, caddy.Duration(time.Hour))
	h.MaxRequest = cmp.Or(h.MaxRequest, defaultMaxRequest)
	h.MaxMemory = cmp.Or(h.MaxMemory, defaultMaxMemory)
	h.Workers = cmp.Or(h.Workers, 16)
	h.QueueLimit = cmp.Or(h.QueueLimit, 100_000)
	if h.ChatLimit == nil {
		tenth := h.QueueLimit/10 + min(h.QueueLimit%10, 1)
		h.ChatLimit = &tenth
	}
	h.MaxAttempts = cmp.Or(h.MaxAttempts, 5)
	h.Retention = cmp.Or(h.Retention, defaultRetention)
	h.HistoryLimit = cmp.Or(h.HistoryLimit, 1<<30)
	h.QueueTime = cmp.Or(h.QueueTime, defaultQueueTime)
	h.DrainTimeout = cmp.Or(h.DrainTimeout, caddy.Duration(10*time.Second))
	if h.StoreRaw == nil {
		h.StoreRaw = json.RawMessage(defaultStore)
	}
	if err := h.checkOptions(); err != nil {
		return err
	}
	app, err := ctx.App("hooks")
	if err != nil {
		return err
	}
	hooks := app.(*App)
	if h.instance, err = hooks.instance(ctx, h); err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(h.instance.serverStopping)
		hooks.serveOn(server)
	}
	return nil
}

// checkOptions names the first option that is out of its bounds.
func (h *Handler) checkOptions() error {
	const second = caddy.Duration(time.Second)
	for _, option := range []struct {
		name string
		ok   bool
		must string
	}{
		{"max_timeout", h.MaxTimeout >= second, "be at least 1s"},
		{"max_request", h.MaxRequest >= 1 && h.MaxRequest <= maxPayloadLimit, "be from 1 byte to 64MB"},
		{"max_memory", h.MaxMemory >= minMaxMemory && h.MaxMemory >= h.MaxRequest, "be at least 1MB, and at least max_request"},
		{"workers", h.Workers >= 1, "be at least 1"},
		{"queue_limit", h.QueueLimit >= 1, "be at least 1"},
		{"chat_limit", *h.ChatLimit >= 0, "not be negative"},
		{"max_attempts", h.MaxAttempts >= 1, "be at least 1"},
		{"retention", h.Retention >= second, "be at least 1s"},
		{"queue_time", h.QueueTime >= second, "be at least 1s"},
		{"history_limit", h.HistoryLimit >= 1 && h.HistoryLimit <= maxHistoryLimit, "be from 1 byte to 1024GB"},
		{"drain_timeout", h.DrainTimeout >= 0, "not be negative"},
		{"timeout of callbacks", h.Callbacks.Timeout >= 0, "not be negative"},
	} {
		if !option.ok {
			return fmt.Errorf("%s must %s", option.name, option.must)
		}
	}
	return nil
}

const (
	defaultRetention = caddy.Duration(7 * 24 * time.Hour)
	maxHistoryLimit  = 1 << 40
)

// Cleanup releases the instance.
func (h *Handler) Cleanup() error {
	if h.instance != nil {
		h.instance.cleanup()
	}
	return nil
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
		return in.callNext(w, r, next)
	}
	active := in.current(r.Context())
	if entry := in.takeOverLogEntry(in.secretHeadersIn(active), w, r); entry != nil {
		defer entry.write()
	}
	entryOf(r).hideQuery()
	definePlaceholders(r)
	req := &hookRequest{handler: h, name: strings.TrimPrefix(rest, "/"), received: countedBody{ReadCloser: r.Body}}
	r.Body = &req.received
	if active == nil {
		req.meters().answered(req.refuse(w, r, in.whyNotStarted()))
		return nil
	}
	var status int
	if err := h.serve(w, r, active, req); err != nil {
		status = req.refuse(w, r, err)
	} else {
		status = cmp.Or(req.told, cmp.Or(req.answered, http.StatusOK))
	}
	in.service.engine.NoteAnswer(status)
	req.meters().answered(status)
	return nil
}

// callNext calls the next handler, keeping secrets out of the access log: a webhook sent to a wrong path has a secret, too.
// Caddy answers and logs an error of the next handler.
func (in *instance) callNext(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var entry *accessEntry
	if secret := in.secretHeadersIn(in.active.Load()); secret.anyIn(r.Header) {
		entry = in.takeOverLogEntry(secret, w, r)
	}
	definePlaceholders(r)
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

// serve takes a request through all steps. A request that is refused because of the settings is checked once more if
// another node has changed them meanwhile.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, active *activeSettings, req *hookRequest) error {
	in := h.instance
	defer req.release()
	err := req.serve(w, r, active)
	for submits, checks := 1, 1; submits < maxSubmits && checks < maxChecks; err = req.serve(w, r, active) {
		if newer := in.newerSettings(r.Context(), active, err); newer != nil {
			active = newer
			checks++
		} else if errors.Is(err, errKeyReleased) {
			submits++
		} else {
			break
		}
	}
	var refused *refusedCredential
	var ignored *ignoredError
	var challenge *challengeError
	inDoubt := isBySettings(err) && in.isStoreAway()
	switch {
	case errors.As(err, &refused):
		answer, throttled := in.unauthorized(r, refused)
		if inDoubt && !throttled {
			return engine.ErrAway
		}
		req.meters().refused(refused.kind(throttled))
		return answer
	case inDoubt:
		// Another node may have changed the settings, and senders give up for good on a 404.
		return engine.ErrAway
	case errors.As(err, &ignored):
		noteStatus(r, requestIgnored)
		req.ignore(w, ignored.condition)
		return nil
	case errors.As(err, &challenge):
		in.service.engine.NoteChallenge(req.name)
		noteStatus(r, requestChallenge)
		req.answered = challenge.answer.status
		challenge.answer.write(w)
		return nil
	}
	return err
}

// maxChecks bounds how often a request is checked while the settings change again and again.
const maxChecks = 100

// hookRequest is a request below the path of the hooks.
type hookRequest struct {
	handler  *Handler
	name     string // the part of its path that names the hook
	received countedBody
	incoming incoming
	custom   *hook // nil for wake and agent
	body     *body
	chat     string    // that the run is for, once it is known
	taken    room      // that the rate of the hook has for runs which are not stored yet
	stored   bool      // it became a run, for which the caller waits
	answered int       // the status of an answer that is no error; 0 is 200
	told     int       // the status in the error event that ended its stream, 0 if there was none
	readAt   time.Time // when the body was read
}

// meters are the counters of the hook that the request names.
func (q *hookRequest) meters() *hookMeters { return q.handler.instance.meters.endpoint(q.name) }

// serve takes the request through all steps: gate, route, authenticate, read, intake, submit, answer.
func (q *hookRequest) serve(w http.ResponseWriter, r *http.Request, active *activeSettings) error {
	in := q.handler.instance
	if !active.on {
		return &noWebhookError{"webhooks are off: " + active.offBecause}
	}
	if run, ok := strings.CutPrefix(q.name, "runs/"); ok {
		noteStatus(r, requestRunAPI)
		return q.serveRun(w, r, active, run)
	}
	var custom *hook
	if q.name != "wake" && q.name != "agent" {
		if custom = active.hooks[q.name]; custom == nil {
			setPlaceholder(r, placeholderName, "")
			return active.whyNoHook(q.name)
		}
	}
	setPlaceholder(r, placeholderName, q.name)
	if r.Method != http.MethodPost {
		return errMethod
	}
	req := &q.incoming
	if req.header == nil {
		*req = newIncoming(r, in.log)
	}
	limit, scheme := in.maxRequest, active.bearer
	if q.custom = custom; custom != nil {
		limit, scheme = custom.maxPayload(active), custom.auth
		if !custom.admits(req.client) {
			return errNotFrom
		}
	}
	now := time.Now()
	if scheme.headersOnly {
		if err := scheme.authenticate(req.credential(now)); err != nil {
			return err
		}
	}
	if err := q.readBody(w, r, limit); err != nil {
		return err
	}
	credential := req.credential(now)
	if !scheme.headersOnly {
		if err := scheme.authenticate(credential); err != nil {
			return err
		}
	}
	if custom != nil && active.historyOf(custom) > 0 {
		in.service.samples.note(q.name, r.Header, req.query, req.body)
	}
	runs, err := intake(active, q.name, custom, req)
	if req.warning != "" {
		w.Header()[warningHeader] = []string{req.warning}
	}
	if err != nil {
		return err
	}
	trace, history, fold := traceParent(r), active.historyOf(custom), active.foldOf(q.name, custom)
	for _, run := range runs {
		run.TraceParent, run.History, run.Client = trace, history, req.client
		if !run.NewChat { // where nobody else would come
			run.Fold = fold
		}
	}
	first := runs[0]
	q.chat = first.ChatID
	if first.Key, first.KeyHeader, err = idempotencyKey(r.Header, scheme, first, custom, req.body, req.doc); err != nil {
		return err
	}
	first.Replay = scheme.replayKey(first.Hook, credential)
	return q.submit(w, r, runs, active.revision)
}

// readBody reads the body, unless that was done under earlier settings.
func (q *hookRequest) readBody(w http.ResponseWriter, r *http.Request, limit int64) (err error) {
	if q.body == nil {
		memory := &q.handler.instance.memory
		if q.body, err = readBody(w, r, limit, memory); err != nil {
			return err
		}
		q.incoming.body, q.readAt = q.body.bytes, time.Now()
		q.incoming.messages = messageMemory{all: memory, body: len(q.body.bytes)}
	}
	if int64(len(q.incoming.body)) > limit {
		return tooLarge(limit)
	}
	return nil
}

// release ends the use of the body and of the messages.
func (q *hookRequest) release() {
	if q.body != nil {
		q.incoming.messages.release()
		q.body.release()
		q.body, q.incoming.body, q.incoming.doc = nil, nil, nil
	}
}

// submit gives runs to the engine, and answers.
func (q *hookRequest) submit(w http.ResponseWriter, r *http.Request, runs []*engine.Run, revision int64) error {
	h, run := q.handler, runs[0]
	s := h.instance.service
	var outcome engine.Outcome
	var err error
	if q.taken, err = s.admit(r.Context(), q.custom, runs, revision); err == nil {
		defer func() { q.taken.giveBack() }()
		switch {
		case run.Sync && wantsEvents(r.Header["Accept"]):
			return q.submitStreaming(w, r, run, revision)
		case run.Sync:
			outcome, err = s.engine.Do(r.Context(), run, revision, func() { q.noteStored(r, run) })
		default:
			if err = s.engine.SubmitAll(r.Context(), runs, revision); err == nil {
				q.noteAccepted(run)
			}
		}
	}
	var duplicate *engine.DuplicateError
	switch {
	case errors.As(err, &duplicate):
		return h.replay(w, r, q, duplicate)
	case (errors.Is(err, engine.ErrQueueFull) || errors.Is(err, engine.ErrChatFull)) && neverFit(&h.instance.engineConfig.Limits, runs):
		return errNeverFit
	case err != nil:
		return err
	case run.Sync:
		noteRun(r, requestStatus(outcome.Status), run)
		return writeOutcome(w, run, outcome)
	default:
		q.taken = room{}
		noteRun(r, requestAccepted, run)
		q.writeAccepted(w, r, run)
		return nil
	}
}

// noteStored is called when the run is stored for which the caller waits. That may take an hour, and the body is not needed again.
func (q *hookRequest) noteStored(r *http.Request, run *engine.Run) {
	noteRun(r, requestAccepted, run)
	q.noteAccepted(run)
	q.stored, q.taken = true, room{}
	q.release()
}

// noteAccepted counts how long it took to accept the request. run is the first of its runs.
func (q *hookRequest) noteAccepted(run *engine.Run) {
	q.handler.instance.meters.accepted(run, time.Since(q.readAt))
}

// unauthorized is the answer to a bad credential: 401, or 429 for a client address with too many of them, which is throttled.
func (in *instance) unauthorized(r *http.Request, refused *refusedCredential) (answer *httpError, throttled bool) {
	addr, _ := netip.ParseAddr(clientAddress(r))
	after, throttled := in.service.throttle().Fail(addr, time.Now())
	if throttled {
		return &httpError{status: http.StatusTooManyRequests, retryAfter: after,
			message: fmt.Sprintf("Too many requests with a bad credential came from this address. Try again in %s s.", retryAfterSeconds(after)),
			reason:  "too many requests with a bad credential came from one address; this one: " + string(refused.verdict.Reason)}, true
	}
	return refused.answer(), false
}

// clientAddress is the address of the caller, "" if it is unknown. Behind a trusted proxy it is the one that the proxy tells.
func clientAddress(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
