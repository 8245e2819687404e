package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// onEveryStore has a test open the data of one store for several nodes: in memory, where time is not real, and in a file,
// where it is.
func onEveryStore(t *testing.T, test func(t *testing.T, open func() engine.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, memory.New().Store) })
	})
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		database, err := bolt.Open(filepath.Join(t.TempDir(), "hooks.db"))
		if err != nil {
			t.Fatal(err)
		}
		test(t, database.Store)
	})
}

// longLease is for tests in which a node must be told of something: it does not find out by itself, since it renews its
// leases every twenty minutes.
func longLease(c engine.Config) engine.Config {
	c.Lease = time.Hour
	return c
}

// quickly is long before the next renewal of a long lease.
const quickly = time.Minute

// shortLease is for tests in which a lease has to end in real time.
const shortLease = 600 * time.Millisecond

// eventually waits for something that happens soon.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen that ", what)
		}
	}
}

// acceptsOnly is the config of a node that carries out nothing.
func acceptsOnly(c engine.Config) engine.Config {
	c.Workers = 0
	return c
}

// found is the record of a run.
func found(t *testing.T, e *engine.Engine, run *engine.Run) *engine.Record {
	t.Helper()
	record, err := e.Find(t.Context(), run.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func isRunning(t *testing.T, e *engine.Engine, run *engine.Run) func() bool {
	return func() bool { return found(t, e, run).Status == engine.Running }
}

// atRest expects that engines remember nothing.
func atRest(t *testing.T, engines ...*engine.Engine) {
	t.Helper()
	for i, e := range engines {
		eventually(t, fmt.Sprintf("engine %d remembers nothing", i), func() bool { return e.Remembered() == 0 })
	}
}

// remembersNothing expects it of an engine in a bubble. What an engine does after it has answered is waited for.
func remembersNothing(t *testing.T, e *engine.Engine) {
	t.Helper()
	synctest.Wait()
	if n := e.Remembered(); n != 0 {
		t.Errorf("%d things are remembered", n)
	}
}

func TestCallerGetsTheAnswerOfTheOtherNode(t *testing.T) {
	runner := runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
		switch turn.Message {
		case "hang":
			return hang(ctx, turn)
		case "fail":
			return engine.Reply{}, errors.New("status 500")
		}
		return echo(ctx, turn)
	})
	for _, tc := range []struct {
		name, message, schema string
		want                  engine.Outcome
	}{
		{"a text", "hello", "", engine.Outcome{Status: engine.Completed, Text: "hello", HasText: true}},
		{"an answer with a schema", `Sure: {"a":1}`, `{"type":"object"}`,
			engine.Outcome{Status: engine.Completed, Text: `Sure: {"a":1}`, HasText: true, JSON: []byte(`{"a":1}`), Checked: true}},
		{"a timeout", "hang", "", engine.Outcome{Status: engine.TimedOut, Message: "The agent did not finish within 1 seconds.",
			Account: engine.Account{Reason: "the runner did not answer within the 1s that the run had"}}},
		{"a failure", "fail", "", engine.Outcome{Status: engine.Failed, Failure: engine.RunnerFailed, Message: "The agent failed to answer.",
			Account: engine.Account{Reason: "status 500"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, open func() engine.Store) {
				a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
				b := startOn(t, open(), longLease(config(runner)))
				run := syncRun("chat", tc.message)
				if tc.schema != "" {
					run.Schema = json.RawMessage(tc.schema)
				}
				if tc.message == "hang" {
					run.Timeout = time.Second
				}
				begin := time.Now()
				got, err := a.Do(t.Context(), run, 0)
				if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
					t.Errorf("got %+v, %v\nwant %+v", got, err, tc.want)
				}
				if took := time.Since(begin); took > quickly {
					t.Errorf("it took %s", took)
				}
				eventually(t, "the end is stored", func() bool { return found(t, a, run).Status == tc.want.Status })
				atRest(t, a, b)
			})
		})
	}
}

