package caddyhooks

import (
	"context"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func init() {
	instanceEndpoints.handle("GET /changes", (*instance).listChanges, "limit", "cursor")
}

// listChanges lists changes of the live settings, the newest first.
func (in *instance) listChanges(w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), storePatience)
	defer stop()
	page, next, err := in.service.settings.Changes(ctx, limit, params.Get("cursor"))
	if err != nil {
		return listError(err)
	}
	shown := make([]api.Change, len(page)) // an empty page is [] in JSON
	for i, saved := range page {
		if shown[i], err = newChangeJSON(saved); err != nil {
			return err
		}
	}
	return writeAdminJSON(w, http.StatusOK, struct {
		Changes []api.Change `json:"changes"`
		Cursor  string       `json:"cursor,omitempty"`
	}{shown, next})
}
