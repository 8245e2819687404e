package engine

import (
	"context"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/news"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
)

// Events tells which runs and deliveries of this engine have changed lately: see news.Events.
type Events = news.Events

// Events returns the events of the engine.
func (e *Engine) Events() *Events { return e.events }

// HearNews has Events tell of runs of other nodes, too, if the store knows them. A store that fails tells next time.
func (e *Engine) HearNews(ctx context.Context) {
	teller, ok := e.store.Store.(storage.NewsTeller)
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
