//go:build real

package postgres

import (
	"fmt"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Servers, pgbouncers and firewalls end connections that were idle for long.
func TestAConnectionThatEndedWhileItWasIdleIsNotLent(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	n, err := parseDSN(server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var c connections
	c.init(n)
	c.idleFor = 0
	defer c.close()
	for range 3 {
		conn, err := c.borrow(t.Context(), readCalls, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error(err)
		}
		id := conn.PgConn().PID()
		c.giveBack(conn)
		if !pgtest.Ask[bool](t, server, "postgres", fmt.Sprintf("SELECT pg_terminate_backend(%d, 60000)", id)) {
			t.Fatal("the server did not end the connection")
		}
	}
}
