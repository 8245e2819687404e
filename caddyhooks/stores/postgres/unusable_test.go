//go:build real

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

func TestStoreIsUnreachableWhileItsSchemaCannotBeUsed(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	role := pgtest.NewName("away_role_")
	server.Exec(t, "postgres", "CREATE ROLE "+role+" LOGIN; GRANT CREATE ON DATABASE postgres TO "+role)
	for name, test := range map[string]struct{ breaks, mends, reason string }{
		"no schema": {"ALTER SCHEMA %[1]s RENAME TO %[1]s_moved", "ALTER SCHEMA %[1]s_moved RENAME TO %[1]s", "is gone"},
		"no right": {"ALTER SCHEMA %[1]s OWNER TO postgres; REVOKE ALL ON SCHEMA %[1]s FROM %[2]s", "ALTER SCHEMA %[1]s OWNER TO %[2]s",
			"may not use the schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newModule(t, fmt.Sprintf("host=%s port=%s user=%s dbname=postgres", server.Dir, server.Port, role))
			s := openModule(t, p)
			id, err := addTo(t.Context(), s, "chat")
			if err != nil {
				t.Fatal(err)
			}
			server.Exec(t, "postgres", fmt.Sprintf(test.breaks, p.Schema, role))
			for deadline := time.Now().Add(time.Minute); ; {
				_, err = addTo(t.Context(), s, "chat")
				if _, _, cause := s.Outage(); cause != nil && strings.Contains(cause.Error(), test.reason) && errors.Is(err, engine.ErrUnreachable) {
					break
				}
				if err == nil || time.Now().After(deadline) {
					t.Fatalf("the store is not unreachable: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			server.Exec(t, "postgres", fmt.Sprintf(test.mends, p.Schema, role))
			mustReturn(t, s)
			if record, err := s.Runs().Get(t.Context(), id); err != nil || record.Status != engine.Queued {
				t.Errorf("got %+v, %v", record, err)
			}
		})
	}
}

func TestDSNWithASettingThatTheServerDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"nonsense=1", "work_mem=much"} {
		_, err := newModule(t, pgtest.Shared(t).DSN("postgres")+" "+setting).OpenStore(t.Context(), "test")
		if err == nil || errors.Is(err, engine.ErrUnreachable) {
			t.Errorf("with %s: %v", setting, err)
		}
	}
}

func TestStatementsNeedNotBeKept(t *testing.T) {
	t.Parallel()
	s := openModule(t, newModule(t, pgtest.Shared(t).DSN("postgres")+" statement_cache_capacity=0"))
	if _, err := addTo(t.Context(), s, "chat"); err != nil {
		t.Error(err)
	}
}
