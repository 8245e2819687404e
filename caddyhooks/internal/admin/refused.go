package admin

import (
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /refused", listRefused, "hook", "since", "until", "limit")
	InstanceEndpoints.Handle("GET /refused/requests", listRefusedRequests, "hook", "since", "until", "limit")
	InstanceEndpoints.Handle("GET /refused/requests/{id}", showRefusedRequest)
}

// listRefused lists the kinds of requests that became no run, the last seen first. An empty hook is the one of names that no
// hook has.
func listRefused(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	selects, limit, err := parseRefusedQuery(r.URL.Query())
	if err != nil {
		return err
	}
	kinds := in.Refused.List(r.Context(), func(kind *refused.Requests) bool {
		return selects(kind.Last.Hook, kind.LastAt)
	}, limit)
	return writeJSON(w, http.StatusOK, api.RefusedList{Refused: api.ShowAll(kinds, func(kind refused.Requests) api.Refused {
		return kind.Shown()
	})})
}

// parseRefusedQuery reads which requests are asked for: those of a hook, and of a time.
func parseRefusedQuery(params url.Values) (selects func(hook string, at time.Time) bool, limit int, err error) {
	if limit, err = parseLimit(params); err != nil {
		return nil, 0, err
	}
	since, until, err := parsePeriod(params, time.Now())
	if err != nil {
		return nil, 0, err
	}
	return func(hook string, at time.Time) bool {
		return (!params.Has("hook") || hook == params.Get("hook")) && !at.Before(since) && (until.IsZero() || at.Before(until))
	}, limit, nil
}

// listRefusedRequests lists the requests that are kept, the latest first. There are none for whoever sees no texts in lists.
func listRefusedRequests(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	selects, limit, err := parseRefusedQuery(r.URL.Query())
	if err != nil {
		return err
	}
	shown := api.RefusedRequestList{Requests: []api.RefusedRequest{}, KeptSeconds: int(in.Refused.Keeps().Seconds())}
	if !callerFrom(r).HideTexts {
		found := in.Refused.Requests(r.Context(), func(kept *refused.Kept) bool { return selects(kept.Hook, kept.At) }, limit)
		shown.Requests = api.ShowAll(found, func(kept refused.Kept) api.RefusedRequest { return kept.Shown().RefusedRequest })
	}
	return writeJSON(w, http.StatusOK, shown)
}

// showRefusedRequest shows a request that is kept.
func showRefusedRequest(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if !callerFrom(r).HideTexts {
		found := in.Refused.Requests(r.Context(), func(kept *refused.Kept) bool { return kept.ID == id }, 1)
		if len(found) > 0 {
			return writeJSON(w, http.StatusOK, found[0].Shown())
		}
	}
	why := "requests are kept for " + text.ShortDuration(in.Refused.Keeps()) + " (keep_refused)"
	if in.Refused.Keeps() == 0 {
		why = "none are kept: set keep_refused"
	}
	return api.Errorf(http.StatusNotFound, "there is no refused request %q; %s", text.Abridge(id), why)
}