func TestCancelEndsARunOnTheOtherNodeAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		b := startOn(t, open(), longLease(config(hang)))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, a, run)
		eventually(t, "it runs", isRunning(t, a, run))
		begin := time.Now()
		record, err := a.Cancel(t.Context(), run.ID, "somebody")
		if took := time.Since(begin); err != nil || record.Status != engine.Cancelled || took > quickly {
			t.Fatalf("got %+v, %v after %s", record, err, took)
		}
		if by := record.Outcome.Account.CancelledBy; by != "somebody" {
			t.Errorf("it was cancelled by %q", by)
		}
		atRest(t, a, b)
	})
}

func TestFindReturnsAsSoonAsTheOtherNodeHasEndedARun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		release := make(chan struct{})
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		startOn(t, open(), longLease(config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{Text: "done"}, nil
		}))))
		run := newRun("chat", "")
		submit(t, a, run)
		eventually(t, "it runs", isRunning(t, a, run))
		var group, asking sync.WaitGroup
		asking.Add(5)
		for range 5 {
			group.Go(func() {
				asking.Done()
				record, err := a.Find(t.Context(), run.ID, time.Hour)
				if err != nil || record.Status != engine.Completed || record.Outcome.Text != "done" {
					t.Errorf("got %+v, %v", record, err)
				}
			})
		}
		asking.Wait()
		begin := time.Now()
		close(release)
		group.Wait()
		if took := time.Since(begin); took > quickly {
			t.Errorf("it took %s", took)
		}
	})
}

func TestCallerThatGoesAwayCancelsItsRunOnTheOtherNode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		var turns atomic.Int32
		causes := make(chan error, 1)
		b := startOn(t, open(), longLease(config(runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
			turns.Add(1)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return engine.Reply{}, ctx.Err()
		}))))
		run := syncRun("chat", "")
		run.Timeout = time.Hour
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := a.Do(ctx, run, 0)
			done <- err
		}()
		eventually(t, "its turn has begun", func() bool { return turns.Load() > 0 }) // before that, a cancel would leave no cause
		begin := time.Now()
		leave()
		cause := <-causes
		if took := time.Since(begin); errors.Is(cause, context.DeadlineExceeded) || took > quickly {
			t.Errorf("the turn was ended by %v after %s", cause, took)
		}
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		eventually(t, "it is cancelled", func() bool { return found(t, a, run).Status == engine.Cancelled })
		atRest(t, a, b)
	})
}

// The run of a node that stands still is carried out by the other one, and nothing that the first one does about it later
// has an effect.
func TestRunOfAFrozenNodeIsTakenOver(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		var mu sync.Mutex
		var sent []string
		started, causes := make(chan struct{}, 1), make(chan error, 1)
		c := config(runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
			started <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return engine.Reply{Text: "too late"}, nil
		}))
		c.Lease = shortLease
		c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, d.Body)
			return nil
		})
		still := new(gate)
		a := startOn(t, &tampered{Store: open(), gate: still}, c)
		t.Cleanup(still.open)
		run := newRun("chat", "hello")
		run.Timeout = time.Hour
		run.CallbackURL = "https://example.com"
		submit(t, a, run)
		<-started
		still.close()
		began := time.Now()
		c.Runners = map[string]engine.Runner{"default": echo}
		b := startOn(t, open(), c)
		eventually(t, "the other node ends it", func() bool { return found(t, b, run).Status == engine.Completed })
		if took := time.Since(began); took < shortLease/2 {
			t.Errorf("the run was taken over after %s", took)
		}
		before := found(t, b, run)
		still.open()
		if cause := <-causes; !errors.Is(cause, engine.ErrClaimLost) {
			t.Errorf("the turn was ended by %v", cause)
		}
		atRest(t, a, b)
		eventually(t, "the callback is sent", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(sent) > 0
		})
		after := found(t, b, run)
		if after.Outcome.Text != "hello" || !after.FinishedAt.Equal(before.FinishedAt) || after.Attempts != 2 {
			t.Errorf("the end was changed from %+v to %+v", before, after)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(sent, []string{"hello"}) {
			t.Errorf("sent %q", sent)
		}
	})
}

