package service

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// HistoryInForce is how long the engine keeps messages at most.
func (in *Instance) HistoryInForce() time.Duration {
	active := in.Active.Load()
	switch {
	case active == nil: // it is just being started
		return 0
	case active.History == 0:
		return engine.NoHistory
	default:
		return active.History
	}
}
