package stores

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

func Migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate --to DSN [--from FILE] [--schema NAME] [--dry-run]",
		Short: "Moves runs and live settings from a bolt file to PostgreSQL",
		Long: `
Copies all that a bolt file has to a PostgreSQL database: queued and ended runs, deliveries, idempotency keys, sessions, history, live
settings and what was counted. Stop Caddy first. The schema must be empty. Everything is copied in one transaction, and counted before it is
in effect. The file stays as it is, so you can go back as long as no Caddy has worked with the database.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy stop
  HOOKS_DSN=postgres://... caddy hooks migrate --to '{env.HOOKS_DSN}'
  caddy start   # with: store postgres {env.HOOKS_DSN}`,
		RunE: runMigrate,
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

func runMigrate(cmd *cobra.Command, _ []string) error {
	instance := cmp.Or(flags.Text(cmd, "instance"), "default")
	to := &postgres.Postgres{DSN: flags.Text(cmd, "to"), Schema: flags.Text(cmd, "schema")}
	if to.DSN == "" {
		return flags.Usagef("--to is missing: the DSN of the database, such as '{env.HOOKS_DSN}'")
	}
	if err := to.Provision(caddy.Context{}); err != nil {
		return err
	}
	if err := to.CheckInstance(instance); err != nil {
		return err
	}
	from := flags.Text(cmd, "from")
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
	m := &migration{screen: flags.Screen(cmd), file: file, has: checked.Summary,
		result: migratedJSON{From: file, To: to.Place(instance), Summary: checked.Summary}}
	if !flags.IsOn(cmd, "dry-run") {
		if err := flags.Interruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return m.move(ctx, to, instance, flags.Text(cmd, "runner"))
		})(cmd, nil); err != nil {
			return err
		}
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(m.screen.Out(), m.result)
	}
	m.show()
	return nil
}

// migration is a file that is moved.
type migration struct {
	screen *terminal.Screen
	file   string
	has    bolt.Summary
	result migratedJSON
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
	all := terminal.Counted(m.has.Unfinished+m.has.Ended, "run", "runs")
	moved, err := to.Import(ctx, instance, from, imports.Options{
		Runner: runner,
		Note:   func(runs int) { progress.Show("%s of %s", terminal.WithCommas(runs), all) },
		Check:  m.check,
	})
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted: nothing was moved")
	}
	m.result.Moved, m.result.Sessions = err == nil, moved.Sessions
	return errors.Join(err, from.Close())
}

// check refuses to move less than the file has. Sessions are no loss: those of chats without a run are not found, and begin anew.
func (m *migration) check(moved imports.Counts) error {
	for _, part := range []struct {
		what          string
		moved, wanted int
	}{
		{"unfinished runs", moved.Queued, m.has.Unfinished},
		{"ended runs", moved.Ended, m.has.Ended},
		{"messages of ended runs", moved.History, m.has.History},
		{"questions", moved.Questions, m.has.Questions},
		{"deliveries", moved.Deliveries, m.has.Deliveries()},
		{"keys", moved.Keys, m.has.Keys},
		{"changes of the live settings", moved.Changes, m.has.Changes},
		{"counted minutes", moved.Minutes, m.has.Minutes},
	} {
		if part.moved != part.wanted {
			return fmt.Errorf("the file has %s %s, and %s of them could be read: nothing was moved", terminal.WithCommas(part.wanted),
				part.what, terminal.WithCommas(part.moved))
		}
	}
	return nil
}

// show says what was moved, or would be.
func (m *migration) show() {
	verb := "Would move "
	if m.result.Moved {
		verb = "Moved "
	}
	m.screen.Line(terminal.Plain(verb + m.file + " to " + m.result.To + ":"))
	showSummary(m.screen, &m.result.Summary)
	switch lost := m.has.Sessions - m.result.Sessions; {
	case !m.result.Moved:
		m.screen.Note("Nothing was done, because of --dry-run.")
		return
	case lost > 0:
		m.screen.Note("%s of chats without a run could not be moved: their agents begin anew.", terminal.Counted(lost, "session", "sessions"))
	}
	m.screen.Note("Now write store postgres in the Caddyfile, and start Caddy. The file is as it was: keep it until you are sure.")
}

func MigrateStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate-store [--print] {--config FILE [--adapter NAME] [--dsn-env VARIABLE] | [--schema NAME] [DSN]}",
		Short: "Makes the tables of a PostgreSQL store, or brings them up to date",
		Long: `
Makes the schema of a PostgreSQL store, or brings it up to date, as a node does when it starts. It is for those whose nodes have a role that
may create nothing, and "migrate off" in the Caddyfile. Nodes may work on meanwhile.

With --config it does so for all instances of a configuration that have a PostgreSQL store, or for that of --instance. The DSN is that of
the configuration. If its role may not create tables, name an environment variable with the DSN of one that may, by --dsn-env: the
role of the configuration gets the rights that nodes need.

With --print nothing is done: the SQL is printed, for psql, with what the role of the nodes may do. A schema that is there is brought up to
date from the version that --from names.

A DSN on the command line can be read by other users of this machine. Write '{env.HOOKS_DSN}' in quotes, and set the variable.

  caddy hooks migrate-store --config Caddyfile
  ADMIN_DSN=postgres://... caddy hooks migrate-store --config Caddyfile --dsn-env ADMIN_DSN
  caddy hooks migrate-store --print --role hooks | psql -v ON_ERROR_STOP=1 postgres://admin@db/hooks
  HOOKS_DSN=postgres://... caddy hooks migrate-store '{env.HOOKS_DSN}'`,
		Args: flags.TakesOneAtMost,
		RunE: flags.Interruptible(runMigrateStore),
	}
	cmd.Flags().Bool("print", false, "print the SQL, and do nothing")
	cmd.Flags().String("config", "", "the configuration of the nodes")
	cmd.Flags().String("adapter", "", "with --config: the adapter, if it is no Caddyfile and no JSON")
	cmd.Flags().String("dsn-env", "", "with --config: the environment variable with the DSN of a role that may create tables (default: the "+
		"DSN of the configuration)")
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

