package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// blunt does with a turn as its message says: it hangs, is busy, answers with what follows "answer ", or fails with the message.
var blunt = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	message := turn.Message
	if turn.Repair > 0 {
		message = "answer no good"
	}
	switch answer, ok := strings.CutPrefix(message, "answer "); {
	case ok:
		return engine.Reply{Text: answer}, nil
	case message == "hang":
		return hang(ctx, turn)
	case message == "hang with words":
		_, err := hang(ctx, turn)
		return engine.Reply{}, fmt.Errorf("ended: %w", &engine.CutShortError{LastWords: "waiting for the model", Err: err})
	case message == "busy":
		return engine.Reply{}, &engine.UnavailableError{Busy: true, RetryAfter: time.Hour, Err: wordyError("go away\nor wait")}
	case message == "wordy":
		return engine.Reply{}, fmt.Errorf("reading: %w", wordyError("Traceback:\n"+strings.Repeat("é", 4000)))
	}
	return engine.Reply{}, errors.New(message)
})

// wordyError is about an answer of several lines.
type wordyError string

func (e wordyError) Error() string {
	line, _, _ := strings.Cut(string(e), "\n")
	return "the runner answered: " + line
}

func (e wordyError) Answer() string { return string(e) }

// TestOperatorsAreToldHowARunEnded looks at each way in which a run ends: at the line in the log, and at the record.
func TestOperatorsAreToldHowARunEnded(t *testing.T) {
	cancel := func(t *testing.T, e *engine.Engine, run *engine.Run) {
		t.Helper()
		if _, err := e.Cancel(t.Context(), run.ID, "the admin API, from 10.1.2.3"); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		message string
		change  func(*engine.Run)
		crashes int
		remote  bool // the store is one of several nodes
		queued  bool // it stays in the queue
		then    func(t *testing.T, e *engine.Engine, run *engine.Run)
		want    map[string]any // beside the fields that every line has
	}{
		"completed": {message: "answer hello", want: map[string]any{"status": "completed"}},
		"repaired": {message: "answer no", change: func(run *engine.Run) { run.Schema = json.RawMessage(`{"const":"no good"}`) },
			want: map[string]any{"status": "failed", "repairs": int64(3), "reason": "the answer does not match the schema after 3 repair attempts",
				"last_answer": "no good", "validation_errors": []any{"at the top level: the answer is not a JSON value: a value must start here"}}},
		"with a key": {message: "answer hello", change: func(run *engine.Run) {
			run.Key, run.KeyHeader = &engine.Key{}, "Webhook-Id"
		}, want: map[string]any{"status": "completed", "key_header": "Webhook-Id"}},
		"run again": {message: "answer hello", change: func(run *engine.Run) { run.AgainOf = "an earlier run" },
			want: map[string]any{"status": "completed", "again_of": "an earlier run"}},
		"a test": {message: "answer hello", change: func(run *engine.Run) { run.Test = true },
			want: map[string]any{"status": "completed", "test": true}},
		"failed": {message: "status 500:\n\x1b[31m" + strings.Repeat("é", 1000), want: map[string]any{"status": "failed",
			"reason": `status 500:\n\x1b[31m` + strings.Repeat("é", 244) + "…"}},
		"without a runner": {message: "answer hello", change: func(run *engine.Run) { run.Runner = "old" },
			want: map[string]any{"status": "failed", "reason": `runner "old" is not configured any more`, "runner": "old"}},
		"refused": {message: "busy", change: func(run *engine.Run) { run.Sync = true },
			want: map[string]any{"status": "failed", "reason": "the runner answered: go away", "last_answer": "go away\nor wait"}},
		"failed with many words": {message: "wordy", want: map[string]any{"status": "failed", "reason": "reading: the runner answered: Traceback:",
			"last_answer": "Traceback:\n" + strings.Repeat("é", 889) + "…"}},
		"timed out": {message: "hang", then: func(*testing.T, *engine.Engine, *engine.Run) { time.Sleep(time.Hour) },
			want: map[string]any{"status": "timed_out", "took": time.Minute, "reason": "the runner did not answer within the 1m0s that the run had"}},
		"timed out with words": {message: "hang with words", then: func(*testing.T, *engine.Engine, *engine.Run) { time.Sleep(time.Hour) },
			want: map[string]any{"status": "timed_out", "took": time.Minute,
				"reason": "the runner did not answer within the 1m0s that the run had; its last words: waiting for the model"}},
		"cancelled while it ran": {message: "hang", then: cancel,
			want: map[string]any{"status": "cancelled", "cancelled_by": "the admin API, from 10.1.2.3"}},
		"cancelled while it was queued": {message: "answer hello", queued: true, then: cancel,
			want: map[string]any{"status": "cancelled", "attempts": int64(0), "cancelled_by": "the admin API, from 10.1.2.3"}},
		"cancelled after a crash": {message: "hang", crashes: 2, queued: true, then: cancel,
			want: map[string]any{"status": "cancelled", "attempts": int64(2), "cancelled_by": "the admin API, from 10.1.2.3"}},
		"expired": {message: "answer hello", queued: true, change: func(run *engine.Run) { run.QueueTime = time.Hour },
			then: func(*testing.T, *engine.Engine, *engine.Run) { time.Sleep(2 * time.Hour) },
			want: map[string]any{"status": "expired", "attempts": int64(0), "reason": "no runner took the run on within its queue time of 1h0m0s"}},
		"interrupted too often": {message: "answer hello", crashes: 3, want: map[string]any{"status": "failed", "attempts": int64(3),
			"reason": "the run was started 3 times, and the service or the agent went down each time"}},
		"its caller is gone": {message: "answer hello", crashes: 1, change: func(run *engine.Run) { run.Sync, run.Owner = true, "a node that is gone" },
			want: map[string]any{"status": "failed", "attempts": int64(1), "reason": "the service was restarted before the run ended, and its caller is gone"}},
		"its caller was on another node": {message: "answer hello", crashes: 1, remote: true, change: func(run *engine.Run) { run.Sync, run.Owner = true, "a node that is gone" },
			want: map[string]any{"status": "failed", "attempts": int64(1), "reason": "the node that the caller waited at seemed to be down: its lease of 12s was over. " +
				"It went down or was cut off, or the clock of the database was set"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.InfoLevel)
				c := config(blunt)
				c.Log, c.MaxAttempts = zap.New(core), 3
				if tc.queued {
					c.Workers = 0
				}
				store := memory.New().Store()
				run := newRun("a chat", tc.message)
				run.Name, run.Client = "a label", "192.0.2.7"
				if tc.change != nil {
					tc.change(run)
				}
				if tc.crashes > 0 {
					add(t, store, run)
					crash(t, store, tc.crashes)
				}
				opened := store
				if tc.remote {
					opened = remoteStore{store}
				}
				e := startOn(t, opened, c)
				if tc.crashes == 0 {
					if run.Sync {
						waitFor(t, e, run)
					} else {
						submit(t, e, run)
					}
				}
				synctest.Wait()
				if tc.then != nil {
					tc.then(t, e, run)
				}
				synctest.Wait()

				want := map[string]any{"run_id": run.ID, "hook": "agent", "name": "a label", "chat": "a chat", "action": "agent", "client": "192.0.2.7",
					"repairs": int64(0), "took": time.Duration(0), "attempts": int64(1)}
				for field, value := range tc.want {
					want[field] = value
				}
				answer := want["last_answer"]
				if want["validation_errors"] == nil {
					delete(want, "last_answer") // the log has no more than the first line, in the reason
				}
				wantLine(t, logs, want)
				if answer != nil {
					want["last_answer"] = answer
				}
				record := find(t, e, run.ID)
				account := record.Outcome.Account
				got := map[string]any{"attempts": int64(record.Attempts), "client": record.Run.Client}
				for field, text := range map[string]string{"key_header": record.Run.KeyHeader, "again_of": record.Run.AgainOf, "cancelled_by": account.CancelledBy, "reason": account.Reason, "last_answer": account.LastAnswer} {
					if text != "" {
						got[field] = text
					}
				}
				for _, text := range account.ValidationErrors {
					list, _ := got["validation_errors"].([]any)
					got["validation_errors"] = append(list, text)
				}
				for _, field := range []string{"run_id", "hook", "name", "chat", "action", "runner", "repairs", "took", "status", "test"} {
					delete(want, field)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the record says\n%v\nwant\n%v", got, want)
				}
			})
		})
	}
}

