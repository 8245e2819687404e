package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/bulk"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// world is an engine with a runner and a receiver that fail until they are mended, and its bulk actions. Use it in a synctest bubble.
type world struct {
	*engine.Engine
	t      *testing.T
	store  engine.Store
	bulk   *bulk.Actions
	config engine.Config

	mended atomic.Bool
	hangs  atomic.Bool // turns do not end by themselves
	mu     sync.Mutex
	turns  map[string][]string // messages by chat, of turns that were begun while it was mended
	sent   map[string]int      // deliveries that arrived, by their id
}

func newWorld(t *testing.T, store engine.Store) *world {
	w := &world{t: t, store: store, Engine: engine.New(store), turns: make(map[string][]string), sent: make(map[string]int)}
	w.config = engine.Config{Runners: map[string]engine.Runner{"default": w}, DefaultRunner: "default", Workers: 8, Callbacks: w, Log: zap.NewNop(),
		Lease: 1000 * time.Hour, Limits: engine.Limits{Retention: 1000 * time.Hour}}
	w.Attach(w.config)
	w.bulk = bulk.New(w.Engine, store, zap.NewNop)
	t.Cleanup(func() {
		w.bulk.Close()
		w.Stop()
	})
	return w
}

func (w *world) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if w.hangs.Load() {
		<-ctx.Done()
		return engine.Reply{}, ctx.Err()
	}
	if !w.mended.Load() {
		return engine.Reply{}, errors.New("not well")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns[turn.ChatID] = append(w.turns[turn.ChatID], turn.Message)
	return engine.Reply{Text: turn.Message}, nil
}

func (w *world) Send(_ context.Context, d *engine.Delivery) error {
	if !w.mended.Load() {
		return &engine.FinalError{Err: errors.New("gone")}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[d.ID]++
	return nil
}

// add submits so many runs in some chats, and returns the messages of each chat.
func (w *world) add(runs, chats int) map[string][]string {
	messages := make(map[string][]string)
	for i := range runs {
		run := &engine.Run{ChatID: fmt.Sprint("chat ", i%chats), Hook: []string{"a", "b"}[i%2], Action: engine.Agent, Message: fmt.Sprint(i),
			Timeout: time.Hour, History: time.Hour, MemoryPreset: engine.MemoryDisabled, CallbackURL: fmt.Sprintf("https://host-%d.example/", i%2)}
		if err := w.Submit(w.t.Context(), run, 0); err != nil {
			w.t.Fatal(err)
		}
		messages[run.ChatID] = append(messages[run.ChatID], run.Message)
	}
	synctest.Wait()
	return messages
}

// newAction is an action on runs or deliveries of a status.
func newAction(do bulk.Verb, statuses ...string) *bulk.Action {
	a := &bulk.Action{Do: do, By: "somebody"}
	if do.IsAboutRuns() {
		a.Runs = new(engine.Query)
	} else {
		a.Deliveries = new(engine.DeliveryQuery)
	}
	for _, status := range statuses {
		if a.Runs != nil {
			a.Runs.Statuses = append(a.Runs.Statuses, engine.Status(status))
		} else {
			a.Deliveries.Statuses = append(a.Deliveries.Statuses, engine.DeliveryStatus(status))
		}
	}
	return a
}

func (w *world) start(a *bulk.Action) string {
	w.t.Helper()
	started, err := w.bulk.Start(w.t.Context(), a)
	if err != nil {
		w.t.Fatal(err)
	}
	return started.ID
}

// await lets time pass until an action has ended.
func (w *world) await(id string) *bulk.Action {
	w.t.Helper()
	for range 100_000 {
		synctest.Wait()
		if a := w.get(id); a.State != bulk.Running {
			return a
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("the action does not end: %+v", w.get(id))
	return nil
}

func (w *world) get(id string) *bulk.Action {
	w.t.Helper()
	a, err := w.bulk.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// ends expects that an action is done, with so many done and skipped.
func (w *world) ends(id string, done int, skipped map[bulk.Skip]int) {
	w.t.Helper()
	a, all := w.await(id), done
	for _, n := range skipped {
		all += n
	}
	if a.State != bulk.Done || a.Done != done || !maps.Equal(a.Skipped, skipped) || a.Matching != all {
		w.t.Errorf("%s of %d ended as %s: %d done, skipped %v, error %q; want %d and %v", a.Do, a.Matching, a.State, a.Done, a.Skipped, a.Error, done, skipped)
	}
}

// plans expects what an action would do.
func (w *world) plans(a *bulk.Action, would int, skipped map[bulk.Skip]int) {
	w.t.Helper()
	plan, err := w.bulk.Plan(w.t.Context(), a)
	if err != nil || plan.Would != would || !maps.Equal(plan.Skipped, skipped) {
		w.t.Errorf("%s plans %+v, %v; want %d and %v", a.Do, plan, err, would, skipped)
	}
}

func TestAllRunsAreRunAgainInOrderAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		const runs = 1000
		want := w.add(runs, 13)
		failed := func() *bulk.Action { return newAction(bulk.Again, "failed") }
		w.plans(failed(), runs, nil)
		ofHook := failed()
		ofHook.Runs.Hooks = []string{"a"}
		w.plans(ofHook, runs/2, nil)
		w.ends(w.start(failed()), runs, nil) // those that fail again are not started once more
		w.plans(failed(), runs, map[bulk.Skip]int{bulk.SkipRepeated: runs})
		w.mended.Store(true)
		var ids []string
		for range 4 { // at once
			ids = append(ids, w.start(failed()))
		}
		if _, err := w.bulk.Start(t.Context(), failed()); !errors.Is(err, bulk.ErrMany) {
			t.Errorf("a fifth one: %v", err)
		}
		all := 0
		for _, id := range ids {
			a := w.await(id)
			all += a.Done
			if a.State != bulk.Done || a.Done+a.Skipped[bulk.SkipRepeated] != 2*runs {
				t.Errorf("got %+v", a)
			}
		}
		synctest.Wait()
		if all != runs || !reflect.DeepEqual(w.turns, want) {
			t.Errorf("%d were run again, and the agent got %v", all, w.turns)
		}
		w.plans(newAction(bulk.Again, "completed"), runs, nil)
	})
}

func TestRunsWithoutTheirInputAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		for _, run := range []*engine.Run{
			{ChatID: "a", Message: "forgetful"}, {ChatID: "a", Message: strings.Repeat("x", engine.MaxInput+1), History: time.Hour},
			{ChatID: "a", Message: "fine", History: time.Hour},
		} {
			run.Hook, run.Action, run.Timeout = "agent", engine.Agent, time.Minute
			if err := w.Submit(t.Context(), run, 0); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		skipped := map[bulk.Skip]int{bulk.SkipGone: 1, bulk.SkipCut: 1}
		w.plans(newAction(bulk.Again, "failed"), 1, skipped)
		w.ends(w.start(newAction(bulk.Again, "failed")), 1, skipped)
	})
}

