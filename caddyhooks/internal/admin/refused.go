package admin

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	InstanceEndpoints.Handle("GET /refused", listRefused, "hook", "since", "until", "limit")
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
	since, until, err := parsePeriod(params, time.Now())
	if err != nil {
		return err
	}
	kinds := in.Refused.List(r.Context(), func(kind *refused.Requests) bool {
		return (all || kind.Last.Hook == hook) && isWithin(kind.LastAt, since, until)
	}, limit)
	return writeJSON(w, http.StatusOK, api.RefusedList{Refused: api.ShowAll(kinds, func(kind refused.Requests) api.Refused { return kind.Shown() })})
}

// isWithin reports whether a time is in a period. The zero time is no bound.
func isWithin(at, since, until time.Time) bool {
	return !at.Before(since) && (until.IsZero() || at.Before(until))
}
