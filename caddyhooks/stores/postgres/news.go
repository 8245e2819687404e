package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
	"github.com/jackc/pgx/v5"
)

// news is what a node was told of runs of others.
type news struct {
	mu    sync.Mutex
	asked time.Time       // when last, by this machine
	since time.Time       // by the database
	heard map[string]bool // what the last answer had: kind and id
}

const (
	// newsPause is after how long without questions there are no news of the time between.
	newsPause = 10 * time.Second
	// newsOverlap is how much later a change may be seen than its time says.
	newsOverlap = 2 * time.Second
)

// News is that of storage.NewsTeller.
func (s *store) News(ctx context.Context, most int) (runs []string, err error) {
	n := &s.news
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.watch.isLone.Load() {
		return nil, nil
	}
	if time.Since(n.asked) > newsPause {
		n.since, n.heard = time.Time{}, nil
	}
	var since *time.Time
	if !n.since.IsZero() {
		since = new(time.Time)
		*since = n.since.Add(-newsOverlap)
	}
	var at time.Time
	var kinds, ids []string
	if err := s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&at, &kinds, &ids) },
		"SELECT * FROM @.news_1($1, $2, $3)", s.node, since, most); err != nil {
		return nil, err
	}
	heard := make(map[string]bool, len(ids))
	for i, id := range ids {
		key := kinds[i] + id
		if heard[key] = true; !n.heard[key] {
			runs = append(runs, id)
		}
	}
	n.asked, n.since, n.heard = time.Now(), at, heard
	return runs, nil
}

// Interface guard
var _ storage.NewsTeller = (*store)(nil)
