package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
)

func init() {
	caddy.RegisterModule(Postgres{})
}

// Postgres keeps runs and live settings in a PostgreSQL database, 15 or newer. Several nodes may share it: any of them accepts
// runs, carries them out, answers and delivers.
type Postgres struct {
	// How to reach the database: a URL, or a list of settings such as "host=db.example.com dbname=hooks", as libpq and pgx read
	// them. It is a secret. Write {env.HOOKS_DSN}, for what is written here is part of what Caddy shows at /config/.
	DSN string `json:"dsn,omitempty"`

	// The schema of the database that has the tables. Instances need schemas of their own. Default: hooks_<instance>.
	Schema string `json:"schema,omitempty"`

	// How long a node keeps what it has claimed if it falls silent. After that other nodes take over its runs. At least 3s.
	// Default: 12s.
	Lease caddy.Duration `json:"lease,omitempty"`

	// Whether a node brings the schema up to date when it starts. Without that its role needs no right to create anything.
	// Default: true.
	Migrate *bool `json:"migrate,omitempty"`

	// Whether a node listens for word of the others. Without that they learn of each other's work up to a second later, and need
	// no connection for it. Through a pooler such as pgbouncer they never listen. Default: true.
	Listen *bool `json:"listen,omitempty"`

	dsn dsn.DSN // resolved
}

// CaddyModule returns the Caddy module information.
func (Postgres) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.stores.postgres",
		New: func() caddy.Module { return new(Postgres) },
	}
}

// UnmarshalCaddyfile parses:
//
//	store postgres <dsn> {
//		schema  <name>
//		lease   <duration>
//		migrate on|off
//		listen  on|off
//	}
func (p *Postgres) UnmarshalCaddyfile(d *caddyfile.Dispenser) (err error) {
	d.Next()
	if p.DSN, err = caddyconf.Secret(d); err != nil {
		return d.Err("store postgres takes one DSN, such as {env.HOOKS_DSN}; one with spaces stands in \"double quotes\" or backquotes" +
			caddyconf.Unset)
	}
	return caddyconf.ReadBlock(d, "the postgres store",
		caddyconf.Set("schema", &p.Schema, caddyconf.CheckedText(checkSchema)),
		caddyconf.Set("lease", &p.Lease, caddyconf.Duration(shortestLease)),
		caddyconf.Set("migrate", &p.Migrate, caddyconf.Pointer(onOrOff)),
		caddyconf.Set("listen", &p.Listen, caddyconf.Pointer(onOrOff)))
}

// shortestLease leaves a node time for three renewals, each of which may take a moment.
const shortestLease = 3 * time.Second

// onOrOff reads the argument of a directive that turns something on or off.
func onOrOff(d *caddyfile.Dispenser) (bool, error) {
	directive := d.Val()
	text, err := caddyconf.Text(d)
	if err == nil && text != "on" && text != "off" {
		err = d.Errf("%s takes on or off", directive)
	}
	return text == "on", err
}

// schemaName are the names of schemas that are taken. PostgreSQL cuts off longer ones.
var schemaName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,62}$`)

func checkSchema(name string) error {
	if !schemaName.MatchString(name) {
		return errors.New("the name of a schema begins with a letter and has up to 63 letters, digits, dots, dashes and underscores")
	}
	if len(name) > 2 && name[:3] == "pg_" || name == "information_schema" {
		return errors.New("the schemas pg_… and information_schema belong to PostgreSQL itself")
	}
	if name == "public" {
		return errors.New("the schema public may have tables of others: choose a name that is the store's own")
	}
	return nil
}

// Provision fills in placeholders such as {env.HOOKS_DSN}. It opens nothing.
func (p *Postgres) Provision(caddy.Context) error {
	if p.DSN == "" {
		return errors.New("the DSN of the store is missing: write store postgres {env.HOOKS_DSN}")
	}
	text, err := caddyconf.ResolveSecret(p.DSN)
	if err != nil {
		return fmt.Errorf("the DSN of the store %w", err)
	}
	if p.dsn, err = parseDSN(text); err != nil {
		return err
	}
	if p.Schema != "" {
		if p.Schema, err = caddy.NewReplacer().ReplaceOrErr(p.Schema, true, true); err != nil {
			return fmt.Errorf("the schema of the store: %w", err)
		}
		if err := checkSchema(p.Schema); err != nil {
			return err
		}
	}
	if p.Lease != 0 && p.Lease < caddy.Duration(shortestLease) {
		return fmt.Errorf("the lease of the store must be at least %v", shortestLease)
	}
	return nil
}

// schema is the schema of an instance.
func (p *Postgres) schema(instance string) string {
	if p.Schema != "" {
		return p.Schema
	}
	return "hooks_" + instance
}

// SchemaOf is the schema of an instance, which CheckInstance may refuse.
func (p *Postgres) SchemaOf(instance string) string { return p.schema(instance) }

// Role is the role that the DSN names. It is known after Provision.
func (p *Postgres) Role() string { return p.dsn.Config.User }

// CheckInstance refuses an instance whose name makes no schema.
func (p *Postgres) CheckInstance(instance string) error {
	if err := checkSchema(p.schema(instance)); err != nil {
		return fmt.Errorf("the store has no schema of its own name, and that of the instance does not do: %w; set schema", err)
	}
	return nil
}

// StoreKey names the data of an instance, and shows nothing of the DSN.
func (p *Postgres) StoreKey(instance string) string {
	return fmt.Sprintf("postgres:%x:%s", sha256.Sum256([]byte(p.dsn.Text)), p.schema(instance))
}

// Place tells operators where the data of an instance is. It has no secret.
func (p *Postgres) Place(instance string) string {
	return p.dsn.Place() + " schema " + p.schema(instance)
}

// BackupAdvice says how the database is backed up.
func (p *Postgres) BackupAdvice(instance string) string {
	return fmt.Sprintf("the store of this instance is in PostgreSQL, which has a tool of its own: pg_dump --schema=%s. Keep what it writes "+
		"as secret as the database", p.schema(instance))
}

// ClaimLease is how long a node keeps what it has claimed, 0 for the default.
func (p *Postgres) ClaimLease() time.Duration { return time.Duration(p.Lease) }

// Warnings are about a DSN that is allowed, and probably a mistake.
func (p *Postgres) Warnings() []string { return p.dsn.Warnings(p.DSN) }

// OpenStore opens the schema. If the database cannot be reached now it is tried again and again: until then every call of the
// store returns engine.ErrUnreachable. A database that refuses for good is an error.
func (p *Postgres) OpenStore(ctx context.Context, instance string) (engine.Store, error) {
	if err := p.CheckInstance(instance); err != nil {
		return nil, err
	}
	d := newDatabase(p.dsn, p.schema(instance))
	d.checksOnly = p.Migrate != nil && !*p.Migrate
	d.listens = p.Listen == nil || *p.Listen
	if err := d.open(ctx); err != nil && !errors.Is(err, engine.ErrUnreachable) {
		d.close()
		return nil, fmt.Errorf("opening the store %s: %w", p.Place(instance), err)
	}
	return newStore(d), nil
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Postgres)(nil)
	_ caddyfile.Unmarshaler = (*Postgres)(nil)
	_ engine.StoreOpener    = (*Postgres)(nil)
)
