package openapi

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"

// queryTexts describe the parameters of queries.
var queryTexts = map[string]string{
	"wait":    "How long to wait for the end of the run, up to 5m, as in 30s.",
	"range":   "1h, 6h, 24h or 7d.",
	"topics":  "runs, deliveries, overview, settings or refused, or several with commas between them. Default: all.",
	"limit":   "How many items a page has, from 1 to 1000. Default: 100.",
	"cursor":  "The cursor of the page before.",
	"hook":    "The name of a hook. Lists of runs and costs take several, with commas between them.",
	"headers": "The headers of the request, a line for each, as in X-GitHub-Event: issues.",
	"query":   "The query of the request.",
	"status":  "A status. Lists take several, with commas between them.",
	"chatId":  "The chat.",
	"since":   "From this time on: " + moment.Forms + ". Times without a zone are those of the server.",
	"until":   "Before this time; see since.",
	"q": "A sender's id of a request; a run id, or at least eight characters of its beginning; otherwise words that must all be " +
		"there.",
	"do":        "again, cancel, retry or drop.",
	"runner":    "The name of a runner, or several with commas between them.",
	"requestId": "The id that the sender gave the request.",
	"dry":       "1 changes nothing, and answers how many would be changed.",
	"unsent":    "1 leaves a delivery alone that has arrived, with 409.",
	"of":        "runs, chat or deliveries.",
	"channel":   "The name of a channel.",
	"host":      "The host of callbacks.",
	"by":        "hook, runner, model, hour or day. Default: hook.",
	"what":      "hook, chat, runner or all.",
	"name":      "The name of the hook, the chat or the runner. all has none.",
}

// requiredQuery are the parameters that must be there, by the id of their operation.
var requiredQuery = []string{"chat chatId", "samples hook", "startBulk do", "export of", "resume what"}

var headerTexts = map[string]string{
	"Accept":                           "text/event-stream asks for the answer while the agent works.",
	"Accept-Encoding":                  "How a body may be compressed: not at all.",
	"Allow":                            "The methods that are allowed.",
	"Content-Disposition":              "The name of the file.",
	"ETag":                             "A tag for If-Match.",
	"Hooks-Operator":                   "The name of the operator, for the list of changes. It is no proof.",
	"Idempotency-Key":                  "Requests with the same key start one run.",
	"Idempotent-Replayed":              "true if the answer is that of an earlier request with the same key.",
	"If-Match":                         "The ETag of what is changed. It is changed only if nobody else has changed it meanwhile.",
	"If-None-Match":                    "* saves the hook only if there is none of this name.",
	"Last-Event-ID":                    "The id of the last event that the reader got.",
	"Location":                         "The path of the run.",
	"Retry-After":                      "After how many seconds to try again.",
	"WWW-Authenticate":                 "How to authenticate.",
	"X-Service-Attempt":                "Counts the attempts from 1.",
	"X-Service-Chat-Id":                "The chat. Spaces, percent signs and characters outside ASCII are percent-encoded.",
	"X-Service-Deadline":               "When the time of the run is up.",
	"X-Service-Run-Id":                 "The run.",
	"X-Service-Run-Status":             "How the run ended: completed, failed, timed_out, cancelled or expired.",
	"X-Service-Schema-Repair-Attempts": "How many repairs the answer needed to fit the schema.",
	"X-Service-Warning":                "A probable mistake in the request.",
	"traceparent":                      "The trace that the request belongs to (W3C Trace Context).",
	"webhook-id":                       "Names the request. Further attempts have the same id.",
	"webhook-signature":                "The signature, as in Standard Webhooks.",
	"webhook-timestamp":                "When the attempt was signed, in seconds since 1970.",
}

var pathTexts = map[string]string{
	"name": "The name of the hook or of the runner.",
	"code": "The code of the warning.",
	"id":   "The id of the run, of the delivery, of the request or of the bulk action.",
}
