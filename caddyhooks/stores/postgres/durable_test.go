//go:build real

package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// noteCommits has a test note, when a transaction that changed a table commits, whether it waits for the disk.
func noteCommits(t *testing.T, s *store, tables ...string) {
	t.Helper()
	statements := []string{
		"CREATE TABLE @.test_commits (changed text, synchronous_commit text)",
		fmt.Sprintf(`CREATE FUNCTION @.test_note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO %s.test_commits VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
			RETURN NULL;
		END $$`, pgx.Identifier{s.schema}.Sanitize()),
	}
	for _, table := range tables {
		statements = append(statements, fmt.Sprintf("CREATE CONSTRAINT TRIGGER test_commits AFTER INSERT OR UPDATE OR DELETE ON @.%s "+
			"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @.test_note_commit()", table))
	}
	for _, statement := range statements {
		if err := s.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// noted is how the transactions committed that changed a table.
func noted(t *testing.T, s *store, table string) (values []string) {
	t.Helper()
	err := s.query(t.Context(), func(rows pgx.Rows) error {
		var value string
		err := rows.Scan(&value)
		values = append(values, value)
		return err
	}, "SELECT DISTINCT synchronous_commit FROM @.test_commits WHERE changed = $1", table)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// The setting is looked at when a transaction commits. By then that of a function is undone.
func TestASettingOfAFunctionIsUndoneBeforeItsTransactionCommits(t *testing.T) {
	s := newTestStore(t) // of a server whose default is off
	for _, statement := range []string{
		"CREATE TABLE @.test_by_clause (n int)",
		"CREATE TABLE @.test_by_call (n int)",
		fmt.Sprintf("CREATE FUNCTION @.test_clause() RETURNS void LANGUAGE sql SET synchronous_commit = 'on' AS 'INSERT INTO %s.test_by_clause VALUES (1)'", s.schema),
		fmt.Sprintf("CREATE FUNCTION @.test_call() RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS 'BEGIN PERFORM %s.durable_1(); INSERT INTO %s.test_by_call VALUES (1); END'", s.schema, s.schema),
	} {
		if err := s.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	noteCommits(t, s, "test_by_clause", "test_by_call")
	for _, call := range []string{"SELECT @.test_clause()", "SELECT @.test_call()"} {
		if err := s.exec(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	if got := noted(t, s, "test_by_clause"); !slices.Equal(got, []string{"off"}) {
		t.Errorf("with a SET clause transactions commit with %q; if that is on now, durable_1 can go", got)
	}
	if got := noted(t, s, "test_by_call"); !slices.Equal(got, []string{"on"}) {
		t.Errorf("with durable_1 transactions commit with %q", got)
	}
}

func TestWhatIsReportedAsDoneIsOnTheDisk(t *testing.T) {
	s := newTestStore(t)
	tables := []string{"queue", "done", "key", "settings", "delivery", "counter"}
	noteCommits(t, s, tables...)
	ctx := t.Context()
	run := &engine.Run{ChatID: "chat", Hook: "agent", Action: engine.Agent, Message: "hello", Timeout: time.Minute, CallbackURL: "https://example.com/", Key: &engine.Key{ID: [32]byte{1}}}
	if err := s.Runs().Add(ctx, run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	if _, _, err := s.Runs().Renew(ctx, claims, time.Minute); err != nil {
		t.Fatal(err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "bye", HasText: true},
		Deliveries: []*engine.Delivery{{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Callback: "https://example.com/", Body: "bye", Status: engine.Pending}}}
	if _, err := s.Runs().End(ctx, claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	due, _, err := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 1, Lease: time.Minute})
	if err != nil || len(due) != 1 {
		t.Fatalf("claimed %d deliveries, %v", len(due), err)
	}
	due[0].Status = engine.Delivered
	if err := s.Deliveries().Settle(ctx, due[0], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settings().Save(ctx, []byte("{}"), nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if got := noted(t, s, table); !slices.Equal(got, []string{"on"}) {
			t.Errorf("transactions that change %s commit with synchronous_commit %s", table, strings.Join(got, ", "))
		}
	}
}
