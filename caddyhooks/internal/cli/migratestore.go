package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func init() {
	verbs = append(verbs, migrateStoreVerb)
}

func migrateStoreVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate-store [--print] {--config FILE [--adapter NAME] [--dsn-env VARIABLE] | [--schema NAME] [DSN]}",
		Short: "Makes the tables of a PostgreSQL store, or brings them up to date",
		Long: `
Makes the schema of a PostgreSQL store, or brings it up to date, as a node does when it starts. It is for those whose nodes have a role that
may create nothing, and "migrate off" in the Caddyfile. Nodes may work on meanwhile.

With --config it does so for all instances of a configuration that have a PostgreSQL store, or for that of --instance. The DSN is that of the
configuration. If its role may not create tables, name an environment variable with the DSN of one that may, by --dsn-env: the
role of the configuration gets the rights that nodes need.

With --print nothing is done: the SQL is printed, for psql, with what the role of the nodes may do. A schema that is there is brought up to date
from the version that --from names.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy hooks migrate-store --config Caddyfile
  ADMIN_DSN=postgres://... caddy hooks migrate-store --config Caddyfile --dsn-env ADMIN_DSN
  caddy hooks migrate-store --print --role hooks | psql -v ON_ERROR_STOP=1 postgres://admin@db/hooks
  HOOKS_DSN=postgres://... caddy hooks migrate-store '{env.HOOKS_DSN}'`,
		Args: takesOneAtMost,
		RunE: runMigrateStore,
	}
	cmd.Flags().Bool("print", false, "print the SQL, and do nothing")
	cmd.Flags().String("config", "", "the configuration of the nodes")
	cmd.Flags().String("adapter", "", "with --config: the adapter, if it is no Caddyfile and no JSON")
	cmd.Flags().String("dsn-env", "", "with --config: the environment variable with the DSN of a role that may create tables (default: the DSN of the configuration)")
	cmd.Flags().String("schema", "", "without --config: the schema (default: hooks_ and the instance)")
	cmd.Flags().String("role", "", "with --print: the role of the nodes (default: that of the configuration, or hooks)")
	cmd.Flags().Int("from", 0, "with --print: the version that the schema has, 0 if it is not there")
	return cmd
}

// storeMigration is what migrate-store is asked to do.
type storeMigration struct {
	prints                                          bool
	config, adapter, dsnEnv, schema, role, instance string
	from                                            int
	dsn                                             []string // none or one
}

func newStoreMigration(cmd *cobra.Command, args []string) *storeMigration {
	text := func(flag string) string {
		value, _ := cmd.Flags().GetString(flag)
		return value
	}
	m := &storeMigration{config: text("config"), adapter: text("adapter"), dsnEnv: text("dsn-env"), schema: text("schema"), role: text("role"),
		instance: text("instance"), dsn: args}
	m.prints, _ = cmd.Flags().GetBool("print")
	m.from, _ = cmd.Flags().GetInt("from")
	return m
}

// variableName are names of environment variables. A DSN is none.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check refuses what does not go together. What may be a DSN is not repeated.
func (m *storeMigration) check() error {
	switch {
	case m.config == "" && m.adapter != "":
		return &usageError{"--adapter goes with --config"}
	case m.config == "" && m.dsnEnv != "":
		return &usageError{"--dsn-env goes with --config; without it, write a DSN such as '{env.HOOKS_DSN}'"}
	case m.config != "" && len(m.dsn) > 0:
		return &usageError{"with --config the DSN is that of the configuration; for that of a role that may do more, use --dsn-env"}
	case m.config != "" && m.schema != "":
		return &usageError{"with --config the schema is that of the configuration; use --instance to choose one"}
	case m.prints && len(m.dsn) > 0 || m.prints && m.dsnEnv != "":
		return &usageError{"with --print there is no DSN: give the output to psql"}
	case !m.prints && m.role != "":
		return &usageError{"--role goes with --print; otherwise the role of the DSN has the tables, and with --config and --dsn-env that of the configuration may use them"}
	case !m.prints && m.from != 0:
		return &usageError{"--from goes with --print; otherwise the version is looked up"}
	case m.dsnEnv != "" && !variableName.MatchString(m.dsnEnv):
		return &usageError{"--dsn-env takes the name of an environment variable, and not a DSN"}
	case m.dsnEnv != "" && os.Getenv(m.dsnEnv) == "":
		return &usageError{fmt.Sprintf("--dsn-env names the environment variable %s, which is not set", m.dsnEnv)}
	case !m.prints && m.config == "" && len(m.dsn) == 0:
		return &usageError{"what to bring up to date is missing: --config <file>, or a DSN such as '{env.HOOKS_DSN}'; or use --print"}
	}
	return nil
}

func runMigrateStore(cmd *cobra.Command, args []string) error {
	m := newStoreMigration(cmd, args)
	if err := m.check(); err != nil {
		return err
	}
	if m.prints && m.config == "" {
		return m.print(cmd, cmp.Or(m.schema, "hooks_"+cmp.Or(m.instance, "default")), cmp.Or(m.role, "hooks"))
	}
	stores, err := m.stores(cmd.Context())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var failed []error
	for _, s := range stores {
		if m.prints {
			err = m.print(cmd, s.store.SchemaOf(s.instance), cmp.Or(m.role, s.store.Role()))
		} else {
			err = m.migrate(ctx, cmd, s)
		}
		failed = append(failed, err) // those of others may still be brought up to date
	}
	return errors.Join(failed...)
}

// stores are those to be brought up to date.
func (m *storeMigration) stores(ctx context.Context) ([]configuredStore, error) {
	if m.config != "" {
		return schemaStores(ctx, m.config, m.adapter, m.instance)
	}
	store := &postgres.Postgres{DSN: m.dsn[0], Schema: m.schema}
	if err := store.Provision(caddy.Context{}); err != nil {
		return nil, err
	}
	return []configuredStore{{cmp.Or(m.instance, "default"), store}}, nil
}

// print prints the SQL for a schema.
func (m *storeMigration) print(cmd *cobra.Command, schema, role string) error {
	script, err := postgres.MigrationSQL(schema, role, m.from)
	if err != nil {
		return &usageError{err.Error()}
	}
	fmt.Fprint(cmd.OutOrStdout(), script)
	return nil
}

// migrate brings the schema of a store up to date.
func (m *storeMigration) migrate(ctx context.Context, cmd *cobra.Command, s configuredStore) (err error) {
	place, from, to := s.store.Place(s.instance), 0, 0
	if m.dsnEnv == "" {
		from, to, err = s.store.MigrateStore(ctx, s.instance)
	} else {
		from, to, err = s.store.MigrateStoreAs(ctx, s.instance, os.Getenv(m.dsnEnv))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", place, err)
	case from == to:
		fmt.Fprintf(cmd.OutOrStdout(), "%s has version %d already.\n", place, to)
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "%s went from version %d to %d.\n", place, from, to)
	}
	return nil
}