// Senders still get in, and a chat that is full is waited for.
func TestRunningAgainFillsHalfOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		w.add(1000, 100)
		w.config.Limits.Queue, w.config.Limits.Chat = 600, 5
		w.Attach(w.config)
		w.hangs.Store(true)
		id := w.start(newAction(bulk.Again, "failed"))
		time.Sleep(time.Minute)
		queued, err := w.Queued(t.Context())
		if a := w.get(id); err != nil || queued == 0 || queued > 300 || a.Waiting == "" || a.State != bulk.Running {
			t.Errorf("%d are queued, %v; the action is %+v", queued, err, a)
		}
		w.hangs.Store(false)
		w.mended.Store(true)
		for range 20 { // those that hang
			n := w.running()
			w.ends(w.start(newAction(bulk.Cancel, "running")), n, nil)
		}
		w.ends(id, 1000, nil)
	})
}

func (w *world) running() int {
	synctest.Wait()
	backlog, err := w.Backlog(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return backlog.Running
}

func TestAFloodedChatIsCancelledAndNothingOfItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		w.hangs.Store(true)
		w.add(300, 1)
		w.mended.Store(true)
		w.hangs.Store(false)
		a := newAction(bulk.Cancel, "queued", "running")
		a.Runs.ChatID = "chat 0"
		w.plans(a, 300, nil)
		w.ends(w.start(a), 300, nil)
		if len(w.turns) != 0 {
			t.Errorf("turns were begun: %v", w.turns)
		}
		page, _, err := w.List(t.Context(), engine.Query{Limit: 1, Replies: true})
		if err != nil || !strings.Contains(page[0].Outcome.Account.CancelledBy, "somebody (bulk ") {
			t.Errorf("cancelled by %+v, %v", page[0].Outcome.Account, err)
		}
	})
}

func TestDeliveriesAreSentAgainOrDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		w.add(600, 600)
		w.mended.Store(true)
		retry := newAction(bulk.Retry, "dead")
		retry.Deliveries.Host = "host-1.example"
		w.plans(retry, 300, nil)
		w.ends(w.start(retry), 300, nil)
		synctest.Wait()
		if len(w.sent) != 300 {
			t.Errorf("%d have arrived", len(w.sent))
		}
		w.ends(w.start(newAction(bulk.Drop, "dead", "pending")), 300, nil)
		w.ends(w.start(newAction(bulk.Retry, "delivered")), 300, nil) // their receiver has lost them
		synctest.Wait()
		for id, n := range w.sent {
			if n != 2 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
		if pending, dead, err := w.CountUndelivered(t.Context()); pending+dead != 0 || err != nil {
			t.Errorf("%d and %d are left, %v", pending, dead, err)
		}
	})
}

func TestAStoppedActionGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		want := w.add(1000, 7)
		w.config.Limits.Queue = 300
		w.Attach(w.config)
		w.hangs.Store(true)
		id := w.start(newAction(bulk.Again, "failed"))
		time.Sleep(time.Minute)
		if a, err := w.bulk.Stop(t.Context(), id, "me"); err != nil || a.State != bulk.Stopped || a.StoppedBy != "me" {
			t.Fatalf("got %+v, %v", a, err)
		}
		time.Sleep(time.Minute)
		if a := w.get(id); a.Done == 0 || a.Done > 300 || a.Node != "" {
			t.Errorf("it was stopped as %+v", a)
		}
		if _, err := w.bulk.Stop(t.Context(), id, "me"); !errors.Is(err, bulk.ErrEnded) {
			t.Errorf("a second stop: %v", err)
		}
		w.hangs.Store(false)
		w.mended.Store(true)
		n := w.get(id).Done
		w.ends(w.start(newAction(bulk.Cancel, "running", "queued")), n, nil)
		if _, err := w.bulk.Resume(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := w.bulk.Resume(t.Context(), id); !errors.Is(err, bulk.ErrIsRunning) {
			t.Errorf("resumed twice: %v", err)
		}
		w.ends(id, 1000, nil)
		synctest.Wait()
		carriedOut := 0
		for chat, messages := range w.turns {
			carriedOut += len(messages)
			if got := want[chat][len(want[chat])-len(messages):]; !reflect.DeepEqual(got, messages) {
				t.Errorf("the order of %s is %v", chat, messages)
			}
		}
		if carriedOut == 0 || carriedOut >= 1000 {
			t.Errorf("%d were carried out", carriedOut)
		}
		for _, id := range []string{"", "none"} {
			if _, err := w.bulk.Stop(t.Context(), id, ""); !errors.Is(err, bulk.ErrNotFound) {
				t.Errorf("stopping %q: %v", id, err)
			}
		}
	})
}

// Whoever resumes an action at once, while it is still being stopped, need not wait for somebody to find it.
func TestAnActionThatIsResumedAtOnceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, shared{memory.New().Store()})
		w.add(1000, 7)
		w.config.Limits.Queue = 300
		w.Attach(w.config)
		w.hangs.Store(true)
		id := w.start(newAction(bulk.Again, "failed"))
		time.Sleep(time.Minute)
		for range 10 {
			if _, err := w.bulk.Stop(t.Context(), id, "me"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.bulk.Resume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if a := w.get(id); a.State != bulk.Running || a.Node != w.store.Node() || !a.EndedAt.IsZero() {
				t.Fatalf("it goes on as %+v", a)
			}
		}
	})
}

// mortal is a store that fails from some call on, as if the process was killed: what was done by then is done. From another call on
// it may be down, and answers of calls that were under way are lost.
type mortal struct {
	engine.Store
	calls, lives, breaks *atomic.Int64
	down                 *atomic.Bool
}

var errKilled = errors.New("killed")

func (m mortal) alive() error {
	if m.calls.Add(1) > m.lives.Load() {
		return errKilled
	}
	if m.down.Load() {
		return engine.ErrUnreachable
	}
	return nil
}

// answer is the error of a call that was made.
func (m mortal) answer(err error) error {
	if m.calls.Load() < m.breaks.Load() {
		return err
	}
	m.down.Store(true)
	return engine.ErrUnreachable
}

