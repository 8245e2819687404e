package caddyhooks

import (
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	instanceEndpoints.handle("GET /settings", (*instance).serveSettings)
	instanceEndpoints.handle("PATCH /settings", (*instance).patchSettings)
}

func (in *instance) serveSettings(w http.ResponseWriter, _ *http.Request) error {
	return writeAdminJSON(w, http.StatusOK, in.showSettings())
}

func (in *instance) patchSettings(w http.ResponseWriter, r *http.Request) error {
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	patch, err := strictjson.ParseObject(body, selectedSettings)
	if err != nil {
		return apiError(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if patch.Other != nil {
		return changeError(unknownSetting(*patch.Other))
	}
	err = in.service.change(originOf(callerFrom(r)), func(in *instance, live *Settings) error {
		for _, member := range patch.Members {
			if err := in.patch(live, member); err != nil {
				return err
			}
		}
		in.unsetPinned(live)
		return nil
	})
	if err != nil {
		return changeError(err)
	}
	return in.serveSettings(w, r)
}
