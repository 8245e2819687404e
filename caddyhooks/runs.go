package caddyhooks

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// shownRun is a run as the API shows it.
type shownRun struct {
	Status         engine.Status   `json:"status"`
	RunID          string          `json:"runId"`
	ChatID         string          `json:"chatId"`
	Hook           string          `json:"hook"`
	Action         engine.Action   `json:"action"`
	Name           string          `json:"name,omitempty"`
	AcceptedAt     *time.Time      `json:"acceptedAt"`
	StartedAt      *time.Time      `json:"startedAt,omitempty"`
	FinishedAt     *time.Time      `json:"finishedAt,omitempty"`
	Attempts       int             `json:"attempts"`
	Reply          *string         `json:"reply,omitempty"`
	ErrorMessage   string          `json:"errorMessage,omitempty"`
	RepairAttempts int             `json:"repairAttempts,omitempty"`
	Deliveries     []shownDelivery `json:"deliveries,omitempty"`
}

func showRun(r *engine.Record) shownRun {
	shown := shownRun{
		Status: r.Status, RunID: r.Run.ID, ChatID: r.Run.ChatID, Hook: r.Run.Hook, Action: r.Run.Action, Name: r.Run.Name,
		AcceptedAt: showTime(r.Run.AcceptedAt), StartedAt: showTime(r.StartedAt), FinishedAt: showTime(r.FinishedAt),
		Attempts: r.Attempts, RepairAttempts: r.Outcome.Repairs,
	}
	switch {
	case r.Status == engine.Completed:
		reply := r.Outcome.Text
		if r.Outcome.JSON != nil {
			reply = string(r.Outcome.JSON)
		}
		shown.Reply = &reply
	case r.Status.Ended():
		shown.ErrorMessage = r.Outcome.Message
	}
	for _, d := range r.Deliveries {
		shown.Deliveries = append(shown.Deliveries, showDelivery(d))
	}
	return shown
}

// showListed is showRun without what a list does not have.
func showListed(r *engine.Record) shownRun {
	shown := showRun(r)
	shown.Reply = nil
	return shown
}

func showTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// serveRun answers requests about a run: GET <id> and POST <id>/cancel.
func (h *Handler) serveRun(w http.ResponseWriter, r *http.Request, v *view, path string) error {
	in := h.instance
	id, cancel := strings.CutSuffix(path, "/cancel")
	if id == "" || strings.Contains(id, "/") {
		return errNotFound
	}
	method := http.MethodGet
	if cancel {
		method = http.MethodPost
	}
	if r.Method != method {
		return &answer{status: http.StatusMethodNotAllowed, header: [2]string{"Allow", method},
			message: "A run is looked up with GET, and cancelled with POST below it."}
	}
	if err := in.authenticate(v.bearer, r, nil); err != nil {
		return err
	}
	if cancel {
		return in.cancelRun(w, r, id)
	}
	patience, err := parseWait(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	record, err := in.shared.engine.Find(r.Context(), id, patience)
	if err != nil {
		return in.runError(err)
	}
	writeJSON(w, http.StatusOK, showRun(record))
	return nil
}

func (in *instance) cancelRun(w http.ResponseWriter, r *http.Request, id string) error {
	record, err := in.shared.engine.Cancel(r.Context(), id)
	if err != nil {
		return in.runError(err)
	}
	switch {
	case record.Status == engine.Cancelled:
		writeJSON(w, http.StatusOK, showRun(record))
	case record.Status.Ended():
		return &answer{status: http.StatusConflict, message: "The run has ended already: it is " + string(record.Status) + "."}
	default:
		writeJSON(w, http.StatusAccepted, showRun(record)) // the runner was told, and has not let go yet
	}
	return nil
}

// runError is the answer when nothing can be said about a run.
func (in *instance) runError(err error) error {
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrStopping) || errors.Is(err, context.Canceled) {
		return err
	}
	in.log.Error("the store failed", zap.Error(err))
	return &answer{status: http.StatusServiceUnavailable, retryAfter: 5 * time.Second, message: "The store cannot be asked about the run right now."}
}

// maxWait bounds for how long a request is held that asks about a run.
const maxWait = 5 * time.Minute

// parseWait reads a duration as in 30s, or a number of seconds.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 16); numErr == nil {
		wait, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || wait < 0 || wait > maxWait {
		return 0, &answer{status: http.StatusBadRequest, message: "The parameter wait must be a duration of up to 5m, such as 30s."}
	}
	return wait, nil
}
