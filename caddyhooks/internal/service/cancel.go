package service

import (
	"context"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// CancelRun cancels a run for both APIs. The status is 200 if the run is cancelled, and 202 if its runner was told and has
// not stopped yet. A run that ended otherwise before is a runEndedError. by is for operators.
func (in *Instance) CancelRun(ctx context.Context, id, by string) (status int, record *engine.Record, err error) {
	record, err = in.Service.Engine.Cancel(ctx, id, by)
	switch {
	case err != nil:
		return 0, nil, err
	case record.Status == engine.Cancelled:
		return http.StatusOK, record, nil
	case record.Status.Ended():
		return 0, nil, &RunEndedError{record.Status}
	default:
		return http.StatusAccepted, record, nil
	}
}

// CallerOf says to operators who called an API, as far as that is known.
func CallerOf(api, address string) string {
	if address == "" {
		return api
	}
	return api + ", from " + address
}

// RunEndedError says that a run cannot be cancelled any more.
type RunEndedError struct{ Status engine.Status }

func (e *RunEndedError) Error() string {
	return "the run has ended already: it is " + string(e.Status)
}
