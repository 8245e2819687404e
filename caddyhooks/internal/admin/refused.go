package admin

import (
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /refused", listRefused, "hook", "limit")
}

func newRefusedJSON(r service.RefusedRequests) api.Refused {
	shown := api.Refused{
		Hook: r.Last.Hook, Status: r.Last.Status, Ignored: r.Last.Ignored, Reason: r.Last.Reason, Message: r.Last.Message, Error: r.Last.Cause,
		Chat:  r.Last.Chat,
		Count: r.Count, FirstAt: text.JSONTime(r.FirstAt), LastAt: text.JSONTime(r.LastAt), Client: r.Last.Client, Size: r.Last.Size,
		Asked: r.Asked,
		Clients: api.ShowAll(r.Clients, func(c service.RefusedClient) api.RefusedClient {
			return api.RefusedClient{Client: c.Address, Count: c.Count, LastAt: text.JSONTime(c.LastAt)}
		}),
	}
	if shown.Ignored {
		shown.Condition = shown.Reason
	}
	return shown
}

// listRefused lists the kinds of requests that became no run, the last seen first. An empty hook is the one of names that no
// hook has.
func listRefused(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	hook, all := params.Get("hook"), !params.Has("hook")
	refused := in.Refused.List(func(kind service.RefusedKind) bool { return all || kind.Hook == hook }, limit)
	return writeJSON(w, http.StatusOK, api.RefusedList{Refused: api.ShowAll(refused, newRefusedJSON)})
}
