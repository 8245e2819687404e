// Package stores holds the places in which runs can be kept.
package stores

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func init() {
	caddy.RegisterModule(Memory{})
}

// Memory keeps runs and live settings in memory. They survive a reload of the configuration, and are gone when the
// process ends. When the runs and deliveries that it holds come to 512 MB, it takes no more.
type Memory struct{}

// CaddyModule returns the Caddy module information.
func (Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.stores.memory",
		New: func() caddy.Module { return new(Memory) },
	}
}

// UnmarshalCaddyfile parses:
//
//	store memory
func (*Memory) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	if d.NextBlock(d.Nesting()) {
		return d.Errf("unrecognized subdirective '%s'; the memory store takes none", d.Val())
	}
	return nil
}

// StoreKey names the data of an instance.
func (Memory) StoreKey(instance string) string { return "memory:" + instance }

// OpenStore makes an empty store.
func (Memory) OpenStore(context.Context, string) (engine.Store, error) {
	return &memoryStore{
		places:    make(map[string]*engine.Place[*engine.Run]),
		claimable: make(chan struct{}, 1),
	}, nil
}

type memoryStore struct {
	claimable chan struct{}

	mu         sync.Mutex
	lanes      engine.Lanes[*engine.Run]
	places     map[string]*engine.Place[*engine.Run] // by run id
	deliveries deliveryHeap
	bytes      int // of runs and deliveries
	settings   []byte
}

const maxBytes = 512 << 20

// runBytes and deliveryBytes are about what one takes in memory.
func runBytes(r *engine.Run) int { return 1024 + len(r.Message) + len(r.Metadata) + len(r.Schema) }

func deliveryBytes(d *engine.Delivery) int { return 512 + len(d.Body) }

func (s *memoryStore) Add(_ context.Context, run *engine.Run, limits engine.Limits) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limits.Queue > 0 && s.lanes.Queued() >= limits.Queue || s.bytes+runBytes(run) > maxBytes {
		return engine.ErrQueueFull
	}
	if limits.Chat > 0 && s.lanes.QueuedIn(run.ChatID) >= limits.Chat {
		return engine.ErrChatFull
	}
	place, ready := s.lanes.Push(run.ChatID, run)
	s.places[run.ID] = place
	s.bytes += runBytes(run)
	if ready {
		s.signal()
	}
	return nil
}

func (s *memoryStore) Claim(_ context.Context, n int) ([]*engine.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var runs []*engine.Run
	for len(runs) < n {
		place, ok := s.lanes.Pop()
		if !ok {
			break
		}
		runs = append(runs, place.Item)
	}
	return runs, nil
}

func (s *memoryStore) Claimable() <-chan struct{} { return s.claimable }

func (s *memoryStore) signal() {
	select {
	case s.claimable <- struct{}{}:
	default:
	}
}

func (s *memoryStore) Release(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := s.places[id]
	if place == nil {
		return engine.ErrNotFound
	}
	s.lanes.Return(place)
	s.signal()
	return nil
}

func (s *memoryStore) Finish(_ context.Context, id string, _ engine.Outcome, deliveries []*engine.Delivery) error {
	return s.remove(id, false, deliveries)
}

func (s *memoryStore) Withdraw(_ context.Context, id string, _ engine.Outcome, deliveries []*engine.Delivery) error {
	return s.remove(id, true, deliveries)
}

func (s *memoryStore) remove(id string, queued bool, deliveries []*engine.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := s.places[id]
	if place == nil || place.Queued() != queued {
		return engine.ErrNotFound
	}
	s.lanes.Done(place)
	delete(s.places, id)
	s.bytes -= runBytes(place.Item)
	for _, d := range deliveries {
		s.bytes += deliveryBytes(d)
		heap.Push(&s.deliveries, d)
	}
	return nil
}

func (s *memoryStore) ClaimDeliveries(_ context.Context, now time.Time, n int) (due []*engine.Delivery, next time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.deliveries) > 0 && len(due) < n && !s.deliveries[0].Due.After(now) {
		due = append(due, heap.Pop(&s.deliveries).(*engine.Delivery))
	}
	if len(s.deliveries) > 0 {
		next = s.deliveries[0].Due
	}
	return due, next, nil
}

func (s *memoryStore) SettleDelivery(_ context.Context, d *engine.Delivery, over bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over {
		s.bytes -= deliveryBytes(d)
		return nil
	}
	heap.Push(&s.deliveries, d)
	return nil
}

func (s *memoryStore) Settings(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings, nil
}

func (s *memoryStore) SaveSettings(_ context.Context, settings []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = settings
	return nil
}

func (s *memoryStore) Close() error { return nil }

// deliveryHeap has the delivery that is due first at the top.
type deliveryHeap []*engine.Delivery

func (h deliveryHeap) Len() int           { return len(h) }
func (h deliveryHeap) Less(i, j int) bool { return h[i].Due.Before(h[j].Due) }
func (h deliveryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *deliveryHeap) Push(d any)        { *h = append(*h, d.(*engine.Delivery)) }
func (h *deliveryHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// Interface guards
var (
	_ engine.StoreOpener    = (*Memory)(nil)
	_ caddyfile.Unmarshaler = (*Memory)(nil)
)
