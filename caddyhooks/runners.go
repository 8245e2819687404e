package caddyhooks

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// checkRunner refuses to start a run where nobody would carry it out.
func (in *instance) checkRunner(what string) error {
	if err := in.Rules.Runners.Check(); err != nil {
		return api.Conflictf("%s %v", what, err)
	}
	return nil
}
