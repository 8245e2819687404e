package caddyhooks

import (
	"net/http"
	"slices"
)

func init() {
	globalEndpoints.handle("GET /instances", listInstances)
}

func listInstances(_ *instance, w http.ResponseWriter, r *http.Request) error {
	return writeAdminJSON(w, http.StatusOK, callerFrom(r).visible(running.names()))
}

// visible are the instances among these that a caller may see.
func (c caller) visible(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !c.maySee(name) })
}
