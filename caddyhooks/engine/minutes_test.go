package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// minutesOf is all that an engine has counted since a time.
func minutesOf(t *testing.T, e *engine.Engine, since time.Time) (sum engine.Minute, minutes []engine.Minute) {
	t.Helper()
	minutes, err := e.MinutesSince(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	for i := range minutes {
		if i > 0 && !minutes[i].At.After(minutes[i-1].At) {
			t.Errorf("a minute of %v comes after one of %v", minutes[i].At, minutes[i-1].At)
		}
		sum.Add(&minutes[i])
	}
	return sum, minutes
}

func saved(t *testing.T, s engine.Store) []engine.Minute {
	t.Helper()
	minutes, err := s.Minutes().Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return minutes
}

func TestMinutesTellWhatHappenedInThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		store := data.Store()
		c := config(takes)
		c.Workers = 1
		c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
			if d.Callback == "https://gone.example" {
				return &engine.FinalError{Err: errors.New("410 Gone")}
			}
			return nil
		})
		e := startOn(t, store, c)
		begin := time.Now()
		for i, message := range []string{"1s", "not a duration", "2m", "3s"} {
			run := newRun(fmt.Sprint("chat ", i), message)
			run.CallbackURL = []string{"https://fine.example", "https://gone.example", "https://fine.example", ""}[i]
			run.Hook = []string{"a", "a", "b", "c"}[i]
			submit(t, e, run)
		}
		e.NoteAnswer(200)
		e.NoteAnswer(202)
		e.NoteAnswer(404)
		e.NoteAnswer(503)
		e.NoteAnswer(0)
		e.NoteAnswer(999)
		time.Sleep(59 * time.Second)
		if got := saved(t, store); len(got) != 0 {
			t.Errorf("%d minutes are saved before the first one is over", len(got))
		}
		time.Sleep(62 * time.Second)
		sum, minutes := minutesOf(t, e, begin)
		if len(minutes) != 3 { // the second one has a queue, and the third is under way
			t.Fatalf("there are %d minutes: %+v", len(minutes), minutes)
		}
		first := minutes[0]
		if first.Accepted != 4 || first.Completed != 1 || first.Failed != 1 || first.TimedOut != 0 || first.Delivered != 1 || first.Dead != 1 {
			t.Errorf("the first minute is %+v", first)
		}
		if first.Answered2xx != 2 || first.Answered4xx != 1 || first.Answered5xx != 1 {
			t.Errorf("the answers of the first minute are %+v", first)
		}
		if first.Queued < 3 || first.Queued > 4 || first.Oldest != time.Minute {
			t.Errorf("in the first minute %d runs waited, the oldest for %v", first.Queued, first.Oldest)
		}
		if sum.TimedOut != 1 || sum.Accepted != 4 {
			t.Errorf("after two minutes %+v", sum)
		}
		if a := first.Hooks["a"]; a.Accepted != 2 || a.Ended != 2 || a.Failed != 1 || a.Last.Unix() != begin.Unix() {
			t.Errorf("hook a has %+v", a)
		}
		time.Sleep(10 * time.Second)
		e.Stop() // in the middle of a minute

		e = startOn(t, data.Store(), c)
		submit(t, e, newRun("chat", "1s"))
		sum, minutes = minutesOf(t, e, begin)
		if len(minutes) != 3 || sum.Accepted != 5 || sum.Completed != 2 || sum.TimedOut != 1 || sum.Failed != 1 {
			t.Errorf("after a restart there are %d minutes, together %+v", len(minutes), sum)
		}
		if since, _ := minutesOf(t, e, begin.Add(time.Minute)); since.Accepted != 1 {
			t.Errorf("%d runs were accepted after the first minute", since.Accepted)
		}
	})
}

