package observe

import (
	"context"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
)

// scrapePatience is how long a scrape waits for the store. Prometheus gives up after 10 seconds, unless it is told otherwise. A
// database is not yet in doubt when it takes that long.
const scrapePatience = 1500 * time.Millisecond

// FreshFor is how long the state of a store is good for other scrapes, so that several Prometheus servers cost as much as one.
// Tests shorten it.
var FreshFor = time.Second

// StoreFigures are the figures that the store tells a scrape. Whoever asks while somebody else does gets the same answer.
type StoreFigures struct {
	mu    sync.Mutex
	at    time.Time
	known storeState
	err   error
}

type storeState struct {
	Backlog     engine.Backlog
	Questions   int // open ones, for people
	Undelivered undelivered
	Bytes       int64 // negative if it is not known
	Budgets     []budget.State
}

// Ask asks the store, unless that was done just now. It takes no longer than scrapePatience.
func (f *StoreFigures) Ask(e *engine.Engine) (storeState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() || time.Since(f.at) >= FreshFor {
		ctx, stop := context.WithTimeout(context.Background(), scrapePatience)
		defer stop()
		f.known, f.err = askStore(ctx, e)
		f.at = time.Now()
	}
	return f.known, f.err
}

func askStore(ctx context.Context, e *engine.Engine) (known storeState, err error) {
	if _, _, cause := e.StoreUnreachable(); cause != nil {
		return storeState{}, cause
	}
	if known.Backlog, err = e.Backlog(ctx); err != nil {
		return storeState{}, err
	}
	if known.Questions, err = e.CountQuestions(ctx); err != nil {
		return storeState{}, err
	}
	if known.Undelivered, err = e.CountUndeliveredBy(ctx); err != nil {
		return storeState{}, err
	}
	if known.Bytes, err = e.StoreSize(ctx); err != nil {
		known.Bytes = -1 // the rest is worth more
	}
	if known.Budgets, err = e.Budgets(ctx); err != nil {
		known.Budgets = nil // the rest is worth more
	}
	return known, nil
}

// undelivered are deliveries that have not arrived, by channel. Those of "" are callbacks.
type undelivered map[string]engine.Undelivered

// By tells callbacks, channels that are configured, each of which has a count, and all others apart.
func (u undelivered) By(configured map[string]engine.Channel) (callbacks engine.Undelivered, channels map[string]engine.Undelivered,
	gone engine.Undelivered) {
	channels = make(map[string]engine.Undelivered, len(configured))
	for name := range configured {
		channels[name] = u[name]
	}
	for name, count := range u {
		if _, ok := configured[name]; !ok && name != "" {
			gone.Pending += count.Pending
			gone.Dead += count.Dead
		}
	}
	return u[""], channels, gone
}
