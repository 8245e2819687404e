package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// foldRun makes a run of a hook that folds what came within five seconds.
func foldRun(chat, message string) *engine.Run {
	run := keeping(chat, message)
	run.Hook, run.Fold = "alerts", engine.Fold{Window: 5 * time.Second, Max: 50}
	return run
}

// foldRuns submits runs of one chat.
func foldRuns(t *testing.T, e *engine.Engine, messages ...string) (runs []*engine.Run) {
	t.Helper()
	for _, message := range messages {
		run := foldRun("chat", message)
		submit(t, e, run)
		runs = append(runs, run)
	}
	return runs
}

// turnNotes is a runner that notes its turns, and answers "done" or as another one does.
type turnNotes struct {
	mu    sync.Mutex
	turns []engine.Turn
	then  engine.Runner
}

func (n *turnNotes) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	n.mu.Lock()
	n.turns = append(n.turns, turn)
	n.mu.Unlock()
	if n.then != nil {
		return n.then.Run(ctx, turn)
	}
	return engine.Reply{Text: "done"}, nil
}

// messages are the messages of the turns, in the order in which they began: those of each run, without the lines between them.
func (n *turnNotes) messages() (all []string) {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.turns {
		all = append(all, strings.Join(unfold(n.turns[i].Message), " "))
	}
	return all
}

var (
	foldStart = regexp.MustCompile(`^[0-9]+ messages came one after the other\. Each one begins after a line that ends with id=([0-9a-f]{8})\]\.\n`)
	foldLine  = `\n?\n\[([0-9]+) of ([0-9]+), accepted ([0-9TZ:-]+), id=%s\]\n`
)

// unfold takes the message of a turn apart.
func unfold(message string) []string {
	start := foldStart.FindStringSubmatch(message)
	if start == nil {
		return []string{message}
	}
	return regexp.MustCompile(fmt.Sprintf(foldLine, start[1])).Split(message[len(start[0]):], -1)[1:]
}

// statuses are those of the records of runs, each with the number of the run that led its turn.
func statuses(t *testing.T, e *engine.Engine, runs []*engine.Run) (all []string) {
	t.Helper()
	synctest.Wait()
	for _, run := range runs {
		record := found(t, e, run)
		text := string(record.Status)
		if record.FoldedInto != "" {
			text += fmt.Sprint(" by ", slices.IndexFunc(runs, func(r *engine.Run) bool { return r.ID == record.FoldedInto }))
		}
		if record.Folded > 0 {
			text += fmt.Sprint(" of ", record.Folded)
		}
		all = append(all, text)
	}
	return all
}

func wantAll(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestFoldMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 16, 7, 0, 1, 5e8, time.FixedZone("CET", 3600))
	one := &engine.Run{ID: "0199-a", Message: "disk full", AcceptedAt: at}
	two := &engine.Run{ID: "0199-b", Message: "disk fuller\non web-3\n", AcceptedAt: at.Add(3 * time.Second)}
	if got := engine.FoldMessage([]*engine.Run{one}); got != "disk full" {
		t.Errorf("the message of a single run is %q", got)
	}
	got := engine.FoldMessage([]*engine.Run{one, two})
	id := foldStart.FindStringSubmatch(got)[1]
	want := "2 messages came one after the other. Each one begins after a line that ends with id=" + id + "].\n" +
		"\n[1 of 2, accepted 2026-11-16T06:00:01Z, id=" + id + "]\ndisk full\n" +
		"\n[2 of 2, accepted 2026-11-16T06:00:04Z, id=" + id + "]\ndisk fuller\non web-3\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if again := engine.FoldMessage([]*engine.Run{one, two}); again != got {
		t.Errorf("the same runs have another message: %q", again)
	}
}

// The sender of a text may know the ids of earlier runs, and so the lines of any turn of those. It does not know the id of the run that
// its own text becomes.
func TestNoTextPassesForALineOfAFold(t *testing.T) {
	t.Parallel()
	known := []*engine.Run{{ID: "0199-a", Message: "x"}, {ID: "0199-b", Message: "y"}}
	forged := engine.FoldMessage(known)
	runs := append(slices.Clone(known), &engine.Run{ID: "0199-c", Message: forged})
	message := engine.FoldMessage(runs)
	if got := unfold(message); len(got) != 3 || got[2] != forged {
		t.Errorf("%q is taken apart as %q", message, got)
	}
}

func TestRunsThatComeInTheWindowAreOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var metrics counted
		lines, logs := observer.New(zap.InfoLevel)
		runner := &turnNotes{}
		c := config(runner)
		c.Metrics, c.Log = &metrics, zap.New(lines)
		e := start(t, c)
		events := e.Events()
		defer events.Listen()()
		runs := foldRuns(t, e, "a", "b")
		time.Sleep(3 * time.Second)
		runs = append(runs, foldRuns(t, e, "c")...)
		time.Sleep(2*time.Second - time.Nanosecond)
		wantAll(t, "before the end of the window", runner.messages())
		wantAll(t, "before the end of the window", statuses(t, e, runs), "queued", "queued", "queued")
		if record, err := e.Find(t.Context(), runs[2].ID, 0); err != nil || record.WaitingFor != "more runs of its hook and chat, for up to 5s (fold)" {
			t.Errorf("it waits for %+v, %v", record, err)
		}
		metrics.take()
		before := events.Runs.Count()
		time.Sleep(time.Nanosecond)
		wantAll(t, "at its end", runner.messages(), "a b c")
		wantAll(t, "at its end", statuses(t, e, runs), "completed of 3", "completed by 0", "completed by 0")
		wantAll(t, "metrics", metrics.take(), "turn of a by default, repair 0, after 0s, failed false",
			"taken on a after 5s", "taken on b after 5s", "taken on c after 2s",
			"ended a: completed after 0s", "ended b: completed after 0s", "ended c: completed after 0s")
		if changed, _, _ := events.Runs.After(before, 10); len(changed) != 3 {
			t.Errorf("news of %d runs, want 3", len(changed))
		}
		sum, _ := minutesOf(t, e, time.Now().Add(-time.Minute))
		if sum.Accepted != 3 || sum.Completed != 3 {
			t.Errorf("the minute has %d accepted, %d completed, want 3", sum.Accepted, sum.Completed)
		}

		turn := runner.turns[0]
		if turn.RunID != runs[0].ID || len(turn.Folded) != 3 {
			t.Fatalf("the turn is of %s with %v", turn.RunID, turn.Folded)
		}
		for i, run := range runs {
			if got := turn.Folded[i]; got.RunID != run.ID || !got.AcceptedAt.Equal(run.AcceptedAt) {
				t.Errorf("folded %d is %v, want %s of %s", i, got, run.ID, run.AcceptedAt)
			}
			if record := find(t, e, run.ID); record.Outcome.Text != "done" || record.Run.Message != run.Message {
				t.Errorf("run %d has the answer %q, and the message %q", i, record.Outcome.Text, record.Run.Message)
			}
			line := logs.FilterMessage("run finished").All()[i].ContextMap()
			if into := line["folded_into"]; line["run_id"] != run.ID || (i == 0) != (into == nil) || i > 0 && into != runs[0].ID {
				t.Errorf("line %d of the log: %v", i, line)
			}
		}
		atRest(t, e)
	})
}

func TestSingleRunOfAFoldIsAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		runs := foldRuns(t, e, "a")
		time.Sleep(5 * time.Second)
		wantAll(t, "turns", runner.messages(), "a")
		wantAll(t, "runs", statuses(t, e, runs), "completed")
		if turn := runner.turns[0]; turn.Message != "a" || turn.Folded != nil {
			t.Errorf("the turn is %+v", turn)
		}
	})
}

// What a turn takes from its first run alone must be the same in all.
func TestRunsThatDifferInTheirTermsAreSeveralTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		for i, change := range []func(*engine.Run){
			func(*engine.Run) {}, func(*engine.Run) {},
			func(run *engine.Run) { run.Metadata = []byte(`{"a":1}`) },
			func(run *engine.Run) { run.Timeout = time.Hour },
		} {
			run := newRun("chat", string(rune('a'+i)))
			run.Hook, run.Fold = "storm", engine.Fold{Window: 5 * time.Second, Max: 10}
			change(run)
			submit(t, e, run)
		}
		time.Sleep(time.Minute)
		wantAll(t, "turns", runner.messages(), "a b", "c", "d")
	})
}

func TestFullFoldDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		var messages []string
		for i := range 120 {
			messages = append(messages, fmt.Sprint(i))
		}
		foldRuns(t, e, messages...)
		wantAll(t, "at once", runner.messages(), strings.Join(messages[:50], " "), strings.Join(messages[50:100], " "))
		time.Sleep(5 * time.Second)
		wantAll(t, "after the window", runner.messages()[2:], strings.Join(messages[100:], " "))
		atRest(t, e)
	})
}

func TestFoldsKeepTheOrderOfTheChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		foldRuns(t, e, "a", "b")
		submit(t, e, newRun("chat", "other")) // of a hook that does not fold
		foldRuns(t, e, "c", "d")
		submit(t, e, foldRun("another chat", "x"))
		time.Sleep(5 * time.Second)
		got := runner.messages()
		got = slices.DeleteFunc(got, func(message string) bool { return message == "x" })
		wantAll(t, "turns", got, "a b", "other", "c d")
	})
}

// A megabyte of messages is enough for a turn. Nothing is cut: the others are the next turn.
func TestLargeMessagesAreSeveralTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		large := strings.Repeat("x", 400<<10)
		runs := foldRuns(t, e, large, large, large, strings.Repeat("y", 2<<20), "z")
		time.Sleep(5 * time.Second)
		wantAll(t, "runs", statuses(t, e, runs), "completed of 2", "completed by 0", "completed", "completed", "completed")
	})
}

func TestReceiverThatSeveralRunsOfAFoldNameIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		runner  engine.Runner
		want    []string
		perRuns []int
	}{
		"an answer": {&turnNotes{}, []string{"https://a", "https://b", "room 1", "room 2"}, []int{1, 1, 0, 1, 1}},
		"no answer": {runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			return engine.Reply{}, errors.New("no idea")
		}), []string{"https://a", "https://b"}, []int{1, 0, 0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sender := &recorder{}
				c := sender.config()
				c.Runners["default"] = tc.runner
				e := start(t, c)
				var runs []*engine.Run
				for _, to := range []struct{ callback, room string }{
					{"https://a", ""}, {"https://a", "room 1"}, {"", "room 1"}, {"", "room 2"}, {"https://b", "room 2"},
				} {
					run := foldRun("chat", "message")
					run.CallbackURL = to.callback
					if to.room != "" {
						run.Channel, run.To = "team", to.room
					}
					submit(t, e, run)
					runs = append(runs, run)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				var receivers []string
				for _, d := range sender.sent {
					receivers = append(receivers, d.Callback+d.To)
				}
				slices.Sort(receivers)
				wantAll(t, "receivers", receivers, tc.want...)
				for i, run := range runs {
					record := find(t, e, run.ID)
					if len(record.Deliveries) != tc.perRuns[i] {
						t.Errorf("run %d has %d deliveries, want %d", i, len(record.Deliveries), tc.perRuns[i])
					}
					for j, d := range record.Deliveries {
						if d.ID != engine.DeliveryID(run.ID, j) || d.Status != engine.Delivered {
							t.Errorf("delivery %d of run %d is %+v", j, i, d)
						}
					}
				}
			})
		})
	}
}

func TestCancelledRunLeavesTheFoldBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{}
		e := start(t, config(runner))
		runs := foldRuns(t, e, "a", "b", "c", "d")
		for _, i := range []int{0, 2} {
			if record, err := e.Cancel(t.Context(), runs[i].ID, "a test"); err != nil || record.Status != engine.Cancelled {
				t.Fatalf("got %+v, %v", record, err)
			}
		}
		time.Sleep(5 * time.Second)
		wantAll(t, "turns", runner.messages(), "b d")
		wantAll(t, "runs", statuses(t, e, runs), "cancelled", "completed of 2", "cancelled", "completed by 1")
		if runner.turns[0].RunID != runs[1].ID {
			t.Error("the turn is not that of the first run that is left")
		}
	})
}

func TestToCancelOneRunOfATurnCancelsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for which := range 3 {
			runner := &turnNotes{then: hang}
			e := start(t, config(runner))
			runs := foldRuns(t, e, "a", "b", "c")
			time.Sleep(5 * time.Second)
			wantAll(t, "turns", runner.messages(), "a b c")
			wantAll(t, "under way", statuses(t, e, runs), "running", "running", "running")
			if record, err := e.Cancel(t.Context(), runs[which].ID, "a test"); err != nil || record.Status != engine.Cancelled || record.Outcome.Account.CancelledBy != "a test" {
				t.Fatalf("got %+v, %v", record, err)
			}
			wantAll(t, "runs", statuses(t, e, runs), "cancelled of 3", "cancelled by 0", "cancelled by 0")
			atRest(t, e)
		}
	})
}

func TestFoldWaitsForARunnerThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		e := start(t, config(runner))
		runs := foldRuns(t, e, "a", "b")
		time.Sleep(10 * time.Second)
		wantAll(t, "while it is unreachable", statuses(t, e, runs), "queued", "queued")
		runs = append(runs, foldRuns(t, e, "c")...)
		runner.comeBack()
		time.Sleep(time.Minute)
		wantAll(t, "when it is back", statuses(t, e, runs), "completed of 3", "completed by 0", "completed by 0")
		if len(runner.took) != 1 {
			t.Errorf("%d turns, want 1", len(runner.took))
		}
		atRest(t, e)
	})
}

func TestFoldGoesBackWhenTheEngineStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		c := config(hang)
		c.DrainTimeout = time.Second
		first := startOn(t, data.Store(), c)
		runs := foldRuns(t, first, "a", "b", "c")
		time.Sleep(6 * time.Second)
		first.Stop()
		runner := &turnNotes{}
		second := startOn(t, data.Store(), config(runner))
		time.Sleep(time.Second)
		wantAll(t, "turns", runner.messages(), "a b c")
		wantAll(t, "runs", statuses(t, second, runs), "completed of 3", "completed by 0", "completed by 0")
	})
}

func TestFoldThatTakesTheProcessDownIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		var runs []*engine.Run
		for _, message := range []string{"a", "b", "c"} {
			run := foldRun("chat", message)
			add(t, store, run)
			runs = append(runs, run)
		}
		time.Sleep(5 * time.Second)
		crash(t, store, 3)
		add(t, store, foldRun("chat", "newcomer"))
		runner := &turnNotes{}
		c := config(runner)
		c.MaxAttempts = 3
		e := startOn(t, store, c)
		time.Sleep(5 * time.Second)
		wantAll(t, "turns", runner.messages(), "newcomer")
		wantAll(t, "runs", statuses(t, e, runs), "failed of 3", "failed by 0", "failed by 0")
		if record := find(t, e, runs[1].ID); record.Outcome.Failure != engine.Interrupted || record.Attempts != 3 {
			t.Errorf("got %+v", record)
		}
	})
}

func TestRunOfAFoldIsRunAgainAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &turnNotes{then: runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Folded != nil {
				return engine.Reply{}, errors.New("too much")
			}
			return engine.Reply{Text: "done"}, nil
		})}
		e := start(t, config(runner))
		runs := foldRuns(t, e, "a", "b", "c")
		time.Sleep(5 * time.Second)
		wantAll(t, "runs", statuses(t, e, runs), "failed of 3", "failed by 0", "failed by 0")
		for _, run := range runs[:2] {
			if _, err := e.RunAgain(t.Context(), run.ID, engine.Again{}); err != nil {
				t.Fatal(err)
			}
		}
		wantAll(t, "turns", runner.messages(), "a b c", "a", "b")
	})
}

func TestRunOfAFoldExpiresAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		e := start(t, config(runner))
		var runs []*engine.Run
		for _, queueTime := range []time.Duration{time.Minute, time.Hour, 20 * time.Second, time.Hour} {
			run := foldRun("chat", fmt.Sprint(queueTime))
			run.QueueTime = queueTime
			submit(t, e, run)
			runs = append(runs, run)
		}
		time.Sleep(5 * time.Minute)
		wantAll(t, "while it is unreachable", statuses(t, e, runs), "expired", "queued", "expired", "queued")
		runner.comeBack()
		time.Sleep(time.Minute)
		wantAll(t, "when it is back", statuses(t, e, runs), "expired", "completed of 2", "expired", "completed by 1")
		atRest(t, e)
	})
}

func TestFoldIsOnePastTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &listener{turns: 2, bytes: 1 << 20, reply: func(engine.Turn) (engine.Reply, error) {
			return engine.Reply{Text: "noted"}, nil
		}}
		e := start(t, config(runner))
		submit(t, e, remembering("chat", "first"))
		synctest.Wait()
		for _, message := range []string{"a", "b", "c"} {
			run := foldRun("chat", message)
			run.MemoryPreset = "general_chat"
			submit(t, e, run)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		submit(t, e, remembering("chat", "last"))
		synctest.Wait()
		past := runner.past["last"]
		if len(past) != 2 || past[0] != "first>noted" || strings.Join(unfold(past[1]), " ") != "a b c>noted" {
			t.Errorf("the last turn was told %q", past)
		}
	})
}