// A queue that comes and goes within a minute is in the minute, and in whatever minutes are added up with it.
func TestMinutesTellTheLongestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(takes)
		c.Workers = 1
		store := memory.New().Store()
		e := startOn(t, store, c)
		begin := time.Now()
		time.Sleep(20 * time.Second)
		for i := range 30 {
			submit(t, e, newRun(fmt.Sprint("chat ", i), "500ms"))
		}
		time.Sleep(30 * time.Second)
		if backlog, err := e.Backlog(t.Context()); err != nil || backlog.Queued != 0 {
			t.Fatalf("the queue is %+v, %v", backlog, err)
		}
		sum, _ := minutesOf(t, e, begin)
		isPeak := func(queued int64) bool { return queued == 29 || queued == 30 } // one may have been started already
		if !isPeak(sum.Queued) || sum.Oldest < 14*time.Second {
			t.Errorf("of the minute under way, the longest queue has %d runs, the oldest for %v", sum.Queued, sum.Oldest)
		}
		time.Sleep(2 * time.Minute)
		sum, minutes := minutesOf(t, e, begin)
		if !isPeak(sum.Queued) || minutes[len(minutes)-1].Queued != 0 {
			t.Errorf("the longest queue has %d runs, and that of the last minute %d", sum.Queued, minutes[len(minutes)-1].Queued)
		}
		if kept := saved(t, store); len(kept) != 1 || !isPeak(kept[0].Queued) {
			t.Errorf("saved: %+v", kept)
		}
	})
}

func TestMinutesWithoutEventsAreNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		e := startOn(t, store, config(echo))
		time.Sleep(time.Hour)
		if got := saved(t, store); len(got) != 0 {
			t.Errorf("an idle hour has %d minutes", len(got))
		}
		time.Sleep(time.Second)
		submit(t, e, newRun("chat", "hello"))
		time.Sleep(time.Hour)
		if got := saved(t, store); len(got) != 1 {
			t.Errorf("an hour with one run has %d minutes", len(got))
		}
	})
}

func TestMinutesOfAllNodesAreAddedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		a, b := startOn(t, data.Store(), config(echo)), startOn(t, data.Store(), config(echo))
		begin := time.Now()
		minutesOf(t, a, begin) // from now on it has them in memory
		for i := range 3 {
			submit(t, a, newRun("chat", "hello"))
			submit(t, b, newRun("chat", "hello"))
			submit(t, b, newRun("chat", "hello"))
			time.Sleep(time.Minute + time.Second)
			time.Sleep(time.Minute + time.Second) // by now each has saved its minute, and seen that of the other
			for name, e := range map[string]*engine.Engine{"a": a, "b": b} {
				if sum, _ := minutesOf(t, e, begin); sum.Accepted != int64(3*(i+1)) || sum.Completed != sum.Accepted {
					t.Errorf("after round %d node %s tells of %d accepted and %d completed runs", i, name, sum.Accepted, sum.Completed)
				}
			}
		}
		// The queue is the same one on both, and is not added up: whoever looked while runs were submitted saw three at most.
		if sum, _ := minutesOf(t, a, begin); sum.Queued > 3 {
			t.Errorf("%d are queued", sum.Queued)
		}
	})
}

func TestMinutesOfAWeekAreLoadedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startOn(t, memory.New().Store(), longLease(config(echo)))
		begin := time.Now()
		time.Sleep(30 * time.Second)
		for range 7 * 4 {
			submit(t, e, newRun("chat", "hello"))
			time.Sleep(6 * time.Hour)
			minutesOf(t, e, time.Now().Add(-time.Hour))
		}
		for back, want := range map[time.Duration]int64{time.Hour: 0, 24*time.Hour + time.Minute: 4, 47 * time.Hour: 7, 49 * time.Hour: 8, 7*24*time.Hour + time.Minute: 28} {
			if sum, _ := minutesOf(t, e, time.Now().Add(-back)); sum.Accepted != want {
				t.Errorf("%d runs were accepted in the last %v, want %d", sum.Accepted, back, want)
			}
		}
		time.Sleep(24 * time.Hour)
		submit(t, e, newRun("chat", "hello"))
		time.Sleep(time.Minute)
		if sum, _ := minutesOf(t, e, begin); sum.Accepted != 28+1-4 {
			t.Errorf("after eight days %d runs are known", sum.Accepted)
		}
	})
}

// refusingMinutes is a store that does not save minutes while broken is set.
type refusingMinutes struct {
	engine.Store
	broken *atomic.Bool
}

func (s refusingMinutes) Minutes() engine.Minutes { return refusedMinutes{s.Store.Minutes(), s.broken} }

