package admin

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func originOf(c Caller) api.Origin { return api.Origin{By: c.By, Via: c.Via, Address: c.Address} }
