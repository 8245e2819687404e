//go:build real

package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// A role that may not look into the sessions of others is told who has locked a table, too.
func TestLockedTableIsBlamedOnWhoeverHasIt(t *testing.T) {
	t.Parallel()
	server, role, other := pgtest.Shared(t), pgtest.NewName("locked_role_"), pgtest.NewName("locking_role_")
	server.Exec(t, "postgres", fmt.Sprintf("CREATE ROLE %s LOGIN; GRANT CREATE ON DATABASE postgres TO %s; CREATE ROLE %s LOGIN SUPERUSER", role, role, other))
	dsn, schema := server.DSN("postgres")+" user="+role, pgtest.NewName("locked_")
	running := openPostgresAt(t, dsn, schema)
	defer running.Close()
	mustReturn(t, running)
	admin, err := pgx.Connect(t.Context(), server.DSN("postgres")+" application_name=an-admin user="+other)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	if _, err := admin.Exec(t.Context(), "BEGIN; LOCK TABLE "+running.sql("@.queue")+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("a table of the schema %s is locked by an-admin (process %d, user %s)", schema, admin.PgConn().PID(), other)
	waitFor(t, "the running node knows who has the table", func() bool {
		_, _ = addTo(t.Context(), running, "waits")
		_, _, cause := running.Outage()
		return cause != nil && strings.HasSuffix(cause.Error(), want)
	})
	starting := mustOpenRelease(t, thisRelease, schema, false)
	if _, _, cause := starting.Outage(); cause == nil || !strings.HasSuffix(cause.Error(), want) {
		t.Errorf("the node that starts is unreachable because of %v", cause)
	}
	if _, err := admin.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	mustReturn(t, running)
	mustReturn(t, starting)
}
