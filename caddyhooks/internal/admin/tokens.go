package admin

import (
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	InstanceEndpoints.Handle("GET /tokens", listTokens)
}

// listTokens tells when each token and secret was set, and when it was last used.
func listTokens(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	tokens, err := in.Tokens(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.TokenList{Tokens: tokens})
}
