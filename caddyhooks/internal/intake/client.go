package intake

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// ClientAddress is the address of the caller, "" if it is unknown. Behind a trusted proxy it is the one that the proxy tells.
func ClientAddress(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}
