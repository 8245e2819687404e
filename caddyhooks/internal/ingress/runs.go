package ingress

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// serveRun serves the run API: GET <id>, GET <id>/events and POST <id>/cancel.
func (q *hookRequest) serveRun(w http.ResponseWriter, r *http.Request, active *settings.Active, path string) error {
	in := q.in
	id, cancel := strings.CutSuffix(path, "/cancel")
	events := false
	if !cancel {
		id, events = strings.CutSuffix(path, "/events")
	}
	if id == "" || strings.Contains(id, "/") {
		return errNoRunPath
	}
	method := http.MethodGet
	if cancel {
		method = http.MethodPost
	}
	if r.Method != method {
		return &api.Error{Status: http.StatusMethodNotAllowed, Header: [2]string{"Allow", method},
			Message: "A run is looked up with GET, and cancelled with POST below it."}
	}
	if cancel {
		// A token that was revoked on another node must not cancel anything.
		active = in.UpToDate(r.Context(), active)
	}
	if err := active.Bearer.Authenticate(&auth.Request{Header: r.Header, Now: time.Now()}); err != nil {
		return err
	}
	if events {
		return q.serveRunEvents(w, r, active, id)
	}
	status := http.StatusOK
	var record *engine.Record
	var err error
	if cancel {
		status, record, err = in.CancelRun(r.Context(), id, service.CallerOf("the run API", intake.ClientAddress(r)))
	} else {
		var wait time.Duration
		if wait, err = parseWait(r.URL.Query().Get("wait")); err != nil {
			return err
		}
		record, err = in.Service.Engine.Find(r.Context(), id, wait)
	}
	if err != nil {
		return runError(in, err)
	}
	q.answered = status
	WriteJSON(w, status, api.NewRun(record))
	return nil
}

// runError is an error of finding or cancelling a run, in the shape of the run API.
func runError(in *service.Instance, err error) error {
	var ended *service.RunEndedError
	switch {
	case errors.As(err, &ended):
		return &api.Error{Status: http.StatusConflict, Message: "The run has ended already: it is " + string(ended.Status) + "."}
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, engine.ErrStopping), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, engine.ErrUnreachable):
		return api.Busy(5*time.Second, "The store cannot be reached right now; try again in a moment.", "the store cannot be reached")
	}
	var broken *engine.StoreBrokenError
	if !errors.As(err, &broken) { // which the engine has logged
		in.Log.Error("the store failed", panics.Field(err))
	}
	return &api.Error{Status: http.StatusServiceUnavailable, RetryAfter: 5 * time.Second, Message: "The store cannot be asked about the " +
		"run right now."}
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
		return 0, &api.Error{Status: http.StatusBadRequest, Message: "The parameter wait must be a duration of up to 5m, such as 30s."}
	}
	return wait, nil
}