// remoteStore is a store of several nodes that can be reached.
type remoteStore struct{ engine.Store }

func (remoteStore) Outage() (since time.Time, changed <-chan struct{}, cause error) {
	return time.Time{}, nil, nil
}

// wantLine expects the one line about the end of a run.
func wantLine(t *testing.T, logs *observer.ObservedLogs, want map[string]any) {
	t.Helper()
	lines := logs.FilterMessage("run finished").All()
	if len(lines) != 1 {
		t.Fatalf("there are %d lines: %v", len(lines), lines)
	}
	if got := lines[0].ContextMap(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log says\n%v\nwant\n%v", got, want)
	}
}

func TestOperatorsAreToldOfACallerThatHungUp(t *testing.T) {
	for _, queued := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			c := config(hang)
			c.Log = zap.New(core)
			if queued {
				c.Workers = 0
			}
			e := start(t, c)
			run := syncRun("chat", "")
			ctx, hangUp := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = e.Do(ctx, run, 0)
			}()
			synctest.Wait()
			hangUp()
			<-over
			synctest.Wait()
			lines := logs.FilterMessage("run finished").All()
			if len(lines) != 1 || lines[0].ContextMap()["cancelled_by"] != "the caller, who hung up" {
				t.Errorf("queued %t: the log has %v", queued, lines)
			}
			if by := find(t, e, run.ID).Outcome.Account.CancelledBy; by != "the caller, who hung up" {
				t.Errorf("queued %t: it was cancelled by %q", queued, by)
			}
		})
	}
}

