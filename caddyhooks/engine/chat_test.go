package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// remembering makes a run with a memory that keeps its message.
func remembering(chat, message string) *engine.Run {
	run := keeping(chat, message)
	run.MemoryPreset = "general_chat"
	return run
}

// listener notes what turns know of their chat, and answers "re: " and the message, or as reply says.
type listener struct {
	turns, bytes int // that it asks for
	reply        func(turn engine.Turn) (engine.Reply, error)

	mu   sync.Mutex
	past map[string][]string // by message; "message>reply"
}

func (l *listener) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	var past []string
	if turn.Chat == nil {
		past = []string{"no chat"}
	} else {
		turns, err := turn.Chat.Past(ctx, l.turns, l.bytes)
		if err != nil {
			return engine.Reply{}, err
		}
		for _, one := range turns {
			past = append(past, one.Message+">"+one.Reply)
		}
	}
	l.mu.Lock()
	if l.past == nil {
		l.past = make(map[string][]string)
	}
	l.past[turn.Message] = past
	l.mu.Unlock()
	if l.reply != nil {
		return l.reply(turn)
	}
	return engine.Reply{Text: "re: " + turn.Message}, nil
}

// wantPast expects what the turn with a message was told of the past.
func (l *listener) wantPast(t *testing.T, message string, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got, there := l.past[message]
	if !there || !slices.Equal(got, want) {
		t.Errorf("turn %q was told %q, want %q", message, got, want)
	}
}

// carryOut submits runs one after the other, and waits for the end of each.
func carryOut(t *testing.T, e *engine.Engine, runs ...*engine.Run) {
	t.Helper()
	for _, run := range runs {
		submit(t, e, run)
		if record := find(t, e, run.ID); !record.Status.Ended() {
			t.Fatalf("run %q is %s", run.Message, record.Status)
		}
	}
}

func TestATurnIsToldTheLastTurnsOfItsChatTheOldestFirst(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		l := &listener{turns: 2, bytes: 1000}
		e := startOn(t, open(), config(l))
		other := remembering("another chat", "x")
		other.Action = engine.Wake
		carryOut(t, e, remembering("chat", "1"), other, remembering("chat", "2"), remembering("chat", "3"), remembering("chat", "4"))
		l.wantPast(t, "1")
		l.wantPast(t, "x")
		l.wantPast(t, "2", "1>re: 1")
		l.wantPast(t, "3", "1>re: 1", "2>re: 2")
		l.wantPast(t, "4", "2>re: 2", "3>re: 3")
	})
}

func TestATurnIsNotToldOfThoseAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{turns: 10, bytes: 1000}
		e := start(t, config(l))
		for i := range 5 {
			submit(t, e, remembering("chat", fmt.Sprint(i)))
		}
		synctest.Wait()
		l.wantPast(t, "0")
		l.wantPast(t, "2", "0>re: 0", "1>re: 1")
		l.wantPast(t, "4", "0>re: 0", "1>re: 1", "2>re: 2", "3>re: 3")
	})
}

// The message of a turn with latest is that of its last run, also if others are kept for longer.
func TestThePastHasOfFoldsWithLatestWhatTheTurnWasTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		l := &listener{turns: 10, bytes: 1000}
		store := open()
		for i, history := range []time.Duration{time.Hour, time.Hour, time.Hour, 0} {
			run := remembering("chat", fmt.Sprint("state ", i))
			run.Fold, run.History = engine.Fold{Window: time.Hour, Max: 2, Latest: true}, history
			if err := store.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
				t.Fatal(err)
			}
		}
		carryOut(t, startOn(t, store, config(l)), remembering("chat", "last"))
		l.wantPast(t, "state 3", "state 1>re: state 1")
		l.wantPast(t, "last", "state 1>re: state 1")
	})
}

