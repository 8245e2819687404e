//go:build real

package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// senders is what senders of several nodes have claimed and not settled yet.
type senders struct {
	t  *testing.T
	mu sync.Mutex

	atOnce  map[engine.Destination]int
	held    map[string]bool // by id
	arrived map[string]bool
	last    map[engine.Destination]int // how many bytes the chat's last delivery had: they grow
	left    int
	done    context.CancelFunc // called when none is left
}

func (u *senders) begin(d *engine.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	to := d.Destination()
	host := engine.Destination{Host: to.Host}
	if u.held[d.ID] || u.arrived[d.ID] {
		u.t.Errorf("delivery %s was handed out twice", d.ID)
	}
	u.held[d.ID] = true
	u.atOnce[host]++
	if n := u.atOnce[host]; n > engine.PerHost {
		u.t.Errorf("%d deliveries to %s are under way at once", n, to.Host)
	}
	if to.Chat == "" {
		return
	}
	u.atOnce[to]++
	if n := u.atOnce[to]; n > 1 {
		u.t.Errorf("%d deliveries to %v are under way at once", n, to)
	}
	if d.Sent <= u.last[to] {
		u.t.Errorf("delivery %d to %v was handed out after %d", d.Sent, to, u.last[to])
	}
}

func (u *senders) end(d *engine.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	to := d.Destination()
	delete(u.held, d.ID)
	u.atOnce[engine.Destination{Host: to.Host}]--
	if to.Chat != "" {
		u.atOnce[to]--
	}
	if d.Status == engine.Pending {
		return
	}
	u.arrived[d.ID] = true
	u.last[to] = d.Sent
	if u.left--; u.left == 0 {
		u.done()
	}
}

// send claims deliveries on a node and settles them in one way or another, until all have arrived.
func (u *senders) send(ctx context.Context, s *store, seed uint64) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	room := make(chan struct{}, 100)
	for ctx.Err() == nil {
		due, wait, err := s.deliveries.Claim(ctx, engine.DeliveryBatch{Max: cap(room) - len(room), Lease: time.Hour})
		if err != nil && ctx.Err() == nil {
			u.t.Error(err)
			return
		}
		for i, d := range due {
			u.begin(d)
			room <- struct{}{}
			chance := rand.New(rand.NewPCG(seed, uint64(i)+uint64(d.Attempt)<<16))
			seed++
			attempts.Go(func() {
				defer func() { <-room }()
				d.Attempt++
				d.Status = engine.Delivered
				var pause time.Duration
				switch chance.IntN(8) {
				case 0:
					d.Status = engine.Pending
					if d.Channel == "" {
						pause = time.Duration(chance.IntN(20)) * time.Millisecond
					}
				case 1:
					d.Status = engine.Dead
				}
				var throttles []engine.Throttle
				switch to := d.Destination(); chance.IntN(20) {
				case 0:
					throttles = []engine.Throttle{{To: engine.Destination{Host: to.Host}, AtOnce: 3, Pause: 5 * time.Millisecond}}
				case 1:
					throttles = []engine.Throttle{{To: to, Pause: 5 * time.Millisecond}}
				case 2, 3, 4:
					throttles = []engine.Throttle{{To: engine.Destination{Host: to.Host}}}
				}
				u.end(d)
				if err := s.deliveries.Settle(context.WithoutCancel(ctx), d, pause, throttles...); err != nil {
					u.t.Error(err)
				}
			})
		}
		if len(due) > 0 || wait == 0 {
			continue
		}
		timeout := 10 * time.Millisecond // another node may have throttled a host, or made room
		if wait > 0 {
			timeout = min(wait, timeout)
		}
		select {
		case <-time.After(timeout):
		case <-ctx.Done():
		}
	}
}

func TestNodesKeepToTheShareOfHostsAndTheOrderOfChats(t *testing.T) {
	t.Parallel()
	nodes := []*store{newDeliveryStore(t)}
	for range 2 {
		nodes = append(nodes, joinTestStore(t, nodes[0]))
	}
	const each = 400
	var all []engine.Delivery
	for i := range each {
		for _, host := range []string{"a.example", "b.example", "c.example"} {
			all = append(all, callbacks(1, host)...)
		}
		all = append(all, engine.Delivery{Channel: "one", To: fmt.Sprint("chat ", i%3), Sent: i + 1}, engine.Delivery{Channel: "two", To: fmt.Sprint("chat ", i%40), Sent: i + 1})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	u := &senders{t: t, atOnce: map[engine.Destination]int{}, held: map[string]bool{}, arrived: map[string]bool{}, last: map[engine.Destination]int{},
		left: len(all), done: cancel}
	var work sync.WaitGroup
	for i, node := range nodes {
		work.Go(func() { u.send(ctx, node, uint64(i)<<32) })
	}
	for len(all) > 0 { // while they are sent
		n := min(len(all), 50)
		addDeliveries(t, nodes[0], all[:n]...)
		all = all[n:]
	}
	work.Wait()
	if u.left > 0 {
		t.Fatalf("%d are left", u.left)
	}
	checkDeliveries(t, nodes[0])
	pending, dead, err := nodes[0].deliveries.Count(t.Context())
	if err != nil || pending != 0 || dead == 0 {
		t.Errorf("%d are pending and %d dead: %v", pending, dead, err)
	}
	if due, wait, err := nodes[1].deliveries.Claim(t.Context(), engine.DeliveryBatch{Max: 1, Lease: time.Hour}); len(due) > 0 || wait >= 0 || err != nil {
		t.Errorf("got %d deliveries, and more after %v: %v", len(due), wait, err)
	}
}
