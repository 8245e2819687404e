package caddyhooks

import (
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /refused", (*instance).listRefused, "hook", "limit")
}

func newRefusedJSON(r refusedRequests) api.Refused {
	shown := api.Refused{
		Hook: r.last.hook, Status: r.last.status, Ignored: r.last.ignored, Reason: r.last.reason, Message: r.last.message, Error: r.last.cause, Chat: r.last.chat,
		Count: r.count, FirstAt: text.JSONTime(r.firstAt), LastAt: text.JSONTime(r.lastAt), Client: r.last.client, Size: r.last.size, Asked: r.asked,
		Clients: api.ShowAll(r.clients, func(c refusedClient) api.RefusedClient {
			return api.RefusedClient{Client: c.address, Count: c.count, LastAt: text.JSONTime(c.lastAt)}
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
		Refused []api.Refused `json:"refused"`
	}{api.ShowAll(refused, newRefusedJSON)})
}
