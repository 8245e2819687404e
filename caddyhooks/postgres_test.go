//go:build real

package caddyhooks_test

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

func init() {
	onPostgres = postgresNodes
	afterTests = append(afterTests, pgtest.StopShared)
	failingStores["postgres"] = func(t *testing.T) (directive, code, reason string, fail, mend func()) {
		database := newDatabase(t)
		return "store postgres {env.HOOKS_TEST_DSN} {\nschema hooks\n}", "store_failing", "permission denied for table done",
			func() { database.Exec(t, "postgres", "REVOKE INSERT ON hooks.done FROM hooks") },
			func() { database.Exec(t, "postgres", "GRANT INSERT ON hooks.done TO hooks") }
	}
}

// postgresNodes is a store in a schema of its own.
func postgresNodes(t *testing.T) nodeStore {
	t.Helper()
	server, schema := pgtest.Shared(t), pgtest.NewName("nodes_")
	return func(node string) string { // another name makes it another opening
		return "store postgres \"" + server.DSN("postgres") + " application_name=" + node + "\" {\nschema " + schema + "\n}"
	}
}

func TestPostgresSaysHowItIsBackedUp(t *testing.T) {
	schema := pgtest.NewName("backup_")
	t.Setenv("HOOKS_DSN", pgtest.Shared(t).DSN("postgres"))
	s := hookstest.StartSite(t, "hooks {\nstore postgres {env.HOOKS_DSN} {\nschema "+schema+"\n}\n}")
	s.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ops").WantAdminError(t, 501, "pg_dump --schema="+schema)
}

func TestKeysOutliveTheirRunsInPostgres(t *testing.T) {
	t.Setenv("HOOKS_DSN", pgtest.Shared(t).DSN("postgres"))
	keysOutliveTheirRuns(t, "postgres {env.HOOKS_DSN} {\nschema "+pgtest.NewName("keys_")+"\n}", true)
}
