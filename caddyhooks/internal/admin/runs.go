package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /runs", listRuns, append(api.RunFilters, "limit", "cursor")...)
	InstanceEndpoints.Handle("GET /runs/{id}", serveRun)
	InstanceEndpoints.Handle("POST /runs/{id}/cancel", serveCancel)
}

// listRuns lists runs, the newest first.
func listRuns(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	query, err := parseRunQuery(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	if searches(&query) {
		free, err := in.Service.Searches.Take(w, "searches")
		if err != nil {
			return err
		}
		defer free()
	}
	hideTexts := callerFrom(r).HideTexts
	query.Input, query.Deliveries = !hideTexts, true
	q, _ := parseSearch(r.URL.Query())
	records, next, err := listFound(r.Context(), in.Service.Engine, query, q)
	if err != nil {
		return listError(err)
	}
	page := api.RunsPage{Runs: api.NewRunSummaries(records, hideTexts), Cursor: next}
	if searches(&query) {
		page.SearchedTo = searchedTo(next)
	}
	return writeJSON(w, http.StatusOK, page)
}

func serveRun(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	record, err := in.Service.Engine.Find(r.Context(), id, 0)
	if err != nil {
		return runError(id, err)
	}
	return writeJSON(w, http.StatusOK, newRunDetails(in, record))
}

func newRunDetails(in *service.Instance, r *engine.Record) api.RunDetails {
	details := api.NewRunDetails(r)
	if details.Message != nil {
		details.KeptUntil = keptUntil(in, r)
	}
	return details
}

// keptUntil is when the message of a run that has ended is forgotten, as the settings are now.
func keptUntil(in *service.Instance, r *engine.Record) *time.Time {
	limits := engine.Limits{History: in.HistoryInForce()}
	keep := limits.HistoryOf(r.Run.History)
	if !r.Status.Ended() || keep <= 0 {
		return nil
	}
	return text.JSONTime(r.FinishedAt.Add(keep))
}

func serveCancel(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	status, record, err := in.CancelRun(r.Context(), id, callerFrom(r).String())
	if err != nil {
		return runError(id, err)
	}
	return writeJSON(w, status, newRunDetails(in, record))
}

// runError is an error of finding or cancelling a run, in Caddy's admin shape.
func runError(id string, err error) error {
	var ended *service.RunEndedError
	switch {
	case errors.As(err, &ended):
		return api.Conflictf("%w", err)
	case errors.Is(err, engine.ErrNotFound):
		return api.Errorf(http.StatusNotFound, "there is no run %q", text.Abridge(id))
	case errors.Is(err, engine.ErrStopping):
		return api.Errorf(http.StatusServiceUnavailable, "the service is shutting down")
	default:
		return err
	}
}
