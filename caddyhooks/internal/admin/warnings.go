package admin

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /warnings", listWarnings)
	InstanceEndpoints.Handle("PUT /warnings/{code}/dismissal", putDismissal)
	InstanceEndpoints.Handle("DELETE /warnings/{code}/dismissal", deleteDismissal)
}

func listWarnings(in *service.Instance, w http.ResponseWriter, _ *http.Request) error {
	active := in.Active.Load()
	shown := api.WarningList{Warnings: []api.Warning{}}
	for _, warning := range active.Warnings {
		shown.Warnings = append(shown.Warnings, newWarningJSON(active, warning))
	}
	return writeJSON(w, http.StatusOK, shown)
}

func newWarningJSON(active *settings.Active, w settings.Warning) api.Warning {
	problem, advice := w.Split()
	shown := api.Warning{Code: w.Code(), Setting: w.Part.String(), Problem: oneline.Of(problem, maxDetail),
		Advice: oneline.Of(advice, maxDetail),
		Link:   settingsLink(w.Part.String())}
	if d := active.Settings.FindDismissal(shown.Code); d != nil {
		shown.Dismissal = &api.Dismissal{Reason: d.Reason, By: d.By, At: text.JSONTime(d.At)}
	}
	return shown
}

// findWarning returns the warning that a request names.
func findWarning(active *settings.Active, r *http.Request) (settings.Warning, error) {
	code := r.PathValue("code")
	for _, w := range active.Warnings {
		if w.Code() == code {
			return w, nil
		}
	}
	return settings.Warning{}, api.Errorf(http.StatusNotFound, "there is no warning %q now; GET /hooks/warnings lists all", text.Abridge(code))
}

var dismissalFields = strictjson.Members("reason")

// parseDismissal reads why a warning is dismissed.
func parseDismissal(body []byte) (reason string, err error) {
	obj, err := strictjson.ParseObject(body, dismissalFields)
	if err != nil {
		return "", api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return "", settings.FieldErrorf(text.Abridge(obj.Other[0]), "is unknown here; use reason")
	}
	f := intake.RequestFields{Members: obj.Members, Selected: dismissalFields}
	return f.Text("reason"), f.Err
}

func putDismissal(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	reason, err := parseDismissal(body)
	if err != nil {
		return changeError(err)
	}
	warning, err := findWarning(in.Active.Load(), r)
	if err != nil {
		return err
	}
	who := callerFrom(r)
	d, err := settings.NewDismissal(warning, reason, who.By, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return changeError(err)
	}
	active, err := in.Service.Change(originOf(who), func(in *service.Instance, live *settings.Settings) error {
		if err := live.Dismiss(d, in.Active.Load().Warnings); err != nil {
			return api.Conflictf("%v", err)
		}
		return nil
	})
	if err != nil {
		return changeError(err)
	}
	return writeJSON(w, http.StatusOK, newWarningJSON(active, warning))
}

func deleteDismissal(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	found := false
	_, err := in.Service.Change(originOf(callerFrom(r)), func(_ *service.Instance, live *settings.Settings) error {
		found = live.Restore(r.PathValue("code"))
		return nil
	})
	switch {
	case err != nil:
		return changeError(err)
	case !found:
		return api.Errorf(http.StatusNotFound, "no warning %q is dismissed; GET /hooks/warnings lists all", text.Abridge(r.PathValue("code")))
	default:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// warningItems tells which settings are probably mistakes, and which warnings were dismissed. That there is no token is told when
// webhooks are off.
func warningItems(active *settings.Active) (found []api.AttentionItem, dismissed []api.Warning) {
	for _, w := range active.Warnings {
		shown := newWarningJSON(active, w)
		switch {
		case shown.Setting == "enabled" && !active.On:
		case shown.Dismissal != nil:
			dismissed = append(dismissed, shown)
		default:
			found = append(found, api.AttentionItem{Kind: "warning", Severity: api.SeverityLate, Link: shown.Link, Code: shown.Code,
				Text: oneline.Of(shown.Setting+": "+shown.Problem, maxDetail), Detail: shown.Advice})
		}
	}
	return found, dismissed
}