// variableName are names of environment variables. A DSN is none.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check refuses what does not go together. What may be a DSN is not repeated.
func (m *storeMigration) check() error {
	switch {
	case m.config == "" && m.adapter != "":
		return flags.Usagef("--adapter goes with --config")
	case m.config == "" && m.dsnEnv != "":
		return flags.Usagef("--dsn-env goes with --config; without it, write a DSN such as '{env.HOOKS_DSN}'")
	case m.config != "" && len(m.dsn) > 0:
		return flags.Usagef("with --config the DSN is that of the configuration; for that of a role that may do more, use --dsn-env")
	case m.config != "" && m.schema != "":
		return flags.Usagef("with --config the schema is that of the configuration; use --instance to choose one")
	case m.prints && len(m.dsn) > 0 || m.prints && m.dsnEnv != "":
		return flags.Usagef("with --print there is no DSN: give the output to psql")
	case !m.prints && m.role != "":
		return flags.Usagef("--role goes with --print; otherwise the role of the DSN has the tables, and with --config and --dsn-env that of " +
			"the configuration may use them")
	case !m.prints && m.from != 0:
		return flags.Usagef("--from goes with --print; otherwise the version is looked up")
	case m.dsnEnv != "" && !variableName.MatchString(m.dsnEnv):
		return flags.Usagef("--dsn-env takes the name of an environment variable, and not a DSN")
	case m.dsnEnv != "" && os.Getenv(m.dsnEnv) == "":
		return flags.Usagef("--dsn-env names the environment variable %s, which is not set", m.dsnEnv)
	case !m.prints && m.config == "" && len(m.dsn) == 0:
		return flags.Usagef("what to bring up to date is missing: --config <file>, or a DSN such as '{env.HOOKS_DSN}'; or use --print")
	}
	return nil
}

func runMigrateStore(ctx context.Context, cmd *cobra.Command, args []string) error {
	m := &storeMigration{
		prints: flags.IsOn(cmd, "print"), config: flags.Text(cmd, "config"), adapter: flags.Text(cmd, "adapter"),
		dsnEnv: flags.Text(cmd, "dsn-env"), schema: flags.Text(cmd, "schema"), role: flags.Text(cmd, "role"),
		instance: flags.Text(cmd, "instance"), from: flags.Number(cmd, "from"), dsn: args,
	}
	if err := m.check(); err != nil {
		return err
	}
	if m.prints && m.config == "" {
		return m.print(cmd, cmp.Or(m.schema, "hooks_"+cmp.Or(m.instance, "default")), cmp.Or(m.role, "hooks"))
	}
	stores, err := m.stores(ctx)
	if err != nil {
		return err
	}
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
		return flags.WrongUsage(err)
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

// configuredStore is the store of an instance in a configuration, which has tables.
type configuredStore struct {
	instance string
	store    schemaStore
}

// schemaStore is a store that may offer to have its tables made by somebody else than its nodes.
type schemaStore interface {
	// Place names the database and the schema of an instance, without secrets.
	Place(instance string) string
	SchemaOf(instance string) string
	// Role is the role of the nodes.
	Role() string
	// MigrateStore brings the schema up to date, and returns its version before and now.
	MigrateStore(ctx context.Context, instance string) (from, to int, err error)
	// MigrateStoreAs is MigrateStore by the DSN of a role that may do more.
	MigrateStoreAs(ctx context.Context, instance, dsn string) (from, to int, err error)
}

// schemaStores reads a configuration as `caddy validate` does, and returns its stores that have tables, or that of one instance. Nothing
// but the stores is provisioned: secrets of other parts need not be there.
func schemaStores(ctx context.Context, file, adapter, only string) ([]configuredStore, error) {
	data, _, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, err
	}
	raw, err := caddyconf.StoresOf(data)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s: %w", file, err)
	}
	names := slices.Sorted(maps.Keys(raw))
	if len(names) == 0 {
		return nil, fmt.Errorf("the configuration %s has no hooks", file)
	}
	if only != "" {
		if raw[only] == nil {
			return nil, fmt.Errorf("there is no hooks instance %q in %s; there is %s", only, file, text.List(names))
		}
		names = []string{only}
	}
	loading, cancel := caddy.NewContext(caddy.Context{Context: ctx})
	defer cancel()
	var found []configuredStore
	for _, name := range names {
		store, err := loading.LoadModule(&struct {
			StoreRaw json.RawMessage `caddy:"namespace=hooks.stores inline_key=store"`
		}{raw[name]}, "StoreRaw")
		if err != nil {
			return nil, fmt.Errorf("hooks instance %q: loading store: %w", name, err)
		}
		if store, ok := store.(schemaStore); ok {
			found = append(found, configuredStore{name, store})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no store of %s is in PostgreSQL: the hooks of %s have another one, whose tables nobody has to make", file,
			text.List(names))
	}
	return found, nil
}
