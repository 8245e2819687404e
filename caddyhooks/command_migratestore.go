package caddyhooks

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func init() {
	verbs = append(verbs, migrateStoreVerb)
}

func migrateStoreVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate-store [--print] [--schema <name>] [<dsn>]",
		Short: "Makes the tables of a PostgreSQL store, or brings them up to date",
		Long: `
Makes the schema of a PostgreSQL store, or brings it up to date, as a node does when it starts. It is for those whose nodes have a role that
may create nothing, and "migrate off" in the Caddyfile.

With --print nothing is done: the SQL is printed, for psql, with what the role of the nodes may do. A schema that is there is brought up to date
from the version that --from names.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy hooks migrate-store --print --role hooks | psql -v ON_ERROR_STOP=1 postgres://admin@db/hooks
  HOOKS_DSN=postgres://... caddy hooks migrate-store '{env.HOOKS_DSN}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: runMigrateStore,
	}
	cmd.Flags().Bool("print", false, "print the SQL, and do nothing")
	cmd.Flags().String("schema", "", "the schema (default: hooks_<instance>)")
	cmd.Flags().String("role", "hooks", "with --print: the role of the nodes")
	cmd.Flags().Int("from", 0, "with --print: the version that the schema has, 0 if it is not there")
	return cmd
}

func runMigrateStore(cmd *cobra.Command, args []string) error {
	schema, _ := cmd.Flags().GetString("schema")
	instance, _ := cmd.Flags().GetString("instance")
	instance = orDefault(instance, "default")
	prints, _ := cmd.Flags().GetBool("print")
	switch {
	case prints && len(args) > 0:
		return &usageError{"with --print there is no DSN: give the output to psql"}
	case prints:
		role, _ := cmd.Flags().GetString("role")
		from, _ := cmd.Flags().GetInt("from")
		script, err := postgres.MigrationSQL(orDefault(schema, "hooks_"+instance), role, from)
		if err != nil {
			return &usageError{err.Error()}
		}
		fmt.Fprint(cmd.OutOrStdout(), script)
		return nil
	case len(args) == 0:
		return &usageError{"the DSN is missing, such as '{env.HOOKS_DSN}'; or use --print"}
	}
	store := &postgres.Postgres{DSN: args[0], Schema: schema}
	if err := store.Provision(caddy.Context{}); err != nil {
		return err
	}
	from, to, err := store.MigrateStore(cmd.Context(), instance)
	if err != nil {
		return fmt.Errorf("%s: %w", store.Place(instance), err)
	}
	if from == to {
		fmt.Fprintf(cmd.OutOrStdout(), "%s has version %d already.\n", store.Place(instance), to)
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "%s went from version %d to %d.\n", store.Place(instance), from, to)
	}
	return nil
}
