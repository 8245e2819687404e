package caddyhooks

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// serveWebhook answers a webhook. Other requests go to the next handler.
func serveWebhook(in *instance, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	rest, ok := strings.CutPrefix(r.URL.Path, in.path)
	if !ok || rest != "" && rest[0] != '/' {
		return in.callNext(w, r, next)
	}
	active := in.current(r.Context())
	if entry := in.takeOverLogEntry(in.secretHeadersIn(active), w, r); entry != nil {
		defer entry.write()
	}
	entryOf(r).hideQuery()
	definePlaceholders(r)
	req := &hookRequest{in: in, name: strings.TrimPrefix(rest, "/"), received: countedBody{ReadCloser: r.Body}}
	r.Body = &req.received
	if active == nil {
		req.meters().answered(req.refuse(w, r, in.whyNotStarted()))
		return nil
	}
	var status int
	if err := req.serveUpToDate(w, r, active); err != nil {
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
	if secret := in.secretHeadersIn(in.active.Load()); secret.AnyIn(r.Header) {
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

// serveUpToDate takes the request through all steps. A request that is refused because of the settings is checked once more if
// another node has changed them meanwhile.
func (q *hookRequest) serveUpToDate(w http.ResponseWriter, r *http.Request, active *activeSettings) error {
	in := q.in
	defer q.release()
	err := q.serve(w, r, active)
	for submits, checks := 1, 1; submits < maxSubmits && checks < maxChecks; err = q.serve(w, r, active) {
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
		q.meters().refused(refused.kind(throttled))
		return answer
	case inDoubt:
		// Another node may have changed the settings, and senders give up for good on a 404.
		return engine.ErrAway
	case errors.As(err, &ignored):
		noteStatus(r, requestIgnored)
		q.ignore(w, ignored.condition)
		return nil
	case errors.As(err, &challenge):
		in.service.engine.NoteChallenge(q.name)
		noteStatus(r, requestChallenge)
		q.answered = challenge.answer.status
		challenge.answer.write(w)
		return nil
	}
	return err
}

// maxChecks bounds how often a request is checked while the settings change again and again.
const maxChecks = 100

// hookRequest is a request below the path of the hooks.
type hookRequest struct {
	in       *instance
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
func (q *hookRequest) meters() *hookMeters { return q.in.meters.endpoint(q.name) }

// serve takes the request through all steps: gate, route, authenticate, read, intake, submit, answer.
func (q *hookRequest) serve(w http.ResponseWriter, r *http.Request, active *activeSettings) error {
	in := q.in
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
		memory := &q.in.memory
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
	run, s := runs[0], q.in.service
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
		return q.replay(w, r, duplicate)
	case (errors.Is(err, engine.ErrQueueFull) || errors.Is(err, engine.ErrChatFull)) && neverFit(&q.in.engineConfig.Limits, runs):
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
	q.in.meters.accepted(run, time.Since(q.readAt))
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
