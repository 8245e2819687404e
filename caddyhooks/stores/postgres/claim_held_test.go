//go:build real

package postgres

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
)

// While a transaction is held open, as by a backup, what was ended since stays in the indexes. Claims do not read all of it again and again.
func TestClaimsPassOverWhatAHeldTransactionKeeps(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	held, own := dialTest(t, s), dialTest(t, s)
	execAll(t, held, s, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1")
	const ended = 5000
	execAll(t, own, s, `INSERT INTO @.queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, size, named, run)
			SELECT gen_random_uuid(), nextval('@.run_seq'), 'chat ' || i, true, nextval('@.turn_seq'), 1, 'agent', '', @.clock_1(), 5, false, '{}' FROM generate_series(1, 5000) i`,
		"UPDATE @.queue SET turn = NULL, node = 'x', lease_until = @.clock_1() - make_interval(mins => 1)",
		"DELETE FROM @.queue")
	last := s.number(t, "SELECT last_value FROM @.turn_seq")
	if last != ended {
		t.Fatalf("the last turn is %d", last)
	}
	all, some := pagesOfAClaim(t, own, s, 0, -1), pagesOfAClaim(t, own, s, last, 1)
	if all < 200 || some > all/4 {
		t.Errorf("a claim reads %d pages if it looks at all, and %d otherwise", all, some)
	}
	execAll(t, held, s, "COMMIT")
}

// pagesOfAClaim are those that a claim has to look at which finds nothing.
func pagesOfAClaim(t *testing.T, conn *pgx.Conn, s *store, after int, lapsed float64) int {
	t.Helper()
	pages := 0
	for range 2 { // the first one makes its plans, too
		var out []byte
		if err := conn.QueryRow(t.Context(), s.sql("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM @.claim_runs_1('test', 1, $1, $2, '{10}', '{3600}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')"),
			after, lapsed).Scan(&out); err != nil {
			t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(out, &plans); err != nil {
			t.Fatal(err)
		}
		pages = plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return pages
}

func dialTest(t *testing.T, s *store) *pgx.Conn {
	t.Helper()
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func execAll(t *testing.T, conn *pgx.Conn, s *store, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), s.sql(statement)); err != nil {
			t.Fatal(err)
		}
	}
}