// The node that stood still may hold the caller, and its runner may not return although it was told to.
func TestCallerOfAFrozenNodeGetsTheAnswerOfTheOtherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data, still, release := memory.New(), new(gate), make(chan struct{})
		c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{Text: "too late"}, nil
		}))
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { return nil })
		a := startOn(t, &tampered{Store: data.Store(), gate: still}, c)
		t.Cleanup(func() {
			still.open()
			close(release)
		})
		run := syncRun("chat", "hello")
		run.Timeout = time.Hour
		run.CallbackURL = "https://example.com"
		answered := waitFor(t, a, run)
		synctest.Wait()
		still.close()
		c.Runners = map[string]engine.Runner{"default": echo}
		b := startOn(t, data.Store(), c)
		eventually(t, "the other node ends it", func() bool { return found(t, b, run).Status == engine.Completed })
		still.open()
		begin := time.Now()
		if outcome := <-answered; outcome.Text != "hello" || time.Since(begin) > 3*time.Second {
			t.Errorf("got %+v after %s", outcome, time.Since(begin))
		}
	})
}

func TestDeliveriesOfADeadNodeAreSentOnceByAnother(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		var mu sync.Mutex
		sent := map[string]int{}
		c := config(echo)
		c.Lease = shortLease
		c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			sent[d.ID]++
			return nil
		})
		dead := open()
		for range 5 {
			run := newRun("chat", "hello")
			run.CallbackURL = "https://example.com"
			add(t, dead, run)
			claims, _, err := dead.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
			if err != nil || len(claims) != 1 {
				t.Fatalf("claimed %d runs, %v", len(claims), err)
			}
			d := &engine.Delivery{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Callback: run.CallbackURL, Status: engine.Pending}
			end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Deliveries: []*engine.Delivery{d}}
			if _, err := dead.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		due, _, err := dead.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: shortLease})
		if err != nil || len(due) != 5 {
			t.Fatalf("claimed %d deliveries, %v", len(due), err)
		}
		b := startOn(t, open(), c)
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(sent)
		}
		eventually(t, "all are sent", func() bool { return count() == 5 })
		if took := time.Since(began); took < shortLease {
			t.Errorf("they were sent after %s", took)
		}
		for _, d := range due {
			d.Status = engine.Delivered
			if err := dead.Deliveries().Settle(t.Context(), d, 0); !errors.Is(err, engine.ErrClaimLost) {
				t.Errorf("the dead node settles a delivery: %v", err)
			}
		}
		eventually(t, "it is stored that they arrived", func() bool {
			page, _, err := b.ListDeliveries(t.Context(), engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{engine.Delivered}, Limit: 10})
			return err == nil && len(page) == 5
		})
		atRest(t, b)
		mu.Lock()
		defer mu.Unlock()
		for id, n := range sent {
			if n != 1 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
	})
}

// A node that stands still between its claim of a delivery and the attempt must not send what the other one has sent.
func TestDeliveryThatWasClaimedLongAgoIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data, still := memory.New(), new(gate)
		var fromA, fromB atomic.Int32
		c := config(echo)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			fromA.Add(1)
			return nil
		})
		var frozen atomic.Bool
		a := startOn(t, &tampered{Store: data.Store(), gate: still, due: func(due []*engine.Delivery) {
			if len(due) > 0 && !frozen.Swap(true) {
				still.close()
			}
		}}, c)
		t.Cleanup(still.open)
		run := callBack(t, a, "https://example.com/")
		synctest.Wait()
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			fromB.Add(1)
			return nil
		})
		b := startOn(t, data.Store(), c)
		time.Sleep(20 * time.Second)
		still.open()
		time.Sleep(time.Minute)
		if d := deliveryOf(t, b, run); fromA.Load() != 0 || fromB.Load() != 1 || d.Status != engine.Delivered {
			t.Errorf("A sent it %d times, B %d times: %+v", fromA.Load(), fromB.Load(), d)
		}
		atRest(t, a, b)
	})
}

