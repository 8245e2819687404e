package bolt

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/storetest"
)

func TestBoltKeepsTheContractOfStores(t *testing.T) {
	storetest.Run(t, openForContract, contractOptions)
}

func TestBoltDoesAsTheStoreInMemory(t *testing.T) {
	storetest.RunAgainst(t, func() storetest.Model { return memory.New() }, openForContract, contractOptions)
}

func openForContract(t *testing.T) engine.Store {
	return newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
}

var contractOptions = storetest.Options{
	ClaimsAtOnce: true,
	Reopen: func(t *testing.T, s engine.Store) engine.Store {
		old := s.(*store)
		path := old.db.Path()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return newBoltAt(t, path, old.clock)
	},
	Join:      func(_ *testing.T, s engine.Store) engine.Store { return s.(*store).Store() },
	Advance:   func(_ *testing.T, s engine.Store, d time.Duration) { s.(*store).clock.Advance(d) },
	SetClock:  func(_ *testing.T, s engine.Store, d time.Duration) { s.(*store).clock.Set(d) },
	IDsAscend: true,
}
