package caddyhooks

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// historyInForce is how long the engine keeps messages at most.
func (in *instance) historyInForce() time.Duration {
	active := in.active.Load()
	switch {
	case active == nil: // it is just being started
		return 0
	case active.History == 0:
		return engine.NoHistory
	default:
		return active.History
	}
}