func TestSyncRunWhoseNodeDies(t *testing.T) {
	for _, tc := range []struct {
		name       string
		callback   string
		started    bool
		alive      bool
		carriedOut bool
	}{
		{"and nobody else would be told", "", false, false, false},
		{"while it runs, and nobody else would be told", "", true, false, false},
		{"but it has a callback", "https://example.com", false, false, true},
		{"while it runs, but it has a callback", "https://example.com", true, false, true},
		{"not yet", "", false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				dead := data.Store()
				run := syncRun("chat", "hello")
				run.Owner, run.CallbackURL = dead.Node(), tc.callback
				add(t, dead, run)
				attempts := 0
				if tc.started {
					crash(t, dead, 1)
					attempts = 1
				}
				if !tc.alive {
					time.Sleep(2 * time.Minute)
				}
				var r recorder
				b := startOn(t, data.Store(), r.config())
				synctest.Wait()
				record := found(t, b, run)
				turns, _ := r.counts()
				if tc.carriedOut {
					if turns != 1 || record.Status != engine.Completed || record.Attempts != attempts+1 {
						t.Errorf("%d turns of %+v", turns, record)
					}
				} else if turns != 0 || record.Outcome.Failure != engine.Interrupted || record.Attempts != attempts {
					t.Errorf("%d turns of %+v", turns, record)
				}
			})
		})
	}
}

func TestChatsStayInOrderOverBothNodes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		var mu sync.Mutex
		got := map[string][]string{}
		atOnce, most := map[string]int{}, 0
		by := map[string]int{}
		node := func(name string) *engine.Engine {
			return startOn(t, open(), config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
				mu.Lock()
				atOnce[turn.ChatID]++
				most = max(most, atOnce[turn.ChatID])
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				atOnce[turn.ChatID]--
				got[turn.ChatID] = append(got[turn.ChatID], turn.Message)
				by[name]++
				return engine.Reply{}, nil
			})))
		}
		nodes := []*engine.Engine{node("a"), node("b")}
		const chats, each = 8, 25
		var want []string
		for i := range each {
			want = append(want, fmt.Sprint(i))
			for chat := range chats {
				submit(t, nodes[(i+chat)%2], newRun(fmt.Sprint(chat), fmt.Sprint(i)))
			}
		}
		eventually(t, "all are carried out", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return by["a"]+by["b"] == chats*each
		})
		mu.Lock()
		defer mu.Unlock()
		for chat, order := range got {
			if !slices.Equal(order, want) {
				t.Errorf("chat %s: %v", chat, order)
			}
		}
		if most != 1 {
			t.Errorf("%d runs of a chat at once", most)
		}
		if by["a"] == 0 || by["b"] == 0 {
			t.Errorf("carried out by: %v", by)
		}
	})
}

func TestHostsAndChatsHaveTheirShareOverBothNodes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		var mu sync.Mutex
		sending, most, sent := map[string]int{}, map[string]int{}, 0
		by := map[string]int{}
		node := func(name string) *engine.Engine {
			send := senderFunc(func(_ context.Context, d *engine.Delivery) error {
				to := d.Callback + d.To
				mu.Lock()
				sending[to]++
				most[to] = max(most[to], sending[to])
				by[name]++
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				sending[to]--
				sent++
				return nil
			})
			c := config(echo)
			c.Callbacks = send
			c.Channels = map[string]engine.Channel{"chats": send}
			return startOn(t, open(), c)
		}
		nodes := []*engine.Engine{node("a"), node("b")}
		const callbacks, messages = 150, 20
		for i := range callbacks {
			callBack(t, nodes[i%2], "https://example.com/")
		}
		for i := range messages {
			write(t, nodes[i%2], "chat", fmt.Sprint(i))
		}
		eventually(t, "all are sent", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return sent == callbacks+messages
		})
		mu.Lock()
		defer mu.Unlock()
		if n := most["https://example.com/"]; n > engine.PerHost || n < 2 {
			t.Errorf("%d callbacks to a host at once", n)
		}
		if n := most["chat"]; n != 1 {
			t.Errorf("%d messages to a chat at once", n)
		}
		if by["a"] == 0 || by["b"] == 0 {
			t.Errorf("sent by: %v", by)
		}
	})
}

func TestStopHandsRunsToTheOtherNodeAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		c := longLease(config(hang))
		c.Workers, c.DrainTimeout = 1, 100*time.Millisecond
		a := startOn(t, open(), c)
		running, queued := newRun("running", "running"), newRun("queued", "queued")
		running.Timeout = time.Hour
		submit(t, a, running)
		eventually(t, "it runs", isRunning(t, a, running))
		submit(t, a, queued)
		var mayWork, asked atomic.Bool
		b := startOn(t, &tampered{Store: open(), idle: func() bool {
			asked.Store(true)
			return !mayWork.Load()
		}}, longLease(config(echo)))
		eventually(t, "the other node has asked for runs in vain", asked.Load)
		mayWork.Store(true)
		a.Stop()
		begin := time.Now()
		for _, run := range []*engine.Run{running, queued} {
			record, err := b.Find(t.Context(), run.ID, time.Hour)
			if err != nil || record.Status != engine.Completed || record.Attempts != 1 || record.Outcome.Text != run.Message {
				t.Errorf("got %+v, %v", record, err)
			}
		}
		if took := time.Since(begin); took > quickly {
			t.Errorf("it took %s", took)
		}
	})
}