type refusedMinutes struct {
	engine.Minutes
	broken *atomic.Bool
}

func (m refusedMinutes) Save(ctx context.Context, minutes ...engine.Minute) error {
	if m.broken.Load() {
		return errors.New("no space left on device")
	}
	return m.Minutes.Save(ctx, minutes...)
}

func TestAMinuteThatCannotBeSavedIsSavedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		store := memory.New().Store()
		e := startOn(t, refusingMinutes{store, &broken}, config(echo))
		begin := time.Now()
		submit(t, e, newRun("chat", "hello"))
		time.Sleep(90 * time.Second)
		submit(t, e, newRun("chat", "hello"))
		if sum, _ := minutesOf(t, e, begin); sum.Accepted != 2 || len(saved(t, store)) != 0 {
			t.Errorf("%d runs are counted, and %d minutes saved", sum.Accepted, len(saved(t, store)))
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		if got := saved(t, store); len(got) != 2 || !got[0].At.Equal(begin) {
			t.Errorf("saved are %+v", got)
		}
		if sum, _ := minutesOf(t, e, begin); sum.Accepted != 2 {
			t.Errorf("%d runs are counted", sum.Accepted)
		}
	})
}

func TestHooksThatAreTooManyShareTheirCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		begin := time.Now()
		accept := func(from, to int) {
			for i := from; i < to; i++ {
				run := newRun("chat", "hello")
				run.Hook = fmt.Sprint("hook-", i)
				submit(t, e, run)
			}
		}
		accept(0, 70)
		sum, _ := minutesOf(t, e, begin)
		if len(sum.Hooks) != 65 || sum.Hooks[""].Accepted != 6 || sum.Hooks["hook-63"].Accepted != 1 {
			t.Errorf("there are counts of %d hooks, and %d runs of others", len(sum.Hooks), sum.Hooks[""].Accepted)
		}
		time.Sleep(2 * time.Hour)
		accept(80, 81) // those that were idle for long make room
		if sum, _ = minutesOf(t, e, time.Now().Add(-time.Minute)); sum.Hooks["hook-80"].Accepted != 1 {
			t.Errorf("the new hook has no counts of its own: %+v", sum)
		}
	})
}

func TestQuantilesOfDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(takes)
		c.Workers = 1000
		e := start(t, c)
		begin := time.Now()
		// 100 runs that take from 100 ms to 10 s.
		for i := range 100 {
			submit(t, e, newRun(fmt.Sprint(i), fmt.Sprint(time.Duration(i+1)*100*time.Millisecond)))
		}
		time.Sleep(time.Minute)
		sum, _ := minutesOf(t, e, begin)
		hook := sum.Hooks["agent"]
		for share, want := range map[float64]float64{0.5: 5, 0.95: 9.5} {
			got, ok := sum.Quantile(share)
			ofHook, okHook := hook.Quantile(share)
			if !ok || math.Abs(got.Seconds()-want) > 0.2*want {
				t.Errorf("%v of the runs took up to %v, want about %v s", share, got, want)
			}
			if !okHook || math.Abs(ofHook.Seconds()-want) > 0.2*want {
				t.Errorf("%v of the runs of the hook took up to %v, want about %v s", share, ofHook, want)
			}
		}
		var none engine.Minute
		if _, ok := none.Quantile(0.5); ok {
			t.Error("there is a median of nothing")
		}
		slow := engine.Minute{Durations: engine.Durations{23: 1}, Longest: 2 * time.Hour}
		if got, ok := slow.Quantile(0.5); !ok || got < time.Hour || got > 2*time.Hour {
			t.Errorf("a run of more than an hour took %v", got)
		}
		quick := engine.Minute{Durations: engine.Durations{2}, Longest: 4 * time.Millisecond}
		if got, ok := quick.Quantile(0.5); !ok || got > 4*time.Millisecond || got <= 0 {
			t.Errorf("a quick run took %v", got)
		}
	})
}

func TestEventsTellWhichRunsHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(takes)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { return nil })
		e := start(t, c)
		events := e.Events()
		submit(t, e, newRun("chat", "1s"))
		time.Sleep(time.Minute)
		if n := events.Runs.Count(); n != 0 {
			t.Errorf("%d events although nobody listens", n)
		}
		stop := events.Listen()
		run := newRun("chat", "1s")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		other := newRun("other", "1h")
		submit(t, e, other)
		synctest.Wait()
		ids, others, position := events.Runs.After(0, 10)
		if len(ids) != 2 || others != 0 || position != 4 { // accepted and started
			t.Errorf("got %q and %d others, %d events", ids, others, position)
		}
		time.Sleep(2 * time.Second)
		if ids, others, _ = events.Runs.After(position, 10); len(ids) != 1 || ids[0] != run.ID || others != 0 {
			t.Errorf("got %q and %d others after the end", ids, others)
		}
		if ids, _, _ = events.Runs.After(0, 1); len(ids) != 1 || ids[0] != run.ID {
			t.Errorf("got %q, want the last one", ids)
		}
		if ids, others, _ = events.Deliveries.After(0, 10); len(ids) != 1 || ids[0] != engine.DeliveryID(run.ID, 0) || others != 0 {
			t.Errorf("got %q and %d others of deliveries", ids, others)
		}
		stop()
		before := events.Runs.Count()
		submit(t, e, newRun("chat", "1s"))
		synctest.Wait()
		if events.Runs.Count() != before {
			t.Error("there are events after the last listener has gone")
		}
	})
}

// Nodes that share a database tell the same, a few seconds later: each run counts once, also while minutes end and nodes stop.
func TestNodesTellTheSameOfTheMinuteUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		a, b := startOn(t, remoteStore{data.Store()}, config(echo)), startOn(t, remoteStore{data.Store()}, config(echo))
		begin := time.Now()
		accepted := []int64{0} // after each second
		check := func(name string, e *engine.Engine) {
			t.Helper()
			now := len(accepted) - 1
			sum, _ := minutesOf(t, e, begin.Add(-time.Minute))
			if least := accepted[max(0, now-4)]; sum.Accepted < least || sum.Accepted > accepted[now] || sum.Hooks["hook"].Accepted != sum.Accepted {
				t.Fatalf("after %d s node %s tells of %d accepted runs, %d of their hook, want %d to %d", now, name, sum.Accepted, sum.Hooks["hook"].Accepted, least, accepted[now])
			}
		}
		submitTo := func(e *engine.Engine) {
			run := newRun("chat", "hello")
			run.Hook = "hook"
			submit(t, e, run)
		}
		for second := range 200 {
			n := accepted[second]
			if second%3 == 0 {
				submitTo(a)
				n++
			}
			if second%20 < 10 {
				submitTo(b)
				submitTo(b)
				n += 2
			}
			time.Sleep(time.Second)
			synctest.Wait() // a node that shares its minute in this moment has not counted the next run in part
			accepted = append(accepted, n)
			check("a", a)
			check("b", b)
		}
		b.Stop()
		time.Sleep(time.Second)
		b = startOn(t, remoteStore{data.Store()}, config(echo))
		for range 5 {
			accepted = append(accepted, accepted[len(accepted)-1])
			time.Sleep(time.Second)
			check("a", a)
			check("b", b)
		}
	})
}

// A node that has nothing to tell writes nothing.
func TestAMinuteIsSharedWhenItHasGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedSaves{Store: memory.New().Store()}
		e := startOn(t, store, config(echo))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second))) // not at its very beginning
		submit(t, e, newRun("chat", "hello"))
		time.Sleep(10 * time.Minute)
		if n := store.saves.Load(); n != 2 {
			t.Errorf("a run was saved %d times, want once while its minute was under way, and once afterwards", n)
		}
	})
}

// countedSaves is a remote store that counts how often minutes are saved.
type countedSaves struct {
	engine.Store
	saves atomic.Int64
}

func (*countedSaves) Outage() (since time.Time, changed <-chan struct{}, cause error) {
	return time.Time{}, nil, nil
}
func (s *countedSaves) Minutes() engine.Minutes { return countedMinutes{s.Store.Minutes(), s} }

type countedMinutes struct {
	engine.Minutes
	store *countedSaves
}

func (m countedMinutes) Save(ctx context.Context, minutes ...engine.Minute) error {
	m.store.saves.Add(1)
	return m.Minutes.Save(ctx, minutes...)
}
