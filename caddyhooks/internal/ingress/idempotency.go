package ingress

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

const maxKeyLength = 256

// idempotencyKey returns the idempotency key of a request and the name of the header that held it, nil if it has none. Keys of
// different endpoints and of callers with different credentials are different. If the hook names no header, the id counts that its
// sender gives a delivery; doc is the body, where that may be.
func idempotencyKey(header http.Header, caller settings.Authentication, run *engine.Run, custom *settings.Hook, body []byte,
	doc any) (idempotency *engine.Key, name string, err error) {
	var values []string
	if custom != nil && custom.IdempotencyHeader != "" {
		name = http.CanonicalHeaderKey(custom.IdempotencyHeader)
		values = header[name]
	} else if id, name := caller.DeliveryID(header, doc); id != "" {
		return &engine.Key{ID: settings.KeyID("delivery", run.Hook, id), Body: sha256.Sum256(body), AnyBody: true}, name, nil
	}
	for _, standard := range [...]string{"Idempotency-Key", "Webhook-Id"} {
		if len(values) == 0 {
			name, values = standard, header[standard]
		}
	}
	if len(values) == 0 {
		return nil, "", nil
	}
	key, ok := unquote(values[0])
	if !ok || len(values) > 1 || key == "" || len(key) > maxKeyLength {
		return nil, "", &api.Error{Status: http.StatusBadRequest,
			Message: "The header " + name + " must be sent once and hold a key of 1 to 256 characters, bare or as a quoted string."}
	}
	scope := sha256.New()
	settings.WriteParts(scope, run.Hook, key)
	if several, ok := caller.Verifier.(auth.Identifier); ok {
		credential := several.Credential(header)
		scope.Write(credential[:])
	}
	return &engine.Key{ID: [32]byte(scope.Sum(nil)), Body: sha256.Sum256(body)}, name, nil
}

// requestID is the id that the sender of a request gave it, "" if it gave none: in the header that the hook names, where its scheme
// has it, or in a standard header. It does not matter whether repeated requests are recognised by it. doc is the body.
func requestID(header http.Header, caller settings.Authentication, custom *settings.Hook, doc any) string {
	inHeader := func(name string) string {
		values := header[http.CanonicalHeaderKey(name)]
		if len(values) == 0 || caller.HidesHeader(name) {
			return ""
		}
		id, _ := unquote(values[0])
		return id
	}
	id := ""
	if custom != nil && custom.IdempotencyHeader != "" {
		id = inHeader(custom.IdempotencyHeader)
	}
	if id == "" {
		id, _ = caller.DeliveryID(header, doc)
	}
	return engine.NewRequestID(cmp.Or(id, inHeader("Idempotency-Key"), inHeader("Webhook-Id")))
}

// unquote returns the text of a quoted string in a header (RFC 8941, section 3.3.3), and other values as they are.
func unquote(value string) (string, bool) {
	value = strings.Trim(value, " \t")
	if !strings.HasPrefix(value, `"`) {
		return value, true
	}
	var text strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			return text.String(), i == len(value)-1
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			text.WriteByte(value[i])
		default:
			text.WriteByte(c)
		}
	}
	return "", false
}

// errKeyReleased says that the first run with a key has just ended without a result, so that the key is free again.
var errKeyReleased = &api.Error{Status: http.StatusConflict, RetryAfter: time.Second,
	Message: "The first request with this idempotency key came to nothing. Try again."}

// maxSubmits bounds how often a request is submitted while its key is released again and again.
const maxSubmits = 3

// replay answers a request whose key was used before like the first request with that key.
func (q *hookRequest) replay(w http.ResponseWriter, r *http.Request, duplicate *engine.DuplicateError) error {
	if !duplicate.SameBody {
		return &api.Error{Status: http.StatusConflict, Message: "This idempotency key was used before, with another body."}
	}
	first := duplicate.First
	if !first.Sync {
		observe.NoteRun(r, observe.RequestReplayed, first)
		q.meters().Replayed()
		w.Header().Set("Idempotent-Replayed", "true")
		q.writeAccepted(w, r, first)
		return nil
	}
	record, err := q.in.Service.Engine.Find(r.Context(), first.ID, 0)
	if errors.Is(err, engine.ErrNotFound) {
		return &api.Error{Status: http.StatusConflict, Message: "The first request with this idempotency key was carried out, and its answer " +
			"is no longer kept."}
	}
	if err != nil {
		return err
	}
	streams := api.WantsEvents(r.Header["Accept"])
	if !record.Status.Ended() && !streams {
		return &api.Error{Status: http.StatusConflict, RetryAfter: time.Second,
			Message: "The first request with this idempotency key is still being carried out."}
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
