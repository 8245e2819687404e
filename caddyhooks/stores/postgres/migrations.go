package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql
var sqlFiles embed.FS

// migrations are the files of each step, in their order. A step that was released is never changed.
//
// Nodes of the release before work on while a migration goes on, and after it. So a migration only adds: tables, columns with a default,
// and functions whose names end with the number of its step. What only older releases need goes with the release that raises
// oldestCompatible.
//
// Nodes wait for the tables that a migration has touched until it is over, and a call has callTime. So it must take moments. An index on a
// large table takes longer, and would have to be made CONCURRENTLY, before the transaction. Tables are touched in the order in which
// functions that accept and end runs do it, queue before done and delivery, and counter last; otherwise the migration gives way to them
// time and again.
var migrations = [][]string{
	{
		"1_tables", "1_outage", "1_pulse", "1_deliveries", "1_questions", "1_ledger", "1_lists", "1_claim", "1_end", "1_renew", "1_add",
		"1_prune", "1_chats",
	},
	{"2_gates", "2_add", "2_end"},
}

// firstVersion is the version that the first of the migrations leads to: that of the first release. Schemas of the versions before it are
// refused.
const firstVersion = 6

// oldestCompatible is the oldest version of the program that may work beside this one. A schema does not go to a version that raises it
// as long as older nodes are there.
const oldestCompatible = firstVersion

// oldestServer is the oldest version of PostgreSQL that has what the functions need.
const oldestServer = 15

// release is what a version of the program knows of schemas.
type release struct {
	migrations       [][]string
	files            fs.FS
	oldestCompatible int
	renamed          *strings.Replacer // what its calls say instead of those of this release; nil for none
}

// thisRelease is this program. Tests have others.
var thisRelease = &release{migrations: migrations, files: sqlFiles, oldestCompatible: oldestCompatible}

// version is the number of the release.
func (r *release) version() int { return firstVersion - 1 + len(r.migrations) }

// steps are the migrations that a schema of a version lacks.
func (r *release) steps(from int) [][]string { return r.migrations[max(0, from-firstVersion+1):] }

// prepare checks the server and the schema, and brings the schema up to date unless that is left to others. A *refusedError says what
// somebody has to do.
func (d *database) prepare(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTime)
	defer cancel()
	if err := checkServer(conn.PgConn().ParameterStatus("server_version")); err != nil {
		return err
	}
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" && encoding != "" {
		return &refusedError{fmt.Sprintf("the database has the encoding %s, which does not have all characters, and this store needs UTF8",
			encoding)}
	}
	soon, stop := context.WithTimeout(ctx, callTime) // or a link that falls silent now is not noticed for long
	version, err := d.version(soon, conn)
	stop()
	if err == nil && version < d.release.version() {
		if version == 0 && d.isThere.Load() {
			return &refusedError{fmt.Sprintf("the schema %s was there and is gone: bring it back, or start Caddy again for an empty one", d.schema)}
		}
		if d.checksOnly {
			return d.behind(version)
		}
		err = d.migrateWhenFree(ctx, conn)
	}
	if err == nil {
		d.isThere.Store(true)
	}
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == codeNoRight {
		return &refusedError{fmt.Sprintf("the role of the DSN may not use the schema %s, or not make it: %s; %s", d.schema, answer.Message,
			d.howToMigrate(version))}
	}
	return err
}

// migrationTime is more than a migration needs that has to wait for that of another node.
const migrationTime = time.Minute

func checkServer(version string) error {
	number, _, _ := strings.Cut(version, ".")
	number = strings.TrimRightFunc(number, func(r rune) bool { return r < '0' || r > '9' }) // as in 18beta1
	if i := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		number = number[:i]
	}
	if major, err := strconv.Atoi(number); err == nil && major < oldestServer {
		return &refusedError{fmt.Sprintf("the server is PostgreSQL %s, and this store needs %d or newer", version, oldestServer)}
	}
	return nil
}

