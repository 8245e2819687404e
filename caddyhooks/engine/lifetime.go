package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// lifetime is how far an engine is with its end.
type lifetime struct {
	stopping chan struct{} // closed when nothing more is started
	stopOnce sync.Once
	shut     atomic.Bool     // nothing more is accepted
	base     context.Context // of all turns and deliveries
	cut      context.CancelCauseFunc
}

func newLifetime() *lifetime {
	l := &lifetime{stopping: make(chan struct{})}
	l.base, l.cut = context.WithCancelCause(context.Background())
	return l
}

// beginStop ends the lifetime: turns and deliveries under way have the drain time.
func (l *lifetime) beginStop(drain time.Duration) {
	l.stopOnce.Do(func() {
		close(l.stopping)
		time.AfterFunc(drain, func() { l.cut(ErrStopping) })
	})
}

func (l *lifetime) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// node is what all parts of an engine share.
type node struct {
	*configs
	*lifetime
	store   *guardedStore
	pauses  *starts.Pauses
	models  usage.Models
	budgets budget.Keeper
}

func newNode(store Store) *node {
	n := &node{configs: new(configs), lifetime: newLifetime(), pauses: new(starts.Pauses)}
	n.store = &guardedStore{Store: store, configs: n.configs, life: n.lifetime, broken: make(chan struct{})}
	return n
}
