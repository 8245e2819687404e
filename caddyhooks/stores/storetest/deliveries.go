package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

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
	{"a host has its share, and leaves the rest to others", hostHasItsShare},
	{"a chat has one at a time", chatHasOneAtATime},
	{"a throttled host waits, and others do not", throttledHostWaits},
	{"a throttled chat waits, and others do not", throttledChatWaits},
	{"what is overdue is handed out in spite of a throttle", overdueInSpiteOfThrottle},
	{"every field of a delivery is kept", deliveryIsKept},
	{"deliveries are listed, the newest first", deliveriesAreListed},
	{"deliveries are listed by what they are", deliveriesAreListedByQuery},
	{"what was given up is due again when it is retried", retriedWhenDead},
	{"what waits is due at once when it is retried", retriedWhileWaiting},
	{"a delivery that is dropped is gone", droppedIsGone},
	{"what is under way or has arrived is neither retried nor dropped", neitherRetriedNorDropped},
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

// endTo carries out runs whose ends have one delivery each, to the same destination, due one second after another.
func (s *store) endTo(n int, start time.Time, to func(d *engine.Delivery)) (all []*engine.Delivery) {
	s.t.Helper()
	for i := range n {
		run := newRun("a")
		s.add(run)
		d := newDelivery(run, 0, start.Add(time.Duration(i)*time.Second))
		to(d)
		end := ended()
		end.Deliveries = []*engine.Delivery{d}
		s.finish(s.claimFirst(run), end)
		all = append(all, d)
	}
	return all
}

func toHost(d *engine.Delivery) { d.Callback = "https://Busy.example/" + d.RunID }

func toChat(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "chats", "busy" }

// takes expects these deliveries to be handed out, as many as are asked for.
func (s *store) takes(n int, want []*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	got, _ := s.due(time.Now(), n)
	same(s.t, "what is due", got, want)
	if len(got) != len(want) {
		s.t.FailNow()
	}
	return got
}

func hostHasItsShare(_ *testing.T, s *store) {
	busy := s.endTo(3*engine.PerHost, longAgo(), toHost)
	_, other := s.endWith(longAgo().Add(time.Hour))
	got := s.takes(100, append(busy[:engine.PerHost:engine.PerHost], other...))
	busy = busy[engine.PerHost:]
	if _, next := s.due(time.Now(), 100); !next.IsZero() {
		s.t.Errorf("the next one is due at %s, want none as long as the host has its share", next)
	}
	// Each that ends makes room for one, whether it has arrived or not.
	s.settle(got[3], engine.Delivered, got[3].Due, "")
	s.takes(100, busy[:1])
	s.settle(got[4], engine.Pending, time.Now().Add(time.Hour), "busy")
	s.settle(got[5], engine.Dead, got[5].Due, "gone")
	s.takes(100, busy[1:3])
	s.takes(100, nil)
}

func chatHasOneAtATime(_ *testing.T, s *store) {
	busy := s.endTo(3, longAgo(), toChat)
	other := s.endTo(2, longAgo().Add(time.Hour), func(d *engine.Delivery) {
		toChat(d)
		d.To = "calm"
	})
	got := s.takes(100, []*engine.Delivery{busy[0], other[0]})
	s.settle(got[1], engine.Delivered, got[1].Due, "")
	got = append(got, s.takes(100, other[1:])...)
	s.settle(got[0], engine.Delivered, got[0].Due, "")
	s.takes(100, busy[1:2])
	s.takes(100, nil)
}

func throttledHostWaits(t *testing.T, s *store) {
	busy := s.endTo(4, longAgo(), toHost)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	host := busy[0].Destination()
	s.Throttle(host, 2, until)
	_, other := s.endWith(longAgo().Add(2 * time.Hour))
	s.handsOut(time.Now(), other, until)
	got := s.handsOut(until, busy[:2], time.Time{}) // no more than two at once
	s.settle(got[0], engine.Delivered, got[0].Due, "")
	got = append(got, s.handsOut(until, busy[2:3], time.Time{})...)
	s.Throttle(host, 0, time.Time{})
	got = append(got, s.handsOut(time.Now(), busy[3:], time.Time{})...)
	for _, d := range got[1:] {
		s.settle(d, engine.Delivered, d.Due, "")
	}
	s.Throttle(host, 1, until) // there is nothing to hold back
	s.Throttle(engine.Destination{Host: "nobody.example:443"}, 1, until)
	s.noneDue()
	again := s.endTo(1, longAgo(), toHost)
	if got, _ := s.due(until, 10); len(got) != 1 {
		t.Errorf("%d deliveries are due, want %d", len(got), len(again))
	}
}

func throttledChatWaits(_ *testing.T, s *store) {
	busy := s.endTo(2, longAgo(), toChat)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	s.Throttle(busy[0].Destination(), 0, until)
	calm := s.endTo(1, longAgo(), func(d *engine.Delivery) {
		toChat(d)
		d.To = "calm"
	})
	s.handsOut(time.Now(), calm, until)
	s.handsOut(until, busy[:1], time.Time{})
}

