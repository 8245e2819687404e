package caddyhooks

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// The placeholders of a request, for log_append and deferred headers. A value that is not known is empty, and so are all of
// them for requests that are no webhooks.
const (
	placeholderPrefix = "http.hooks."
	placeholderName   = placeholderPrefix + "name"    // of the hook; empty if there is no such hook
	placeholderRun    = placeholderPrefix + "run_id"  // of the first run, if there are several
	placeholderChat   = placeholderPrefix + "chat_id" // percent-encoded where it is not visible ASCII
	placeholderStatus = placeholderPrefix + "status"  // see requestStatus
)

// requestStatus is what became of a request. A caller that waited for its run gets the status of the run here: completed, failed,
// timed_out, cancelled or expired.
type requestStatus string

const (
	requestAccepted  requestStatus = "accepted"  // it became a run, whose end is not known yet
	requestReplayed  requestStatus = "replayed"  // it was sent before, and answered like the first time
	requestIgnored   requestStatus = "ignored"   // a condition of the hook leaves it out
	requestChallenge requestStatus = "challenge" // the sender tried out whether the hook is there
	requestRefused   requestStatus = "refused"   // it became no run
	requestGone      requestStatus = "gone"      // the caller went away before the answer
	requestRunAPI    requestStatus = "run_api"   // it asked about a run, or cancelled one
)

// emptyPlaceholders makes the placeholders known. Unknown ones would stay in a header as they are written.
func emptyPlaceholders(key string) (any, bool) {
	return "", strings.HasPrefix(key, placeholderPrefix) &&
		(key == placeholderName || key == placeholderRun || key == placeholderChat || key == placeholderStatus)
}

func replacerOf(r *http.Request) *caddy.Replacer {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

func definePlaceholders(r *http.Request) {
	if repl := replacerOf(r); repl != nil {
		repl.Map(emptyPlaceholders)
	}
}

// setPlaceholder sets a placeholder. Values that were set go before empty ones.
func setPlaceholder(r *http.Request, name, value string) {
	if repl := replacerOf(r); repl != nil {
		repl.Set(name, value)
	}
}

// noteStatus must be called before the answer is begun, for headers, and may be called again when more is known, for logs.
func noteStatus(r *http.Request, status requestStatus) {
	setPlaceholder(r, placeholderStatus, string(status))
}

// noteRun is noteStatus for a request that became a run, or repeats one. The chat comes from outside, and its id has at most 256
// bytes.
func noteRun(r *http.Request, status requestStatus, run *engine.Run) {
	noteStatus(r, status)
	setPlaceholder(r, placeholderRun, run.ID)
	setPlaceholder(r, placeholderChat, outbound.HeaderValue(run.ChatID))
}
