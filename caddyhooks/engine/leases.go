package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
)

// renewAgainAfter is the pause after a renewal that failed.
const renewAgainAfter = time.Second

// leases renews the claims of a node, and cancels what it loses.
type leases struct {
	*node
	renewed     func()        // called after each renewal in its time
	now         chan struct{} // leases are to be renewed before their time
	cancelWords atomic.Uint64 // how often the store left word that a run is to be cancelled

	renewing sync.Mutex
	triedAt  time.Time // when the last renewal began …
	err      error     // … and how it went; both under renewing
	gaveUp   bool      // turns were cancelled, since leases could not be renewed; likewise

	mu         sync.Mutex
	renewedAt  time.Time                             // when the last renewal began that succeeded
	runs       map[*Claim]context.CancelCauseFunc    // of turns under way
	deliveries map[*Delivery]context.CancelCauseFunc // of attempts under way, or whose end is being stored
}

func newLeases(n *node) *leases {
	return &leases{node: n, now: make(chan struct{}, 1), renewedAt: time.Now(),
		runs: make(map[*Claim]context.CancelCauseFunc), deliveries: make(map[*Delivery]context.CancelCauseFunc)}
}

// hold has the lease of a claim renewed until it is released. cancel is called if the claim is lost, or its run is to be cancelled.
func (l *leases) hold(claim *Claim, cancel context.CancelCauseFunc) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[claim] = cancel
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.runs, claim)
	}
}

// holdDelivery is hold for a delivery. Its attempt may change it meanwhile.
func (l *leases) holdDelivery(d *Delivery, cancel context.CancelCauseFunc) (release func()) {
	claimed := &Delivery{ID: d.ID, RunID: d.RunID, Index: d.Index, Token: d.Token}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliveries[claimed] = cancel
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.deliveries, claimed)
	}
}

// heldDeliveries is how many deliveries are held.
func (l *leases) heldDeliveries() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deliveries)
}

// keep renews the leases on the runs and deliveries that this node has claimed, three times a lease, and cancels
// runs that somebody wants to be cancelled.
func (l *leases) keep() {
	timer := time.NewTimer(l.lease() / 3)
	defer timer.Stop()
	var again time.Time // when to renew after a failure
	for {
		select {
		case <-l.base.Done():
			return
		case <-timer.C:
		case <-l.now:
			if time.Now().Before(again) {
				continue
			}
		case <-l.store.Watch().Cancelled():
			l.cancelWords.Add(1)
		}
		if err := l.renew(); err != nil {
			pause := min(l.lease()/3, renewAgainAfter)
			again = time.Now().Add(pause)
			timer.Reset(pause)
			continue
		}
		timer.Reset(l.lease() / 3)
		l.renewed()
	}
}

// renew renews the leases of all turns and attempts that are known when it is called.
func (l *leases) renew() error {
	called := time.Now()
	l.renewing.Lock()
	defer l.renewing.Unlock()
	if l.triedAt.After(called) {
		return l.err // another goroutine has done it meanwhile
	}
	l.triedAt = time.Now()
	l.err = l.renewAll()
	return l.err
}

// renewAll cancels turns and attempts whose claim is lost, and all of them if they could not be renewed for a whole
// lease: others may have got them.
func (l *leases) renewAll() error {
	lease := l.lease()
	began := time.Now()
	l.mu.Lock()
	turns, attempts := maps.Clone(l.runs), maps.Clone(l.deliveries)
	l.mu.Unlock()
	claims, held := slices.Collect(maps.Keys(turns)), slices.Collect(maps.Keys(attempts))

	lost, cancelled, lostDeliveries, err := l.ask(claims, held, lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.renewedAt, l.gaveUp = began, false
	case time.Since(l.renewedAt) >= lease:
		if !l.gaveUp && len(claims)+len(held) > 0 {
			l.log().Error("leases could not be renewed in time; turns and deliveries under way are cancelled", panics.Field(err))
		}
		l.gaveUp = true
		lost, lostDeliveries = claims, held
	default:
		l.store.failed("renewing leases failed, trying again", err)
	}
	for _, claim := range lost {
		if cancel := turns[claim]; cancel != nil {
			cancel(ErrClaimLost)
		}
	}
	for _, wish := range cancelled {
		if cancel := turns[wish.Claim]; cancel != nil {
			cancel(&cancelledError{wish.By})
		}
	}
	for _, d := range lostDeliveries {
		if cancel := attempts[d]; cancel != nil {
			cancel(ErrClaimLost)
		}
	}
	return err
}

// ask makes a panic of the store an error like any other, so that turns are cancelled in time.
func (l *leases) ask(claims []*Claim, held []*Delivery, lease time.Duration) (
	lost []*Claim, cancelled []Cancellation, lostDeliveries []*Delivery, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panics.New("the store", p)
		}
	}()
	ctx, stop := context.WithTimeout(context.Background(), lease/3)
	defer stop()
	lost, cancelled, err = l.store.Runs().Renew(ctx, claims, lease)
	if err == nil && len(held) > 0 {
		lostDeliveries, err = l.store.Deliveries().Renew(ctx, held, lease)
	}
	return lost, cancelled, lostDeliveries, err
}

// areFresh reports whether leases were renewed lately. If they were not, the process stood still or the store cannot
// be reached: then nothing more is claimed before they are renewed, or this node might take its own runs from itself.
func (l *leases) areFresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.renewedAt) < l.lease()*2/3
}
