package caddyhooks

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func init() {
	instanceEndpoints.handle("GET /runs", (*instance).listRuns, "hook", "chatId", "status", "limit", "cursor")
	instanceEndpoints.handle("GET /runs/{id}", (*instance).serveRun)
	instanceEndpoints.handle("POST /runs/{id}/cancel", (*instance).serveCancel)
}

// listRuns lists runs, the newest first.
func (in *instance) listRuns(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	query := engine.Query{ChatID: params.Get("chatId"), Cursor: params.Get("cursor")}
	if hook := params.Get("hook"); hook != "" {
		query.Hooks = []string{hook}
	}
	status := engine.Status(params.Get("status"))
	if status != "" {
		query.Statuses = []engine.Status{status}
	}
	statuses := []engine.Status{"", engine.Queued, engine.Running, engine.Completed, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired}
	if !slices.Contains(statuses, status) {
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
		Runs   []runSummary `json:"runs"`
		Cursor string       `json:"cursor,omitempty"` // of the next page, which there may be even if this one is short
	}{showAll(records, newRunSummary), next})
}

// runSummary is a run as lists show it to operators, without its reply.
type runSummary struct {
	runJSON
	Client      string `json:"client,omitempty"`
	CancelledBy string `json:"cancelledBy,omitempty"`
	Reason      string `json:"reason,omitempty"`
	AgainOf     string `json:"againOf,omitempty"`
}

func newRunSummary(r *engine.Record) runSummary {
	summary := runSummary{newRunJSON(r), r.Run.Client, r.Outcome.Account.CancelledBy, r.Outcome.Account.Reason, r.Run.AgainOf}
	summary.Reply = nil
	return summary
}

func (in *instance) serveRun(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	record, err := in.service.engine.Find(r.Context(), id, 0)
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, http.StatusOK, newRunDetails(record))
}

// runDetails is a run as operators see it, with what it was told, where it came from and why it ended as it did.
type runDetails struct {
	runJSON
	Client           string   `json:"client,omitempty"`
	KeyHeader        string   `json:"keyHeader,omitempty"`
	CancelledBy      string   `json:"cancelledBy,omitempty"`
	Reason           string   `json:"reason,omitempty"`
	LastAnswer       string   `json:"lastAnswer,omitempty"`
	ValidationErrors []string `json:"validationErrors,omitempty"`

	Message    *string         `json:"message,omitempty"`
	MessageCut bool            `json:"messageCut,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
	AgainOf    string          `json:"againOf,omitempty"`
	AgainAs    string          `json:"againAs,omitempty"`
	Steps      []stepJSON      `json:"steps"`
}

func newRunDetails(r *engine.Record) runDetails {
	account := &r.Outcome.Account
	details := runDetails{
		runJSON: newRunJSON(r), Client: r.Run.Client, KeyHeader: r.Run.KeyHeader,
		CancelledBy: account.CancelledBy, Reason: account.Reason, LastAnswer: account.LastAnswer, ValidationErrors: account.ValidationErrors,
		AgainOf: r.Run.AgainOf, AgainAs: r.AgainAs,
		Steps: showAll(r.Steps, newStepJSON),
	}
	for i, d := range r.Deliveries {
		details.Deliveries[i].History = newAttemptsJSON(d.History)
	}
	if !r.Status.Ended() || r.Kept != engine.KeptNothing {
		details.Message, details.Metadata, details.Schema = &r.Run.Message, r.Run.Metadata, r.Run.Schema
		details.MessageCut = r.Kept == engine.KeptCut
	}
	return details
}

func (in *instance) serveCancel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	status, record, err := in.cancelRun(r.Context(), id, callerFrom(r).String())
	if err != nil {
		return adminRunError(id, err)
	}
	return writeAdminJSON(w, status, newRunDetails(record))
}

// adminRunError is an error of finding or cancelling a run, in Caddy's admin shape.
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
