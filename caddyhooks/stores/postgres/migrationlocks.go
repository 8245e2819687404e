package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockTime is how long a migration waits for a table. As long as it waits, all calls of nodes wait behind it. It is less than the second
// after which PostgreSQL looks for a deadlock, so that it is the migration that gives way, and no call of a node.
const lockTime = 500 * time.Millisecond

// After an attempt that had to give way there is a pause, each time twice as long, so that nodes are seldom held up while a backup goes on.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// waitingMigration is one that could not be done yet.
type waitingMigration struct {
	pause time.Duration
	until time.Time
	err   error // of the last attempt
}

// laterError is why a schema cannot be brought up to date now. It is tried again.
type laterError struct{ problem string }

func (e *laterError) Error() string { return e.problem }

// migrateWhenFree brings the schema up to date. With a *laterError others are in the way.
func (d *database) migrateWhenFree(ctx context.Context, conn *pgx.Conn) error {
	m := &d.migration
	if time.Now().Before(m.until) {
		return m.err
	}
	err := d.migrate(ctx, conn)
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case codeInUse: // see guard; this holds up nobody
		return &laterError{fmt.Sprintf("the schema %s cannot be brought up to version %d now: %s", d.schema, d.release.version(), answer.Message)}
	case codeNotLocked, codeDeadlock:
		m.pause = min(max(2*m.pause, firstPause), lastPause)
		m.until = time.Now().Add(m.pause)
		problem := fmt.Sprintf("the schema %s is brought up to version %d as soon as its tables are free", d.schema, d.release.version())
		if who := d.holders(ctx, conn, anyLock); who != "" {
			problem += "; " + who + " has them in a transaction, as a backup does"
		}
		m.err = &laterError{problem}
		return m.err
	}
	return err
}

// holders names some of those who have had tables of the schema for a while. which is a condition on their lock l.
func (d *database) holders(ctx context.Context, conn *pgx.Conn, which string) string {
	var found []string
	err := queryRows(ctx, conn, func(row pgx.Rows) error {
		var pid int
		var name, user string
		if err := row.Scan(&pid, &name, &user); err != nil {
			return err
		}
		found = append(found, fmt.Sprintf("%s (process %d, user %s)", orUnknown(name), pid, orUnknown(user)))
		return nil
	}, `SELECT DISTINCT a.pid, coalesce(a.application_name, ''), coalesce(a.usename, '') FROM pg_locks l
		JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_stat_activity a ON a.pid = l.pid WHERE n.nspname = $1 AND a.datname = current_database() AND a.pid <> pg_backend_pid()
		AND coalesce(a.xact_start < clock_timestamp() - make_interval(secs => $2), true) AND `+which+` LIMIT 3`, d.schema, lockTime.Seconds())
	if err != nil {
		return "" // it is only a hint
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// anyLock is that of whoever has used a table in its transaction, and keeps a migration waiting.
const anyLock = "l.granted"

// tableLock is one that keeps calls of nodes waiting, also as long as it waits itself. Those of nodes are of migrations, which give way.
const tableLock = `l.locktype = 'relation' AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
	AND a.application_name IS DISTINCT FROM current_setting('application_name')`

// lockedError is why calls would wait for others.
type lockedError struct{ problem string }

func (e *lockedError) Error() string { return e.problem }

// IsRefusal makes it an engine.Refusal.
func (e *lockedError) IsRefusal() {}

// checkLocks returns a *lockedError that names who has locked a table.
func (d *database) checkLocks(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if who := d.holders(ctx, conn, tableLock); who != "" {
		return &lockedError{fmt.Sprintf("%s: a table of the schema %s is locked by %s", d.dsn.Place(), d.schema, who)}
	}
	return nil
}

func orUnknown(name string) string {
	if name == "" {
		return "somebody"
	}
	return name
}

// guard refuses a schema that has another version than a script is for, and one with nodes that could not go on working.
func (r *release) guard(from int) string {
	if from == 0 {
		return `DO $do$ BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = 'meta') THEN
		RAISE EXCEPTION 'the schema % is there already: say which version it has, by --from', current_schema();
	END IF;
END $do$;
`
	}
	return fmt.Sprintf(`DO $do$ BEGIN
	IF (SELECT version FROM meta) <> %[1]d THEN
		RAISE EXCEPTION 'the schema %% has version %%, and this is for version %[1]d: name the right one by --from',
			current_schema(), (SELECT version FROM meta);
	END IF;
	IF EXISTS (SELECT FROM node WHERE version < %[2]d AND seen_at > clock_timestamp() - interval '10 seconds') THEN
		RAISE EXCEPTION 'nodes of version %% work with it, and version %[3]d goes with nodes of version %[2]d or newer: '
			'stop the older ones first',
			(SELECT min(version) FROM node WHERE seen_at > clock_timestamp() - interval '10 seconds') USING ERRCODE = '%[4]s';
	END IF;
END $do$;
`, from, r.oldestCompatible, r.version(), codeInUse)
}
