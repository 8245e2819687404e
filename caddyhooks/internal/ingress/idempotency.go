package ingress

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"hash"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

const maxKeyLength = 256

// idempotencyKey returns the idempotency key of a request and the name of the header that held it, nil if it has none. Keys of
// different endpoints and of callers with different credentials are different. If the request has no header that the hook names, the ids
// of its CloudEvents count: they tell events apart, whoever delivers them how often. Without events, and if the hook names no header,
// it is the id that its sender gives a delivery.
func idempotencyKey(caller settings.Authentication, run *engine.Run, custom *settings.Hook, req *intake.Request) (
	idempotency *engine.Key, name string, err error) {
	var values []string
	if custom != nil && custom.IdempotencyHeader != "" {
		name = http.CanonicalHeaderKey(custom.IdempotencyHeader)
		values = req.Header[name]
	}
	if len(values) == 0 && len(req.Events) > 0 {
		scope := sha256.New()
		settings.WriteParts(scope, "cloudevents", run.Hook)
		for _, event := range req.Events {
			settings.WriteParts(scope, event.Source, event.ID)
		}
		return &engine.Key{ID: ofCaller(scope, caller, req), AnyBody: true}, "source, id", nil
	}
	if custom == nil || custom.IdempotencyHeader == "" {
		if id, name := caller.DeliveryID(req.Header, req.Doc); id != "" {
			return &engine.Key{ID: settings.KeyID("delivery", run.Hook, id), AnyBody: true}, name, nil
		}
	}
	for _, standard := range [...]string{"Idempotency-Key", "Webhook-Id"} {
		if len(values) == 0 {
			name, values = standard, req.Header[standard]
		}
	}
	if len(values) == 0 {
		return nil, "", nil
	}
	id, ok := text.Unquote(values[0])
	if !ok || len(values) > 1 || id == "" || len(id) > maxKeyLength {
		return nil, "", &api.Error{Status: http.StatusBadRequest,
			Message: "The header " + name + " must be sent once and hold a key of 1 to 256 characters, bare or as a quoted string."}
	}
	scope := sha256.New()
	settings.WriteParts(scope, run.Hook, id)
	return &engine.Key{ID: ofCaller(scope, caller, req), Body: sha256.Sum256(req.Body)}, name, nil
}

// ofCaller is the digest of a scope. Callers with different credentials have different ones.
func ofCaller(scope hash.Hash, caller settings.Authentication, req *intake.Request) [32]byte {
	if several, ok := caller.Verifier.(auth.Identifier); ok {
		credential := several.Credential(req.Header)
		scope.Write(credential[:])
	}
	return [32]byte(scope.Sum(nil))
}

// requestID is the id that the sender of a request gave it, "" if it gave none: in the header that the hook names, in its first CloudEvent,
// where its scheme has it, or in a standard header. It does not matter whether repeated requests are recognised by it.
func requestID(caller settings.Authentication, custom *settings.Hook, req *intake.Request) string {
	inHeader := func(name string) string {
		values := req.Header[http.CanonicalHeaderKey(name)]
		if len(values) == 0 || caller.HidesHeader(name) {
			return ""
		}
		id, _ := text.Unquote(values[0])
		return id
	}
	id := ""
	if custom != nil && custom.IdempotencyHeader != "" {
		id = inHeader(custom.IdempotencyHeader)
	}
	if id == "" && len(req.Events) > 0 {
		return intake.EventID(req.Events[0])
	}
	if id == "" {
		id, _ = caller.DeliveryID(req.Header, req.Doc)
	}
	return engine.NewRequestID(cmp.Or(id, inHeader("Idempotency-Key"), inHeader("Webhook-Id")))
}

// errKeyReleased says that the first run with a key has just ended without a result, so that the key is free again.
var errKeyReleased = &api.Error{Status: http.StatusConflict, RetryAfter: time.Second,
	Message: "The first request with this idempotency key came to nothing. Try again."}

// maxSubmits bounds how often a request is submitted while its key is released again and again.
const maxSubmits = 3

// replay answers a request whose key was used before like the first request with that key.
func (q *hookRequest) replay(w http.ResponseWriter, r *http.Request, duplicate *engine.DuplicateError) error {
	q.anyBody = nil
	if !duplicate.SameBody {
		return &api.Error{Status: http.StatusConflict, Message: "This idempotency key was used before, with another body."}
	}
	return q.answerAsFirst(w, r, duplicate.First, "idempotency key")
}

// answerAsFirst answers a request like the first one with the same key or value, whose run is given.
func (q *hookRequest) answerAsFirst(w http.ResponseWriter, r *http.Request, first *engine.Run, same string) error {
	if !first.Sync {
		observe.NoteRun(r, observe.RequestReplayed, first)
		q.meters().Replayed()
		w.Header().Set("Idempotent-Replayed", "true")
		q.writeAccepted(w, r, first)
		return nil
	}
	record, err := q.in.Service.Engine.Find(r.Context(), first.ID, 0)
	if errors.Is(err, engine.ErrNotFound) {
		return &api.Error{Status: http.StatusConflict, Message: "The first request with this " + same + " was carried out, and its answer " +
			"is no longer kept."}
	}
	if err != nil {
		return err
	}
	streams, err := wantsStream(r, record.Run)
	if err != nil {
		return err
	}
	if !record.Status.Ended() && !streams {
		return &api.Error{Status: http.StatusConflict, RetryAfter: time.Second,
			Message: "The first request with this " + same + " is still being carried out."}
	}
	if record.Status.Ended() && record.Outcome.ForgetsKey() {
		return errKeyReleased
	}
	observe.NoteRun(r, observe.RequestReplayed, first)
	q.meters().Replayed()
	w.Header().Set("Idempotent-Replayed", "true")
	if streams {
		q.replayStreaming(w, r, record)
		return nil
	}
	return writeOutcome(w, record.Run, record.Outcome)
}
