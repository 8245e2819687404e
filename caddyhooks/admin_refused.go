package caddyhooks

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /refused", (*instance).listRefused, "hook", "limit")
}

// refusedJSON is a kind of refused or ignored requests as the admin API shows it. Message, error, chat, client and size are those of the
// last request.
type refusedJSON struct {
	Hook    string     `json:"hook"` // empty for names that no hook has
	Status  int        `json:"status"`
	Ignored bool       `json:"ignored,omitempty"` // it was not refused; the condition of the hook tells why it became no run
	Reason  string     `json:"reason"`
	Message string     `json:"message"` // to the caller
	Count   int64      `json:"count"`
	FirstAt *time.Time `json:"firstAt"`
	LastAt  *time.Time `json:"lastAt"`
	Error   string     `json:"error,omitempty"`
	Chat    string     `json:"chat,omitempty"`
	Client  string     `json:"client"`
	Size    int64      `json:"size"`

	Condition string `json:"condition,omitempty"` // of an ignored request

	Clients []refusedClientJSON `json:"clients"`         // the last ones, the latest first
	Asked   []string            `json:"asked,omitempty"` // names that no hook has, likewise
}

// refusedClientJSON is one of the last clients of a kind.
type refusedClientJSON struct {
	Client string     `json:"client"`
	Count  int64      `json:"count"` // since it is among the last ones
	LastAt *time.Time `json:"lastAt"`
}

func newRefusedJSON(r refusedRequests) refusedJSON {
	shown := refusedJSON{
		Hook: r.last.hook, Status: r.last.status, Ignored: r.last.ignored, Reason: r.last.reason, Message: r.last.message, Error: r.last.cause, Chat: r.last.chat,
		Count: r.count, FirstAt: text.JSONTime(r.firstAt), LastAt: text.JSONTime(r.lastAt), Client: r.last.client, Size: r.last.size, Asked: r.asked,
		Clients: showAll(r.clients, func(c refusedClient) refusedClientJSON {
			return refusedClientJSON{c.address, c.count, text.JSONTime(c.lastAt)}
		}),
	}
	if shown.Ignored {
		shown.Condition = shown.Reason
	}
	return shown
}

// listRefused lists the kinds of requests that became no run, the last seen first. An empty hook is the one of names that no
// hook has.
func (in *instance) listRefused(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	hook, all := params.Get("hook"), !params.Has("hook")
	refused := in.refused.list(func(kind refusedKind) bool { return all || kind.hook == hook }, limit)
	return writeAdminJSON(w, http.StatusOK, struct {
		Refused []refusedJSON `json:"refused"`
	}{showAll(refused, newRefusedJSON)})
}
