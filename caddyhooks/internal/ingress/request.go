// Package ingress takes one webhook from its bytes to accepted runs and back: body, authentication, idempotency, rates, the answer,
// the run API and the events of a run. A request that becomes no run is noted among the refusals. It imports service and all
// that service imports.
package ingress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/clicks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Serve answers a webhook. Other requests go to the next handler.
func Serve(in *service.Instance, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	rest, ok := strings.CutPrefix(r.URL.Path, in.Path)
	if !ok || rest != "" && rest[0] != '/' {
		return callNext(in, w, r, next)
	}
	active := in.Current(r.Context())
	if entry := in.TakeOverLogEntry(in.SecretHeadersIn(active), w, r); entry != nil {
		defer entry.Write()
	}
	observe.EntryOf(r).HideQuery()
	observe.DefinePlaceholders(r)
	req := &hookRequest{in: in, name: strings.TrimPrefix(rest, "/"), received: observe.CountedBody{ReadCloser: r.Body}}
	r.Body = &req.received
	if active == nil {
		req.meters().Answered(req.refuse(w, r, in.WhyNotStarted()))
		return nil
	}
	defer req.release()
	var status int
	if err := req.serveUpToDate(w, r, active); err != nil {
		status = req.refuse(w, r, err)
	} else {
		status = cmp.Or(req.sentStatus, cmp.Or(req.answered, http.StatusOK))
	}
	if req.anyBody != nil {
		in.Service.OneBody.Note(req.anyBody.signed, req.anyBody.body)
	}
	in.Service.Engine.NoteAnswer(status)
	req.meters().Answered(status)
	return nil
}

// callNext calls the next handler, keeping secrets out of the access log: a webhook sent to a wrong path has a secret, too.
// Caddy answers and logs an error of the next handler.
func callNext(in *service.Instance, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var entry *observe.AccessEntry
	if secret := in.SecretHeadersIn(in.Active.Load()); secret.AnyIn(r.Header) {
		entry = in.TakeOverLogEntry(secret, w, r)
	}
	observe.DefinePlaceholders(r)
	err := next.ServeHTTP(w, r)
	if entry != nil {
		if err != nil {
			entry.LeaveToCaddy()
		} else {
			entry.Write()
		}
	}
	return err
}

// serveUpToDate takes the request through all steps. A request that is refused because of the settings is checked once more if
// another node has changed them meanwhile.
func (q *hookRequest) serveUpToDate(w http.ResponseWriter, r *http.Request, active *settings.Active) error {
	in := q.in
	err := q.serve(w, r, active)
	for submits, checks := 1, 1; submits < maxSubmits && checks < service.MaxChecks; err = q.serve(w, r, active) {
		if newer := newerSettings(r.Context(), in, active, err); newer != nil {
			active = newer
			checks++
		} else if errors.Is(err, errKeyReleased) {
			submits++
		} else {
			break
		}
	}
	refused, isRefused := errors.AsType[*settings.RefusedCredential](err)
	ignored, isIgnored := errors.AsType[*intake.IgnoredError](err)
	challenge, isChallenge := errors.AsType[*intake.ChallengeError](err)
	inDoubt := isBySettings(err) && in.IsStoreUnreachable()
	switch {
	case isRefused:
		answer, throttled := unauthorized(in, r, refused)
		if inDoubt && !throttled {
			return engine.ErrUnreachable
		}
		q.meters().Refused(reasonOfRefusal(refused, throttled))
		return answer
	case inDoubt:
		// Another node may have changed the settings, and senders give up for good on a 404.
		return engine.ErrUnreachable
	case isIgnored:
		observe.NoteStatus(r, observe.RequestIgnored)
		q.ignore(w, r, ignored.Condition)
		return nil
	case isChallenge:
		in.Service.Engine.NoteChallenge(q.name)
		observe.NoteStatus(r, observe.RequestChallenge)
		q.answered = challenge.Answer.Status
		writeSchemeAnswer(challenge.Answer, w)
		return nil
	}
	return err
}

