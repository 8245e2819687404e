package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Checks of deliveries that two nodes send out.
var nodeDeliveryChecks = []check{
	{"each delivery is handed out once to two nodes", handedOutOnceToNodes},
	{"a node that stood still for a lease can settle nothing that moved on", frozenNodeSettles},
	{"every delivery arrives once whatever happens at the same time", sentAtRandom},
}

func handedOutOnceToNodes(_ *testing.T, a *store) { handOutToMany(a, a.join()) }

// A claims deliveries and stands still. When it goes on, its lease is over and B has them.
func frozenNodeSettles(t *testing.T, a *store) {
	b := a.join()
	_, deliveries := a.endWith(3)
	old := a.abandonDeliveries(deliveries...)
	got := b.takesAgain(deliveries...)
	for _, d := range old {
		a.isLostDelivery(d)
	}
	a.takes(nil)
	b.staysWith(longLease, got...)
	b.settle(got[0], engine.Delivered, 0, "")
	b.settle(got[1], engine.Dead, 0, "gone")
	b.settle(got[2], engine.Pending, time.Hour, "busy")
	for i, d := range old {
		a.isLostDelivery(d)
		known := a.delivery(d.ID)
		known.Body = got[i].Body
		same(t, "the delivery", known, got[i])
	}
	a.handsOut(10, nil, time.Hour)
}

// claimDue claims up to n deliveries, and expects these.
func (s *store) claimDue(n int, want []*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	got, _ := s.due(n)
	s.areThese(got, want)
	return got
}

// outgoing notes the deliveries that were handed out, as far as they are sure to be under way.
type outgoing struct {
	*ledger
	mu      sync.Mutex
	holders map[string]*heldDelivery // by delivery
	arrived map[string]int
}

type heldDelivery struct {
	d     *engine.Delivery
	lease lease
}

// began notes deliveries that a call handed out which lasted since a moment.
func (o *outgoing) began(due []*engine.Delivery, from moment, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, delivery := range due {
		if !o.tokens.isNew(delivery.Token) {
			o.t.Errorf("token %q is none or was used before", delivery.Token)
		}
		held := &heldDelivery{delivery, lease{nil, from, d}}
		if o.mayBeLost(&held.lease) {
			continue // somebody else may have got it meanwhile
		}
		if h := o.holders[delivery.ID]; h != nil && !o.mayBeLost(&h.lease) {
			o.t.Errorf("delivery %s was handed out while it was under way", delivery.ID)
		}
		if o.arrived[delivery.ID] > 0 {
			o.t.Errorf("delivery %s was handed out after it had arrived", delivery.ID)
		}
		o.holders[delivery.ID] = held
	}
	atOnce := map[engine.Destination]int{}
	for _, h := range o.holders {
		if to := h.d.Destination(); !o.mayBeLost(&h.lease) {
			atOnce[engine.Destination{Host: to.Host}]++
			if to.Chat != "" {
				atOnce[to]++
			}
		}
	}
	for to, n := range atOnce {
		if n > engine.PerHost || to.Chat != "" && n > 1 {
			o.t.Errorf("%d deliveries to %+v are under way at once", n, to)
		}
	}
}

// letGo is called before a delivery is settled. It returns the lease, nil if somebody else has got the delivery.
func (o *outgoing) letGo(d *engine.Delivery) *lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.holders[d.ID]
	if h == nil || h.d.Token != d.Token {
		return nil
	}
	delete(o.holders, d.ID)
	return &h.lease
}

func (o *outgoing) delivered(d *engine.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived[d.ID]++
}

func (o *outgoing) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.arrived)
}

// send claims deliveries and settles them in one way or another, or leaves them alone.
func (o *outgoing) send(ctx context.Context, s engine.Store, chance *rand.Rand) error {
	from := o.now()
	due, _, err := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 1 + chance.IntN(6), Lease: shortLease})
	if err != nil {
		return err
	}
	o.began(due, from, shortLease)
	for _, d := range due {
		if chance.IntN(6) == 0 {
			continue
		}
		for chance.IntN(12) == 0 && !o.surelyOver(from, shortLease) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		d.Attempt++
		d.Status = engine.Delivered
		if chance.IntN(4) == 0 {
			d.Status = engine.Pending
		}
		held := o.letGo(d)
		err := s.Deliveries().Settle(ctx, d, time.Duration(chance.IntN(2))*time.Second)
		switch {
		case isClaimLost(err) && o.mayBeLost(held):
		case err != nil:
			return fmt.Errorf("settling: %w", err)
		case d.Status == engine.Delivered:
			o.delivered(d)
			if chance.IntN(4) > 0 {
				continue
			}
			if err := s.Deliveries().Settle(ctx, d, 0); err != nil { // the answer was lost
				return fmt.Errorf("settling again: %w", err)
			}
		}
	}
	if len(due) == 0 {
		select {
		case <-s.Watch().Due():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func sentAtRandom(t *testing.T, a *store) {
	b := a.join()
	const runs = 120
	o := &outgoing{ledger: newLedger(t), holders: map[string]*heldDelivery{}, arrived: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var all, clocks sync.WaitGroup
	all.Go(func() {
		chance := random(1)
		for i := range runs {
			node := []*store{a, b}[i%2]
			run := newRun(fmt.Sprint("chat ", i))
			if err := node.tryAdd(run, engine.Limits{}); err != nil {
				t.Error(err)
				return
			}
			d := newDelivery(run, 0)
			switch chance.IntN(3) {
			case 0:
				toHost(d)
			case 1:
				d.Callback, d.Channel, d.To = "", "chats", fmt.Sprint("chat ", chance.IntN(10))
			}
			if _, err := node.Runs().End(ctx, queued(run), endedWith(d), engine.Batch{}); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 6 {
		all.Go(func() {
			chance := random(10 + i)
			for o.count() < runs && ctx.Err() == nil {
				if err := o.send(ctx, []*store{a, b}[i%2].Store, chance); err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	over := make(chan struct{})
	clocks.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				o.advance(a, shortLease/4)
			}
		}
	})
	all.Wait()
	close(over)
	clocks.Wait()
	if n := o.count(); n != runs {
		t.Fatalf("%d of %d deliveries have arrived, and it took too long or failed", n, runs)
	}
	for id, n := range o.arrived {
		if d := b.delivery(id); n != 1 || d.Status != engine.Delivered {
			t.Errorf("delivery %s arrived %d times and is %s", id, n, d.Status)
		}
	}
	a.noneDue()
}
