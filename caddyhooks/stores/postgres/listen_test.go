//go:build real

package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// overhear listens to what the nodes of a schema tell each other. next returns what was said until now.
func overhear(t *testing.T, s *store) (next func() []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	exec("LISTEN " + pgx.Identifier{s.watch.channel()}.Sanitize())
	return func() (words []string) {
		t.Helper()
		end := uuid.NewString()
		exec("SELECT pg_notify($1, $2)", s.watch.channel(), end)
		for {
			notification, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if notification.Payload == end {
				return words
			}
			words = append(words, notification.Payload)
		}
	}
}

func TestLoneNodeTellsNobody(t *testing.T) {
	t.Parallel()
	s := newPostgres(t)
	defer s.Close()
	next := overhear(t, s)
	for i := range int64(5) {
		if _, err := s.Settings().Save(t.Context(), []byte("x"), nil, i); err != nil {
			t.Fatal(err)
		}
		s.add(t, newAdded("a", ""))
	}
	if err := s.watch.beat(t.Context(), request{full: true}); err != nil {
		t.Fatal(err)
	}
	if words := next(); len(words) > 0 {
		t.Errorf("it said %q", words)
	}
}

func TestNodeGathersWhatItTells(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	joinAs(t, a.schema, func(*store) {})
	waitFor(t, "node a knows of node b", func() bool { return !a.watch.isLone.Load() })
	next := overhear(t, a)
	began := time.Now()
	for i := range 1000 {
		a.watch.tellOthers(string("rdsc"[i%4]))
	}
	var words []string
	kinds := ""
	waitFor(t, "all was told", func() bool {
		for _, text := range next() {
			if said, ok := parseWord(text); ok && said.node == a.node {
				words, kinds = append(words, text), kinds+said.kinds
			}
		}
		return strings.Contains(kinds, "r") && strings.Contains(kinds, "d") && strings.Contains(kinds, "s") && strings.Contains(kinds, "c")
	})
	if most := int(time.Since(began)/wordGap) + 2; len(words) > most {
		t.Errorf("it said %d words in %v", len(words), time.Since(began))
	}
}

func TestNodeListensAgainAfterItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, still)
	waitFor(t, "node a knows of node b", func() bool { return !a.watch.isLone.Load() })
	listeners := func() int {
		return a.number(t, "SELECT count(*) FROM pg_stat_activity WHERE query = $1", "LISTEN "+pgx.Identifier{a.watch.channel()}.Sanitize())
	}
	waitFor(t, "both nodes listen", func() bool { return listeners() == 2 })
	if err := a.exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1",
		"LISTEN "+pgx.Identifier{a.watch.channel()}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both nodes listen again", func() bool { return listeners() == 2 })
	// It has looked at once for what it may have missed. From then on word has to do.
	for i := range int64(3) {
		hears(t, b.Watch().SettingsChanged(), "settings were saved", func() {
			if _, err := a.Settings().Save(t.Context(), []byte("x"), nil, i); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Of ends other nodes are told the ids, and look only if somebody waits for one of them: not at all there is.
func TestEndsMakeOtherNodesLookAtTheirRunsAlone(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	joinAs(t, a.schema, still)
	waitFor(t, "node a knows of node b", func() bool { return !a.watch.isLone.Load() })
	next := overhear(t, a)
	a.add(t, newAdded("a", ""))
	claims, _, err := a.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Hour})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	if _, err := a.Runs().End(t.Context(), claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	heard := false
	waitFor(t, "the end was told", func() bool {
		for _, text := range next() {
			said, _ := parseWord(text)
			heard = heard || slices.Contains(said.runs, claims[0].Run.ID)
			if said.node == a.node && strings.ContainsAny(said.kinds, "en") {
				t.Errorf("node b is told %q, and looks at everything", text)
			}
		}
		return heard
	})
}
