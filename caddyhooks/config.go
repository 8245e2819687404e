package caddyhooks

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// The types of a configuration, for programs that write one.
type (
	Options     = service.Options
	Callbacks   = service.Callbacks
	Settings    = settings.Settings
	Mapping     = settings.Mapping
	AgentFields = settings.AgentFields
	Secrets     = settings.Secrets
	WakeFold    = settings.WakeFold
	Size        = caddyconf.Size
)
