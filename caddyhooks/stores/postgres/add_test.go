//go:build real

package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// newAdded makes a run, with a key of that name unless it is "".
func newAdded(chat, key string) *engine.Run {
	run := &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: "hello"}
	if key != "" {
		run.Key = &engine.Key{ID: sha256.Sum256([]byte(key)), Body: sha256.Sum256([]byte("body"))}
	}
	return run
}

// number asks the database for a number.
func (d *database) number(t testing.TB, statement string, arguments ...any) (n int) {
	t.Helper()
	if err := d.query(t.Context(), func(rows pgx.Rows) error { return rows.Scan(&n) }, statement, arguments...); err != nil {
		t.Fatal(err)
	}
	return n
}

// checkQueue expects that heads and figures of all chats are as they should be.
func checkQueue(t testing.TB, s *store, queued int) {
	t.Helper()
	for what, statement := range map[string]string{
		"chats without a head":                  "SELECT count(DISTINCT chat) FROM @.queue q WHERE NOT EXISTS (SELECT FROM @.queue h WHERE h.chat = q.chat AND h.head)",
		"heads that are not the first":          "SELECT count(*) FROM @.queue h WHERE head AND EXISTS (SELECT FROM @.queue q WHERE q.chat = h.chat AND q.seq < h.seq)",
		"heads that nobody can claim":           "SELECT count(*) FROM @.queue WHERE head AND node IS NULL AND turn IS NULL AND due_at IS NULL AND question IS NULL",
		"ready runs that are no heads":          "SELECT count(*) FROM @.queue WHERE NOT head AND turn IS NOT NULL",
		"keys of runs that are not there":       "SELECT count(*) FROM @.key k WHERE NOT EXISTS (SELECT FROM @.queue q WHERE q.id = k.run) AND NOT EXISTS (SELECT FROM @.done d WHERE d.id = k.run)",
		"keys more than there are counted":      "SELECT (SELECT count(*) FROM @.key) - (SELECT coalesce(sum(keys), 0) FROM @.counter)",
		"queued more than there are counted":    "SELECT (SELECT count(*) FROM @.queue WHERE node IS NULL AND question IS NULL) - (SELECT coalesce(sum(queued), 0) FROM @.counter)",
		"put aside more than there are counted": "SELECT (SELECT count(*) FROM @.queue WHERE question IS NOT NULL) - (SELECT coalesce(sum(waiting), 0) FROM @.counter)",
		"open more than there are counted":      "SELECT (SELECT count(*) FROM @.question WHERE people AND answered_at IS NULL) - (SELECT coalesce(sum(asking), 0) FROM @.counter)",
		"put aside and claimed or ready":        "SELECT count(*) FROM @.queue WHERE question IS NOT NULL AND (NOT head OR node IS NOT NULL OR turn IS NOT NULL)",
		"put aside for no open question":        "SELECT count(*) FROM @.queue q WHERE question IS NOT NULL AND NOT EXISTS (SELECT FROM @.question x WHERE x.run = q.id AND x.number = q.question AND x.answered_at IS NULL)",
		"open questions of ended runs":          "SELECT count(*) FROM @.question x WHERE answered_at IS NULL AND NOT EXISTS (SELECT FROM @.queue q WHERE q.id = x.run)",
	} {
		if n := s.number(t, statement); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	if n := s.number(t, "SELECT count(*) FROM @.queue WHERE node IS NULL AND question IS NULL"); n != queued {
		t.Errorf("%d runs are queued, want %d", n, queued)
	}
}

func TestAddKeepsRunsInOrder(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const runs = 200
	var want []string
	for i := range runs {
		run := newAdded([]string{"a", "b", `back\slash`, "zero\x00"}[i%4], "")
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		want = append(want, run.ID)
	}
	checkQueue(t, s, runs)
	var got []string
	if err := s.query(t.Context(), func(rows pgx.Rows) error {
		var id string
		err := rows.Scan(&id)
		got = append(got, id)
		return err
	}, "SELECT id::text FROM @.queue ORDER BY seq"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("the runs are not in the order in which they were added")
	}
	if !slices.IsSorted(want) {
		t.Error("the ids of one node do not ascend")
	}
}

// Several nodes add to few chats, and repeat each other's requests.
func TestNodesAddAtOnce(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	nodes := []*store{first, joinTestStore(t, first), joinTestStore(t, first)}
	const callers, each = 8, 40
	var mu sync.Mutex
	accepted := map[string]string{} // run by key
	repeated := map[string]string{}
	after := map[string]map[string]bool{} // by run: those of its chat whose Add had returned
	returned := map[string][]string{}     // by chat
	total := 0
	var all sync.WaitGroup
	for caller := range callers {
		for _, node := range nodes {
			all.Go(func() {
				for i := range each {
					key := ""
					if i%2 == 0 {
						key = fmt.Sprint("key ", caller, i) // of all nodes
					}
					chats := []string{fmt.Sprint("chat ", (i+caller)%5), fmt.Sprint("chat ", i%3), fmt.Sprint("new ", caller, i)}
					runs := []*engine.Run{newAdded(chats[0], key)}
					if i%5 == 0 {
						runs = append(runs, newAdded(chats[1], ""), newAdded(chats[2], ""), newAdded(chats[2], ""))
					}
					mu.Lock()
					before := slices.Clone(returned[chats[0]])
					mu.Unlock()
					err := node.Runs().AddAll(t.Context(), runs, engine.Terms{Limits: engine.Limits{Queue: 100_000, Chat: 10_000, Keys: 1000, KeyAge: time.Hour}})
					var duplicate *engine.DuplicateError
					mu.Lock()
					switch {
					case errors.As(err, &duplicate):
						if first, other := repeated[key], duplicate.First.ID; first != "" && first != other {
							t.Errorf("%s repeats %s and %s", key, first, other)
						}
						repeated[key] = duplicate.First.ID
					case err != nil:
						t.Error(err)
					default:
						total += len(runs)
						if key != "" && accepted[key] != "" {
							t.Errorf("%s was accepted twice", key)
						}
						if key != "" {
							accepted[key] = runs[0].ID
						}
						after[runs[0].ID] = map[string]bool{}
						for _, id := range before {
							after[runs[0].ID][id] = true
						}
						for _, run := range runs {
							returned[run.ChatID] = append(returned[run.ChatID], run.ID)
						}
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	checkQueue(t, first, total)
	if len(accepted) != callers*each/2 {
		t.Errorf("%d keys were accepted, want %d", len(accepted), callers*each/2)
	}
	for key, run := range repeated {
		if accepted[key] != run {
			t.Errorf("%s repeats %s, but %s was accepted", key, run, accepted[key])
		}
	}
	seen := map[string]map[string]bool{}
	if err := first.query(t.Context(), func(rows pgx.Rows) error {
		var id, chat string
		if err := rows.Scan(&id, &chat); err != nil {
			return err
		}
		if seen[chat] == nil {
			seen[chat] = map[string]bool{}
		}
		for earlier := range after[id] {
			if !seen[chat][earlier] {
				t.Errorf("%s comes before %s, which was added before", id, earlier)
			}
		}
		seen[chat][id] = true
		return nil
	}, "SELECT id::text, chat FROM @.queue ORDER BY seq"); err != nil {
		t.Fatal(err)
	}
}

func TestIDsGoByTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	second := joinTestStore(t, first)
	first.clock.ahead.Store(int64(5 * time.Hour))
	second.clock.ahead.Store(int64(-5 * time.Hour))
	last := time.Time{}
	for i := range 20 {
		node := []*store{first, second}[i%2]
		run := newAdded("a", "")
		if err := node.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		made := local.IDTime(uuid.MustParse(run.ID))
		if off := made.Sub(run.AcceptedAt).Abs(); off > time.Second {
			t.Errorf("an id is %v off", off)
		}
		if made.Before(last.Add(-time.Second)) {
			t.Errorf("an id is from %v before the last one", last.Sub(made))
		}
		last = made
	}
}

// What one request of a batch gets is no matter of the others.
func TestRequestsOfABatchAreOnTheirOwn(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	terms := engine.Terms{Limits: engine.Limits{Queue: 6, Chat: 2, KeyAge: time.Hour}}
	refusal := errors.New("no")
	refuse := terms
	refuse.Refuse = refusal
	once := terms
	once.Once = true
	again := newAdded("x", "again")
	again.AgainOf = "no id"
	newer := terms
	newer.Settings = 7
	signed := func(chat, key, replay string) *engine.Run {
		run := newAdded(chat, key)
		run.Replay = newAdded(chat, replay).Key
		return run
	}
	batch := []struct {
		terms engine.Terms
		runs  []*engine.Run
		want  error // engine.DuplicateError for any
	}{
		{refuse, []*engine.Run{newAdded("a", "1")}, refusal},
		{terms, []*engine.Run{newAdded("a", "1")}, nil},                                                       // the key is free
		{refuse, []*engine.Run{newAdded("a", "1")}, &engine.DuplicateError{}},                                 // it is not
		{once, []*engine.Run{again}, engine.ErrNotFound},                                                      //
		{terms, []*engine.Run{newAdded("a", "2"), newAdded("a", "")}, engine.ErrChatFull},                     // two of them
		{terms, []*engine.Run{newAdded("b", "2"), newAdded("a", "")}, nil},                                    //
		{terms, []*engine.Run{newAdded("a", "3")}, engine.ErrChatFull},                                        //
		{newer, []*engine.Run{newAdded("c", "1")}, engine.ErrSettingsChanged},                                 //
		{terms, []*engine.Run{signed("d", "2", "4")}, &engine.DuplicateError{}},                               // the signature is not kept
		{terms, []*engine.Run{signed("d", "3", "4")}, nil},                                                    //
		{terms, []*engine.Run{newAdded("e", "5"), newAdded("e", ""), newAdded("f", "")}, engine.ErrQueueFull}, //
		{terms, []*engine.Run{newAdded("e", "5"), newAdded("f", "")}, nil},                                    //
		{terms, []*engine.Run{newAdded("g", "")}, engine.ErrQueueFull},                                        //
		{terms, []*engine.Run{signed("d", "6", "4")}, &engine.DuplicateError{}},                               //
		{terms, []*engine.Run{newAdded("a", "5")}, &engine.DuplicateError{}},                                  //
		{engine.Terms{Limits: engine.Limits{Chat: 1}}, []*engine.Run{newAdded("f", "")}, engine.ErrChatFull},  //
		{engine.Terms{Limits: engine.Limits{Chat: 1}}, []*engine.Run{newAdded("g", "")}, nil},                 //
	}
	var calls []*addition
	for _, request := range batch {
		a, err := newAddition(request.runs, request.terms)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, a)
	}
	if err := s.runs.adding.addAll(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	for i, request := range batch {
		var duplicate *engine.DuplicateError
		if got := calls[i].err; !errors.Is(got, request.want) && (!errors.As(request.want, &duplicate) || !errors.As(got, &duplicate)) {
			t.Errorf("request %d: got %v, want %v", i+1, got, request.want)
		}
	}
	checkQueue(t, s, 7)
	if n := s.number(t, "SELECT count(*) FROM @.key"); n != 5 {
		t.Errorf("there are %d keys, want 5", n)
	}
}

func TestAValueThatTheDatabaseRefusesHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	long := make([]byte, 0, 20_000)
	for i := range 600 {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		long = fmt.Appendf(long, "%x", sum)
	}
	var calls []*addition
	for _, chat := range []string{"a", string(long), "b"} {
		a, err := newAddition([]*engine.Run{newAdded(chat, "")}, engine.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, a)
	}
	if err := s.runs.adding.addAll(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	if calls[0].err != nil || calls[1].err == nil || calls[2].err != nil {
		t.Errorf("got %v, %v, %v", calls[0].err, calls[1].err, calls[2].err)
	}
	checkQueue(t, s, 2)
}

// Behind a pgbouncer nothing is prepared, and PostgreSQL is told the types of arguments by pgx alone.
func TestAddWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	schema := newTestStore(t).schema
	n, err := parseDSN(pgtest.Shared(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	n.Config.DefaultQueryExecMode = pgx.QueryExecModeExec
	d := newDatabase(n, schema)
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newStore(d)
	t.Cleanup(func() { _ = s.Close() })
	run := newAdded("a", "key")
	run.Replay, run.AgainOf = newAdded("a", "other").Key, uuid.Nil.String()
	for _, runs := range [][]*engine.Run{{newAdded("a", "")}, {run, newAdded("b", "")}} {
		if err := s.Runs().AddAll(t.Context(), runs, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	var duplicate *engine.DuplicateError
	if err := s.Runs().Add(t.Context(), newAdded("a", "key"), engine.Terms{}); !errors.As(err, &duplicate) || duplicate.First.ID != run.ID {
		t.Errorf("got %v", err)
	}
	checkQueue(t, s, 3)
}

func TestFiguresOfNodesThatAreGoneStay(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for node := range 3 {
		for lane := range 2 {
			if err := s.exec(t.Context(), "INSERT INTO @.counter VALUES ($1, $2, 1, 2, 3, 4, 5, 6)", fmt.Sprint("gone ", node), lane+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.exec(t.Context(), "INSERT INTO @.node (name, version, alive_until) VALUES ('gone 2', 1, now())"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.exec(t.Context(), "SELECT @.merge_counters_1()"); err != nil {
			t.Fatal(err)
		}
		if n := s.number(t, "SELECT count(*) FROM @.counter WHERE node LIKE 'gone%'"); n != 2 {
			t.Errorf("there are %d rows, want 2", n)
		}
		if n := s.number(t, "SELECT sum(queued + 10 * running + 100 * pending + 1000 * dead + 10000 * keys + 100000 * told_bytes) FROM @.counter"); n != 6*654321 {
			t.Errorf("the sum is %d", n)
		}
	}
}

// newTestStore opens a schema of its own, which is closed at the end of the test.
func newTestStore(t testing.TB) *store {
	t.Helper()
	s := newPostgres(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// joinTestStore opens the same schema as another node.
func joinTestStore(t testing.TB, s *store) *store {
	t.Helper()
	other := openPostgres(t, s.schema)
	t.Cleanup(func() { _ = other.Close() })
	return other
}
