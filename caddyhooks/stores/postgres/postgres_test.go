//go:build real

package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/storetest"
)

func TestMain(m *testing.M) {
	callTime, dsn.HostTime = 15*time.Second, 10*time.Second
	pgtest.Main(m)
}

// newPostgres opens a schema of its own, whose clock the test can put forward.
func newPostgres(t testing.TB) *store {
	t.Helper()
	return newPostgresAt(t, pgtest.Shared(t).DSN("postgres"))
}

// newPostgresAt is newPostgres in a database that is reached by a DSN.
func newPostgresAt(t testing.TB, dsn string) *store {
	t.Helper()
	s := openPostgresAt(t, dsn, pgtest.NewName("test_"))
	for _, statement := range []string{
		"CREATE TABLE @.test_clock AS SELECT interval '0' AS ahead",
		"CREATE OR REPLACE FUNCTION @.clock_1() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp() + (SELECT ahead FROM @.test_clock)'",
	} {
		if err := s.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// openPostgres opens a schema as one more node.
func openPostgres(t testing.TB, schema string) *store {
	t.Helper()
	return openPostgresAt(t, pgtest.Shared(t).DSN("postgres"), schema)
}

func openPostgresAt(t testing.TB, dsn, schema string) *store {
	t.Helper()
	d, err := connect(t.Context(), dsn, schema)
	if err != nil {
		t.Fatal(err)
	}
	return newStore(d)
}

// usedSchemas are schemas of tests that are over. To empty one takes a tenth of the time that it takes to make one.
type usedSchemas struct {
	mu   sync.Mutex
	free []string
}

func (u *usedSchemas) open(t *testing.T, dsn string) (s *store) {
	t.Helper()
	if schema := u.take(); schema != "" {
		s = openPostgresAt(t, dsn, schema)
	} else {
		s = newPostgresAt(t, dsn)
	}
	schema := s.schema
	t.Cleanup(func() { // when the store is closed
		if !t.Failed() {
			u.give(t, dsn, schema)
		}
	})
	return s
}

func (u *usedSchemas) take() (schema string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := len(u.free) - 1; last >= 0 {
		schema, u.free = u.free[last], u.free[:last]
	}
	return schema
}

// give empties all tables.
func (u *usedSchemas) give(t *testing.T, dsn, schema string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `DO $$ DECLARE name text; BEGIN
		SET LOCAL search_path = `+pgx.Identifier{schema}.Sanitize()+`;
		FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT IN ('meta', 'settings', 'test_clock') LOOP
			EXECUTE format('DELETE FROM %I', name);
		END LOOP;
		UPDATE settings SET revision = 0, body = NULL;
		UPDATE test_clock SET ahead = '0';
	END $$`)
	if err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.free = append(u.free, schema)
}

func TestPostgresKeepsTheContractOfStores(t *testing.T) {
	keepsTheContract(t, pgtest.Shared(t).DSN("postgres"))
}

// Each call may go over another connection, which other nodes use too. The concerns are those in which no call is broken off: Debian's
// pgbouncer 1.18 exits when a client cancels a query.
func TestPostgresKeepsTheContractBehindPgbouncer(t *testing.T) {
	keepsTheContract(t, pgtest.NewPgbouncer(t, pgtest.Shared(t), 50).DSN("postgres"), "Limits", "Claims", "Leases", "Waits", "Keys", "Gates", "GatesOfNodes", "Records", "List", "Settings")
}

func keepsTheContract(t *testing.T, dsn string, only ...string) {
	used, options := new(usedSchemas), contractOptions(dsn)
	options.Only = only
	storetest.Run(t, func(t *testing.T) engine.Store { return used.open(t, dsn) }, options)
}

func contractOptions(dsn string) storetest.Options {
	return storetest.Options{
		ClaimsAtOnce: true,
		Reopen: func(t *testing.T, s engine.Store) engine.Store {
			schema := s.(*store).schema
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openPostgresAt(t, dsn, schema)
		},
		Join: func(t *testing.T, s engine.Store) engine.Store { return openPostgresAt(t, dsn, s.(*store).schema) },
		Advance: func(t *testing.T, s engine.Store, by time.Duration) {
			if err := s.(*store).exec(t.Context(), fmt.Sprintf("UPDATE @.test_clock SET ahead = ahead + interval '%d microseconds'", by.Microseconds())); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// connect opens a database that is there, and brings the schema up to date.
func connect(ctx context.Context, text, schema string) (*database, error) {
	n, err := parseDSN(text)
	if err != nil {
		return nil, err
	}
	d := newDatabase(n, schema)
	if err := d.open(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}