// hookRequest is a request below the path of the hooks.
type hookRequest struct {
	in         *service.Instance
	name       string // the part of its path that names the hook
	received   observe.CountedBody
	incoming   intake.Request
	custom     *settings.Hook // nil for wake and agent
	isKnown    bool           // its credential is good
	body       *body
	chat       string            // that the run is for, once it is known
	requestID  string            // that the sender gave, once it is known
	taken      service.Allowance // that the rate of the hook has for runs which are not stored yet
	stored     bool              // it became a run, for which the caller waits
	answered   int               // the status of an answer that is no error; 0 is 200
	sentStatus int               // the status in the error event that ended its stream, 0 if there was none
	readAt     time.Time         // when the body was read
	anyBody    *anyBody          // its signature is good for any body, and it became no run; otherwise nil
}

// meters are the counters of the hook that the request names.
func (q *hookRequest) meters() *observe.HookMeters { return q.in.Meters.Endpoint(q.name) }

// serve takes the request through all steps: gate, route, authenticate, read, intake, submit, answer.
func (q *hookRequest) serve(w http.ResponseWriter, r *http.Request, active *settings.Active) error {
	in := q.in
	if served, err := q.serveQuestion(w, r, active); served {
		return err
	}
	if !active.On {
		return whyOff(active)
	}
	if run, ok := strings.CutPrefix(q.name, "runs/"); ok {
		observe.NoteStatus(r, observe.RequestRunAPI)
		return q.serveRun(w, r, active, run)
	}
	var custom *settings.Hook
	if q.name != "wake" && q.name != "agent" {
		if custom = active.Hooks[q.name]; custom == nil {
			observe.SetPlaceholder(r, observe.PlaceholderName, "")
			return whyNoHook(active, q.name)
		}
	}
	observe.SetPlaceholder(r, observe.PlaceholderName, q.name)
	if r.Method != http.MethodPost && (custom == nil || !custom.Auth.TakesMethod(r.Method)) {
		return errMethod
	}
	req := &q.incoming
	if req.Header == nil {
		*req = intake.NewRequest(r, in.Log)
	}
	limit, scheme := in.MaxRequest, active.Bearer
	if q.custom = custom; custom != nil {
		limit, scheme = custom.MaxPayload(active), custom.Auth
		if !custom.Admits(req.Client) {
			return errNotFrom
		}
	}
	now := time.Now()
	if r.Method != http.MethodPost {
		return cmp.Or(q.shakeHands(r.Context(), scheme, req.Credential(now)), error(errMethod))
	}
	if scheme.HeadersOnly {
		if err := scheme.Authenticate(req.Credential(now)); err != nil {
			return err
		}
		q.isKnown = true
	}
	if err := q.readBody(w, r, limit); err != nil {
		return err
	}
	credential := req.Credential(now)
	if err := q.shakeHands(r.Context(), scheme, credential); err != nil {
		return err
	}
	if !scheme.HeadersOnly {
		if err := scheme.Authenticate(credential); err != nil {
			return err
		}
		q.isKnown = true
	}
	if err := q.wantFirstBody(scheme, credential); err != nil {
		return err
	}
	req.Body = scheme.WithoutSecrets(req.Body)
	if custom != nil {
		if click := clicks.Parse(scheme.Name, req.Body); click != nil {
			return q.answerClick(w, r, click)
		}
	}
	if custom != nil && active.HistoryOf(custom) > 0 {
		in.Service.Samples.Note(q.name, r.Header, req.Query, req.Body)
	}
	runs, err := intake.Runs(active, q.name, custom, req)
	q.requestID = requestID(scheme, custom, req)
	observe.SetPlaceholder(r, observe.PlaceholderRequest, outbound.HeaderValue(q.requestID))
	if req.Warning != "" {
		w.Header()[intake.WarningHeader] = []string{req.Warning}
	}
	if err != nil {
		return err
	}
	trace, history, fold := observe.TraceParent(r), active.HistoryOf(custom), active.FoldOf(q.name, custom)
	for _, run := range runs {
		run.TraceParent, run.History, run.Client, run.RequestID = trace, history, req.Client, cmp.Or(run.RequestID, q.requestID)
		if !run.NewChat { // where nobody else would come
			run.Fold = fold
		}
	}
	first := runs[0]
	q.chat = first.ChatID
	if first.Sync && prefersAsync(r.Header["Prefer"]) {
		first.Sync = false
		w.Header().Set("Preference-Applied", respondAsync)
	}
	if first.Key, first.KeyHeader, err = idempotencyKey(scheme, first, custom, req); err != nil {
		return err
	}
	first.Replay = scheme.ReplayKey(first.Hook, credential)
	return q.submit(w, r, runs, active.Revision)
}

