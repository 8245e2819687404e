package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// refuse answers a request that failed, and returns the status of the answer. It is noted unless it became a run.
func (q *hookRequest) refuse(w http.ResponseWriter, r *http.Request, err error) (status int) {
	in := q.in
	answer := answerTo(err, in.Log)
	if answer == nil {
		observe.NoteStatus(r, observe.RequestGone)
		w.WriteHeader(statusCallerGone) // for the access log
		return statusCallerGone
	}
	switch {
	case answer.OfRun: // its status is known
	case q.stored:
		observe.NoteStatus(r, observe.RequestAccepted)
	default:
		observe.NoteStatus(r, observe.RequestRefused)
		noteRefusal(in, q, r, answer)
	}
	q.release() // before the answer, which may be read slowly
	WriteError(w, r, answer)
	return answer.Status
}

func noteRefusal(in *service.Instance, q *hookRequest, r *http.Request, answer *api.Error) {
	if in.Refused == nil {
		return
	}
	active := in.Active.Load() // nil before the start
	request := refused.Request{
		Kind:    refused.Kind{Hook: hookNamed(active, q.name), Status: answer.Status, Reason: cmp.Or(answer.Reason, answer.Message)},
		Message: oneline.Of(answer.Message, refused.MaxMessage),
		Client:  intake.ClientAddress(r), RequestID: q.requestID,
		Size: int64(q.received.Count),
	}
	if answer.Cause != nil {
		request.Cause = oneline.Of(answer.Cause.Error(), refused.MaxCause)
	}
	if answer.OfChat {
		request.Chat = oneline.Of(q.chat, refused.MaxMessage)
	}
	if request.Size == 0 {
		request.Size = max(r.ContentLength, 0)
	}
	if request.Hook != q.name {
		request.Asked = showName(active, q.name)
	}
	in.Refused.Note(in.Log, request)
	q.keepRefused(r, active, request)
}

// noteIgnored notes a request that a condition of its hook leaves out.
func noteIgnored(in *service.Instance, q *hookRequest, r *http.Request, status int, condition string) {
	if in.Refused == nil {
		return
	}
	request := refused.Request{
		Kind:   refused.Kind{Hook: q.name, Status: status, Reason: condition, Ignored: true},
		Client: q.incoming.Client, RequestID: q.requestID,
		Size: int64(q.received.Count),
	}
	in.Refused.Note(in.Log, request)
	q.keepRefused(r, in.Active.Load(), request)
}

// keepRefused keeps a request that became no run, without its secrets, if that is asked for. Its body is kept if it was read, and if the
// hook keeps messages at all.
func (q *hookRequest) keepRefused(r *http.Request, active *settings.Active, request refused.Request) {
	if active == nil || !q.in.Refused.Wants(request.Client) {
		return
	}
	hook := active.Hooks[request.Hook] // nil if no custom hook has the name
	mask := refused.Mask{
		Mark:        text.Mask,
		HidesHeader: func(name string) bool { return active.SecretHeaders.Has(name) || intake.MayHoldSecret(name) },
		ShowsQuery:  func(name string) bool { return intake.ShowsQuery(hook, name) },
		HideIn:      active.HideSecrets,
	}
	if hook != nil {
		mask.Members = hook.Auth.SecretMembers()
	}
	kept := refused.Kept{
		Request: request, Method: oneline.Of(r.Method, maxKeptMethod), Path: q.in.Path + "/" + cmp.Or(request.Asked, request.Hook),
		Query:   mask.Query(r.URL.Query()),
		Headers: mask.Headers(r.Header), Stranger: !q.isKnown,
	}
	switch {
	case q.body == nil:
		kept.Unread = r.ContentLength != 0
	case active.HistoryOf(hook) > 0:
		body, ok := mask.Body(q.body.bytes)
		kept.Body, kept.Cut, kept.Unread = body, ok && len(q.body.bytes) > refused.MaxKeptBody, !ok
	default:
		kept.Unread = true
	}
	q.in.Refused.KeepRequest(kept)
}

const maxKeptMethod = 32

