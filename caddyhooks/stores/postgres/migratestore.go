package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MigrationSQL is a script for psql that brings a schema from a version to the newest one, from 0 if it is not there, and lets a role
// work with it that may create nothing.
func MigrationSQL(schema, role string, from int) (string, error) {
	if err := checkSchema(schema); err != nil {
		return "", err
	}
	if from < 0 || from > len(migrations) {
		return "", fmt.Errorf("there are the versions 0 to %d", len(migrations))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- The schema %s of a hooks store, from version %d to %d. Give it to psql, as a role that may create a schema:\n"+
		"--   caddy hooks migrate-store --print … | psql -v ON_ERROR_STOP=1 <dsn>\n\nBEGIN;\n", schema, from, len(migrations))
	fmt.Fprintf(&b, "SELECT pg_advisory_xact_lock(%d);\n", lockNumber(schema))
	if from < len(migrations) {
		script, err := migrationScript(schema, from)
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
GRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s;
`, s, r)
}

// MigrateStore brings the schema of an instance up to date, and returns its version before and now.
func (p *Postgres) MigrateStore(ctx context.Context, instance string) (from, to int, err error) {
	if err := p.CheckInstance(instance); err != nil {
		return 0, 0, err
	}
	d := newDatabase(p.dsn, p.schema(instance))
	defer d.close()
	conn, err := d.dsn.dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer end(&connection{Conn: conn})
	if from, err = d.version(ctx, conn); err == nil {
		err = d.prepare(ctx, conn)
	}
	var refused *refusedError
	if err != nil && !errors.As(err, &refused) {
		err = d.dsn.plain(err)
	}
	return from, len(migrations), err
}
