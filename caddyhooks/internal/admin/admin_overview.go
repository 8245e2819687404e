package admin

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /overview", serveOverview, "range")
}

// serveOverview answers with the figures, plots and hooks of a range of time, and with what needs an operator.
func serveOverview(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := cmp.Or(r.URL.Query().Get("range"), api.OverviewRanges[0].Name)
	var names []string
	for _, known := range api.OverviewRanges {
		if known.Name == name {
			overview, err := overview(in, r.Context(), known, time.Now(), callerFrom(r).HideTexts)
			if err != nil {
				return err
			}
			return writeJSON(w, http.StatusOK, overview)
		}
		names = append(names, known.Name)
	}
	return api.Errorf(http.StatusBadRequest, "range must be one of %s", text.List(names))
}