func TestThePastOfAChatIsCutFromTheOldest(t *testing.T) {
	for _, tc := range []struct {
		turns, bytes int
		want         []string
	}{
		{0, 1000, nil},
		{-1, 1000, nil},
		{10, 0, nil},
		{10, -1, nil},
		{1, 1000, []string{"ccc>re: ccc"}},
		{10, 9, nil}, // the last one alone has 10 bytes
		{10, 10, []string{"ccc>re: ccc"}},
		{10, 29, []string{"ccc>re: ccc"}}, // the first would fit, but there would be a gap
		{10, 30, []string{"bbbbbbbb>re: bbbbbbbb", "ccc>re: ccc"}},
		{10, 35, []string{"bbbbbbbb>re: bbbbbbbb", "ccc>re: ccc"}},
		{10, 36, []string{"a>re: a", "bbbbbbbb>re: bbbbbbbb", "ccc>re: ccc"}},
		{math.MaxInt, math.MaxInt, []string{"a>re: a", "bbbbbbbb>re: bbbbbbbb", "ccc>re: ccc"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &listener{turns: tc.turns, bytes: tc.bytes}
			e := start(t, config(l))
			carryOut(t, e, remembering("chat", "a"), remembering("chat", "bbbbbbbb"), remembering("chat", "ccc"), remembering("chat", "last"))
			l.wantPast(t, "last", tc.want...)
		})
	}
}

func TestOnlyCompletedTurnsWithAMemoryAreTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		l := &listener{turns: 2, bytes: 1000, reply: func(turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "fails" {
				return engine.Reply{Text: "half an answer"}, errors.New("no")
			}
			return engine.Reply{Text: "yes"}, nil
		}}
		e := startOn(t, open(), config(l))
		unkept := remembering("chat", "not kept")
		unkept.History = 0
		test := remembering("chat", "test")
		test.Test = true
		carryOut(t, e, remembering("chat", "first"), test)
		for range 2 { // more than are told, and in the way
			carryOut(t, e, keeping("chat", "disabled"), remembering("chat", "fails"), unkept)
			unkept = remembering("chat", "not kept either")
			unkept.History = 0
		}
		carryOut(t, e, remembering("chat", "last"))
		l.wantPast(t, "disabled", "no chat")
		l.wantPast(t, "not kept", "first>yes", "test>yes")
		l.wantPast(t, "last", "first>yes", "test>yes")
	})
}

func TestARepairKnowsNothingOfTheChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var knows []string
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			mu.Lock()
			defer mu.Unlock()
			session := ""
			if turn.Chat != nil {
				session, _ = turn.Chat.Session(ctx)
			}
			knows = append(knows, fmt.Sprint(turn.Repair, " ", turn.Chat != nil, " ", session))
			if turn.Repair == 0 {
				return engine.Reply{Text: "no object", Session: "of the turn"}, nil
			}
			return engine.Reply{Text: `{}`, Session: "of the repair"}, nil
		})))
		for range 2 {
			run := remembering("chat", "a")
			run.Schema = []byte(`{"type":"object"}`)
			carryOut(t, e, run)
		}
		if want := []string{"0 true ", "1 false ", "0 true of the turn", "1 false "}; !slices.Equal(knows, want) {
			t.Errorf("turns know %q, want %q", knows, want)
		}
	})
}

// What the agent said is told, not what of it matched the schema.
func TestTheReplyThatIsToldIsTheWholeText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{turns: 2, bytes: 1000, reply: func(engine.Turn) (engine.Reply, error) {
			return engine.Reply{Text: `Sure: {"a":1}`}, nil
		}}
		e := start(t, config(l))
		run := remembering("chat", "first")
		run.Schema = []byte(`{"type":"object"}`)
		carryOut(t, e, run, remembering("chat", "last"))
		l.wantPast(t, "last", `first>Sure: {"a":1}`)
	})
}

func TestWithoutAHistoryNothingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{turns: 2, bytes: 1000}
		var history atomic.Int64
		c := config(l)
		c.History = func() time.Duration { return time.Duration(history.Load()) }
		store := &countedPast{Store: memory.New().Store()}
		e := startOn(t, store, c)
		carryOut(t, e, remembering("chat", "1"), remembering("chat", "2"))
		l.wantPast(t, "2", "1>re: 1")
		history.Store(int64(engine.NoHistory)) // the messages are still there until the store is pruned
		store.calls.Store(0)
		carryOut(t, e, remembering("chat", "3"))
		l.wantPast(t, "3")
		if n := store.calls.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
		history.Store(0)
		carryOut(t, e, remembering("chat", "4"))
		l.wantPast(t, "4", "2>re: 2", "3>re: 3")
		e.Prune()
		time.Sleep(2 * time.Hour) // longer than the runs keep them
		carryOut(t, e, remembering("chat", "5"))
		l.wantPast(t, "5")
	})
}

func TestAMessageThatWasCutIsToldCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{turns: 2, bytes: 1 << 20, reply: func(engine.Turn) (engine.Reply, error) { return engine.Reply{Text: "yes"}, nil }}
		e := start(t, config(l))
		carryOut(t, e, remembering("chat", strings.Repeat("é", engine.MaxInput)), remembering("chat", "last"))
		l.wantPast(t, "last", strings.Repeat("é", engine.MaxInput/2)+">yes")
	})
}

// countedPast is a store that counts how often it is asked for the past of a chat, and how many runs it finds.
type countedPast struct {
	engine.Store
	calls, runs atomic.Int64
}

func (s *countedPast) Runs() engine.Runs { return countedPastRuns{s.Store.Runs(), s} }

type countedPastRuns struct {
	engine.Runs
	counts *countedPast
}

func (r countedPastRuns) Past(ctx context.Context, chat string, turns, bytes int) ([]*engine.Record, error) {
	past, err := r.Runs.Past(ctx, chat, turns, bytes)
	r.counts.calls.Add(1)
	r.counts.runs.Add(int64(len(past)))
	return past, err
}

func (r countedPastRuns) List(context.Context, engine.Query) ([]*engine.Record, string, error) {
	return nil, "", errors.New("a turn needs no list")
}

// fill adds runs that have ended, and so skips the engine.
func fill(t testing.TB, s engine.Store, n int, run func(i int) (*engine.Run, engine.End)) {
	t.Helper()
	for i := range n {
		run, end := run(i)
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
	}
}

func completed(text string) engine.End {
	return engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: text, HasText: true}}
}

func TestThePastOfALongChatCostsNoMore(t *testing.T) {
	const long = 2_000
	good := func(chat string) func(i int) (*engine.Run, engine.End) {
		return func(i int) (*engine.Run, engine.End) {
			return remembering(chat, fmt.Sprint(i)), completed("yes")
		}
	}
	for _, tc := range []struct {
		name string
		fill func(i int) (*engine.Run, engine.End)
		past int
		runs int64
	}{
		{"completed", good("chat"), 20, 20},
		{"of another chat", good("another"), 0, 0},
		{"failed", func(i int) (*engine.Run, engine.End) {
			return remembering("chat", fmt.Sprint(i)), engine.End{Outcome: engine.Outcome{Status: engine.Failed}}
		}, 0, 0},
		{"disabled, but for the first", func(i int) (*engine.Run, engine.End) {
			if i == 0 {
				return remembering("chat", "first"), completed("yes")
			}
			return keeping("chat", fmt.Sprint(i)), completed("yes")
		}, 1, 1},
		{"with long answers", func(i int) (*engine.Run, engine.End) {
			return remembering("chat", fmt.Sprint(i)), completed(strings.Repeat("x", 1<<15))
		}, 1, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &listener{turns: 20, bytes: 64 << 10}
			store := &countedPast{Store: memory.New().Store()}
			fill(t, store, long, tc.fill)
			e := startOn(t, store, config(l))
			carryOut(t, e, remembering("chat", "last"))
			if calls, runs := store.calls.Load(), store.runs.Load(); len(l.past["last"]) != tc.past || calls != 1 || runs != tc.runs {
				t.Errorf("%s: %d turns were told; the store was asked %d times and found %d runs, want %d, 1 and %d", tc.name, len(l.past["last"]), calls, runs, tc.past, tc.runs)
			}
		})
	}
}

