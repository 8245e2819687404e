//go:build real

package postgres

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/storetest"
)

func TestPostgresDoesAsTheStoreInMemory(t *testing.T) {
	dsn, used := pgtest.Shared(t).DSN("postgres"), new(usedSchemas)
	storetest.RunAgainst(t, func() storetest.Model { return memory.New() },
		func(t *testing.T) engine.Store { return used.open(t, dsn) }, contractOptions(dsn))
}
