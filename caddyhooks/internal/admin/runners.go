package admin

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

// checkRunner refuses to start a run where nobody would carry it out.
func checkRunner(in *service.Instance, what string) error {
	if err := in.Rules.Runners.Check(); err != nil {
		return api.Conflictf("%s %v", what, err)
	}
	return nil
}