// version is the version of the schema, 0 if it is not there.
func (d *database) version(ctx context.Context, conn pgxQuerier) (version int, err error) {
	isThere := false
	name := pgx.Identifier{d.schema, "meta"}.Sanitize()
	// Not by to_regclass, whose answer may be older than the lock: a connection remembers what was not there.
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'meta')",
		d.schema).Scan(&isThere); err != nil || !isThere {
		return 0, err
	}
	oldest := 0
	if err := conn.QueryRow(ctx, "SELECT version, oldest_compatible FROM "+name).Scan(&version, &oldest); err != nil {
		return 0, err
	}
	if version < firstVersion {
		return 0, &refusedError{fmt.Sprintf("the schema %s has version %d, which was never released, and this program begins with version %d: "+
			"name another schema in the Caddyfile, or remove this one with all that is in it by DROP SCHEMA %s CASCADE",
			d.schema, version, firstVersion, pgx.Identifier{d.schema}.Sanitize())}
	}
	if oldest > d.release.version() {
		return 0, &refusedError{fmt.Sprintf("the schema %s has version %d, which works with programs of version %d or newer, and this one has "+
			"version %d: install a newer release on this node",
			d.schema, version, oldest, d.release.version())}
	}
	return version, nil
}

type pgxQuerier interface {
	QueryRow(ctx context.Context, statement string, arguments ...any) pgx.Row
}

// behind says that the schema is older than this program.
func (d *database) behind(version int) error {
	state := fmt.Sprintf("the schema %s has version %d", d.schema, version)
	if version == 0 {
		state = fmt.Sprintf("the schema %s is not there, or the role of the DSN may not use it", d.schema)
	}
	return &refusedError{fmt.Sprintf("%s, this program needs version %d, and migrate is off: %s", state, d.release.version(),
		d.howToMigrate(version))}
}

// howToMigrate tells how somebody brings the schema up to date who may. It has a version, 0 if it is not there as far as one can tell.
func (d *database) howToMigrate(version int) string {
	return fmt.Sprintf("run `caddy hooks migrate-store --print --schema %s --role %s --from %d` and give its output to psql, as a role "+
		"that may create tables",
		d.schema, d.dsn.Config.User, version)
}

// lockNumber is that of the lock that nodes hold which bring the schema up to date.
func lockNumber(schema string) int64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte("caddyhooks migration " + schema))
	return int64(sum.Sum64()) //nolint:gosec // any number will do
}

// migrate brings the schema up to date, in one transaction. Nodes that start together wait for each other.
func (d *database) migrate(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockNumber(d.schema)); err != nil {
			return err
		}
		version, err := d.version(ctx, tx) // another node may have been quicker
		if err != nil || version >= d.release.version() {
			return err
		}
		script, err := d.release.script(d.schema, version)
		if err != nil {
			return err
		}
		// It holds no parameters, and many statements.
		if _, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return fmt.Errorf("bringing the schema %s from version %d to %d: %w", d.schema, version, d.release.version(), err)
		}
		return nil
	})
}

// script brings a schema from a version to that of the release, within a transaction that has the lock.
func (r *release) script(schema string, from int) (string, error) {
	var b strings.Builder
	name := pgx.Identifier{schema}.Sanitize()
	if from == 0 {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %s;\n", name)
	}
	fmt.Fprintf(&b, "SET LOCAL search_path = %s;\nSET LOCAL lock_timeout = '%dms';\n%s", name, lockTime.Milliseconds(), r.guard(from))
	for _, step := range r.steps(from) {
		for _, file := range step {
			script, err := fs.ReadFile(r.files, "sql/"+file+".sql")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "\n%s", script)
		}
	}
	fmt.Fprintf(&b, "\nDELETE FROM meta;\nINSERT INTO meta (version, oldest_compatible) VALUES (%d, %d);\n", r.version(), r.oldestCompatible)
	return b.String(), nil
}