// anyBody are the digests of a signature that is good for any body, and of the body that it came with.
type anyBody struct{ signed, body [sha256.Size]byte }

// wantFirstBody refuses a signature that is good for any body if it came with another one, and no run. The store knows those of runs.
func (q *hookRequest) wantFirstBody(scheme settings.Authentication, credential *auth.Request) error {
	q.anyBody = nil
	if !scheme.AnyBody {
		return nil
	}
	key := scheme.ReplayKey(q.name, credential)
	if key == nil {
		return nil
	}
	used := &anyBody{key.ID, sha256.Sum256(credential.Body)}
	if !q.in.Service.OneBody.Allows(used.signed, used.body) {
		return &settings.RefusedCredential{Authentication: scheme, Verdict: auth.Refuse(auth.SignatureUsed)}
	}
	q.anyBody = used
	return nil
}

// shakeHands returns the answer to a request with which the sender tries the hook out, as an *intake.ChallengeError, and nil to all others.
func (q *hookRequest) shakeHands(ctx context.Context, scheme settings.Authentication, credential *auth.Request) error {
	answer, err := scheme.Handshake(credential)
	if answer == nil {
		return err
	}
	if answer.Reveal != "" {
		kept, err := q.in.KeepTold(ctx, q.name, answer.Reveal, credential.Now)
		if err != nil {
			return err
		}
		if !kept {
			return &settings.RefusedCredential{Authentication: scheme, Told: "Another secret was told less than 10 minutes ago.",
				Verdict: auth.Refuse("another secret came less than 10 minutes ago, which caddy hooks status shows")}
		}
		q.in.Log.Warn("a sender told its secret; caddy hooks status shows it", zap.String("hook", q.name),
			zap.String("client", q.incoming.Client))
	}
	return &intake.ChallengeError{Answer: answer}
}

// answerClick answers a question because somebody has pressed a button. That is no event: conditions of the hook do not count, and no run
// comes of it.
func (q *hookRequest) answerClick(w http.ResponseWriter, r *http.Request, click *clicks.Click) error {
	reply, err := q.in.AnswerByClick(r.Context(), click)
	if err != nil {
		return err
	}
	observe.NoteStatus(r, observe.RequestAnswer)
	writeAny(w, http.StatusOK, "application/json", reply)
	return nil
}

// respondAsync is the preference of a caller who would wait for the answer, and does not want to.
const respondAsync = "respond-async"

// prefersAsync reports whether a Prefer header (RFC 7240) asks for an answer at once.
func prefersAsync(values []string) bool {
	for _, value := range values {
		for preference := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(name), respondAsync) {
				return true
			}
		}
	}
	return false
}

// readBody reads the body, unless that was done under earlier settings.
func (q *hookRequest) readBody(w http.ResponseWriter, r *http.Request, limit int64) (err error) {
	if q.body == nil {
		memory := &q.in.Memory
		if q.body, err = readBody(w, r, limit, memory); err != nil {
			return err
		}
		q.readAt = time.Now()
		q.incoming.Messages = intake.MessageMemory{All: memory, Body: len(q.body.bytes)}
	}
	q.incoming.Body = q.body.bytes
	if int64(len(q.incoming.Body)) > limit {
		return tooLarge(limit)
	}
	return nil
}