// sessionKeeper answers with the session that it was told, and names the one that the message names.
var sessionKeeper = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.Chat == nil {
		return engine.Reply{Text: "no chat", Session: turn.Message}, nil
	}
	session, err := turn.Chat.Session(ctx)
	return engine.Reply{Text: session, Session: turn.Message}, err
})

// answers expects a run to be answered with a text.
func answers(t *testing.T, e *engine.Engine, run *engine.Run, want string) {
	t.Helper()
	submit(t, e, run)
	if record := find(t, e, run.ID); record.Status != engine.Completed || record.Outcome.Text != want {
		t.Errorf("the run of chat %q that says %q is %s and answers %q, want %q", run.ChatID, run.Message, record.Status, record.Outcome.Text, want)
	}
}

func TestARunnerGetsItsLastSessionOfTheChat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		c := config(sessionKeeper)
		c.Runners["other"] = sessionKeeper
		e := startOn(t, open(), c)
		answers(t, e, remembering("chat", "one"), "")
		answers(t, e, remembering("chat", "two"), "one")
		answers(t, e, remembering("chat", ""), "two")
		answers(t, e, remembering("chat", ""), "two") // a turn that names none leaves it
		answers(t, e, remembering("another chat", "three"), "")

		byName := remembering("chat", "four")
		byName.Runner = "default" // a run that names no runner has the same one
		answers(t, e, byName, "two")
		other := remembering("chat", "five")
		other.Runner = "other"
		answers(t, e, other, "")
		answers(t, e, newRun("chat", "of a turn without memory"), "no chat")
		answers(t, e, remembering("chat", ""), "four")
		other = remembering("chat", "")
		other.Runner = "other"
		answers(t, e, other, "five")
		answers(t, e, remembering("another chat", ""), "three")
	})
}

// The name may be what lets somebody into the conversation, so it is not logged.
func TestASessionThatCannotBeKeptIsLoggedAndLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		c := config(sessionKeeper)
		c.Log = zap.New(core)
		e := start(t, c)
		longest := strings.Repeat("x", engine.MaxSession)
		answers(t, e, remembering("chat", longest), "")
		for _, name := range []string{longest + "x", "s3cret\xff", "s3cret\n", "s3cret\x00", "\u0085s3cret"} {
			answers(t, e, remembering("chat", name), longest)
		}
		answers(t, e, remembering("chat", ""), longest)
		lines := logs.FilterMessage("runner's session not kept").All()
		if len(lines) != 5 {
			t.Errorf("there are %d lines in the log", len(lines))
		}
		for _, line := range lines {
			if text := fmt.Sprint(line.ContextMap()); strings.Contains(text, "s3cret") || strings.Contains(text, "xxx") {
				t.Errorf("the log says %s", text)
			}
		}
	})
}

func TestASessionIsKeptHoweverTheTurnEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		hangs  bool
		status engine.Status
	}{
		"with an error":            {err: errors.New("no"), status: engine.Failed},
		"with its time":            {hangs: true, status: engine.TimedOut},
		"with an UnavailableError": {err: &engine.UnavailableError{Err: errors.New("away")}, status: engine.Queued},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				if calls.Add(1) > 1 {
					return sessionKeeper(ctx, turn)
				}
				if tc.hangs {
					<-ctx.Done()
					return engine.Reply{Session: "named"}, ctx.Err()
				}
				return engine.Reply{Session: "named"}, tc.err
			})))
			run := remembering("chat", "")
			run.Timeout = 10 * time.Second
			submit(t, e, run)
			if tc.status == engine.Queued {
				synctest.Wait()
				if record := found(t, e, run); record.Status != tc.status {
					t.Errorf("%s: the run is %s", name, record.Status)
				}
				if record := find(t, e, run.ID); record.Outcome.Text != "named" { // it gets the session when it is tried again
					t.Errorf("%s: the second attempt answers %q", name, record.Outcome.Text)
				}
			} else if record := find(t, e, run.ID); record.Status != tc.status {
				t.Errorf("%s: the run is %s", name, record.Status)
			}
			answers(t, e, remembering("chat", ""), "named")
		})
	}
}

