package caddyhooks

import "net/http"

func init() {
	globalEndpoints.handle("GET /instances", listInstances)
}

func listInstances(_ *instance, w http.ResponseWriter, _ *http.Request) error {
	return writeAdminJSON(w, http.StatusOK, running.names())
}
