package caddyhooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /runners", (*instance).listRunners)
	instanceEndpoints.handle("POST /runners/{name}/try", (*instance).tryRunner)
}

const (
	// tryTime is how long a runner has for the turn of a try.
	tryTime = 30 * time.Second
	// maxTryText bounds the answer to a try, in bytes.
	maxTryText = 4 << 10
)

func (in *instance) listRunners(w http.ResponseWriter, r *http.Request) error {
	hideTexts := callerFrom(r).hideTexts
	return writeAdminJSON(w, http.StatusOK, api.ShowAll(in.service.engine.RunnerStates(), func(state engine.RunnerState) api.Runner {
		return in.newRunnerJSON(state, hideTexts)
	}))
}

func (in *instance) newRunnerJSON(state engine.RunnerState, hideTexts bool) api.Runner {
	runner, configured := in.engineConfig.Runners[state.Name]
	shown := api.Runner{
		Name: state.Name, Module: kindOf(runner), Gone: !configured, Default: state.Name == in.engineConfig.DefaultRunner,
		State: state.State, InFlight: state.InFlight, LastErrorAt: text.JSONTime(state.LastErrorAt), LastOK: text.JSONTime(state.LastOK),
	}
	if preset, ok := runner.(interface{ PresetName() string }); ok {
		shown.Preset = preset.PresetName()
	}
	if located, ok := runner.(interface{ Address() string }); ok {
		shown.Address = located.Address()
	}
	for _, tier := range settings.Tiers {
		if in.Rules.Runners.ByTier[tier] == state.Name {
			shown.Tiers = append(shown.Tiers, tier)
		}
	}
	if !hideTexts {
		shown.LastError = state.LastError // which may quote what the agent answered
	}
	return shown
}

// tryRunner has a runner carry out one turn, and answers what came of it. A failure is an answer, too: that the runner does not
// work is what the operator wanted to know.
func (in *instance) tryRunner(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if _, ok := in.engineConfig.Runners[name]; !ok {
		return in.noRunner(name)
	}
	// The connection is watched only after the body was read, and not beyond the time that the admin endpoint has for reading.
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, api.MaxBody))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	ctx, stop := context.WithTimeout(r.Context(), tryTime)
	defer stop()
	began := time.Now()
	reply, err := in.service.engine.Try(ctx, name)
	took := time.Since(began)
	var gone *engine.RunnerGoneError
	switch {
	case errors.As(err, &gone): // by a reload
		return in.noRunner(name)
	case errors.Is(err, engine.ErrTryUnderWay):
		return api.Conflictf("runner %s is being tried by somebody else; try again when that is over", name)
	}
	answer := api.RunnerTry{OK: err == nil, Seconds: text.JSONSeconds(took)}
	fields := []zap.Field{zap.String("runner", name), zap.Bool("ok", err == nil), zap.Duration("took", took), zap.Stringer("by", callerFrom(r))}
	switch {
	case err != nil:
		answer.Error = err.Error()
		fields = append(fields, engine.ErrorField(err))
	case !callerFrom(r).hideTexts:
		if answer.Text = text.Beginning(strings.ToValidUTF8(reply.Text, "\ufffd"), maxTryText); len(answer.Text) < len(reply.Text) {
			answer.Text += "…"
		}
	}
	in.log.Info("a runner was tried", fields...)
	return writeAdminJSON(w, http.StatusOK, answer)
}

// noRunner says that there is no runner of a name.
func (in *instance) noRunner(name string) error {
	return api.Errorf(http.StatusNotFound, "there is no runner %q; there %s", text.Abridge(name), settings.AreListed(in.Rules.Runners.Names))
}
