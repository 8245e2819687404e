package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var deliveryChecks = []check{
	{"there are none at first", noneAtFirst},
	{"deliveries are handed out when they are due, the first one first", handedOutWhenDue},
	{"no more are handed out than there is room for", asManyAsThereIsRoomFor},
	{"a delivery is handed out again as it was settled", handedOutAgain},
	{"what was delivered or given up is not handed out again", settledForGood},
	{"a delivery under way is not handed out twice", underWay},
	{"deliveries of one run are settled each on its own", settledOnItsOwn},
	{"a delivery that was handed out is the caller's own", deliveryIsTheCallersOwn},
	{"each delivery is handed out once to many who ask", handedOutOnceToMany},
}

func noneAtFirst(_ *testing.T, s *store) { s.noneDue() }

// longAgo is when deliveries are due that are due by any clock.
func longAgo() time.Time { return time.Now().Add(-24 * time.Hour).Truncate(time.Second) }

// endWith carries out a run whose end has deliveries that are due then.
func (s *store) endWith(due ...time.Time) (run *engine.Run, deliveries []*engine.Delivery) {
	s.t.Helper()
	run = newRun("a")
	s.add(run)
	claim := s.claimFirst(run)
	end := ended()
	for i, at := range due {
		end.Deliveries = append(end.Deliveries, newDelivery(run, i, at))
	}
	s.finish(claim, end)
	return run, end.Deliveries
}

// handsOut expects these deliveries to be handed out, in this order.
func (s *store) handsOut(now time.Time, want []*engine.Delivery, wantNext time.Time) []*engine.Delivery {
	s.t.Helper()
	got, next := s.due(now, 10)
	same(s.t, "what is due", got, want)
	same(s.t, "the time at which the next one is due", next, wantNext)
	return got
}

func handedOutWhenDue(_ *testing.T, s *store) {
	start := longAgo()
	in := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	_, first := s.endWith(in(3), in(1))
	_, second := s.endWith(in(2))
	_, third := s.endWith(in(5), in(4))

	s.handsOut(in(0), nil, in(1))
	s.handsOut(in(1).Add(-time.Second), nil, in(1))
	s.handsOut(in(1), first[1:], in(2))
	s.handsOut(in(4), []*engine.Delivery{second[0], first[0], third[1]}, in(5))
	s.handsOut(in(4), nil, in(5))
	s.handsOut(in(6), third[:1], time.Time{})
	s.noneDue()
}

func asManyAsThereIsRoomFor(t *testing.T, s *store) {
	now := time.Now()
	start := longAgo()
	_, first := s.endWith(start, start.Add(time.Minute))
	_, second := s.endWith(start.Add(2*time.Minute), start.Add(3*time.Minute))
	_, third := s.endWith(start.Add(4 * time.Minute))
	for _, c := range []struct {
		room int
		want []*engine.Delivery
		next time.Time
	}{
		{2, first, second[0].Due},
		{1, second[:1], second[1].Due},
		{2, []*engine.Delivery{second[1], third[0]}, time.Time{}},
		{2, nil, time.Time{}},
	} {
		got, next := s.due(now, c.room)
		same(t, fmt.Sprintf("what is due with room for %d", c.room), got, c.want)
		same(t, "the time at which the next one is due", next, c.next)
	}
}

func handedOutAgain(t *testing.T, s *store) {
	start := longAgo()
	run := newRun("a")
	s.add(run)
	end := ended()
	d := newDelivery(run, 0, start)
	d.Body = strings.Repeat("a long body with \x00 in it ", 10_000)
	end.Deliveries = []*engine.Delivery{d}
	s.finish(s.claimFirst(run), end)
	want := *d
	for attempt := range 4 {
		got := s.handsOut(want.Due, []*engine.Delivery{&want}, time.Time{})
		if len(got) != 1 {
			t.FailNow()
		}
		if got[0].Attempt != attempt {
			t.Errorf("it is said to have been tried %d times, want %d", got[0].Attempt, attempt)
		}
		next := want.Due.Add(time.Minute)
		s.settle(got[0], engine.Pending, next, fmt.Sprintf("failure %d", attempt))
		want.Due, want.Attempt, want.LastError = next, attempt+1, fmt.Sprintf("failure %d", attempt)
		s.handsOut(next.Add(-time.Second), nil, next)
		known := want
		known.Body = ""
		same(t, "what is known of it", s.get(run.ID).Deliveries, []*engine.Delivery{&known})
	}
	// One that is due in the past is due now.
	got := s.handsOut(want.Due, []*engine.Delivery{&want}, time.Time{})
	s.settle(got[0], engine.Pending, start, "")
	want.Due, want.Attempt, want.LastError = start, want.Attempt+1, ""
	s.handsOut(start, []*engine.Delivery{&want}, time.Time{})
}

