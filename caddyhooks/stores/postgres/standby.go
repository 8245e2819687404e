package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
)

// errNotReplicated says that a commit is on the disk of the server, and possibly not on that of a standby it should have waited for.
var errNotReplicated = errors.New("the wait of a commit for the synchronous standby was cancelled")

// parseDSN reads a DSN whose connections note such commits.
func parseDSN(text string) (dsn.DSN, error) { return dsn.Parse(text, noteNotReplicated) }

// notReplicated is the key of a mark on connections.
const notReplicated = "not replicated"

// noteNotReplicated marks a connection whose last commit gave up waiting for a synchronous standby, since it was cancelled. PostgreSQL
// reports such a commit as done, and warns. Its text is in the server's language, so it is known by the function that it comes from.
func noteNotReplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// isNotReplicated reports whether a commit on the connection is possibly missing on a synchronous standby.
func isNotReplicated(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[notReplicated] != nil }

// commitSomething returns an error unless commits work. With a synchronous standby, it has all that was committed before once this is done.
func (d *database) commitSomething(ctx context.Context, conn *pgx.Conn) error {
	timed, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := conn.Exec(timed, d.sql("SELECT @.probe_1($1)"), d.node)
	switch {
	case err == nil && isNotReplicated(conn):
		return errNotReplicated
	case err != nil && timed.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%s: the server answers, but nothing can be committed: it may wait for a synchronous standby that is unreachable",
			d.dsn.Place())
	case err != nil:
		return d.dsn.Plain(err)
	default:
		return nil
	}
}
