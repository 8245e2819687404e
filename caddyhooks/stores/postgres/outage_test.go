//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// newModule is the module as a Caddyfile makes it.
func newModule(t *testing.T, dsn string) *Postgres {
	t.Helper()
	p := &Postgres{DSN: dsn, Schema: pgtest.NewName("away_")}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// openModule opens the store, and closes it at the end of the test.
func openModule(t *testing.T, p *Postgres) *store {
	t.Helper()
	s, err := p.OpenStore(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*store)
}

func addTo(ctx context.Context, s engine.Store, chat string) (id string, err error) {
	run := &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: "hello", Timeout: time.Minute}
	err = s.Runs().Add(ctx, run, engine.Terms{})
	return run.ID, err
}

// mustReturn waits until the store takes on runs again.
func mustReturn(t *testing.T, s engine.Store) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		_, changed, _ := s.(engine.Remote).Outage()
		_, err := addTo(t.Context(), s, "returns")
		if err == nil {
			return
		}
		if !errors.Is(err, engine.ErrUnreachable) {
			t.Fatalf("while the store was unreachable: %v", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store does not come back: %v", err)
		}
		select {
		case <-changed:
		case <-time.After(probeEvery):
		}
	}
}

// mustLeave waits until the store does not take on runs.
func mustLeave(t *testing.T, s engine.Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := addTo(t.Context(), s, "leaves")
		if errors.Is(err, engine.ErrUnreachable) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store is not unreachable: %v", err)
		}
	}
}

func TestStoreComesBackWithTheServerAndHasWhatItAcknowledged(t *testing.T) {
	// What the server does by default must not matter.
	server := pgtest.New(t, pgtest.Config{Settings: "synchronous_commit = off\nwal_writer_delay = 10s\n"})
	s := openModule(t, newModule(t, server.DSN("postgres")))
	var (
		stop  atomic.Bool
		group sync.WaitGroup
		mu    sync.Mutex
		acked []string
	)
	for i := range 8 {
		group.Go(func() {
			for !stop.Load() {
				id, err := addTo(t.Context(), s, fmt.Sprintf("chat %d", i))
				switch {
				case err == nil:
					mu.Lock()
					acked = append(acked, id)
					mu.Unlock()
				case !errors.Is(err, engine.ErrUnreachable):
					t.Errorf("adding a run: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		mustReturn(t, s)
		server.Stop("immediate")
		mustLeave(t, s)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		mustReturn(t, s)
	}
	stop.Store(true)
	group.Wait()
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	for _, id := range acked {
		if unfinished, err := s.Runs().Unfinished(t.Context(), id); err != nil || !unfinished {
			t.Fatalf("the run %s was acknowledged and is lost, %v; %d were", id, err, len(acked))
		}
	}
}

func TestStoreOpensWithoutItsServer(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{})
	server.Stop("fast")
	s := openModule(t, newModule(t, server.DSN("postgres")))
	if _, err := addTo(t.Context(), s, "chat"); !errors.Is(err, engine.ErrUnreachable) {
		t.Fatalf("without a server a run is added: %v", err)
	}
	if _, _, err := s.Settings().Load(t.Context()); !errors.Is(err, engine.ErrUnreachable) {
		t.Fatalf("without a server settings are read: %v", err)
	}
	if since, _, cause := s.Outage(); cause == nil || since.IsZero() {
		t.Fatalf("it is unreachable since %v, because of %v", since, cause)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	mustReturn(t, s)
	if _, _, cause := s.Outage(); cause != nil {
		t.Errorf("it is back, and unreachable: %v", cause)
	}
}

func TestStoreIsUnreachableBehindALinkThatFellSilent(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD 'a-secret' SUPERUSER")
	l := newLink(t, net.JoinHostPort(server.Host, server.Port))
	host, port, _ := net.SplitHostPort(l.listener.Addr().String())
	s := openModule(t, newModule(t, fmt.Sprintf("host=%s port=%s user=hooks password=a-secret dbname=postgres sslmode=disable", host, port)))
	mustReturn(t, s)
	l.setSilent(true)
	began := time.Now()
	_, err := addTo(t.Context(), s, "chat")
	if !errors.Is(err, engine.ErrUnreachable) {
		t.Fatalf("nothing answers: %v", err)
	}
	t.Logf("the first answer came after %v", time.Since(began))
	if strings.Contains(err.Error(), "a-secret") {
		t.Error("the error shows the password")
	}
	for range 1000 { // none of which may wait
		if _, err := addTo(t.Context(), s, "chat"); !errors.Is(err, engine.ErrUnreachable) {
			t.Fatalf("nothing answers: %v", err)
		}
	}
	l.setSilent(false)
	mustReturn(t, s)
}

// A node can learn from one call that the database is unreachable while others have just begun, which would take all of their time.
func TestCallsUnderWayEndWhenTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	l := newLink(t, net.JoinHostPort(server.Host, server.Port))
	host, port, _ := net.SplitHostPort(l.listener.Addr().String())
	s := openModule(t, newModule(t, fmt.Sprintf("host=%s port=%s user=postgres password=%s dbname=postgres sslmode=disable", host, port, pgtest.Password)))
	mustReturn(t, s)
	l.setSilent(true)
	callsEnd := time.After(callTime - time.Second)
	const adds = 3 // of which the last ones wait for the first
	ends := make(chan error, adds)
	for range adds {
		go func() {
			_, err := addTo(t.Context(), s, "chat")
			ends <- err
		}()
	}
	waitFor(t, "a call is under way", func() bool { return len(s.connections.callKinds[addCalls]) > 0 })
	s.startOutage(errors.New("told by a test"))
	for range adds {
		select {
		case err := <-ends:
			if !errors.Is(err, engine.ErrUnreachable) || !strings.Contains(err.Error(), "told by a test") {
				t.Errorf("got %v", err)
			}
		case <-callsEnd:
			t.Fatal("calls go on")
		}
	}
	l.setSilent(false)
	mustReturn(t, s)
}

func TestADatabaseThatDoesNotShowItsTablesIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), s.sql("BEGIN; LOCK TABLE @.meta"), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	want := errors.New("told by a test")
	s.startOutage(want)
	tooLate := time.After(4 * callTime)
	for {
		_, changed, cause := s.Outage()
		if !errors.Is(cause, want) {
			break
		}
		select {
		case <-changed:
		case <-tooLate:
			t.Fatal("the first try has not ended")
		}
	}
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	mustReturn(t, s)
}

func TestStoreIsUnreachableWhileItsServerIsReadOnly(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{})
	s := openModule(t, newModule(t, server.DSN("postgres")))
	mustReturn(t, s)
	server.Exec(t, "postgres", "ALTER SYSTEM SET default_transaction_read_only = on")
	server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	mustLeave(t, s)
	server.Exec(t, "postgres", "ALTER SYSTEM RESET default_transaction_read_only")
	server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	mustReturn(t, s)
}

func TestAWrongPasswordIsRefusedAndNotShown(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD 'right'")
	_, err := newModule(t, server.TCP("hooks", "very-wrong-secret", "postgres")).OpenStore(t.Context(), "test")
	if err == nil || strings.Contains(err.Error(), "very-wrong-secret") || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("got %v", err)
	}
}

