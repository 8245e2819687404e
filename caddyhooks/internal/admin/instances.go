package admin

import (
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	GlobalEndpoints.Handle("GET /instances", listInstances)
}

func listInstances(_ *service.Instance, w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, http.StatusOK, callerFrom(r).Visible(service.Running.Names()))
}

// Visible are the instances among these that a caller may see.
func (c Caller) Visible(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !c.maySee(name) })
}
