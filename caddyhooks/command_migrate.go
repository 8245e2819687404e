package caddyhooks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func init() {
	verbs = append(verbs, migrateVerb)
}

func migrateVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate --to <dsn> [--from <file>] [--schema <name>]",
		Short: "Moves runs and live settings from a bolt file to PostgreSQL",
		Long: `
Copies all that a bolt file has to a PostgreSQL database: queued and ended runs, deliveries, idempotency keys, sessions, live settings and
what was counted. Stop Caddy first. The schema must be empty. Everything is copied in one transaction, and the file stays as it is, so you can
go back as long as no Caddy has worked with the database.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy stop
  HOOKS_DSN=postgres://... caddy hooks migrate --to '{env.HOOKS_DSN}'
  caddy start   # with: store postgres {env.HOOKS_DSN}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMigrate(cmd) },
	}
	cmd.Flags().String("from", "", "the bolt file (default: that of the instance in Caddy's data directory)")
	cmd.Flags().String("to", "", "the DSN, as after store postgres in the Caddyfile")
	cmd.Flags().String("schema", "", "the schema (default: hooks_<instance>)")
	cmd.Flags().String("runner", unnamedRunner, "the name of the default runner, if it has one: sessions are found by it")
	return cmd
}

func runMigrate(cmd *cobra.Command) error {
	text := func(flag string) string {
		value, _ := cmd.Flags().GetString(flag)
		return value
	}
	instance := orDefault(text("instance"), "default")
	to := &postgres.Postgres{DSN: text("to"), Schema: text("schema")}
	if to.DSN == "" {
		return &usageError{"--to is missing: the DSN of the database, such as '{env.HOOKS_DSN}'"}
	}
	if err := to.Provision(caddy.Context{}); err != nil {
		return err
	}
	if err := to.CheckInstance(instance); err != nil {
		return err
	}
	file := (&bolt.Bolt{Path: text("from")}).File(instance)
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("there is no file to move: %w", err)
	}
	database, err := bolt.Open(file)
	if err != nil {
		return err
	}
	from := database.Store()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Moving %s to %s …\n", file, to.Place(instance))
	const often = 10_000
	told := 0
	moved, err := to.Import(ctx, instance, from, text("runner"), func(runs int) {
		if runs/often > told/often {
			fmt.Fprintf(out, "%d runs\n", runs)
		}
		told = runs
	})
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted: nothing was moved")
	}
	if err := errors.Join(err, from.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "Moved %d queued and %d ended runs, %d deliveries, %d keys, %d sessions and the live settings.\n"+
		"Now write store postgres in the Caddyfile, and start Caddy. The file is as it was: keep it until you are sure.\n",
		moved.Queued, moved.Ended, moved.Deliveries, moved.Keys, moved.Sessions)
	return nil
}
