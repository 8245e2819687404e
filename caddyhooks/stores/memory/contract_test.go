package memory

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/storetest"
)

func TestMemoryKeepsTheContractOfStores(t *testing.T) {
	storetest.Run(t, newMemory, storetest.Options{
		Join:      func(_ *testing.T, s engine.Store) engine.Store { return s.(*store).Data.Store() },
		SetClock:  func(_ *testing.T, s engine.Store, d time.Duration) { s.(*store).clock.Set(d) },
		Advance:   func(_ *testing.T, s engine.Store, d time.Duration) { s.(*store).clock.Advance(d) },
		IDsAscend: true, ClaimsAtOnce: true,
	})
}