func TestOneConnectionIsEnough(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Settings: "max_connections = 12\nsuperuser_reserved_connections = 0\nmax_wal_senders = 0\n"})
	s := openModule(t, newModule(t, server.DSN("postgres")))
	mustReturn(t, s)
	// Others take what is left, while the store has to begin anew.
	s.connections.renew()
	var others []*pgx.Conn
	defer func() {
		for _, conn := range others {
			_ = conn.Close(context.Background())
		}
	}()
	for {
		conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
		if err != nil {
			break
		}
		others = append(others, conn)
	}
	_ = others[0].Close(t.Context())
	mustReturn(t, s)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			id, err := addTo(t.Context(), s, fmt.Sprint(i))
			if err == nil {
				_, err = s.Runs().Get(t.Context(), id)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestALaneThatIsStuckHoldsNoOther(t *testing.T) {
	s := newTestStore(t)
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := s.exec(t.Context(), "CREATE TABLE @.test_stuck AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), s.sql("SELECT * FROM @.test_stuck FOR UPDATE")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() { _ = s.on(readCalls).exec(ctx, "SELECT * FROM @.test_stuck FOR UPDATE") })
	}
	for range 20 {
		if _, err := addTo(t.Context(), s, "chat"); err != nil {
			t.Error(err)
		}
	}
	cancel()
	_ = tx.Rollback(t.Context())
	group.Wait()
}

func TestCallsThatStoodInTheWayOfOthersAreRepeated(t *testing.T) {
	s := newTestStore(t)
	for _, statement := range []string{
		"CREATE SEQUENCE @.test_tries",
		`CREATE FUNCTION @.test_conflict(code text, fails int) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
		DECLARE try bigint := nextval('test_tries');
		BEGIN
			IF try <= fails THEN RAISE EXCEPTION 'in the way' USING ERRCODE = code; END IF;
			RETURN try;
		END $$`,
		fmt.Sprintf("ALTER FUNCTION @.test_conflict SET search_path = %s", s.schema),
	} {
		if err := s.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		code  string
		fails int
		ok    bool
	}{{codeDeadlock, 3, true}, {codeSerialization, 3, true}, {codeSerialization, 4, false}, {"P0001", 1, false}} {
		if err := s.exec(t.Context(), "ALTER SEQUENCE @.test_tries RESTART"); err != nil {
			t.Fatal(err)
		}
		err := s.exec(t.Context(), "SELECT @.test_conflict($1, $2)", test.code, test.fails)
		if (err == nil) != test.ok {
			t.Errorf("after %d failures with %s: %v", test.fails, test.code, err)
		}
	}
}
