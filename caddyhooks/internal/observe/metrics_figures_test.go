package observe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// slowStore does not tell how many runs wait until something happens.
type slowStore struct {
	engine.Store
	until chan struct{}
	asked atomic.Int32
}

func (s *slowStore) Runs() engine.Runs { return slowRuns{s.Store.Runs(), s} }

type slowRuns struct {
	engine.Runs
	store *slowStore
}

func (r slowRuns) Backlog(ctx context.Context) (engine.Backlog, error) {
	r.store.asked.Add(1)
	select {
	case <-r.store.until:
		return r.Runs.Backlog(ctx)
	case <-ctx.Done():
		return engine.Backlog{}, ctx.Err()
	}
}

func TestScrapesAtTheSameTimeAskTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memory.New().Store(), until: make(chan struct{}, 10)}
		e := engine.New(store)
		var figures StoreFigures
		scrape := func() {
			var group sync.WaitGroup
			for range 10 {
				group.Go(func() {
					if _, err := figures.Ask(e); err != nil {
						t.Error(err)
					}
				})
			}
			store.until <- struct{}{} // no time passes before, as long as somebody waits for another one's answer
			group.Wait()
		}
		scrape()
		if n := store.asked.Load(); n != 1 {
			t.Errorf("ten scrapes ask the store %d times", n)
		}
		time.Sleep(FreshFor)
		scrape()
		if n := store.asked.Load(); n != 2 {
			t.Errorf("scrapes of a later time ask the store %d times in all", n)
		}
	})
}

func TestAScrapeDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&slowStore{Store: memory.New().Store()})
		var figures StoreFigures
		began := time.Now()
		if _, err := figures.Ask(e); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != scrapePatience {
			t.Errorf("it took %v", took)
		}
	})
}

func TestSampledTrace(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	for traceParent, want := range map[string]string{
		"00-" + id + "-b7ad6b7169203331-01":                       id,
		"00-" + id + "-b7ad6b7169203331-03":                       id,
		"00-" + id + "-b7ad6b7169203331-00":                       "",
		"00-" + id + "-b7ad6b7169203331-02":                       "",
		"00-" + id + "-b7ad6b7169203331-zz":                       "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"": "", "01": "",
	} {
		if got := sampledTrace(traceParent); got != want {
			t.Errorf("%q has the trace %q, want %q", traceParent, got, want)
		}
	}
}

func TestTracesOfTheLastRunsAreRemembered(t *testing.T) {
	t.Parallel()
	var traces deliveryTraces
	run := func(i int) *engine.Run {
		id := string(rune('a' + i))
		return &engine.Run{ID: id, CallbackURL: "https://example.com", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	}
	for i := range maxDeliveryTraces + 2 {
		traces.note(run(i))
		traces.note(run(i))
	}
	for i, want := range map[int]bool{0: false, 1: false, 2: true, maxDeliveryTraces + 1: true} {
		if got := traces.of(&engine.Delivery{RunID: run(i).ID}) != ""; got != want {
			t.Errorf("the trace of run %d is known: %t, want %t", i, got, want)
		}
	}
	if len(traces.traces) != maxDeliveryTraces {
		t.Errorf("%d traces are remembered", len(traces.traces))
	}
}

// Exemplars of durations that are alike are noted now and then, and those of others at once.
func TestRareDurationsAlwaysHaveExemplars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &durations{}
		for i, c := range []struct {
			took, pause time.Duration
			want        bool
		}{
			{time.Millisecond, 0, true}, {time.Millisecond, 0, false}, {time.Second, 0, true}, {0, 0, true}, {-1, 0, false},
			{time.Millisecond, exemplarEvery - 1, false}, {time.Millisecond, 1, true}, {time.Hour, 0, true},
		} {
			time.Sleep(c.pause)
			if got := d.wantsExemplar(c.took); got != c.want {
				t.Errorf("%d: a duration of %v is an exemplar: %t, want %t", i, c.took, got, c.want)
			}
		}
	})
}