func overdueInSpiteOfThrottle(t *testing.T, s *store) {
	start := longAgo()
	busy := s.endTo(5, start, toHost)
	_, other := s.endWith(start)
	s.Throttle(busy[0].Destination(), 1, time.Now().Add(time.Hour))
	claim := func(before time.Time, n int) []*engine.Delivery {
		t.Helper()
		got, err := s.ClaimOverdue(t.Context(), busy[0].Destination().Host, before, n)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same(t, "what is overdue", claim(start, 10), nil)
	got := claim(start.Add(2500*time.Millisecond), 2)
	same(t, "what is overdue", got, busy[:2])
	got = append(got, claim(start.Add(2500*time.Millisecond), 10)...)
	same(t, "what is overdue", got, busy[:3])
	s.handsOut(time.Now(), other, time.Time{}) // more are under way than the throttle lets
	for _, d := range got {
		s.settle(d, engine.Dead, d.Due, "too late")
	}
	s.handsOut(time.Now().Add(2*time.Hour), busy[3:4], time.Time{})
}

func deliveryIsKept(t *testing.T, s *store) {
	run := newRun("a")
	s.add(run)
	d := newDelivery(run, 0, longAgo())
	d.Index, d.ID = 1, engine.DeliveryID(run.ID, 1)
	d.Channel, d.To, d.Attempt, d.LastError = "chats", "somebody", 4, "why"
	allSet(t, d)
	end := ended()
	end.Deliveries = []*engine.Delivery{d}
	s.finish(s.claimFirst(run), end)
	get := func() *engine.Delivery {
		t.Helper()
		got, err := s.Delivery(t.Context(), d.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := *d
	same(t, "a delivery", get(), &want)
	get().Body = "the caller's own"
	same(t, "a delivery", get(), &want)
	got := s.takes(1, []*engine.Delivery{&want})[0]
	same(t, "a delivery under way", get(), &want)
	got.Sent, got.TriedAt, got.LastStatus, got.LastAnswer = 3, time.Now(), 404, "another"
	s.settle(got, engine.Dead, longAgo(), "gone")
	want = *got
	same(t, "a dead delivery", get(), &want)
	for _, id := range []string{"", "msg_", run.ID, d.ID + "0", engine.DeliveryID(run.ID, 0), engine.DeliveryID(newID(), 1)} {
		if got, err := s.Delivery(t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%q: got %+v and %v, want ErrNotFound", id, got, err)
		}
	}
}

// newID makes an id that no run has.
func newID() string { return uuid.NewString() }

// listDeliveries collects all pages of a query.
func (s *store) listDeliveries(query engine.DeliveryQuery) (all []*engine.Delivery) {
	s.t.Helper()
	if query.Limit == 0 {
		query.Limit = 1000
	}
	for range 10_000 {
		page, next, err := s.ListDeliveries(s.t.Context(), query)
		if err != nil {
			s.t.Fatalf("listing %+v: %v", query, err)
		}
		if len(page) > query.Limit {
			s.t.Fatalf("listing %+v: got %d", query, len(page))
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		query.Cursor = next
	}
	s.t.Fatalf("listing %+v does not come to an end", query)
	return nil
}

func deliveriesAreListed(t *testing.T, s *store) {
	same(t, "a list of nothing", s.listDeliveries(engine.DeliveryQuery{}), nil)
	statuses := []engine.DeliveryStatus{engine.Pending, engine.Dead, engine.Delivered}
	var want []*engine.Delivery
	for i := range 20 {
		_, deliveries := s.endWith(longAgo(), longAgo())
		s.carryOut(newRun("b"), ended()) // runs without deliveries are in between
		got, _ := s.due(time.Now(), 2)
		for j, d := range got {
			s.settle(d, statuses[(i+j)%3], time.Now().Add(time.Hour), "why")
			known := *d
			known.Body = ""
			deliveries[d.Index] = &known
		}
		want = append(want, deliveries...)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 3, 7, 39, 40, 41} {
		same(t, fmt.Sprintf("a list with %d on a page", limit), s.listDeliveries(engine.DeliveryQuery{Limit: limit}), want)
		for _, status := range statuses {
			var some []*engine.Delivery
			for _, d := range want {
				if d.Status == status {
					some = append(some, d)
				}
			}
			same(t, "a list of those "+string(status), s.listDeliveries(engine.DeliveryQuery{Status: status, Limit: limit}), some)
		}
	}
	for _, cursor := range []string{"x", want[0].RunID, "msg_x_0"} {
		if _, _, err := s.ListDeliveries(t.Context(), engine.DeliveryQuery{Limit: 1, Cursor: cursor}); !errors.Is(err, engine.ErrCursor) {
			t.Errorf("cursor %q: got %v, want ErrCursor", cursor, err)
		}
	}
	if page, next, err := s.ListDeliveries(t.Context(), engine.DeliveryQuery{}); len(page) > 0 || next != "" || err != nil {
		t.Errorf("a list without a limit: got %v, %q, %v", page, next, err)
	}
}

func deliveriesAreListedByQuery(t *testing.T, s *store) {
	callbacks := s.endTo(2, longAgo(), toHost)
	chats := s.endTo(3, longAgo(), toChat)
	for _, c := range []struct {
		query engine.DeliveryQuery
		want  []*engine.Delivery
	}{
		{engine.DeliveryQuery{Host: "busy.example"}, callbacks},
		{engine.DeliveryQuery{Host: "busy.example:443"}, callbacks},
		{engine.DeliveryQuery{Host: "busy.example:80"}, nil},
		{engine.DeliveryQuery{Channel: "chats"}, chats},
		{engine.DeliveryQuery{Channel: "busy"}, nil},
		{engine.DeliveryQuery{Channel: "chats", Status: engine.Dead}, nil},
		{engine.DeliveryQuery{Channel: "chats", Host: "busy.example"}, nil},
	} {
		var got []string
		for _, d := range s.listDeliveries(c.query) {
			got = append(got, d.ID)
		}
		var want []string
		for _, d := range slices.Backward(c.want) {
			want = append(want, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", c.query, got, want)
		}
	}
}

func (s *store) retry(d *engine.Delivery, now time.Time) *engine.Delivery {
	s.t.Helper()
	got, err := s.RetryDelivery(s.t.Context(), d.ID, now)
	if err != nil {
		s.t.Fatalf("retrying delivery %s: %v", d.ID, err)
	}
	return got
}

func retriedWhenDead(t *testing.T, s *store) {
	run, deliveries := s.endWith(longAgo())
	got := s.takes(1, deliveries)[0]
	got.Attempt = 7
	s.settle(got, engine.Dead, longAgo(), "gone")
	now := time.Now().Add(time.Minute).Truncate(time.Second)
	want := *got
	want.Status, want.Due, want.Restart = engine.Pending, now, 8
	same(t, "what is retried", s.retry(got, now), &want)
	s.handsOut(now.Add(-time.Second), nil, now)
	same(t, "what is retried twice", s.retry(got, now), &want)
	known := want
	known.Body = ""
	same(t, "what is known of it", s.get(run.ID).Deliveries, []*engine.Delivery{&known})
	got = s.handsOut(now, []*engine.Delivery{&want}, time.Time{})[0]
	s.noneDue()
	s.settle(got, engine.Delivered, now, "")
	s.noneDue()
	same(t, "a list of the dead", s.listDeliveries(engine.DeliveryQuery{Status: engine.Dead}), nil)
}

func retriedWhileWaiting(t *testing.T, s *store) {
	_, deliveries := s.endWith(longAgo())
	got := s.takes(1, deliveries)[0]
	s.settle(got, engine.Pending, time.Now().Add(time.Hour), "busy")
	s.takes(1, nil)
	want := *got
	want.Due, want.Restart = longAgo(), 1
	same(t, "what is retried", s.retry(got, want.Due), &want)
	got = s.takes(1, []*engine.Delivery{&want})[0]
	s.noneDue()
	s.settle(got, engine.Delivered, got.Due, "")
	s.noneDue()
}

func droppedIsGone(t *testing.T, s *store) {
	run, deliveries := s.endWith(longAgo(), longAgo().Add(time.Second), time.Now().Add(time.Hour))
	got := s.takes(2, deliveries[:2])
	s.settle(got[0], engine.Dead, longAgo(), "gone")
	for i, left := range []int{2, 1} {
		if err := s.DropDelivery(t.Context(), deliveries[2*i].ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delivery(t.Context(), deliveries[2*i].ID); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if err := s.DropDelivery(t.Context(), deliveries[2*i].ID); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("dropped twice: got %v, want ErrNotFound", err)
		}
		if _, err := s.RetryDelivery(t.Context(), deliveries[2*i].ID, time.Now()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("retried after all: got %v, want ErrNotFound", err)
		}
		if known := s.get(run.ID).Deliveries; len(known) != left {
			t.Errorf("%d deliveries are left, want %d", len(known), left)
		}
	}
	s.noneDue()
	// The one that was under way goes on.
	s.settle(got[1], engine.Delivered, longAgo(), "")
	if known := s.get(run.ID).Deliveries; len(known) != 1 || known[0].Status != engine.Delivered {
		t.Errorf("what is left is %+v", known)
	}
}

func neitherRetriedNorDropped(t *testing.T, s *store) {
	_, deliveries := s.endWith(longAgo())
	id := deliveries[0].ID
	refused := func(want error) {
		t.Helper()
		if _, err := s.RetryDelivery(t.Context(), id, time.Now()); !errors.Is(err, want) {
			t.Errorf("retried: got %v, want %v", err, want)
		}
		if err := s.DropDelivery(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("dropped: got %v, want %v", err, want)
		}
	}
	got := s.takes(1, deliveries)[0]
	refused(engine.ErrUnderWay)
	s.settle(got, engine.Delivered, got.Due, "")
	refused(engine.ErrDelivered)
	s.noneDue()
}
