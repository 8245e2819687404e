//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// newTestDatabase makes a database of the shared server with options and settings of its own.
func newTestDatabase(t *testing.T, options string, settings ...string) (dsn string) {
	t.Helper()
	return pgtest.Shared(t).DSN(nameTestDatabase(t, options, settings...))
}

func nameTestDatabase(t *testing.T, options string, settings ...string) (name string) {
	t.Helper()
	server, name := pgtest.Shared(t), pgtest.NewName("defaults_")
	server.Exec(t, "postgres", "CREATE DATABASE "+name+" "+options)
	for _, setting := range settings {
		server.Exec(t, "postgres", "ALTER DATABASE "+name+" SET "+setting)
	}
	return name
}

// A transaction with a stricter isolation does not see what was committed while it waited for a lock.
func TestARunIsNotForgottenWhereTransactionsAreIsolatedMore(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			dsn := newTestDatabase(t, "", "default_transaction_isolation = '"+level+"'")
			s := openPostgresAt(t, dsn, pgtest.NewName("test_"))
			t.Cleanup(func() { _ = s.Close() })
			ctx := t.Context()
			if _, err := addTo(ctx, s, "chat"); err != nil {
				t.Fatal(err)
			}
			claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: time.Minute})
			if err != nil || len(claims) != 1 {
				t.Fatalf("claimed %d, %v", len(claims), err)
			}

			// As long as this holds the chat's lock, the end waits for it, and then the new run for the end.
			holder := mustConnect(t, dsn)
			tx, err := holder.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(ctx, s.sql("SELECT pg_advisory_xact_lock_shared(@.chat_lock_1('chat'))")); err != nil {
				t.Fatal(err)
			}
			watcher := mustConnect(t, dsn)
			ended, added := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := s.Runs().End(ctx, claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{})
				ended <- err
			}()
			awaitWaiting(t, watcher, 1)
			go func() {
				_, err := addTo(ctx, s, "chat")
				added <- err
			}()
			awaitWaiting(t, watcher, 2)
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-ended, <-added); err != nil {
				t.Fatal(err)
			}

			if claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: time.Minute}); err != nil || len(claims) != 1 {
				t.Errorf("of the new run %d were claimed, %v", len(claims), err)
			}
		})
	}
}

// A pgbouncer gives out connections whose settings a node cannot choose.
func TestStricterIsolationBehindPgbouncerIsRefused(t *testing.T) {
	t.Parallel()
	name := nameTestDatabase(t, "", "default_transaction_isolation = 'repeatable read'")
	_, err := newModule(t, pgtest.NewPgbouncer(t, pgtest.Shared(t), 3).DSN(name)).OpenStore(t.Context(), "test")
	if err == nil || errors.Is(err, engine.ErrUnreachable) || !strings.Contains(err.Error(), "SET default_transaction_isolation = 'read committed'") {
		t.Errorf("got %v", err)
	}
}

func mustConnect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// awaitWaiting waits until so many calls wait for an advisory lock of the database.
func awaitWaiting(t *testing.T, conn *pgx.Conn, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		n := 0
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait for a lock, want %d", n, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// Other encodings do not have all characters: a run with one that is missing could be added, but not be put back.
func TestADatabaseThatDoesNotHaveAllCharactersIsRefused(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		dsn := newTestDatabase(t, fmt.Sprintf("ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0", encoding))
		_, err := newModule(t, dsn).OpenStore(t.Context(), "test")
		if err == nil || errors.Is(err, engine.ErrUnreachable) || !strings.Contains(err.Error(), encoding) || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("with the encoding %s: %v", encoding, err)
		}
	}
}

func TestWhatADatabaseSetsForItsSessionsDoesNotMatter(t *testing.T) {
	t.Parallel()
	dsn := newTestDatabase(t, "", "client_encoding = 'EUC_JP'", "standard_conforming_strings = off", "datestyle = 'SQL, DMY'",
		"timezone = 'Pacific/Kiritimati'", "intervalstyle = 'sql_standard'", "bytea_output = 'escape'", "array_nulls = off")
	s := openModule(t, newModule(t, dsn))
	const odd = "Grüße\u2028\x00\\ 😀"
	run := &engine.Run{ChatID: odd, Hook: "agent", Action: engine.Agent, Message: odd, Metadata: []byte(`{"a":"\u0000\ud800é"}`), CallbackURL: "http://[::1]:80/", Timeout: time.Minute}
	if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	if got := claims[0].Run; got.ChatID != odd || got.Message != odd || string(got.Metadata) != string(run.Metadata) {
		t.Errorf("got %+v", got)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: odd, HasText: true},
		Deliveries: []*engine.Delivery{{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Callback: run.CallbackURL, Body: odd, Status: engine.Pending}}}
	if _, err := s.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	page, _, err := s.Deliveries().List(t.Context(), engine.DeliveryQuery{Host: "::1", Limit: 10})
	if err != nil || len(page) != 1 {
		t.Errorf("listed %d deliveries, %v", len(page), err)
	}
}
