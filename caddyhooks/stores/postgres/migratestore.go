package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

// MigrationSQL is a script for psql that brings a schema from a version to the newest one, from 0 if it is not there, and lets a role
// work with it that may create nothing.
func MigrationSQL(schema, role string, from int) (string, error) {
	if err := checkSchema(schema); err != nil {
		return "", err
	}
	if from != 0 && from < firstVersion || from > thisRelease.version() {
		return "", fmt.Errorf("a schema has version 0 if it is not there, and otherwise %d to %d", firstVersion, thisRelease.version())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- The schema %s of a hooks store, from version %d to %d. Give it to psql, as a role that may create a schema:\n"+
		"--   caddy hooks migrate-store --print … | psql -v ON_ERROR_STOP=1 <dsn>\n"+
		"-- It gives up when a table is not free, so that nodes need not wait. That may be a backup: then run it again.\n\nBEGIN;\n", schema,
		from, thisRelease.version())
	fmt.Fprintf(&b, "SELECT pg_advisory_xact_lock(%d);\n", lockNumber(schema))
	if from < thisRelease.version() {
		script, err := thisRelease.script(schema, from)
		if err != nil {
			return "", err
		}
		b.WriteString(script)
	}
	b.WriteString(grants(schema, role))
	b.WriteString("COMMIT;\n")
	return b.String(), nil
}

// grants are the least rights that a node needs which does not migrate.
func grants(schema, role string) string {
	s, r := pgx.Identifier{schema}.Sanitize(), pgx.Identifier{role}.Sanitize()
	return fmt.Sprintf(`
-- The role of the nodes, which have migrate off. It is made with: CREATE ROLE %[2]s LOGIN PASSWORD '…';
GRANT USAGE ON SCHEMA %[1]s TO %[2]s;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;
GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s;
`, s, r)
}

// MigrateStore brings the schema of an instance up to date, and returns its version before and now. A schema that is newer stays as it is.
func (p *Postgres) MigrateStore(ctx context.Context, instance string) (from, to int, err error) {
	return p.migrateStore(ctx, instance, p.dsn, "")
}

// MigrateStoreAs is MigrateStore by another DSN, whose role may do more. The role of the store's own DSN, which the nodes have, gets the
// rights that they need, also if the schema is up to date.
func (p *Postgres) MigrateStoreAs(ctx context.Context, instance, text string) (from, to int, err error) {
	as, err := parseDSN(text)
	if err != nil {
		return 0, 0, err
	}
	return p.migrateStore(ctx, instance, as, p.dsn.Config.User)
}

func (p *Postgres) migrateStore(ctx context.Context, instance string, as dsn.DSN, role string) (from, to int, err error) {
	if err := p.CheckInstance(instance); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrationTime)
	defer cancel()
	d := newDatabase(as, p.schema(instance))
	defer d.close()
	conn, err := as.Dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer closeConnection(&connection{Conn: conn})
	if from, err = d.version(ctx, conn); err == nil {
		err = d.prepareInTime(ctx, conn)
	}
	if err == nil && role != "" && role != as.Config.User {
		_, err = conn.PgConn().Exec(ctx, grants(d.schema, role)).ReadAll()
	}
	var refused *refusedError
	var later *laterError
	if err != nil && !errors.As(err, &refused) && !errors.As(err, &later) {
		err = as.Plain(err)
	}
	return from, max(from, d.release.version()), err
}

// prepareInTime tries again until ctx is done, if others are in the way.
func (d *database) prepareInTime(ctx context.Context, conn *pgx.Conn) error {
	for {
		err := d.prepare(ctx, conn)
		var later *laterError
		if !errors.As(err, &later) || conn.IsClosed() {
			return err
		}
		if !sleepUnlessDone(ctx, max(firstPause, time.Until(d.migration.until))) {
			return err
		}
	}
}

// Import copies all that another store has into the schema of an instance, which has to be empty: in one transaction, so all of it or
// nothing. Nobody may work with the other store meanwhile.
func (p *Postgres) Import(ctx context.Context, instance string, from engine.Store, how imports.Options) (count imports.Counts, err error) {
	d := newDatabase(p.dsn, p.schema(instance))
	defer d.close()
	if err := d.open(ctx); err != nil {
		return imports.Counts{}, err
	}
	conn, err := p.dsn.Dial(ctx)
	if err != nil {
		return imports.Counts{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		count, err = imports.Into(ctx, tx, d.schema, from, how)
		return err
	})
	return count, err
}