// newMortal is a node beside w that can be killed.
func (w *world) newMortal(store engine.Store, lives int64) (m mortal, actions *bulk.Actions, kill func()) {
	m = mortal{Store: store, calls: new(atomic.Int64), lives: new(atomic.Int64), breaks: new(atomic.Int64), down: new(atomic.Bool)}
	m.lives.Store(lives)
	m.breaks.Store(math.MaxInt64)
	e := engine.New(m)
	config := w.config
	config.Workers = 0
	e.Attach(config)
	actions = bulk.New(e, m, zap.NewNop)
	return m, actions, func() {
		m.lives.Store(0)
		go e.Stop()
		go actions.Close()
		time.Sleep(time.Minute)
	}
}

type (
	mortalRuns struct {
		engine.Runs
		mortal
	}
	mortalDeliveries struct {
		engine.Deliveries
		mortal
	}
	mortalDocuments struct {
		engine.Documents
		mortal
	}
)

func (m mortal) Runs() engine.Runs             { return mortalRuns{m.Store.Runs(), m} }
func (m mortal) Deliveries() engine.Deliveries { return mortalDeliveries{m.Store.Deliveries(), m} }
func (m mortal) Documents() engine.Documents   { return mortalDocuments{m.Store.Documents(), m} }

func (m mortalRuns) AddAll(ctx context.Context, runs []*engine.Run, terms engine.Terms) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.answer(m.Runs.AddAll(ctx, runs, terms))
}

func (m mortalRuns) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	claims, err := m.Runs.End(ctx, claim, end, next)
	return claims, m.answer(err)
}

func (m mortalDeliveries) Retry(ctx context.Context, id string, body *string) (*engine.Delivery, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	d, err := m.Deliveries.Retry(ctx, id, body)
	return d, m.answer(err)
}

func (m mortalDeliveries) Drop(ctx context.Context, id string) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.answer(m.Deliveries.Drop(ctx, id))
}

func (m mortalDocuments) Save(ctx context.Context, documents ...engine.Document) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.answer(m.Documents.Save(ctx, documents...))
}

// Whenever the process is killed, the next one goes on, nothing is done twice, and the counts are exact.
func TestAKilledActionGoesOnWithExactCounts(t *testing.T) {
	const runs = 300
	for _, verb := range bulk.Verbs {
		for lives := int64(1); lives < 2*runs; lives += 83 {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				first := newWorld(t, data.Store())
				if verb == bulk.Cancel {
					first.hangs.Store(true)
				}
				first.add(runs, 40)
				statuses := map[bulk.Verb][]string{bulk.Again: {"failed"}, bulk.Cancel: {"queued"}, bulk.Retry: {"dead"}, bulk.Drop: {"dead"}}[verb]
				all := runs
				if verb == bulk.Cancel {
					all -= first.running()
				}
				first.mended.Store(verb == bulk.Retry)
				_, actions, kill := first.newMortal(data.Store(), lives)
				started, err := actions.Start(t.Context(), newAction(verb, statuses...))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				kill()

				first.bulk.Adopt()
				first.ends(started.ID, all, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				switch records, _, err := first.List(t.Context(), engine.Query{Limit: 10 * runs}); {
				case err != nil:
					t.Fatal(err)
				case verb == bulk.Again && len(records) != 2*runs:
					t.Errorf("killed after %d calls: %d runs", lives, len(records))
				case verb == bulk.Retry && len(first.sent) != runs:
					t.Errorf("killed after %d calls: %d were sent", lives, len(first.sent))
				}
			})
		}
	}
}

