package admin

import (
	"errors"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	InstanceEndpoints.Handle("GET /settings", serveSettings)
	InstanceEndpoints.Handle("PATCH /settings", patchSettings)
}

func serveSettings(in *service.Instance, w http.ResponseWriter, _ *http.Request) error {
	return answerSettings(in, w, in.Active.Load())
}

func answerSettings(in *service.Instance, w http.ResponseWriter, active *settings.Active) error {
	tag, err := etagOfSettings(in, active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	return writeJSON(w, http.StatusOK, in.ShowSettings(active))
}

func patchSettings(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	patch, err := strictjson.ParseObject(body, service.SelectedSettings)
	if err != nil {
		return api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if patch.Other != nil {
		return changeError(service.UnknownSetting(patch.Other[0]))
	}
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	var changed *service.Instance // the newest one, which may be another
	active, err := in.Service.Change(originOf(callerFrom(r)), func(in *service.Instance, live *settings.Settings) error {
		changed = in
		err := checkPreconditions(conditions, func() (string, error) { return etagOfSettings(in, in.Active.Load()) })
		if err != nil {
			return err
		}
		for _, member := range patch.Members {
			if err := in.Patch(live, member); err != nil {
				return err
			}
		}
		in.UnsetPinned(live)
		return nil
	})
	if errors.Is(err, errPrecondition) {
		return preconditionError(r.Context(), in, "", "a setting or a hook")
	}
	if err != nil {
		return changeError(err)
	}
	return answerSettings(changed, w, active)
}
