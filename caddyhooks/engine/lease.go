package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// defaultLease is how long a node keeps what it has claimed if it falls silent. After that other nodes may take it.
const defaultLease = 12 * time.Second

// renewAgainAfter is the pause after a renewal that failed.
const renewAgainAfter = time.Second

// leases is what an engine knows about the leases on its claims.
type leases struct {
	renewing    sync.Mutex
	triedAt     time.Time     // when the last renewal began …
	err         error         // … and how it went; both under renewing
	gaveUp      bool          // turns were cancelled, since leases could not be renewed; likewise
	renewedAt   time.Time     // when the last renewal began that succeeded; under the engine's lock
	cancelWords atomic.Uint64 // how often the store left word that a run is to be cancelled
}

// storeContext is for a call of the store that has to be made even if its cause is gone. One that does not return within a
// lease is given up, and can be repeated.
func (e *Engine) storeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), e.lease())
}

// patience bounds a call of the store that is made for a request: one that hangs must not hold the request.
func (e *Engine) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.lease())
}

func (e *Engine) lease() time.Duration {
	if c := e.config.Load(); c != nil && c.Lease > 0 {
		return c.Lease
	}
	return defaultLease
}

// keepLeases renews the leases on the runs and deliveries that this node has claimed, three times a lease, and cancels
// runs that somebody wants to be cancelled.
func (e *Engine) keepLeases() {
	defer e.renewer.Done()
	timer := time.NewTimer(e.lease() / 3)
	defer timer.Stop()
	var again time.Time // when to renew after a failure
	for {
		select {
		case <-e.base.Done():
			return
		case <-timer.C:
		case <-e.renewNow:
			if time.Now().Before(again) {
				continue
			}
		case <-e.store.Watch().Cancelled():
			e.leases.cancelWords.Add(1)
		}
		if err := e.renewLeases(); err != nil {
			pause := min(e.lease()/3, renewAgainAfter)
			again = time.Now().Add(pause)
			timer.Reset(pause)
			continue
		}
		timer.Reset(e.lease() / 3)
		// A lease of another node may be over.
		signal(e.workerFree)
		signal(e.sendMore)
	}
}

// renewLeases renews the leases of all turns and attempts that are known when it is called.
func (e *Engine) renewLeases() error {
	called := time.Now()
	e.leases.renewing.Lock()
	defer e.leases.renewing.Unlock()
	if e.leases.triedAt.After(called) {
		return e.leases.err // another goroutine has done it meanwhile
	}
	e.leases.triedAt = time.Now()
	e.leases.err = e.renewAll()
	return e.leases.err
}

// renewAll cancels turns and attempts whose claim is lost, and all of them if they could not be renewed for a whole
// lease: others may have got them.
func (e *Engine) renewAll() error {
	lease := e.lease()
	began := time.Now()
	e.mu.Lock()
	claims := make([]*Claim, 0, len(e.running))
	turns := make(map[*Claim]*turnUnderWay, len(e.running))
	for id, all := range e.running {
		for _, turn := range all {
			if turn.claim.Run.ID == id { // once for all runs of a turn
				claims = append(claims, turn.claim)
				turns[turn.claim] = turn
			}
		}
	}
	held := make([]*Delivery, 0, len(e.sending))
	sending := make(map[*Delivery]*attempting, len(e.sending))
	for attempt := range e.sending {
		held = append(held, attempt.claimed)
		sending[attempt.claimed] = attempt
	}
	e.mu.Unlock()

	lost, cancelled, lostDeliveries, err := e.askForRenewal(claims, held, lease)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.leases.renewedAt, e.leases.gaveUp = began, false
	case time.Since(e.leases.renewedAt) >= lease:
		if !e.leases.gaveUp && len(claims)+len(held) > 0 {
			e.log().Error("leases could not be renewed in time; turns and deliveries under way are cancelled", ErrorField(err))
		}
		e.leases.gaveUp = true
		lost, lostDeliveries = claims, held
	default:
		e.storeFailed("renewing leases failed, trying again", err)
	}
	for _, claim := range lost {
		if turn := turns[claim]; turn != nil {
			turn.cancel(ErrClaimLost)
		}
	}
	for _, wish := range cancelled {
		if turn := turns[wish.Claim]; turn != nil {
			turn.cancel(&cancelledError{wish.By})
		}
	}
	for _, d := range lostDeliveries {
		if attempt := sending[d]; attempt != nil {
			attempt.cancel(ErrClaimLost)
		}
	}
	return err
}

// askForRenewal makes a panic of the store an error like any other, so that turns are cancelled in time.
func (e *Engine) askForRenewal(claims []*Claim, held []*Delivery, lease time.Duration) (
	lost []*Claim, cancelled []Cancellation, lostDeliveries []*Delivery, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError("the store", p)
		}
	}()
	ctx, stop := context.WithTimeout(context.Background(), lease/3)
	defer stop()
	lost, cancelled, err = e.store.Runs().Renew(ctx, claims, lease)
	if err == nil && len(held) > 0 {
		lostDeliveries, err = e.store.Deliveries().Renew(ctx, held, lease)
	}
	return lost, cancelled, lostDeliveries, err
}

// leasesAreFresh reports whether leases were renewed lately. If they were not, the process stood still or the store cannot
// be reached: then nothing more is claimed before they are renewed, or this node might take its own runs from itself.
func (e *Engine) leasesAreFresh() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.leases.renewedAt) < e.lease()*2/3
}