// A caller waits, so the busy runner is called again in the same turn.
func TestASessionIsKnownToTheNextCallOfTheSameTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if calls.Add(1) == 1 {
				return engine.Reply{Session: "named"}, &engine.UnavailableError{Busy: true, Err: errors.New("busy")}
			}
			return sessionKeeper(ctx, turn)
		})))
		run := syncRun("chat", "")
		run.MemoryPreset = "general_chat"
		if outcome := <-waitFor(t, e, run); outcome.Text != "named" {
			t.Errorf("got %+v", outcome)
		}
		answers(t, e, remembering("chat", ""), "named")
	})
}

func TestASessionIsKeptOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	open := func() engine.Store {
		database, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return database.Store()
	}
	e := startOn(t, open(), config(sessionKeeper))
	answers(t, e, remembering("chat", "one"), "")
	e.Stop()
	e = startOn(t, open(), config(sessionKeeper))
	answers(t, e, remembering("chat", "two"), "one")
	e.Stop()

	// A turn that the end of the engine cuts short leaves its session as well, and its run goes on with it.
	begun := make(chan struct{})
	c := config(runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
		close(begun)
		<-ctx.Done()
		return engine.Reply{Session: "three"}, ctx.Err()
	}))
	c.DrainTimeout = time.Millisecond
	e = startOn(t, open(), c)
	run := remembering("chat", "")
	submit(t, e, run)
	<-begun
	e.Stop()
	e = startOn(t, open(), config(sessionKeeper))
	if record := find(t, e, run.ID); record.Outcome.Text != "three" {
		t.Errorf("the run that was put back answers %q", record.Outcome.Text)
	}
}

func TestTheNextTurnOnAnotherNodeGetsTheSession(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		a, b := startOn(t, open(), config(sessionKeeper)), startOn(t, open(), config(sessionKeeper))
		const turns = 40
		var runs []*engine.Run
		for i := range turns {
			run := remembering("chat", fmt.Sprint(i))
			submit(t, []*engine.Engine{a, b}[i%2], run)
			runs = append(runs, run)
		}
		for i, run := range runs {
			want := ""
			if i > 0 {
				want = fmt.Sprint(i - 1)
			}
			if record := find(t, a, run.ID); record.Outcome.Text != want {
				t.Errorf("turn %d got the session %q, want %q", i, record.Outcome.Text, want)
			}
		}
	})
}

// A node that stood still has lost its run. What its turn names must not be taken for the session of the turn that followed.
func TestATurnThatLostItsRunNamesNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		release, begun := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		still := new(gate)
		first := startOn(t, &tampered{Store: data.Store(), gate: still}, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if calls.Add(1) > 1 {
				return sessionKeeper(ctx, turn)
			}
			close(begun)
			<-release // it does not heed its context
			return engine.Reply{Text: "late", Session: "late"}, nil
		})))
		t.Cleanup(still.open)
		run := remembering("chat", "right")
		run.Timeout = time.Hour
		submit(t, first, run)
		<-begun
		still.close()
		second := startOn(t, data.Store(), config(sessionKeeper))
		if record := find(t, second, run.ID); record.Outcome.Text != "" || record.Attempts != 2 {
			t.Errorf("the run answers %q at attempt %d", record.Outcome.Text, record.Attempts)
		}
		close(release)
		synctest.Wait()
		still.open()
		synctest.Wait()
		answers(t, second, remembering("chat", ""), "right")
	})
}