func TestFollowerOfAnyRunOfAFoldIsToldWhatTheTurnSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		voice := make(speaker)
		e := start(t, config(voice))
		runs := foldRuns(t, e, "a", "b", "c")
		early := []*reader{follow(t, e, runs[0], 0), follow(t, e, runs[1], 0)}
		time.Sleep(5 * time.Second)
		voice <- "one "
		voice <- "two "
		synctest.Wait()
		late := follow(t, e, runs[2], 0)
		voice <- "three"
		voice <- sayNoMore
		for i, r := range append(early, late) {
			var text strings.Builder
			var seen []engine.Status
			for {
				events, err := r.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, event := range events {
					text.WriteString(event.Text)
					if event.Kind == engine.EventStatus {
						seen = append(seen, engine.Status(event.Status))
					}
				}
			}
			if text.String() != "one two three" || seen[len(seen)-1] != engine.Running {
				t.Errorf("reader %d was told %q, and %v", i, text.String(), seen)
			}
			r.Close()
		}
		time.Sleep(time.Minute)
		atRest(t, e)
	})
}

func TestSeveralRunsAreAcceptedInOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var metrics counted
		c := config(hang)
		c.Metrics, c.Limits.Queue, c.Workers = &metrics, 3, 0
		e := start(t, c)
		runs := []*engine.Run{newRun("one", "a"), newRun("two", "b")}
		if err := e.SubmitAll(t.Context(), runs, 0); err != nil {
			t.Fatal(err)
		}
		wantAll(t, "metrics", metrics.take(), "accepted a", "accepted b")
		if err := e.SubmitAll(t.Context(), []*engine.Run{newRun("three", "c"), newRun("four", "d")}, 0); !errors.Is(err, engine.ErrQueueFull) {
			t.Errorf("got %v, want that the queue is full", err)
		}
		wantAll(t, "metrics", metrics.take())
		if n, err := e.Queued(t.Context()); n != 2 || err != nil {
			t.Errorf("%d runs are queued, %v", n, err)
		}
	})
}

func TestFoldOfAnotherNode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		says := make(speaker)
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		b := startOn(t, open(), longLease(config(says)))
		var runs []*engine.Run
		for range 3 {
			run := foldRun("chat", "message")
			run.Fold.Max = 3
			submit(t, a, run)
			runs = append(runs, run)
		}
		last := follow(t, a, runs[2], 0)
		eventually(t, "the turn begins", isRunning(t, a, runs[2]))
		says <- "wor"
		says <- "king"
		for last.text != "working" {
			if _, err := last.read(); err != nil {
				t.Fatal(err)
			}
		}
		if record, err := a.Cancel(t.Context(), runs[1].ID, "a test"); err != nil || record.Status != engine.Cancelled || record.FoldedInto != runs[0].ID {
			t.Fatalf("got %+v, %v", record, err)
		}
		for _, run := range runs {
			if record := found(t, a, run); record.Status != engine.Cancelled || record.Outcome.Account.CancelledBy != "a test" {
				t.Errorf("got %+v", record)
			}
		}
		last.Close()
		eventually(t, "nothing is kept of what was said", func() bool { return a.Streams() <= 1 && b.Streams() == 0 })
	})
}

// A node that stood still may not tell how a fold ended that another node has carried out meanwhile.
func TestFoldOfANodeThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		var silent atomic.Bool
		release := make(chan struct{})
		sent := &recorder{}
		stuck := sent.config()
		stuck.Lease = time.Second
		stuck.Runners["default"] = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{Text: "too late"}, nil
		})
		first := startOn(t, &tampered{Store: data.Store(), silent: &silent}, stuck)
		var runs []*engine.Run
		for range 3 {
			run := foldRun("chat", "message")
			run.CallbackURL = "https://a"
			submit(t, first, run)
			runs = append(runs, run)
		}
		time.Sleep(5 * time.Second)
		wantAll(t, "on the first node", statuses(t, first, runs), "running", "running", "running")
		silent.Store(true)
		notes := &turnNotes{}
		other := sent.config()
		other.Lease, other.Runners["default"] = time.Second, notes
		second := startOn(t, data.Store(), other)
		time.Sleep(10 * time.Second)
		wantAll(t, "turns of the second node", notes.messages(), "message message message")
		silent.Store(false)
		close(release)
		time.Sleep(10 * time.Second)
		wantAll(t, "runs", statuses(t, second, runs), "completed of 3", "completed by 0", "completed by 0")
		if _, n := sent.counts(); n != 1 || sent.sent[0].Body != "done" {
			t.Errorf("%d deliveries were sent: %+v", n, sent.sent)
		}
		atRest(t, first, second)
	})
}
