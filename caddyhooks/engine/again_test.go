package engine_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// moody fails until it is mended, and then echoes. It notes the messages of each chat.
type moody struct {
	mended   atomic.Bool
	mu       sync.Mutex
	messages map[string][]string // while it was well
}

func (m *moody) Run(_ context.Context, turn engine.Turn) (engine.Reply, error) {
	if !m.mended.Load() {
		return engine.Reply{}, errors.New("I am not well")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.messages == nil {
		m.messages = make(map[string][]string)
	}
	m.messages[turn.ChatID] = append(m.messages[turn.ChatID], turn.Message)
	return engine.Reply{Text: turn.Message}, nil
}

// keeping makes a run that keeps its message.
func keeping(chat, message string) *engine.Run {
	run := newRun(chat, message)
	run.History = time.Hour
	return run
}

func find(t *testing.T, e *engine.Engine, id string) *engine.Record {
	t.Helper()
	record, err := e.Find(t.Context(), id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestARunIsRunAgainAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := new(moody)
		c := config(runner)
		sent := &attempts{begin: time.Now(), send: func(context.Context, *engine.Delivery) error { return nil }}
		c.Callbacks, c.Channels = sent, map[string]engine.Channel{"chats": sent}
		e := start(t, c)
		first := &engine.Run{
			ChatID: "chat", Hook: "triage", Action: engine.Agent, Name: "a label", Message: `{"urgent":true}`, Metadata: []byte(`{"a":1}`),
			Tier: "smart", ValidationTier: "deep", MemoryPreset: "general_chat", Schema: []byte(`{"type":"object","required":["urgent"]}`),
			Sync: true, CallbackURL: "https://example.com/", Channel: "chats", To: "me", Timeout: time.Minute, QueueTime: 2 * time.Hour,
			History: time.Hour, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Runner: "default", Key: &engine.Key{ID: [32]byte{1}}, Test: true,
		}
		if outcome := <-waitFor(t, e, first); outcome.Status != engine.Failed {
			t.Fatalf("got %+v", outcome)
		}
		runner.mended.Store(true)
		for _, how := range []engine.Again{{}, {Deliver: true}, {ChatID: "another"}} {
			again, err := e.RunAgain(t.Context(), first.ID, how)
			if err != nil {
				t.Fatal(err)
			}
			want := *first
			want.ID, want.AcceptedAt, want.AgainOf = again.ID, again.AcceptedAt, first.ID
			want.Sync, want.Owner, want.Key, want.TraceParent = false, "", nil, ""
			if !how.Deliver {
				want.CallbackURL, want.Channel, want.To = "", "", ""
			}
			if how.ChatID != "" {
				want.ChatID = how.ChatID
			}
			if !reflect.DeepEqual(*again, want) {
				t.Errorf("the new run is\n%+v, want\n%+v", *again, want)
			}
			record := find(t, e, again.ID)
			if record.Status != engine.Completed || string(record.Outcome.JSON) != first.Message || again.ID == first.ID {
				t.Errorf("it ended as %+v", record.Outcome)
			}
			if deliveries := len(record.Deliveries); deliveries != 0 && !how.Deliver || deliveries != 2 && how.Deliver {
				t.Errorf("it has %d deliveries with %+v", deliveries, how)
			}
			if got := find(t, e, first.ID).AgainAs; got != again.ID {
				t.Errorf("the first run names %q", got)
			}
		}
	})
}

// A chat that nobody named does not get a name when its run is run again: it is the same chat, with the agent's session.
func TestRunAgainNamesNoChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		first := keeping("hook:0198c0de-0000-7000-8000-00000000000a", "hello")
		first.NewChat = true
		submit(t, e, first)
		find(t, e, first.ID)
		chats := func(want int) {
			t.Helper()
			if page, _, err := e.Chats(t.Context(), engine.ChatQuery{Limit: 10}); err != nil || len(page) != want {
				t.Errorf("got %d chats (%v), want %d", len(page), err, want)
			}
		}
		for range 2 {
			again, err := e.RunAgain(t.Context(), first.ID, engine.Again{})
			if err != nil || again.ChatID != first.ChatID || !again.NewChat {
				t.Fatalf("got %+v, %v", again, err)
			}
			chats(0)
			find(t, e, again.ID)
			chats(0)
		}
		if again, err := e.RunAgain(t.Context(), first.ID, engine.Again{ChatID: "named"}); err != nil || again.NewChat {
			t.Fatalf("got %+v, %v", again, err)
		}
		chats(1)
	})
}

func TestOnlyRunsThatHaveEndedAreRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			switch {
			case strings.HasPrefix(turn.Message, "fail"):
				return engine.Reply{}, errors.New("as you wish")
			case turn.Message == "hang":
				return hang(ctx, turn)
			}
			return echo(ctx, turn)
		})))
		completed, failed, running, waiting, cancelled, late := keeping("a", "x"), keeping("a", "fail"), keeping("b", "hang"), keeping("b", "x"), keeping("c", "hang"), keeping("d", "hang")
		forgetful, long := newRun("a", "fail"), keeping("a", "fail"+strings.Repeat("x", engine.MaxInput))
		running.Timeout = time.Hour
		for _, run := range []*engine.Run{completed, failed, forgetful, long, running, waiting, cancelled, late} {
			submit(t, e, run)
		}
		synctest.Wait()
		if _, err := e.Cancel(t.Context(), cancelled.ID, "somebody"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		for _, c := range []struct {
			run  *engine.Run
			want string // in the error; "" for none
		}{
			{completed, ""}, {running, "running"}, {waiting, "queued"}, {cancelled, ""},
			{forgetful, "not kept"}, {long, "64 KB"}, {failed, ""}, {late, ""}, {failed, ""},
		} {
			again, err := e.RunAgain(t.Context(), c.run.ID, engine.Again{})
			var not *engine.NotAgainError
			if c.want == "" && (err != nil || again.Message != c.run.Message) || c.want != "" && (!errors.As(err, &not) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%.20s: got %v, want %q", c.run.Message, err, c.want)
			}
		}
		if _, err := e.RunAgain(t.Context(), "none", engine.Again{}); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("a run that never was: %v", err)
		}
	})
}

func TestHistoryThatIsSwitchedOffIsForgottenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var history atomic.Int64
		history.Store(int64(time.Hour))
		c := config(echo)
		c.History = func() time.Duration { return time.Duration(history.Load()) }
		e := start(t, c)
		run := keeping("chat", "hello")
		submit(t, e, run)
		time.Sleep(5 * time.Minute)
		if record := find(t, e, run.ID); record.Kept != engine.KeptWhole || record.Run.Message != "hello" {
			t.Errorf("%q of the message is kept: %q", record.Kept, record.Run.Message)
		}
		history.Store(int64(engine.NoHistory))
		e.Prune()
		synctest.Wait()
		if record := find(t, e, run.ID); record.Kept != engine.KeptNothing || record.Run.Message != "" {
			t.Errorf("%q of the message is kept: %q", record.Kept, record.Run.Message)
		}
		// One that is accepted before and ends after it is forgotten in a minute.
		late := keeping("chat", "hello")
		submit(t, e, late)
		time.Sleep(time.Minute + time.Second)
		if record := find(t, e, late.ID); record.Kept != engine.KeptNothing || record.Status != engine.Completed {
			t.Errorf("%q of the message is kept", record.Kept)
		}
	})
}

func TestALotOfHistoryIsPrunedBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tampered{Store: memory.New().Store()}
		pruned := 0
		store.prune = func(engine.Limits) (bool, error) {
			pruned++
			return false, nil
		}
		c := config(echo)
		c.Limits.HistoryBytes = 16 << 20
		e := startOn(t, store, c)
		for i := range 40 { // 50 KB each
			submit(t, e, keeping(fmt.Sprint(i), strings.Repeat("x", 50<<10)))
		}
		synctest.Wait()
		if pruned != 1 {
			t.Errorf("pruned %d times", pruned)
		}
	})
}

// A field of a run is kept by a run that is started again, unless it is on this list.
func TestAllFieldsButSomeAreRunAgain(t *testing.T) {
	taken := []string{"ChatID", "Hook", "Action", "Name", "Message", "Metadata", "Tier", "ValidationTier", "MemoryPreset", "Schema", "Timeout",
		"QueueTime", "History", "NewChat", "Test", "Runner", "IDPlaceholder", "Sender", "Asks", "Budgets", "RequestID"}
	dropped := []string{"ID", "AgainOf", "AcceptedAt", "TraceParent", "Client", "Together", "Sync", "Owner", "Fold", "Gates", "Replaces", "Key", "KeyHeader", "Replay", "CallbackURL", "Channel", "To"}
	first := new(engine.Run)
	fields := reflect.ValueOf(first).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("a")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			f.Set(reflect.ValueOf(map[string]any{"AcceptedAt": time.Unix(1, 0), "Fold": engine.Fold{Max: 2}}[fields.Type().Field(i).Name]))
		}
	}
	first.ID = "id"
	again := reflect.ValueOf(engine.AgainOf(first)).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if kept := reflect.DeepEqual(again.Field(i).Interface(), fields.Field(i).Interface()); kept == slices.Contains(dropped, name) {
			t.Errorf("%s is kept: %v", name, kept)
		} else if kept && !slices.Contains(taken, name) {
			t.Errorf("does a run that is started again take over %s? Add it to taken, or drop it in again.go", name)
		}
	}
}
