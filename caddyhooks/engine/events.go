package engine

import (
	"context"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/news"
)

// Events tells which runs and deliveries of this engine have changed lately: see news.Events.
type Events = news.Events

// Events returns the events of the engine.
func (e *Engine) Events() *Events { return e.events }

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
		e.events.Runs.Publish(runs[len(runs)-1-i])
	}
}

// mostNews is how many runs of other nodes are told of at once.
const mostNews = 100
