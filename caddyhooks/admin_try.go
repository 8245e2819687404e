package caddyhooks

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

func init() {
	instanceEndpoints.handle("POST /mappings/{name}/sign", (*instance).signPayload)
	instanceEndpoints.handle("POST /mappings/{name}/test", (*instance).testHook)
}

// hookInForce finds a custom hook.
func (in *instance) hookInForce(name string, active *activeSettings) (*hook, error) {
	if h := active.hooks[name]; h != nil {
		return h, nil
	}
	return nil, in.noHookInForce(name, active)
}

// noHookInForce says why there is no hook of a name.
func (in *instance) noHookInForce(name string, active *activeSettings) error {
	if problem := active.problems[part{mapping: name}.String()]; problem != "" {
		return apiError(http.StatusNotFound, "the hook %q is saved and left out: %s", name, problem)
	}
	return noMapping(name)
}

// signPayload signs a payload as the senders of a hook do.
func (in *instance) signPayload(w http.ResponseWriter, r *http.Request) error {
	h, err := in.hookInForce(r.PathValue("name"), in.active.Load())
	if err != nil {
		return err
	}
	signer, ok := h.auth.verifier.(auth.Signer)
	if !ok {
		return conflictf("requests to the hook %s are not signed: its authMode is %s", h.Name, h.auth.name)
	}
	payload, err := readAdminBody(r)
	if err != nil {
		return err
	}
	header, value := signer.Sign(payload, time.Now())
	return writeAdminJSON(w, http.StatusOK, struct {
		Header string `json:"header"`
		Value  string `json:"value"`
	}{header, value})
}

// testHook starts a run of a hook as a request with this payload would, in a chat of its own, and sends nothing out. It works
// while webhooks are off, since it comes from the operator.
func (in *instance) testHook(w http.ResponseWriter, r *http.Request) error {
	if _, err := in.hookInForce(r.PathValue("name"), in.active.Load()); err != nil {
		return err
	}
	payload, err := readAdminBody(r)
	if err != nil {
		return err
	}
	run, err := in.submitTest(r.Context(), r.PathValue("name"), payload)
	if err != nil {
		return testError(w, err)
	}
	in.log.Info("a hook is tried out", zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.Stringer("by", callerFrom(r)))
	return writeAdminJSON(w, http.StatusAccepted, struct {
		RunID  string `json:"runId"`
		ChatID string `json:"chatId"`
	}{run.ID, run.ChatID})
}

// submitTest starts a run under the settings in force, whoever changes them meanwhile.
func (in *instance) submitTest(ctx context.Context, name string, payload []byte) (*engine.Run, error) {
	active := in.active.Load()
	for checks := 1; ; checks++ {
		h, err := in.hookInForce(name, active)
		if err != nil {
			return nil, err
		}
		run, err := in.newTest(active, h, payload)
		if err == nil {
			err = in.service.engine.Submit(ctx, run, active.revision)
		}
		if !errors.Is(err, engine.ErrSettingsChanged) || checks == maxChecks {
			return run, err
		}
		active = in.upToDate(ctx, active)
	}
}

// newTest makes the run of a test.
func (in *instance) newTest(active *activeSettings, h *hook, payload []byte) (*engine.Run, error) {
	if int64(len(payload)) > active.maxPayload {
		return nil, apiError(http.StatusRequestEntityTooLarge, "the payload is larger than maxPayloadSize, which is %d bytes", active.maxPayload)
	}
	run, err := in.intake(active, h.Name, h, payload)
	if err != nil {
		return nil, err
	}
	run.Test = true
	run.ChatID, run.NewChat = "test:"+h.Name, false
	run.Sync, run.CallbackURL, run.Channel, run.To = false, "", "", ""
	run.History = active.historyOf(h)
	return run, nil
}

// testError is the answer to a test that became no run.
func testError(w http.ResponseWriter, err error) error {
	var refused *httpError
	if errors.As(err, &refused) {
		return apiError(refused.status, "%s", refused.message)
	}
	return againError(w, "", changeError(err))
}