// An action that is in the midst of a page knows that it is: the counts stay exact if it is killed after it was stopped and resumed there.
func TestAnActionIsKilledInTheMidstOfAPageItHasResumed(t *testing.T) {
	for lives := int64(3); lives < 60; lives += 7 {
		synctest.Test(t, func(t *testing.T) {
			data := memory.New()
			w := newWorld(t, data.Store())
			w.add(100, 10)
			w.config.Limits.Chat = 5 // so that half of a page is started
			w.Attach(w.config)
			w.hangs.Store(true)
			id := w.start(newAction(bulk.Again, "failed"))
			time.Sleep(time.Minute)
			if _, err := w.bulk.Stop(t.Context(), id, "me"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if a := w.get(id); a.Done == 0 || len(a.Page) == 0 {
				t.Fatalf("it was stopped as %+v", a)
			}
			w.config.Limits.Chat = 0
			w.Attach(w.config)
			_, actions, kill := w.newMortal(data.Store(), lives)
			if _, err := actions.Resume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			kill()
			w.bulk.Adopt()
			w.ends(id, 100, nil)
		})
	}
}

// What was done although its answer was lost is counted once, also by whoever goes on after a kill.
func TestAnActionIsKilledAfterAnswersWereLost(t *testing.T) {
	for _, verb := range []bulk.Verb{bulk.Again, bulk.Retry, bulk.Drop} {
		synctest.Test(t, func(t *testing.T) {
			data := memory.New()
			w := newWorld(t, data.Store())
			w.add(300, 300)
			m, actions, kill := w.newMortal(data.Store(), 10_000)
			m.breaks.Store(20)
			statuses := map[bulk.Verb]string{bulk.Again: "failed", bulk.Retry: "dead", bulk.Drop: "dead"}
			w.mended.Store(true)
			started, err := actions.Start(t.Context(), newAction(verb, statuses[verb]))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			m.breaks.Store(math.MaxInt64)
			m.lives.Store(m.calls.Load() + 40)
			m.down.Store(false)
			time.Sleep(time.Minute)
			kill()
			w.bulk.Adopt()
			w.ends(started.ID, 300, nil)
		})
	}
}

// What another action has run again in the meantime is not counted as done by one that goes on in the midst of a page.
func TestAnActionKnowsItsOwnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		w := newWorld(t, data.Store())
		w.add(100, 100)
		w.hangs.Store(true)
		_, actions, kill := w.newMortal(data.Store(), 40)
		started, err := actions.Start(t.Context(), newAction(bulk.Again, "failed"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		kill()
		others := w.await(w.start(newAction(bulk.Again, "failed"))).Done
		if others == 0 || others == 100 {
			t.Fatalf("the other action has started %d", others)
		}
		w.bulk.Adopt()
		a := w.await(started.ID)
		if a.Done != 100-others || a.Skipped[bulk.SkipRepeated] != others {
			t.Errorf("the other action has started %d, and this one %+v", others, a)
		}
	})
}

// Whoever goes on after a kill tells deliveries that have arrived again from those that still are to be repeated.
func TestAKilledActionRepeatsDeliveriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		w := newWorld(t, data.Store())
		w.mended.Store(true)
		w.add(300, 300)
		time.Sleep(time.Minute)
		w.ends(w.start(newAction(bulk.Retry, "delivered")), 300, nil) // so that all were repeated before
		time.Sleep(time.Minute)
		_, actions, kill := w.newMortal(data.Store(), 100)
		started, err := actions.Start(t.Context(), newAction(bulk.Retry, "delivered"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		kill()
		w.bulk.Adopt()
		w.ends(started.ID, 300, nil)
		time.Sleep(time.Minute)
		for id, n := range w.sent {
			if n != 3 {
				t.Fatalf("%s was sent %d times, not 3", id, n)
			}
		}
	})
}

// shared is a store that other nodes may work with.
type shared struct{ engine.Store }

func (shared) Outage() (time.Time, <-chan struct{}, error) { return time.Time{}, nil, nil }

// An action whose node has fallen silent is taken over by another one, and by one alone; one that goes on is left where it is.
func TestAnotherNodeTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		a := newWorld(t, shared{data.Store()})
		a.add(300, 300)
		a.config.Limits.Queue = 100
		a.Attach(a.config)
		a.hangs.Store(true)
		id := a.start(newAction(bulk.Again, "failed"))
		time.Sleep(time.Second)
		var others []*world
		for range 3 {
			b := newWorld(t, shared{data.Store()})
			b.hangs.Store(true)
			b.config.Limits.Queue = 100
			b.Attach(b.config)
			b.bulk.Adopt()
			others = append(others, b)
		}
		time.Sleep(time.Minute)
		if node := a.get(id).Node; node != a.store.Node() {
			t.Errorf("%s carries it out, not %s", node, a.store.Node())
		}
		a.bulk.Close()
		time.Sleep(time.Minute)
		if node := a.get(id).Node; node == a.store.Node() || node == "" {
			t.Errorf("%q carries it out", node)
		}
		for _, b := range append(others, a) {
			b.hangs.Store(false)
			b.mended.Store(true)
		}
		for range 20 {
			others[0].await(others[0].start(newAction(bulk.Cancel, "running")))
		}
		a.ends(id, 300, nil)
	})
}

func TestOldActionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New().Store())
		for range 60 {
			w.ends(w.start(newAction(bulk.Drop, "dead")), 0, nil)
		}
		actions, err := w.bulk.List(t.Context())
		if err != nil || len(actions) != 51 || actions[0].StartedAt.Before(actions[50].StartedAt) {
			t.Errorf("%d are kept, %v", len(actions), err)
		}
	})
}
