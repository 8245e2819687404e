package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /runners", listRunners)
	InstanceEndpoints.Handle("POST /runners/{name}/try", tryRunner)
}

const (
	// tryTime is how long a runner has for the turn of a try.
	tryTime = 30 * time.Second
	// maxTryText bounds the answer to a try, in bytes.
	maxTryText = 4 << 10
)

func listRunners(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	hideTexts := callerFrom(r).HideTexts
	return writeJSON(w, http.StatusOK, api.ShowAll(in.Service.Engine.RunnerStates(), func(state engine.RunnerState) api.Runner {
		return newRunnerJSON(in, state, hideTexts)
	}))
}

func newRunnerJSON(in *service.Instance, state engine.RunnerState, hideTexts bool) api.Runner {
	runner, configured := in.EngineConfig.Runners[state.Name]
	shown := api.Runner{
		Name: state.Name, Module: kindOf(runner), Gone: !configured, Default: state.Name == in.EngineConfig.DefaultRunner,
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
func tryRunner(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if _, ok := in.EngineConfig.Runners[name]; !ok {
		return noRunner(in, name)
	}
	// The connection is watched only after the body was read, and not beyond the time that the admin endpoint has for reading.
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, api.MaxBody))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	ctx, stop := context.WithTimeout(r.Context(), tryTime)
	defer stop()
	began := time.Now()
	reply, err := in.Service.Engine.Try(ctx, name)
	took := time.Since(began)
	var gone *engine.RunnerGoneError
	switch {
	case errors.As(err, &gone): // by a reload
		return noRunner(in, name)
	case errors.Is(err, engine.ErrTryUnderWay):
		return api.Conflictf("runner %s is being tried by somebody else; try again when that is over", name)
	}
	answer := api.RunnerTry{OK: err == nil, Seconds: text.JSONSeconds(took)}
	fields := []zap.Field{zap.String("runner", name), zap.Bool("ok", err == nil), zap.Duration("took", took),
		zap.Stringer("by", callerFrom(r))}
	switch {
	case err != nil:
		answer.Error = err.Error()
		fields = append(fields, panics.Field(err))
	case !callerFrom(r).HideTexts:
		if answer.Text = text.Beginning(strings.ToValidUTF8(reply.Text, "\ufffd"), maxTryText); len(answer.Text) < len(reply.Text) {
			answer.Text += "…"
		}
	}
	in.Log.Info("runner tried", fields...)
	return writeJSON(w, http.StatusOK, answer)
}

// noRunner says that there is no runner of a name.
func noRunner(in *service.Instance, name string) error {
	return api.Errorf(http.StatusNotFound, "there is no runner %q; there %s", text.Abridge(name), settings.AreListed(in.Rules.Runners.Names))
}

// checkRunner refuses to start a run where nobody would carry it out.
func checkRunner(in *service.Instance, what string) error {
	if err := in.Rules.Runners.Check(); err != nil {
		return api.Conflictf("%s %v", what, err)
	}
	return nil
}
