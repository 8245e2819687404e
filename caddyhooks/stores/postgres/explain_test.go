//go:build real

package postgres

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var explainRows = flag.Int("explain-rows", 50_000, "how many rows tables have at most when statements are explained")

// explains expects that what a call does takes no longer if tables are large: it reads no table from beginning to end, and neither reads
// nor sorts more than some rows, whatever they have. It is tried with plans that were made while the tables were empty, and with new ones.
//
// fill makes the rows with the numbers from up to to, in each table that matters. call makes a call, which should find something to do; n
// tells the calls apart.
func explains(t *testing.T, fill func(t *testing.T, s *store, from, to int), call func(t *testing.T, s *store, n int)) {
	t.Helper()
	explainsUpTo(t, 1500, fill, call) // calls are for fewer than a batch
}

// explainsUpTo is explains for a call that reads so many rows at most.
func explainsUpTo(t *testing.T, most float64, fill func(t *testing.T, s *store, from, to int), call func(t *testing.T, s *store, n int)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long, and its plans do not depend on goroutines")
	}
	plain := newTestStore(t)
	old := newExplained(t, plain.schema)
	rows, calls := 0, 0
	for _, size := range []int{0, 1000, 50_000, 1_000_000} {
		if size > *explainRows {
			break
		}
		fill(t, plain, rows, size)
		rows = size
		check := func(e *explained, plans string) {
			for range 8 { // from the sixth on they may have the same plan
				calls++
				call(t, e.store, calls)
			}
			for _, problem := range e.problems(t, most) {
				t.Errorf("with %d rows, %s: %s", size, plans, problem)
			}
		}
		check(old, "plans of empty tables")
		execForLong(t, plain, "ANALYZE @.queue, @.done, @.told, @.key, @.session, @.question, @.delivery, @.gate")
		check(newExplained(t, plain.schema), "new plans")
	}
}

// explained is a store that is told how all its statements are carried out.
type explained struct {
	*store
	mu    sync.Mutex
	plans []string
}

func newExplained(t *testing.T, schema string) *explained {
	t.Helper()
	n, err := parseDSN(pgtest.Shared(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	e := new(explained)
	n.Config.RuntimeParams["options"] = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_nested_statements=on " +
		"-c auto_explain.log_analyze=on -c auto_explain.log_timing=off -c auto_explain.log_format=json -c auto_explain.log_level=notice"
	n.Config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		if _, plan, found := strings.Cut(notice.Message, "plan:\n"); found {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.plans = append(e.plans, plan)
		}
	}
	d := newDatabase(n, schema)
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.store = newStore(d)
	t.Cleanup(func() { _ = e.Close() })
	e.take()
	return e
}

func (e *explained) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	plans := e.plans
	e.plans = nil
	return plans
}

// planNode is a part of a plan, as EXPLAIN (ANALYZE, FORMAT JSON) has it.
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Unjoined float64    `json:"Rows Removed by Join Filter"`
	Rejected float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

// smallTables have few rows, however many runs there are.
var smallTables = []string{"settings", "meta", "node", "counter", "kind", "test_clock"}

// problems looks at all plans since it was last asked, for parts that have more than so many rows.
func (e *explained) problems(t *testing.T, most float64) (found []string) {
	t.Helper()
	plans := e.take()
	if len(plans) == 0 {
		t.Fatal("no plan was shown")
	}
	for _, text := range plans {
		var plan struct {
			Query string   `json:"Query Text"`
			Plan  planNode `json:"Plan"`
		}
		if err := json.Unmarshal([]byte(text), &plan); err != nil {
			t.Fatalf("%v: %.300s", err, text)
		}
		var look func(n *planNode)
		look = func(n *planNode) {
			rows := (n.Rows + n.Removed + n.Unjoined + n.Rejected) * n.Loops
			what := ""
			switch {
			case n.Type == "Seq Scan" && !slices.Contains(smallTables, n.Relation) && n.Loops > 0:
				what = "reads all of " + n.Relation
			case rows > most:
				what = fmt.Sprintf("%s %s %s has %.0f rows", n.Type, n.Relation, n.Index, rows)
			}
			if problem := fmt.Sprintf("%s in\n%.500s", what, plan.Query); what != "" && !slices.Contains(found, problem) {
				found = append(found, problem)
			}
			for i := range n.Plans {
				look(&n.Plans[i])
			}
		}
		look(&plan.Plan)
	}
	return found
}

func TestExplainingFindsBadPlans(t *testing.T) {
	t.Parallel()
	plain := newTestStore(t)
	fillRuns(t, plain, 0, 4000)
	e := newExplained(t, plain.schema)
	for statement, bad := range map[string]bool{
		"SELECT seq FROM @.queue WHERE id = '00000000-0000-0000-0000-000000000000'": false,
		"SELECT 1 FROM @.queue WHERE size = 7":                                      true,
		"SELECT turn FROM @.queue WHERE turn IS NOT NULL ORDER BY turn LIMIT 10":    false,
		"SELECT turn FROM @.queue WHERE turn > 0 AND fold_max = 7 ORDER BY turn":    true,
		"SELECT g FROM generate_series(1, 5000) g ORDER BY -g":                      true,
		"SELECT 1 FROM @.settings":                                                  false,
	} {
		if err := e.exec(t.Context(), "SET enable_seqscan = "+map[bool]string{true: "on", false: "off"}[strings.Contains(statement, "size")]); err != nil {
			t.Fatal(err)
		}
		if err := e.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if problems := e.problems(t, 1500); len(problems) > 0 != bad {
			t.Errorf("%s: %q", statement, problems)
		}
	}
}