func TestOperatorsAreToldOfRunsThatWereNeverStarted(t *testing.T) {
	for reason, tc := range map[string]struct {
		workers int
		before  int // runs in the queue
		then    func(e *engine.Engine)
	}{
		"the service shut down before the run was over":                                            {then: (*engine.Engine).BeginStop},
		"the run waited its whole time of 1m0s for a free worker, or for earlier runs of its chat": {then: func(*engine.Engine) { time.Sleep(time.Hour) }},
		"the runner is unreachable: it did not take on the last turns":                             {workers: 1, before: 10, then: func(*engine.Engine) { time.Sleep(time.Second) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			c := config(&absent{then: echo})
			c.Log, c.Workers = zap.New(core), tc.workers
			e := start(t, c)
			for i := range tc.before {
				submit(t, e, newRun(fmt.Sprint("chat ", i), "hello"))
			}
			outcomes := waitFor(t, e, syncRun("chat", "hello"))
			synctest.Wait()
			tc.then(e)
			<-outcomes
			synctest.Wait()
			lines := logs.FilterMessage("run finished").All()
			if len(lines) != 1 || lines[0].ContextMap()["reason"] != reason || lines[0].ContextMap()["attempts"] != int64(0) {
				t.Errorf("want %q: the log has %v", reason, lines)
			}
		})
	}
}

func TestAccountIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			object := make(map[string]int)
			for i := range 100 {
				object[strings.Repeat("\x1b😀", 100)+fmt.Sprint(i)] = i
			}
			text, err := json.Marshal(object)
			return engine.Reply{Text: string(text)}, err
		})))
		run := newRun("chat", "hello")
		run.Schema = json.RawMessage(`{"additionalProperties":{"type":"string"}}`)
		submit(t, e, run)
		synctest.Wait()
		account := find(t, e, run.ID).Outcome.Account
		if size := account.Size(); size > 4<<10 || len(account.LastAnswer) < 1700 || len(account.ValidationErrors) < 5 {
			t.Errorf("%d bytes are kept, %d of the answer, and %d errors", size, len(account.LastAnswer), len(account.ValidationErrors))
		}
		for _, text := range append(account.ValidationErrors, account.LastAnswer) {
			if !utf8.ValidString(text) || slices.Contains([]byte(text), 0x1b) {
				t.Errorf("kept is %q", text)
			}
		}
		if !strings.HasSuffix(account.LastAnswer, "…") {
			t.Errorf("the answer ends with %q", account.LastAnswer[len(account.LastAnswer)-20:])
		}
	})
}
