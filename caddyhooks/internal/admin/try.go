package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func init() {
	InstanceEndpoints.Handle("POST /mappings/{name}/sign", signPayload, "headers", "query")
	InstanceEndpoints.Handle("POST /mappings/{name}/test", testHook, "headers", "query")
}

// hookInForce finds a custom hook.
func hookInForce(name string, active *settings.Active) (*settings.Hook, error) {
	if h := active.Hooks[name]; h != nil {
		return h, nil
	}
	return nil, noHookInForce(name, active)
}

// noHookInForce says why there is no hook of a name.
func noHookInForce(name string, active *settings.Active) error {
	if problem := active.Problems[settings.Part{Mapping: name}.String()]; problem != "" {
		return api.Errorf(http.StatusNotFound, "the hook %q is saved and left out: %s", name, problem)
	}
	return noMapping(name)
}

// signPayload signs a payload as the senders of a hook do.
func signPayload(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	h, err := hookInForce(r.PathValue("name"), in.Active.Load())
	if err != nil {
		return err
	}
	signer, ok := h.Auth.Verifier.(auth.Signer)
	if !ok && !h.Auth.Signs() {
		return api.Conflictf("requests to the hook %s are not signed: its authMode is %s", h.Name, h.Auth.Name)
	}
	req, err := readTestRequest(r)
	if err != nil {
		return err
	}
	called := ""
	if len(in.Urls) > 0 {
		called = in.Urls[0] + "/" + h.Name
		if query := r.URL.Query().Get("query"); query != "" {
			called += "?" + query
		}
	}
	signed := api.Signature{Headers: []auth.Header{}}
	var headers []auth.Header
	var address string
	if ok {
		headers, address = signer.Sign(&auth.Request{Header: req.Header, Query: req.Query, Body: req.Body, URL: func() string { return called },
			Now: time.Now()})
	}
	if len(headers) > 0 {
		last := headers[len(headers)-1]
		signed = api.Signature{Headers: headers, URL: address, Header: last.Name, Value: last.Value}
	}
	return writeJSON(w, http.StatusOK, signed)
}

// testHook starts a run of a hook as a request with this payload would, in a chat of its own, and sends nothing out. Headers, a
// line "Name: value" for each, and query are those of the request. It works while webhooks are off, since it comes from the operator.
func testHook(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	if _, err := hookInForce(r.PathValue("name"), in.Active.Load()); err != nil {
		return err
	}
	if err := checkRunner(in, "a test"); err != nil {
		return err
	}
	req, err := readTestRequest(r)
	if err != nil {
		return err
	}
	req.Log, req.Messages = in.Log, intake.MessageMemory{All: &in.Memory}
	defer req.Messages.Release()
	run, answered, err := submitTest(r.Context(), in, r.PathValue("name"), req)
	if err != nil {
		return testError(w, err)
	}
	in.Log.Info("hook tried", zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.Stringer("by", callerFrom(r)))
	return writeJSON(w, http.StatusAccepted, api.Tested{Started: api.Started{RunID: run.ID, ChatID: run.ChatID},
		Channel: answered.Channel, To: answered.To})
}

// readTestRequest reads the request that is signed, or that a test stands for.
func readTestRequest(r *http.Request) (*intake.Request, error) {
	payload, err := readBody(r)
	if err != nil {
		return nil, err
	}
	parameters := r.URL.Query()
	header := make(http.Header)
	for line := range strings.Lines(parameters.Get("headers")) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, api.Errorf(http.StatusBadRequest, "headers must be lines as in X-GitHub-Event: issues")
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	query, _ := url.ParseQuery(parameters.Get("query")) // what cannot be read is left out, as in requests
	return &intake.Request{Header: header, Values: query, Body: payload}, nil
}

// submitTest starts a run under the settings in force, whoever changes them meanwhile. answered has the chat that the answer would go to.
func submitTest(
	ctx context.Context, in *service.Instance, name string, req *intake.Request,
) (run *engine.Run, answered engine.Delivery, err error) {
	active := in.Active.Load()
	for checks := 1; ; checks++ {
		h, err := hookInForce(name, active)
		if err != nil {
			return nil, answered, err
		}
		if run, err = newTest(active, h, req); err == nil {
			answered.Channel, answered.To = run.Channel, run.To
			run.Channel, run.To = "", ""
			err = in.Service.Engine.Submit(ctx, run, active.Revision)
		}
		if !errors.Is(err, engine.ErrSettingsChanged) || checks == service.MaxChecks {
			return run, answered, err
		}
		active = in.UpToDate(ctx, active)
	}
}

// newTest makes the run of a test. The caller takes the channel out of it.
func newTest(active *settings.Active, h *settings.Hook, req *intake.Request) (*engine.Run, error) {
	if most := h.MaxPayload(active); int64(len(req.Body)) > most {
		return nil, api.Errorf(http.StatusRequestEntityTooLarge, "the payload is larger than maxPayloadSize, which is %d bytes", most)
	}
	runs, err := intake.Runs(active, h.Name, h, req)
	if err != nil {
		return nil, err
	}
	run := runs[0]
	run.Test = true
	run.ChatID, run.NewChat = "test:"+h.Name, false
	run.Sync, run.CallbackURL, run.Gates, run.Replaces = false, "", nil, false
	run.History = active.HistoryOf(h)
	return run, nil
}

// testError is the answer to a test that became no run.
func testError(w http.ResponseWriter, err error) error {
	var refused *api.Error
	var ignored *intake.IgnoredError
	var challenge *intake.ChallengeError
	switch {
	case errors.As(err, &refused):
		return api.Errorf(refused.Status, "%s", refused.Message)
	case errors.As(err, &ignored):
		return api.Conflictf("the hook ignores this payload: %s", ignored.Condition)
	case errors.As(err, &challenge):
		return api.Conflictf("with this payload the sender tries out whether the hook is there, and no run comes of it")
	}
	return againError(w, "", changeError(err))
}