// execForLong carries out a statement that may take longer than those of stores.
func execForLong(t testing.TB, s *store, statement string, arguments ...any) {
	t.Helper()
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), s.sql(statement), arguments...)
	_ = conn.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
}

// fillRuns makes queued runs, of which half are in one chat and the others in one each, ended runs, and keys.
func fillRuns(t testing.TB, s *store, from, to int) {
	t.Helper()
	fillTables(t, s, from, to)
}

// fillTables is fillRuns for benchmarks, too.
func fillTables(t testing.TB, s *store, from, to int) {
	t.Helper()
	if from == to {
		return
	}
	for _, statement := range []string{
		"INSERT INTO @.kind (runner, hook) VALUES ('', 'agent') ON CONFLICT DO NOTHING",
		`INSERT INTO @.queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, size, named, run)
			SELECT gen_random_uuid(), nextval('@.run_seq'), r.chat, r.head, CASE WHEN r.head THEN nextval('@.turn_seq') END,
				(SELECT id FROM @.kind WHERE runner = '' AND hook = 'agent'), 'agent', '', now(), 5, true, '{"action":"agent","message":"hello"}'
			FROM (SELECT CASE WHEN n % 2 = 0 THEN 'long' ELSE 'chat ' || n END AS chat,
				n % 2 = 1 OR n = 0 AND NOT EXISTS (SELECT FROM @.queue WHERE chat = 'long') AS head FROM generate_series($1::int, $2::int - 1) n) r`,
		`INSERT INTO @.done (id, seq, chat, hook, runner, status, accepted_at, started_at, finished_at, attempts, named, past, run, ending)
			SELECT gen_random_uuid(), nextval('@.run_seq'), CASE WHEN n % 2 = 0 THEN 'long' ELSE 'chat ' || n END, 'agent', '', 'completed', now(), now(), now(), 1, true, true,
				'{"action":"agent"}', '{"status":"completed"}'
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.key (id, body, at, run, first) SELECT sha256(('fill ' || n)::bytea), sha256('body'), now() - interval '3 hours', gen_random_uuid(), '{}'
			FROM generate_series($1::int, $2::int - 1) n ON CONFLICT DO NOTHING`,
		"INSERT INTO @.counter AS c (node, lane, queued, keys) VALUES ('fill', 1, $2::int - $1::int, $2::int - $1::int) ON CONFLICT (node, lane) DO UPDATE SET queued = c.queued + excluded.queued, keys = c.keys + excluded.keys",
	} {
		arguments := []any{from, to}
		if !strings.Contains(statement, "$1") {
			arguments = nil
		}
		execForLong(t, s, statement, arguments...)
	}
}

func TestAddingTakesNoLongerInALongQueue(t *testing.T) {
	t.Parallel()
	var before string
	fill := func(t *testing.T, s *store, from, to int) { fillRuns(t, s, from, to) }
	explains(t, fill, func(t *testing.T, s *store, n int) {
		limits := engine.Limits{Queue: 10_000_000, Chat: 100, Keys: 10_000_000, KeyAge: time.Hour}
		var calls []*addition
		add := func(terms engine.Terms, runs ...*engine.Run) {
			a, err := newAddition(runs, terms)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, a)
		}
		// Runs of all sorts, each of them alone and then all in one call.
		for i := range 2 {
			number := 2*n + i
			unlimited := limits
			unlimited.Chat = 0
			again := newAdded("a", "")
			again.AgainOf = before
			several := []*engine.Run{newAdded(fmt.Sprint("new ", number), ""), newAdded(fmt.Sprint("new ", number), "")}
			add(engine.Terms{Limits: limits}, newAdded(fmt.Sprint("newer ", number), ""))
			add(engine.Terms{Limits: limits}, newAdded("long", ""))
			add(engine.Terms{Limits: limits}, several...)
			add(engine.Terms{Limits: unlimited}, newAdded("long", ""))
			add(engine.Terms{Limits: limits}, newAdded("b", fmt.Sprint("key ", number)))
			add(engine.Terms{Limits: limits}, newAdded("b", fmt.Sprint("key ", 2)))       // a repeated one
			add(engine.Terms{Limits: limits}, newAdded("b", fmt.Sprint("fill ", number))) // an old one
			add(engine.Terms{Limits: limits}, again)
		}
		few := limits
		few.Keys = s.number(t, "SELECT sum(keys)::int FROM @.counter")
		add(engine.Terms{Limits: few}, newAdded("c", fmt.Sprint("one more ", n)))
		for _, a := range calls[:len(calls)/2] {
			s.runs.adding.addTogether(t.Context(), []*addition{a})
		}
		if err := s.runs.adding.addAll(t.Context(), calls[len(calls)/2:]); err != nil {
			t.Fatal(err)
		}
		before = calls[0].runs[0].ID
		for _, a := range calls {
			if a.err != nil && !errors.Is(a.err, engine.ErrChatFull) && !strings.Contains(a.err.Error(), "same key") {
				t.Fatal(a.err)
			}
		}
	})
}
