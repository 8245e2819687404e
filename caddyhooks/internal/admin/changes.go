package admin

import (
	"context"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	InstanceEndpoints.Handle("GET /changes", listChanges, "limit", "cursor")
}

// listChanges lists changes of the live settings, the newest first.
func listChanges(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), service.StorePatience)
	defer stop()
	page, next, err := in.Service.Settings.Changes(ctx, limit, params.Get("cursor"))
	if err != nil {
		return listError(err)
	}
	shown := make([]api.Change, len(page)) // an empty page is [] in JSON
	for i, saved := range page {
		if shown[i], err = service.NewChangeJSON(saved); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, api.ChangesPage{Changes: shown, Cursor: next})
}
