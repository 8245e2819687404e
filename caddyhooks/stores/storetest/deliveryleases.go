package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// abandonDeliveries claims deliveries, which must be these, and lets the lease pass.
func (s *store) abandonDeliveries(want ...*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	got, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 100, Lease: shortLease})
	s.areThese(got, want)
	s.advance(shortLease + slack)
	return got
}

// takesAgain waits until deliveries whose lease is over are handed out again.
func (s *store) takesAgain(want ...*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	var got []*engine.Delivery
	eventually(s.t, "the deliveries are handed out again", func() bool {
		due, _ := s.due(100)
		got = append(got, due...)
		return len(got) >= len(want)
	})
	s.areThese(got, want)
	return got
}

// isLostDelivery expects that a delivery is not the caller's any more, and that settling it changes nothing.
func (s *store) isLostDelivery(d *engine.Delivery) {
	s.t.Helper()
	ctx := s.t.Context()
	before, errBefore := s.Deliveries().Get(ctx, d.ID)
	for _, status := range []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Pending} {
		late := *d
		late.Status, late.LastError, late.Attempt = status, "too late", d.Attempt+1
		if err := s.Deliveries().Settle(ctx, &late, time.Hour, engine.Throttle{To: d.Destination(), Pause: time.Hour}); !isClaimLost(err) {
			s.t.Errorf("settling a delivery that is lost: got %v, want ErrClaimLost", err)
		}
	}
	s.deliveryNotRenewed(d)
	after, errAfter := s.Deliveries().Get(ctx, d.ID)
	if !errors.Is(errAfter, errBefore) {
		s.t.Errorf("getting it: got %v and then %v", errBefore, errAfter)
	}
	same(s.t, "a lost delivery", after, before)
}

func (s *store) deliveryNotRenewed(d *engine.Delivery) {
	s.t.Helper()
	if lost := s.renewDeliveries(longLease, d); len(lost) != 1 || lost[0] != d {
		s.t.Errorf("renewing a delivery that is lost: got %v lost, want the delivery", lost)
	}
}

func (s *store) renewDeliveries(lease time.Duration, held ...*engine.Delivery) (lost []*engine.Delivery) {
	s.t.Helper()
	lost, err := s.Deliveries().Renew(s.t.Context(), held, lease)
	if err != nil {
		s.t.Fatalf("renewing %d deliveries: %v", len(held), err)
	}
	return lost
}

// staysWith expects that deliveries are renewed.
func (s *store) staysWith(held ...*engine.Delivery) {
	s.t.Helper()
	if lost := s.renewDeliveries(longLease, held...); len(lost) > 0 {
		s.t.Errorf("renewing %d deliveries: %d are lost, want none", len(held), len(lost))
	}
}

func deliveryLeaseEnds(t *testing.T, s *store) {
	_, deliveries := s.endWith(2)
	old := s.abandonDeliveries(deliveries...)
	got := s.takesAgain(deliveries...)
	s.lasted("the time between attempts", got[0].TriedAt.Sub(old[0].TriedAt), shortLease+slack)
	for i, d := range old {
		s.isLostDelivery(d)
		s.isLostDelivery(withToken(got[i], got[1-i].Token))
	}
	s.noneDue()
	s.settle(got[0], engine.Delivered, 0, "")
	s.isLostDelivery(withToken(got[0], got[1].Token))
	s.settle(got[1], engine.Pending, time.Hour, "busy")
	for i, d := range old {
		s.isLostDelivery(d)
		if known := s.delivery(d.ID); known.Status != got[i].Status || known.LastError != got[i].LastError {
			t.Errorf("it is %s with %q", known.Status, known.LastError)
		}
	}
	s.handsOut(10, nil, time.Hour)
	s.advance(time.Hour)
	got = s.handsOut(10, got[1:], notATime)
	s.isLostDelivery(old[1])
	s.settle(got[0], engine.Delivered, 0, "")
}

