package admin

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("POST /runs/{id}/again", serveAgain)
}

// serveAgain starts a run again. It works while webhooks are off, since it comes from the operator.
func serveAgain(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	how, err := readAgain(r, "deliver", "chatId")
	if err != nil {
		return changeError(err)
	}
	if err := checkRunner(in, "a run"); err != nil {
		return err
	}
	id := r.PathValue("id")
	run, err := in.Service.Engine.RunAgain(r.Context(), id, how)
	if err != nil {
		return againError(w, id, err)
	}
	return writeJSON(w, http.StatusAccepted, api.Started{RunID: run.ID, ChatID: run.ChatID})
}

// parseOn reads a parameter that is 1 or not there.
func parseOn(params url.Values, name string) (bool, error) {
	if params.Has(name) && params.Get(name) != "1" {
		return false, api.Errorf(http.StatusBadRequest, "%s must be 1, or be left out", name)
	}
	return params.Has(name), nil
}

// readAgain reads the body of a request to run something again, which may be empty. allowed are the members it may have.
func readAgain(r *http.Request, allowed ...string) (engine.Again, error) {
	body, err := readBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return engine.Again{}, err
	}
	return parseAgain(body, allowed)
}

var againFields = strictjson.Members("deliver", "chatId")

func parseAgain(body []byte, allowed []string) (how engine.Again, err error) {
	obj, err := strictjson.ParseObject(body, againFields)
	if err != nil {
		return how, api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	unknown := obj.Other
	for _, member := range obj.Members {
		if !slices.Contains(allowed, member.Key) {
			unknown = append(unknown, member.Key)
		}
	}
	if unknown != nil {
		return how, settings.FieldErrorf(text.Abridge(unknown[0]), "is unknown here; use %s", strings.Join(allowed, " and "))
	}
	f := intake.RequestFields{Members: obj.Members, Selected: againFields}
	how = engine.Again{Deliver: f.Boolean("deliver"), ChatID: f.Text("chatId")}
	if f.Err != nil {
		return how, f.Err
	}
	return how, settings.CheckChatID(how.ChatID)
}

// againError is the answer to a run that cannot be started again.
func againError(w http.ResponseWriter, id string, err error) error {
	var not *engine.NotAgainError
	switch {
	case errors.As(err, &not):
		return api.Conflictf("%w", err)
	case errors.Is(err, engine.ErrQueueFull), errors.Is(err, engine.ErrChatFull):
		w.Header().Set("Retry-After", api.RetryAfterSeconds(5*time.Second))
		return api.Errorf(http.StatusServiceUnavailable, "too many runs are waiting: %w", err)
	default:
		return runError(id, err)
	}
}
