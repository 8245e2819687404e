package engine

import (
	"context"
	"sync"
	"sync/atomic"
)

// Events tells which runs and deliveries of this engine have changed lately.
type Events struct {
	Runs       Ring // accepted, started, put back and ended
	Deliveries Ring // created, settled, retried and dropped
}

// Events returns the events of the engine.
func (e *Engine) Events() *Events { return e.events }

// Listen has events remembered from now on, until stop is called by all who listen. As long as nobody listens an event costs
// an atomic load.
func (e *Events) Listen() (stop func()) {
	e.Runs.listeners.Add(1)
	e.Deliveries.listeners.Add(1)
	return sync.OnceFunc(func() {
		e.Runs.listeners.Add(-1)
		e.Deliveries.listeners.Add(-1)
	})
}

// ringSize is how many events a Ring remembers. Ten thousand runs a second have some 7,500 in a quarter of a second.
const ringSize = 8192

// Ring remembers the last events, by the ids of the runs or deliveries that they are about. Those who publish wait for
// nobody, and those who read miss what they are too late for.
type Ring struct {
	listeners atomic.Int32

	mu    sync.Mutex
	ids   []string // made when somebody first listens
	count uint64   // of all there have been
}

func (r *Ring) publish(id string) {
	if r.listeners.Load() == 0 {
		return
	}
	r.mu.Lock()
	if r.ids == nil {
		r.ids = make([]string, ringSize)
	}
	r.ids[r.count%ringSize] = id
	r.count++
	r.mu.Unlock()
}

// Count is how many events there have been.
func (r *Ring) Count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// After returns what the events after the first so many are about, each once: those of the last events, up to a number and in
// the order of their last event, and how many others. Events that are forgotten count as one other each.
func (r *Ring) After(first uint64, most int) (ids []string, others int, count uint64) {
	r.mu.Lock()
	var news []string
	if count = r.count; count > first {
		kept := min(count-first, ringSize)
		others = int(count - first - kept)
		news = make([]string, 0, kept)
		for i := count - kept; i < count; i++ {
			news = append(news, r.ids[i%ringSize])
		}
	}
	r.mu.Unlock()
	seen := make(map[string]struct{}, min(len(news), 1024))
	for i := len(news) - 1; i >= 0; i-- {
		if _, known := seen[news[i]]; known {
			continue
		}
		seen[news[i]] = struct{}{}
		if len(ids) < most {
			ids = append(ids, news[i])
		} else {
			others++
		}
	}
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids, others, count
}

// NewsTeller is a Store that knows which runs other nodes have accepted, started or ended lately.
type NewsTeller interface {
	// News returns the ids of such runs since the last call, the newest first, up to a number. It is asked once a second or so as
	// long as somebody looks at lists of runs; the first answer after a pause is empty.
	News(ctx context.Context, most int) (runs []string, err error)
}

// HearNews has Events tell of runs of other nodes, too, if the store knows them. A store that fails tells next time.
func (e *Engine) HearNews(ctx context.Context) {
	teller, ok := e.store.Store.(NewsTeller)
	if !ok {
		return
	}
	runs, _ := teller.News(ctx, mostNews)
	for i := range runs {
		e.events.Runs.publish(runs[len(runs)-1-i])
	}
}

// mostNews is how many runs of other nodes are told of at once.
const mostNews = 100
