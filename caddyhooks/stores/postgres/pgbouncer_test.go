//go:build real

package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Behind a pgbouncer in transaction mode each call may be on another connection of the server.
func TestStoreWorksBehindPgbouncer(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1", Settings: "synchronous_commit = off\n"})
	bouncer := pgtest.NewPgbouncer(t, server, 3)
	for _, mode := range []string{"", " default_query_exec_mode=exec"} {
		t.Run("mode"+mode, func(t *testing.T) {
			s := openModule(t, newModule(t, bouncer.DSN("postgres")+mode))
			noteCommits(t, s, "queue", "done")
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if again := s.watch.listenOnce(soon); again != listenPooled {
				t.Errorf("a node listens through a pooler, or tries it again in %v", again)
			}
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					if _, err := addTo(t.Context(), s, fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 20, Lease: time.Minute})
			if err != nil || len(claims) != 20 {
				t.Fatalf("claimed %d, %v", len(claims), err)
			}
			for _, claim := range claims {
				group.Go(func() {
					end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "bye", HasText: true},
						Deliveries: []*engine.Delivery{{ID: engine.DeliveryID(claim.Run.ID, 0), RunID: claim.Run.ID, Callback: "https://example.com/", Body: "bye", Status: engine.Pending}}}
					if _, err := s.Runs().End(t.Context(), claim, end, engine.Batch{}); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 5, Lease: time.Minute})
			if err != nil || len(due) == 0 {
				t.Fatalf("claimed %d deliveries, %v", len(due), err)
			}
			due[0].Status = engine.Delivered
			if err := s.Deliveries().Settle(t.Context(), due[0], 0); err != nil {
				t.Error(err)
			}
			if page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 100}); err != nil || len(page) != 20 {
				t.Errorf("listed %d, %v", len(page), err)
			}
			if _, err := s.Settings().Save(t.Context(), []byte("{}"), []byte("{}"), 0); err != nil {
				t.Error(err)
			}
			for _, table := range []string{"queue", "done"} {
				if got := noted(t, s, table); len(got) != 1 || got[0] != "on" {
					t.Errorf("transactions that change %s commit with synchronous_commit %s", table, got)
				}
			}
		})
	}
}
