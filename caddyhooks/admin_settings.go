package caddyhooks

import (
	"errors"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	instanceEndpoints.handle("GET /settings", (*instance).serveSettings)
	instanceEndpoints.handle("PATCH /settings", (*instance).patchSettings)
}

func (in *instance) serveSettings(w http.ResponseWriter, _ *http.Request) error {
	return in.answerSettings(w, in.active.Load())
}

func (in *instance) answerSettings(w http.ResponseWriter, active *settings.Active) error {
	tag, err := in.etagOfSettings(active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	return writeAdminJSON(w, http.StatusOK, in.showSettings(active))
}

func (in *instance) patchSettings(w http.ResponseWriter, r *http.Request) error {
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	patch, err := strictjson.ParseObject(body, selectedSettings)
	if err != nil {
		return api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if patch.Other != nil {
		return changeError(unknownSetting(patch.Other[0]))
	}
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	var changed *instance // the newest one, which may be another
	active, err := in.service.change(originOf(callerFrom(r)), func(in *instance, live *settings.Settings) error {
		changed = in
		err := checkPreconditions(conditions, func() (string, error) { return in.etagOfSettings(in.active.Load()) })
		if err != nil {
			return err
		}
		for _, member := range patch.Members {
			if err := in.patch(live, member); err != nil {
				return err
			}
		}
		in.unsetPinned(live)
		return nil
	})
	if errors.Is(err, errPrecondition) {
		return in.preconditionError(r.Context(), "", "a setting or a hook")
	}
	if err != nil {
		return changeError(err)
	}
	return changed.answerSettings(w, active)
}
