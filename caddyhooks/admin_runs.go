package caddyhooks

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func init() {
	instanceEndpoints.handle("GET /runs", (*instance).listRuns)
	instanceEndpoints.handle("GET /runs/{id}", (*instance).serveRun)
	instanceEndpoints.handle("POST /runs/{id}/cancel", (*instance).serveCancel)
}

// listRuns lists runs, the newest first.
func (in *instance) listRuns(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	query := engine.Query{
		Hook: params.Get("hook"), ChatID: params.Get("chatId"), Status: engine.Status(params.Get("status")),
		Cursor: params.Get("cursor"),
	}
	statuses := []engine.Status{"", engine.Queued, engine.Running, engine.Completed, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired}
	if !slices.Contains(statuses, query.Status) {
		return apiError(http.StatusBadRequest, "status must be one of queued, running, completed, failed, timed_out, cancelled and expired")
	}
	var err error
	if query.Limit, err = parseLimit(params); err != nil {
		return err
	}
	records, next, err := in.service.engine.List(r.Context(), query)
	if err != nil {
		return listError(err)
	}
	return writeAdminJSON(w, http.StatusOK, struct {
		Runs   []runJSON `json:"runs"`
		Cursor string    `json:"cursor,omitempty"` // of the next page, which there may be even if this one is short
	}{showAll(records, newRunSummary), next})
}

func (in *instance) serveRun(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	record, err := in.service.engine.Find(r.Context(), id, 0)
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, http.StatusOK, newRunDetails(record))
}

// runDetails is a run as operators see it, with what it was told.
type runDetails struct {
	runJSON
	Message    *string         `json:"message,omitempty"`
	MessageCut bool            `json:"messageCut,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
	AgainOf    string          `json:"againOf,omitempty"`
	AgainAs    string          `json:"againAs,omitempty"`
}

func newRunDetails(r *engine.Record) runDetails {
	details := runDetails{runJSON: newRunJSON(r), AgainOf: r.Run.AgainOf, AgainAs: r.AgainAs}
	if !r.Status.Ended() || r.Kept != engine.KeptNothing {
		details.Message, details.Metadata, details.Schema = &r.Run.Message, r.Run.Metadata, r.Run.Schema
		details.MessageCut = r.Kept == engine.KeptCut
	}
	return details
}

func (in *instance) serveCancel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	status, run, err := in.cancelRun(r.Context(), id)
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, status, run)
}

// adminRunError is an error of findRun or cancelRun in Caddy's admin shape.
func adminRunError(id string, err error) error {
	var ended *runEndedError
	switch {
	case errors.As(err, &ended):
		return conflictf("%w", err)
	case errors.Is(err, engine.ErrNotFound):
		return apiError(http.StatusNotFound, "there is no run %q", id)
	case errors.Is(err, engine.ErrStopping):
		return apiError(http.StatusServiceUnavailable, "the service is shutting down")
	default:
		return err
	}
}