func lateDeliveriesHold(t *testing.T, s *store) {
	_, deliveries := s.endWith(3)
	got := s.abandonDeliveries(deliveries...)
	var again []*engine.Delivery
	eventually(t, "a delivery is handed out again", func() bool { again, _ = s.due(1); return len(again) > 0 })
	others := slices.DeleteFunc(got, func(d *engine.Delivery) bool { return d.ID == again[0].ID })
	s.settle(others[0], engine.Delivered, 0, "")
	s.staysWith(others[1])
	s.takes(nil)
	s.settle(others[1], engine.Delivered, 0, "")
	s.settle(again[0], engine.Delivered, 0, "")
}

func withToken(d *engine.Delivery, token string) *engine.Delivery {
	other := *d
	other.Token = token
	return &other
}

func onlyLastDeliveryTokenHolds(_ *testing.T, s *store) {
	_, deliveries := s.endWith(1)
	first := s.abandonDeliveries(deliveries...)[0]
	second := s.abandonDeliveries(deliveries...)[0]
	s.claimDeliveries(engine.DeliveryBatch{Lease: shortLease}) // a store may look for leases that are over then
	s.isLostDelivery(first)
	for _, claim := range append(forged(nil, second.Token), &engine.Claim{}) {
		s.isLostDelivery(withToken(second, claim.Token))
	}
	s.staysWith(second)
	s.takes(nil)
	s.settle(second, engine.Delivered, 0, "")
}

// repeats expects a Settle with a token by which the delivery was settled before to return nil, and to change nothing.
func (s *store) repeats(d *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) {
	s.t.Helper()
	before := s.delivery(d.ID)
	given := *d
	if err := s.Deliveries().Settle(s.t.Context(), &given, pause, throttles...); err != nil {
		s.t.Errorf("settling delivery %s again: %v", d.ID, err)
	}
	same(s.t, "the delivery that was settled again", s.delivery(d.ID), before)
}

// Once the delivery was handed out again, or dropped, it is left open whether Settle returns nil or ErrClaimLost.
func repeatedSettle(t *testing.T, s *store) {
	_, deliveries := s.endWith(3)
	got := s.takes(deliveries)
	for i, status := range []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Pending} {
		s.settle(got[i], status, time.Hour, "why")
		s.advance(time.Minute)
		s.repeats(got[i], time.Hour)
		other := *got[i]
		other.Attempt, other.LastError = 17, "something else"
		for _, otherStatus := range []engine.DeliveryStatus{engine.Pending, engine.Delivered, engine.Dead} {
			other.Status = otherStatus
			s.repeats(&other, time.Minute, engine.Throttle{To: other.Destination(), Pause: 10 * time.Hour})
		}
		s.deliveryNotRenewed(got[i])
	}
	s.handsOut(10, nil, 59*time.Minute) // not later by the throttle, nor sooner by the other pause

	nothingMore := func(d *engine.Delivery) {
		t.Helper()
		late := *d
		late.Status = engine.Dead
		if err := s.Deliveries().Settle(t.Context(), &late, 0); err != nil && !isClaimLost(err) {
			t.Errorf("settling with a token that was used up: %v", err)
		}
	}
	s.advance(time.Hour)
	waiting := *got[2]
	again := s.handsOut(10, []*engine.Delivery{&waiting}, notATime)
	nothingMore(got[2])
	s.staysWith(again...)
	s.settle(again[0], engine.Delivered, 0, "")
	s.repeats(again[0], 0)

	// A delivery that is retried is not given up by the Settle from before.
	dead := *got[1]
	s.retry(&dead)
	nothingMore(got[1])
	again = s.handsOut(10, []*engine.Delivery{&dead}, notATime)
	nothingMore(got[1])
	s.settle(again[0], engine.Dead, 0, "gone")
	s.drop(again[0])
	nothingMore(again[0])
	if _, err := s.Deliveries().Get(t.Context(), again[0].ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a delivery that was dropped: %v", err)
	}
	s.noneDue()
}
