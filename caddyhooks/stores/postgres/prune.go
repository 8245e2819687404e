package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// pruneStep is how much of each kind a step of pruning forgets.
const pruneStep = 1000

// pruning is where the next step goes on among the runs that have ended.
type pruning struct {
	mu sync.Mutex
	at *time.Time
	id *string
}

// Prune forgets a step of what is old, unless another node does so just now.
func (s *store) Prune(ctx context.Context, limits engine.Limits) (more bool, err error) {
	s.pruning.mu.Lock()
	defer s.pruning.mu.Unlock()
	var at *time.Time
	var id *string
	err = s.query(ctx, func(row pgx.Rows) error { return row.Scan(&more, &at, &id) },
		"SELECT @.prune_gates_2($11, $9) OR o_more, o_at, o_id FROM @.prune_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		s.node, secondsOrNull(limits.Retention), s.pruning.at, s.pruning.id, numberOrNull(int64(limits.Keys)), secondsOrNull(limits.KeyAge),
		historySeconds(limits.History), numberOrNull(limits.HistoryBytes), pruneStep, local.PruneStep,
		int64(gate.MaxGates))
	if err != nil {
		return false, err
	}
	s.pruning.at, s.pruning.id = at, id
	return more, nil
}

// historySeconds is how long ended runs keep their input, at most.
func historySeconds(history time.Duration) *float64 {
	if history < 0 { // engine.NoHistory
		none := 0.0
		return &none
	}
	return secondsOrNull(history)
}

// secondsOrNull is nil for a limit that is none.
func secondsOrNull(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// numberOrNull is nil for a limit that is none.
func numberOrNull(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}