func TestDeliveryThatTheStopBreaksOffIsSentByTheOtherNodeAtOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		sending, sent := make(chan struct{}, 1), make(chan time.Time, 1)
		c := longLease(config(echo))
		c.DrainTimeout = 50 * time.Millisecond
		c.Callbacks = senderFunc(func(ctx context.Context, _ *engine.Delivery) error {
			sending <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		a := startOn(t, open(), c)
		run := callBack(t, a, "https://example.com/")
		<-sending
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			sent <- time.Now()
			return nil
		})
		b := startOn(t, open(), c)
		begin := time.Now()
		a.Stop()
		if took := (<-sent).Sub(begin); took > quickly {
			t.Errorf("it was sent after %s", took)
		}
		atRest(t, b)
		if d := deliveryOf(t, b, run); d.Status != engine.Delivered || d.Attempt != 1 {
			t.Errorf("got %+v", d)
		}
	})
}

func TestCallerIsAnsweredAlthoughTheNodeThatHasItsRunStops(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		var mayWork atomic.Bool
		a := startOn(t, &tampered{Store: open(), idle: func() bool { return !mayWork.Load() }}, longLease(config(echo)))
		c := longLease(config(hang))
		c.DrainTimeout = 50 * time.Millisecond
		b := startOn(t, open(), c)
		run := syncRun("chat", "hello")
		run.Timeout = time.Hour
		answered := waitFor(t, a, run)
		eventually(t, "it is carried out", func() bool { return b.Remembered() > 0 })
		mayWork.Store(true)
		begin := time.Now()
		b.Stop()
		if outcome := <-answered; outcome.Text != "hello" || time.Since(begin) > quickly {
			t.Errorf("got %+v after %s", outcome, time.Since(begin))
		}
		if record := found(t, a, run); record.Status != engine.Completed || record.Attempts != 1 {
			t.Errorf("got %+v", record)
		}
		atRest(t, a, b)
	})
}

// The other node has the run, but its turn has not begun.
func TestCancelReachesARunThatTheOtherNodeIsAboutToStart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		a := startOn(t, open(), acceptsOnly(config(echo)))
		var turns atomic.Int32
		hold, claimed := make(chan struct{}), make(chan struct{}, 1)
		b := startOn(t, &tampered{Store: open(), claimed: func(claims []*engine.Claim) {
			if len(claims) > 0 {
				claimed <- struct{}{}
				<-hold
			}
		}}, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			turns.Add(1)
			return hang(ctx, turn)
		})))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, a, run)
		<-claimed
		cancelled := make(chan *engine.Record, 1)
		go func() {
			record, err := a.Cancel(t.Context(), run.ID, "somebody")
			if err != nil {
				t.Error(err)
			}
			cancelled <- record
		}()
		eventually(t, "word of it reaches B before its turn is known", func() bool { return b.CancelWords() > 0 })
		close(hold)
		if record := <-cancelled; record == nil || record.Status != engine.Cancelled || record.Outcome.Account.CancelledBy != "somebody" || turns.Load() != 0 {
			t.Errorf("%d turns of %+v", turns.Load(), record)
		}
		atRest(t, a, b)
	})
}

func TestReloadOfOneNodeLeavesTheOtherAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		a := startOn(t, data.Store(), acceptsOnly(config(echo)))
		startOn(t, data.Store(), config(echo))
		detach := a.Attach(acceptsOnly(config(hang)))
		defer detach()
		outcome, err := a.Do(t.Context(), syncRun("chat", "hello"), 0)
		if err != nil || !strings.Contains(outcome.Text, "hello") {
			t.Errorf("got %+v, %v", outcome, err)
		}
	})
}
