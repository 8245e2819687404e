package caddyhooks

import (
	"net/http"
	"time"
)

func init() {
	instanceEndpoints.handle("GET /refused", (*instance).listRefused, "hook", "limit")
}

// refusedJSON is a kind of refused requests as the admin API shows it. Message, asked, client and size are those of the last
// request.
type refusedJSON struct {
	Hook    string     `json:"hook"` // empty for names that no hook has
	Status  int        `json:"status"`
	Reason  string     `json:"reason"`
	Message string     `json:"message"` // to the caller
	Asked   string     `json:"asked,omitempty"`
	Count   int64      `json:"count"`
	FirstAt *time.Time `json:"firstAt"`
	LastAt  *time.Time `json:"lastAt"`
	Client  string     `json:"client"`
	Size    int64      `json:"size"`
}

func newRefusedJSON(r refusedRequests) refusedJSON {
	return refusedJSON{
		Hook: r.last.hook, Status: r.last.status, Reason: r.last.reason, Message: r.last.message, Asked: r.last.asked,
		Count: r.count, FirstAt: jsonTime(r.firstAt), LastAt: jsonTime(r.lastAt), Client: r.last.client, Size: r.last.size,
	}
}

// listRefused lists the kinds of requests that became no run, the last seen first. An empty hook is the one of names that no
// hook has.
func (in *instance) listRefused(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	hook, any := params.Get("hook"), !params.Has("hook")
	refused := in.refused.list(func(kind refusedKind) bool { return any || kind.hook == hook }, limit)
	return writeAdminJSON(w, http.StatusOK, struct {
		Refused []refusedJSON `json:"refused"`
	}{showAll(refused, newRefusedJSON)})
}