func settledForGood(t *testing.T, s *store) {
	for _, status := range []engine.DeliveryStatus{engine.Delivered, engine.Dead} {
		run, deliveries := s.endWith(longAgo())
		got := s.handsOut(time.Now(), deliveries, time.Time{})
		s.settle(got[0], status, got[0].Due, "why "+string(status))
		s.noneDue()
		want := *deliveries[0]
		want.Body, want.Status, want.Attempt, want.LastError = "", status, 1, "why "+string(status)
		same(t, "what is known of it", s.get(run.ID).Deliveries, []*engine.Delivery{&want})
	}
}

func underWay(t *testing.T, s *store) {
	run, deliveries := s.endWith(longAgo())
	got := s.handsOut(time.Now(), deliveries, time.Time{})
	s.noneDue()
	if known := s.get(run.ID).Deliveries; len(known) != 1 || known[0].Status != engine.Pending || known[0].Attempt != 0 {
		t.Errorf("a delivery under way is shown as %+v", known)
	}
	// Nor when others come and go.
	_, others := s.endWith(longAgo())
	other := s.handsOut(time.Now(), others, time.Time{})
	s.settle(other[0], engine.Delivered, other[0].Due, "")
	s.noneDue()
	s.settle(got[0], engine.Pending, got[0].Due, "")
	deliveries[0].Attempt = 1
	s.handsOut(time.Now(), deliveries, time.Time{})
}

func settledOnItsOwn(t *testing.T, s *store) {
	start := longAgo()
	run, deliveries := s.endWith(start, start.Add(time.Second), start.Add(2*time.Second))
	otherRun, others := s.endWith(start.Add(3 * time.Second))
	got := s.handsOut(time.Now(), append(deliveries[:3:3], others...), time.Time{})
	s.settle(got[1], engine.Dead, got[1].Due, "no such chat")
	s.settle(got[0], engine.Pending, start.Add(time.Hour), "busy")
	s.settle(got[2], engine.Delivered, got[2].Due, "")
	want := []*engine.Delivery{}
	for i := range 3 {
		d := *got[i]
		d.Body = ""
		want = append(want, &d)
	}
	same(t, "what is known of them", s.get(run.ID).Deliveries, want)
	others[0].Body = ""
	same(t, "what is known of the other run", s.get(otherRun.ID).Deliveries, others)
	again := *deliveries[0]
	again.Due, again.Attempt, again.LastError = start.Add(time.Hour), 1, "busy"
	s.handsOut(time.Now(), []*engine.Delivery{&again}, time.Time{})
}

func deliveryIsTheCallersOwn(t *testing.T, s *store) {
	start := longAgo()
	run, deliveries := s.endWith(start)
	before := s.get(run.ID)
	given := *deliveries[0]
	*deliveries[0] = engine.Delivery{}
	got := s.handsOut(start, []*engine.Delivery{&given}, time.Time{})
	got[0].Status, got[0].Attempt, got[0].LastError = engine.Dead, 7, "not settled yet"
	same(t, "what is known of it", s.get(run.ID).Deliveries, before.Deliveries)

	got[0].Attempt = 0
	s.settle(got[0], engine.Pending, start, "failed")
	got[0].Status, got[0].Attempt, got[0].LastError, got[0].Body = engine.Dead, 8, "not settled yet", "another"
	given.Attempt, given.LastError = 1, "failed"
	s.handsOut(start, []*engine.Delivery{&given}, time.Time{})

	// So is what was got to look at.
	s.get(run.ID).Deliveries[0].Status = engine.Dead
	if known := s.get(run.ID).Deliveries; known[0].Status != engine.Pending {
		t.Errorf("it is %s now", known[0].Status)
	}
}

func handedOutOnceToMany(t *testing.T, s *store) {
	const runs = 30
	for range runs {
		s.endWith(longAgo(), longAgo())
	}
	var mu sync.Mutex
	handed := map[string]int{}
	var askers sync.WaitGroup
	for i := range 5 {
		askers.Go(func() {
			for {
				due, _, err := s.ClaimDeliveries(t.Context(), time.Now(), i+1)
				if err != nil {
					t.Error(err)
				}
				if len(due) == 0 {
					return
				}
				for _, d := range due {
					mu.Lock()
					handed[d.ID]++
					mu.Unlock()
					d.Attempt, d.Status = 1, engine.Delivered
					if err := s.SettleDelivery(t.Context(), d); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	askers.Wait()
	for id, n := range handed {
		if n > 1 {
			t.Errorf("delivery %s was handed out %d times", id, n)
		}
	}
	if len(handed) != 2*runs {
		t.Errorf("%d deliveries were handed out, want %d", len(handed), 2*runs)
	}
	for _, record := range s.list(engine.Query{}) {
		for _, d := range s.get(record.Run.ID).Deliveries {
			if d.Status != engine.Delivered || d.Attempt != 1 {
				t.Errorf("delivery %s is %s after %d attempts", d.ID, d.Status, d.Attempt)
			}
		}
	}
}