// release ends the use of the body and of the messages.
func (q *hookRequest) release() {
	if q.body != nil {
		q.incoming.Messages.Release()
		q.body.release()
		q.body, q.incoming.Body, q.incoming.Doc = nil, nil, nil
	}
}

// submit gives runs to the engine, and answers.
func (q *hookRequest) submit(w http.ResponseWriter, r *http.Request, runs []*engine.Run, revision int64) error {
	s := q.in.Service
	var outcome engine.Outcome
	streams, err := wantsStream(r, runs[0])
	if err != nil {
		return err
	}
	within, err := q.withinBudgets(r.Context(), runs, revision)
	if err == nil {
		runs = within
		q.taken, err = s.Admit(r.Context(), q.custom, runs, revision)
	}
	run := runs[0]
	if err == nil {
		defer func() { q.taken.GiveBack() }()
		switch {
		case streams:
			return q.submitStreaming(w, r, run, revision)
		case run.Sync:
			outcome, err = s.Engine.Do(r.Context(), run, revision, func() { q.noteStored(r, run) })
		default:
			if err = s.Engine.SubmitAll(r.Context(), runs, revision); err == nil {
				stored := slices.DeleteFunc(slices.Clone(runs), func(run *engine.Run) bool { return run.ID == "" }) // a gate left it out
				q.taken = q.taken.Of(len(runs) - len(stored))
				run = stored[0]
				q.noteAccepted(run)
			}
		}
	}
	duplicate, isDuplicate := errors.AsType[*engine.DuplicateError](err)
	closed, isClosed := errors.AsType[*gate.ClosedError](err)
	switch {
	case isDuplicate:
		return q.replay(w, r, duplicate)
	case isClosed:
		return q.answerClosed(w, r, closed)
	case (errors.Is(err, engine.ErrQueueFull) || errors.Is(err, engine.ErrChatFull)) && intake.NeverFit(&q.in.EngineConfig.Limits, runs):
		return intake.ErrNeverFit
	case err != nil:
		return err
	case run.Sync:
		observe.NoteStatus(r, observe.RequestStatus(outcome.Status)) // noteStored has named the run
		return writeOutcome(w, run, outcome)
	default:
		observe.NoteRun(r, observe.RequestAccepted, run)
		q.writeAccepted(w, r, run)
		return nil
	}
}

// noteStored is called when the run is stored for which the caller waits. That may take an hour, and the body is not needed again.
func (q *hookRequest) noteStored(r *http.Request, run *engine.Run) {
	observe.NoteRun(r, observe.RequestAccepted, run)
	q.noteAccepted(run)
	q.stored, q.taken = true, service.Allowance{}
	q.release()
}

// noteAccepted counts how long it took to accept the request. run is the first of its runs.
func (q *hookRequest) noteAccepted(run *engine.Run) {
	q.anyBody = nil
	q.in.Meters.Accepted(run, time.Since(q.readAt))
}

// unauthorized is the answer to a bad credential: 401, or 429 for a client address with too many of them, which is throttled.
func unauthorized(in *service.Instance, r *http.Request, refused *settings.RefusedCredential) (answer *api.Error, throttled bool) {
	addr, _ := netip.ParseAddr(intake.ClientAddress(r))
	after, throttled := in.Service.Throttle().Fail(addr, time.Now())
	if throttled {
		return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: after,
			Message: fmt.Sprintf("Too many requests with a bad credential came from this address. Try again in %s s.", api.RetryAfterSeconds(after)),
			Reason:  "too many requests with a bad credential came from one address; this one: " + string(refused.Verdict.Reason)}, true
	}
	return answerToRefused(refused), false
}