// hookNamed returns the name of a hook, of which there are as many as are configured, or were. It is "" for a name that no hook
// has or had.
func hookNamed(a *settings.Active, name string) string {
	switch {
	case name == "wake", name == "agent", a != nil && a.Hooks[name] != nil:
		return name
	case strings.HasPrefix(name, "runs/"):
		return "runs"
	case a != nil && whyNoHook(a, name) != errUnknownHook:
		return name
	default:
		return ""
	}
}

// showName returns what an operator may see of a name in a URL. Some callers put their token there, alone or in other text, so
// only what can be the name of a hook or the id of a run is shown, and not if a token is in it.
func showName(a *settings.Active, name string) string {
	first, rest, more := strings.Cut(name, "/")
	switch {
	case name == "":
		return ""
	case a == nil || more && hookNamed(a, first+"/") == "" && hookNamed(a, first) == "": // both parts may be those of a token
		return hiddenName(name)
	case !more:
		return showPart(a, first)
	case first == "runs":
		return "runs/" + showPart(a, rest)
	case rest == "":
		return first + "/ (a slash at the end)"
	default:
		return first + "/" + hiddenName(rest)
	}
}

// showPart returns a part of a path if it has the form of a name and there is no token in it.
func showPart(a *settings.Active, part string) string {
	const mostWords = 8
	starts, ends := []int{0}, []int(nil) // of its words
	for i, c := range []byte(part) {
		if c == '.' || c == '_' || c == '-' {
			starts, ends = append(starts, i+1), append(ends, i)
		}
	}
	ends = append(ends, len(part))
	if !settings.HookName.MatchString(part) || len(starts) > mostWords {
		return hiddenName(part)
	}
	for i, start := range starts {
		for _, end := range ends[i:] {
			if a.Tokens.Has(part[start:end]) {
				return "(a token)"
			}
		}
	}
	return part
}

func hiddenName(name string) string { return fmt.Sprintf("(%d bytes)", len(name)) }

// newerSettings returns newer settings than those that a request was checked against, nil if there are none. It looks for
// them only if the request was refused, or ignored, because of the settings.
func newerSettings(ctx context.Context, in *service.Instance, active *settings.Active, err error) *settings.Active {
	if !errors.Is(err, engine.ErrSettingsChanged) && !isBySettings(err) {
		return nil
	}
	if newer := in.UpToDate(ctx, active); newer != active {
		return newer
	}
	return nil
}

// isBySettings reports whether a request was refused, or ignored, because of the settings.
func isBySettings(err error) bool {
	_, nothing := errors.AsType[*noWebhookError](err)
	_, refused := errors.AsType[*settings.RefusedCredential](err)
	_, ignored := errors.AsType[*intake.IgnoredError](err)
	return nothing || refused || ignored || errors.Is(err, errNotFrom)
}

// whyOff says why there are no webhooks.
func whyOff(a *settings.Active) *noWebhookError {
	return &noWebhookError{"webhooks are off: " + a.OffBecause}
}

// whyNoHook says why no hook has a name.
func whyNoHook(a *settings.Active, name string) *noWebhookError {
	if a.Problems[settings.Part{Mapping: name}.String()] != "" {
		return errHookLeftOut
	}
	if _, ok := a.Gone[name]; ok {
		return errHookDeleted
	}
	return errUnknownHook
}

// errNotFrom is the answer to a caller from another address.
var errNotFrom = &api.Error{Status: http.StatusForbidden, Message: "This hook is not open to callers from this address.",
	Reason: "the caller's address is in no range of from"}

// reasonOfRefusal is how the request is counted.
func reasonOfRefusal(e *settings.RefusedCredential, throttled bool) observe.AuthReason {
	_, signs := e.Verifier.(auth.Signer)
	switch {
	case throttled:
		return observe.ThrottledClient
	case signs:
		return observe.BadSignature
	default:
		return observe.BadToken
	}
}

// answerToRefused is the answer to the caller.
func answerToRefused(e *settings.RefusedCredential) *api.Error {
	scheme := e.WwwAuthenticate
	if named, ok := e.Verifier.(interface{ Name() string }); ok {
		scheme = named.Name()
	}
	return &api.Error{Status: http.StatusUnauthorized, Header: [2]string{"WWW-Authenticate", scheme}, Message: e.Message(),
		Reason: string(e.Verdict.Reason)}
}
