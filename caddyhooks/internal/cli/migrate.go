package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func init() {
	verbs = append(verbs, migrateVerb)
}

func migrateVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate --to DSN [--from FILE] [--schema NAME] [--dry-run]",
		Short: "Moves runs and live settings from a bolt file to PostgreSQL",
		Long: `
Copies all that a bolt file has to a PostgreSQL database: queued and ended runs, deliveries, idempotency keys, sessions, history, live
settings and what was counted. Stop Caddy first. The schema must be empty. Everything is copied in one transaction, and counted before it is in
effect. The file stays as it is, so you can go back as long as no Caddy has worked with the database.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy stop
  HOOKS_DSN=postgres://... caddy hooks migrate --to '{env.HOOKS_DSN}'
  caddy start   # with: store postgres {env.HOOKS_DSN}`,
		Args: takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMigrate(cmd) },
	}
	cmd.Flags().String("from", "", "the bolt file, or the word bolt for that of the instance in Caddy's data directory, which is the default")
	cmd.Flags().String("to", "", "the DSN, as after store postgres in the Caddyfile")
	cmd.Flags().String("schema", "", "the schema (default: hooks_ and the instance)")
	cmd.Flags().String("runner", settings.UnnamedRunner, "the name of the default runner, if it has one: sessions are found by it")
	cmd.Flags().Bool("dry-run", false, "check the file, say what would be moved, and do nothing")
	return cmd
}

// migratedJSON is what is told about a store that was moved.
type migratedJSON struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Moved bool   `json:"moved"`
	bolt.Summary
}

func runMigrate(cmd *cobra.Command) error {
	text := func(flag string) string {
		value, _ := cmd.Flags().GetString(flag)
		return value
	}
	instance := cmp.Or(text("instance"), "default")
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
	from := text("from")
	if from == "bolt" {
		from = ""
	}
	file := storeFile(from, instance)
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("there is no file to move: %w", err)
	}
	checked, err := bolt.Check(file)
	if err != nil {
		return err
	}
	m := &migration{screen: newScreen(cmd), file: file, has: checked.Summary, told: migratedJSON{From: file, To: to.Place(instance), Summary: checked.Summary}}
	if dry, _ := cmd.Flags().GetBool("dry-run"); !dry {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := m.move(ctx, to, instance, text("runner")); err != nil {
			return err
		}
	}
	if wantsJSON(cmd) {
		return printValue(m.screen.Out(), m.told)
	}
	m.show()
	return nil
}

// migration is a file that is moved.
type migration struct {
	screen *terminal.Screen
	file   string
	has    bolt.Summary
	told   migratedJSON
}

// move copies all that the file has, or nothing.
func (m *migration) move(ctx context.Context, to *postgres.Postgres, instance, runner string) error {
	database, err := bolt.Open(m.file)
	if err != nil {
		return err
	}
	from := database.Store()
	progress := m.screen.Progress()
	defer progress.Close()
	all := counted(m.has.Unfinished+m.has.Ended, "run", "runs")
	moved, err := to.Import(ctx, instance, from, postgres.Importing{
		Runner: runner,
		Note:   func(runs int) { progress.Show("%s of %s", withCommas(runs), all) },
		Check:  m.check,
	})
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted: nothing was moved")
	}
	m.told.Moved, m.told.Sessions = err == nil, moved.Sessions
	return errors.Join(err, from.Close())
}

// check refuses to move less than the file has. Sessions are no loss: those of chats without a run are not found, and begin anew.
func (m *migration) check(moved postgres.Imported) error {
	for _, part := range []struct {
		what          string
		moved, wanted int
	}{
		{"unfinished runs", moved.Queued, m.has.Unfinished},
		{"ended runs", moved.Ended, m.has.Ended},
		{"messages of ended runs", moved.History, m.has.History},
		{"deliveries", moved.Deliveries, m.has.Deliveries()},
		{"keys", moved.Keys, m.has.Keys},
		{"changes of the live settings", moved.Changes, m.has.Changes},
		{"counted minutes", moved.Minutes, m.has.Minutes},
	} {
		if part.moved != part.wanted {
			return fmt.Errorf("the file has %s %s, and %s of them could be read: nothing was moved", withCommas(part.wanted), part.what, withCommas(part.moved))
		}
	}
	return nil
}

// show says what was moved, or would be.
func (m *migration) show() {
	verb := "Would move "
	if m.told.Moved {
		verb = "Moved "
	}
	m.screen.Line(terminal.Plain(verb + m.file + " to " + m.told.To + ":"))
	showSummary(m.screen, &m.told.Summary)
	switch lost := m.has.Sessions - m.told.Sessions; {
	case !m.told.Moved:
		m.screen.Note("Nothing was done, because of --dry-run.")
		return
	case lost > 0:
		m.screen.Note("%s of chats without a run could not be moved: their agents begin anew.", counted(lost, "session", "sessions"))
	}
	m.screen.Note("Now write store postgres in the Caddyfile, and start Caddy. The file is as it was: keep it until you are sure.")
}
