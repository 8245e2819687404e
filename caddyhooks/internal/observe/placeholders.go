package observe

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
	PlaceholderName   = placeholderPrefix + "name"    // of the hook; empty if there is no such hook
	placeholderRun    = placeholderPrefix + "run_id"  // of the first run, if there are several
	placeholderChat   = placeholderPrefix + "chat_id" // percent-encoded where it is not visible ASCII
	// The id that the sender gave the request, if the caller is known and the body was read; percent-encoded likewise.
	PlaceholderRequest = placeholderPrefix + "request_id"
	placeholderStatus  = placeholderPrefix + "status" // see RequestStatus
)

// RequestStatus is what became of a request. A caller that waited for its run gets the status of the run here: completed, failed,
// timed_out, cancelled or expired.
type RequestStatus string

const (
	RequestAccepted  RequestStatus = "accepted"  // it became a run, whose end is not known yet
	RequestReplayed  RequestStatus = "replayed"  // it was sent before, and answered like the first time
	RequestIgnored   RequestStatus = "ignored"   // a condition of the hook leaves it out
	RequestChallenge RequestStatus = "challenge" // the sender tried out whether the hook is there
	RequestAnswer    RequestStatus = "answer"    // somebody pressed a button under a question
	RequestRefused   RequestStatus = "refused"   // it became no run
	RequestGone      RequestStatus = "gone"      // the caller went away before the answer
	RequestRunAPI    RequestStatus = "run_api"   // it asked about a run, or cancelled one
)

// emptyPlaceholders makes the placeholders known. Unknown ones would stay in a header as they are written.
func emptyPlaceholders(key string) (any, bool) {
	return "", strings.HasPrefix(key, placeholderPrefix) &&
		(key == PlaceholderName || key == placeholderRun || key == placeholderChat || key == PlaceholderRequest || key == placeholderStatus)
}

func ReplacerOf(r *http.Request) *caddy.Replacer {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

func DefinePlaceholders(r *http.Request) {
	if repl := ReplacerOf(r); repl != nil {
		repl.Map(emptyPlaceholders)
	}
}

// SetPlaceholder sets a placeholder. Values that were set go before empty ones.
func SetPlaceholder(r *http.Request, name, value string) {
	if repl := ReplacerOf(r); repl != nil {
		repl.Set(name, value)
	}
}

// NoteStatus must be called before the answer is begun, for headers, and may be called again when more is known, for logs.
func NoteStatus(r *http.Request, status RequestStatus) {
	SetPlaceholder(r, placeholderStatus, string(status))
}

// NoteRun is noteStatus for a request that became a run, or repeats one. The chat comes from outside, and its id has at most 256
// bytes.
func NoteRun(r *http.Request, status RequestStatus, run *engine.Run) {
	NoteStatus(r, status)
	SetPlaceholder(r, placeholderRun, run.ID)
	SetPlaceholder(r, placeholderChat, outbound.HeaderValue(run.ChatID))
}
