package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var deliveryChecks = []check{
	{"deliveries are due when their run ends", dueAtTheEnd},
	{"deliveries are handed out when they are due, the first one first", handedOutWhenDue},
	{"a delivery that was handed out is the caller's own", deliveryIsTheCallersOwn},
	{"a host has its share, and leaves the rest to others", hostHasItsShare},
	{"a chat has one at a time", chatHasOneAtATime},
	{"deliveries are listed, the newest first", deliveriesAreListed},
	{"a delivery that is under way or has arrived is neither retried nor dropped", neitherRetriedNorDropped},
	{"a delivery that has arrived is sent again with the body that is given", arrivedIsSentAgain},
	{"a run whose delivery is sent again is kept until that has arrived", sentAgainKeepsTheRun},
	{"a delivery that is dropped is gone", droppedIsGone},
	{"a delivery is handed out again when its lease is over", deliveryLeaseEnds},
	{"a late renewal or Settle holds while nobody else has the delivery", lateDeliveriesHold},
	{"only the last token of a delivery holds when the lease is over", onlyLastDeliveryTokenHolds},
	{"a Settle that is repeated does nothing", repeatedSettle},
}

// due claims up to n deliveries for longer than any check lasts.
func (s *store) due(n int) (due []*engine.Delivery, wait time.Duration) {
	s.t.Helper()
	return s.claimDeliveries(engine.DeliveryBatch{Max: n, Lease: longLease})
}

func (s *store) claimDeliveries(batch engine.DeliveryBatch) (due []*engine.Delivery, wait time.Duration) {
	s.t.Helper()
	due, wait, err := s.Deliveries().Claim(s.t.Context(), batch)
	if err != nil {
		s.t.Fatalf("claiming deliveries: %v", err)
	}
	if len(due) > batch.Max {
		s.t.Fatalf("got %d deliveries, want no more than %d", len(due), batch.Max)
	}
	for _, d := range due {
		if !s.tokens.isNew(d.Token) {
			s.t.Errorf("delivery %s was handed out with token %q, which is none or was used before", d.ID, d.Token)
		}
		s.isNow("TriedAt", d.TriedAt)
	}
	return due, wait
}

// notATime is the wait when it is not a question of time when there is more to hand out.
const notATime = -1

// waits expects the time until there is more to hand out. Whether the end of a lease counts as one is left open.
func (s *store) waits(got, want time.Duration) {
	s.t.Helper()
	ok := got >= max(0, want-patience) && got <= want+slack
	if want == notATime {
		ok = got < 0 || got > longLease/2
	}
	if !ok {
		s.t.Errorf("there is more after %v, want %v", got, want)
	}
}

// noneDue expects that no delivery waits, however long.
func (s *store) noneDue() {
	s.t.Helper()
	s.handsOut(1, nil, notATime)
}

// handsOut expects these deliveries to be handed out, the one first that was due first, and the time until there is more.
// It sets their TriedAt.
func (s *store) handsOut(n int, want []*engine.Delivery, wantWait time.Duration) []*engine.Delivery {
	s.t.Helper()
	got, wait := s.due(n)
	s.areThese(got, want)
	s.waits(wait, wantWait)
	return got
}

// areThese expects deliveries that were handed out to be these. Those that are due at the same time can be in any order,
// and are put in the order in which they are expected.
func (s *store) areThese(got, want []*engine.Delivery) {
	s.t.Helper()
	if !slices.IsSortedFunc(got, func(a, b *engine.Delivery) int { return a.Due.Compare(b.Due) }) {
		s.t.Error("deliveries were not handed out in the order in which they were due")
	}
	place := func(d *engine.Delivery) int {
		return slices.IndexFunc(want, func(w *engine.Delivery) bool { return w.ID == d.ID })
	}
	slices.SortFunc(got, func(a, b *engine.Delivery) int { return cmp.Compare(place(a), place(b)) })
	for i, d := range got {
		if i < len(want) {
			want[i].TriedAt = d.TriedAt
		}
	}
	same(s.t, "the deliveries handed out", got, want)
	if len(got) != len(want) {
		s.t.FailNow()
	}
}

// endWith carries out a run whose end has deliveries. They are due now.
func (s *store) endWith(n int) (run *engine.Run, deliveries []*engine.Delivery) {
	s.t.Helper()
	run = newRun("a")
	s.add(run)
	claim := s.claimFirst(run)
	end := ended()
	for i := range n {
		end.Deliveries = append(end.Deliveries, newDelivery(run, i))
	}
	s.end(claim, end)
	s.recordOf(run, claim, end)
	return run, end.Deliveries
}

// endTo carries out runs whose ends have one delivery each, to the same destination, due one minute after another.
func (s *store) endTo(n int, to func(d *engine.Delivery)) (all []*engine.Delivery) {
	s.t.Helper()
	for range n {
		run := newRun("a")
		s.add(run)
		claim := s.claimFirst(run)
		end := endedWith(newDelivery(run, 0))
		to(end.Deliveries[0])
		s.end(claim, end)
		s.recordOf(run, claim, end)
		all = append(all, end.Deliveries...)
		s.advance(time.Minute)
	}
	return all
}

func toHost(d *engine.Delivery) { d.Callback = "https://Busy.example/" + d.RunID }

func toChat(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "chats", "busy" }

func toCalmChat(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "chats", "calm" }

// settle records the end of an attempt, and sets Due of a delivery that is to be sent again.
func (s *store) settle(d *engine.Delivery, status engine.DeliveryStatus, pause time.Duration, lastError string, throttles ...engine.Throttle) {
	s.t.Helper()
	d.Status, d.LastError = status, lastError
	d.Attempt++
	given := *d
	if err := s.Deliveries().Settle(s.t.Context(), &given, pause, throttles...); err != nil {
		s.t.Fatalf("settling delivery %s: %v", d.ID, err)
	}
	known := s.delivery(d.ID)
	if status == engine.Pending && pause > 0 {
		s.isNow("Due before the pause", known.Due.Add(-pause))
		d.Due = known.Due
	}
	want := *d
	if status == engine.Delivered { // a store need not keep what has arrived
		known.Body, want.Body = "", ""
	}
	same(s.t, "the delivery that was settled", known, &want)
}

func (s *store) delivery(id string) *engine.Delivery {
	s.t.Helper()
	d, err := s.Deliveries().Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatalf("getting delivery %s: %v", id, err)
	}
	return d
}

// knows expects deliveries of a run, without their bodies. When an attempt begins is known at its end at the latest.
func (s *store) knows(run *engine.Run, want ...*engine.Delivery) {
	s.t.Helper()
	known := s.get(run.ID).Deliveries
	listed := []*engine.Delivery{}
	for i, d := range want {
		d := *d
		d.Body = ""
		listed = append(listed, &d)
		if i < len(known) && d.Status == engine.Pending {
			known[i].TriedAt = d.TriedAt
		}
	}
	same(s.t, "the deliveries of the run", known, listed)
}

func (s *store) retry(d *engine.Delivery) *engine.Delivery {
	s.t.Helper()
	got, err := s.Deliveries().Retry(s.t.Context(), d.ID, nil)
	if err != nil {
		s.t.Fatalf("retrying delivery %s: %v", d.ID, err)
	}
	s.isNow("Due of a delivery that is retried", got.Due)
	d.Status, d.Restart, d.Due = engine.Pending, d.Attempt, got.Due
	same(s.t, "the delivery that is retried", got, d)
	same(s.t, "the delivery that was retried", s.delivery(d.ID), d)
	return got
}

func (s *store) drop(d *engine.Delivery) {
	s.t.Helper()
	if err := s.Deliveries().Drop(s.t.Context(), d.ID); err != nil {
		s.t.Fatalf("dropping delivery %s: %v", d.ID, err)
	}
}

func dueAtTheEnd(t *testing.T, s *store) {
	run, deliveries := s.endWith(2)
	s.advance(time.Hour)
	s.knows(run, deliveries...)
	got := s.handsOut(10, deliveries, notATime)
	s.lasted("the time until it was tried", got[0].TriedAt.Sub(got[0].CreatedAt), time.Hour)
	for _, d := range got {
		s.settle(d, engine.Delivered, 0, "")
	}
	if _, wait := s.due(10); wait >= 0 {
		t.Errorf("there is more after %v, want none", wait)
	}
}

func handedOutWhenDue(_ *testing.T, s *store) {
	var all []*engine.Delivery
	for _, hours := range []int{3, 1, 2, 5, 4} {
		_, deliveries := s.endWith(1)
		s.pauseNew(deliveries[0], time.Duration(hours)*time.Hour)
		all = append(all, deliveries[0])
	}
	s.handsOut(10, nil, time.Hour)
	s.advance(59 * time.Minute)
	s.handsOut(10, nil, time.Minute)
	s.advance(time.Minute)
	s.handsOut(10, all[1:2], time.Hour)
	s.advance(3 * time.Hour)
	s.handsOut(10, []*engine.Delivery{all[2], all[0], all[4]}, time.Hour)
	s.handsOut(10, nil, time.Hour)
	s.advance(2 * time.Hour)
	s.handsOut(10, all[3:4], notATime)
	s.noneDue()
}

// pauseNew claims a delivery, which must be the only one that is due, and has it wait.
func (s *store) pauseNew(d *engine.Delivery, pause time.Duration) {
	s.t.Helper()
	got, _ := s.due(10)
	s.areThese(got, []*engine.Delivery{d})
	s.settle(got[0], engine.Pending, pause, "busy")
	*d = *got[0]
}

func deliveryIsTheCallersOwn(t *testing.T, s *store) {
	run, deliveries := s.endWith(1)
	before := s.get(run.ID)
	given := *deliveries[0]
	*deliveries[0] = engine.Delivery{}
	got := s.handsOut(10, []*engine.Delivery{&given}, notATime)
	mine := *got[0]
	got[0].Status, got[0].Attempt, got[0].LastError, got[0].Body = engine.Dead, 7, "not settled yet", "another"
	known := s.get(run.ID)
	known.Deliveries[0].TriedAt = before.Deliveries[0].TriedAt
	same(t, "the deliveries of the run", known.Deliveries, before.Deliveries)

	mine.Attempt, mine.LastError = 1, "failed"
	want := mine
	if err := s.Deliveries().Settle(t.Context(), &mine, 0); err != nil {
		t.Fatal(err)
	}
	mine.Status, mine.Attempt, mine.LastError, mine.Body = engine.Dead, 8, "not settled yet", "another"
	s.handsOut(10, []*engine.Delivery{&want}, notATime)

	// So is one that was got to look at.
	s.get(run.ID).Deliveries[0].Status = engine.Dead
	if known := s.get(run.ID).Deliveries; known[0].Status != engine.Pending {
		t.Errorf("it is %s now", known[0].Status)
	}
	s.delivery(want.ID).Status = engine.Dead
	if known := s.delivery(want.ID); known.Status != engine.Pending {
		t.Errorf("it is %s now", known.Status)
	}
}

// handOutToMany has many ask for deliveries at the same time, on two nodes or on one.
func handOutToMany(s, other *store) {
	const runs = 30
	t := s.t
	for range runs {
		s.endWith(2)
	}
	var mu sync.Mutex
	handed := map[string]int{}
	var askers sync.WaitGroup
	for i, node := range []*store{s, other, s, other, s} {
		askers.Go(func() {
			for {
				due, _, err := node.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: i + 1, Lease: longLease})
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
					if err := node.Deliveries().Settle(t.Context(), d, 0); err != nil {
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

// takes expects these deliveries to be handed out, however many there is room for.
func (s *store) takes(want []*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	got, _ := s.due(100)
	s.areThese(got, want)
	return got
}

func hostHasItsShare(_ *testing.T, s *store) {
	busy := s.endTo(3*engine.PerHost, toHost)
	_, other := s.endWith(1)
	got := s.takes(append(busy[:engine.PerHost:engine.PerHost], other...))
	busy = busy[engine.PerHost:]
	s.noneDue() // as long as the host has its share
	// Each that ends makes room for one, whether it has arrived or not.
	s.settle(got[3], engine.Delivered, 0, "")
	s.takes(busy[:1])
	s.settle(got[4], engine.Pending, time.Hour, "busy")
	s.settle(got[5], engine.Dead, 0, "gone")
	s.takes(busy[1:3])
	s.takes(nil)
}

func chatHasOneAtATime(_ *testing.T, s *store) {
	busy := s.endTo(3, toChat)
	calm := s.endTo(2, toCalmChat)
	got := s.takes([]*engine.Delivery{busy[0], calm[0]})
	s.settle(got[1], engine.Delivered, 0, "")
	got = append(got, s.takes(calm[1:])...)
	s.settle(got[0], engine.Delivered, 0, "")
	s.takes(busy[1:2])
	s.takes(nil)
}

// listDeliveries collects all pages of a query.
func (s *store) listDeliveries(query engine.DeliveryQuery) []*engine.Delivery {
	s.t.Helper()
	query.Limit = cmp.Or(query.Limit, 1000)
	return allPages(s.t, query.Limit, func(cursor string) ([]*engine.Delivery, string, error) {
		query.Cursor = cursor
		return s.Deliveries().List(s.t.Context(), query)
	})
}

// acceptedAt is when the run of a delivery was accepted, by its id.
func acceptedAt(d *engine.Delivery) time.Time {
	seconds, nanoseconds := uuid.MustParse(d.RunID).Time().UnixTime()
	return time.Unix(seconds, nanoseconds)
}

func deliveriesAreListed(t *testing.T, s *store) {
	same(t, "a list of nothing", s.listDeliveries(engine.DeliveryQuery{}), nil)
	statuses := []engine.DeliveryStatus{engine.Pending, engine.Dead, engine.Delivered}
	var want []*engine.Delivery
	for i := range 20 {
		_, deliveries := s.endWith(2)
		s.carryOut(newRun("b"), ended()) // runs without deliveries are in between
		for j, d := range s.takes(deliveries) {
			s.settle(d, statuses[(i+j)%3], time.Hour, "why")
			known := *d
			known.Body = ""
			want = append(want, &known)
		}
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
			same(t, "a list of those "+string(status), s.listDeliveries(engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{status}, Limit: limit}), some)
		}
		var unsent []*engine.Delivery
		for _, d := range want {
			if d.Status != engine.Delivered {
				unsent = append(unsent, d)
			}
		}
		query := engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{engine.Dead, engine.Pending}, Limit: limit}
		same(t, "a list of two statuses", s.listDeliveries(query), unsent)
	}
	dead := []engine.DeliveryStatus{engine.Dead}
	for _, at := range [][2]int{{12, 0}, {25, 13}, {39, 26}} { // of one run there are two
		since, until := acceptedAt(want[at[0]]), acceptedAt(want[at[1]])
		var after, before, between, deadBetween []*engine.Delivery
		for _, d := range want {
			isAfter, isBefore := !acceptedAt(d).Before(since), acceptedAt(d).Before(until)
			if isAfter {
				after = append(after, d)
			}
			if isBefore {
				before = append(before, d)
			}
			if isAfter && isBefore {
				between = append(between, d)
			}
			if isAfter && isBefore && d.Status == engine.Dead {
				deadBetween = append(deadBetween, d)
			}
		}
		for _, limit := range []int{1, 5, 40} {
			same(t, "a list since a time", s.listDeliveries(engine.DeliveryQuery{Since: since, Limit: limit}), after)
			same(t, "a list until a time", s.listDeliveries(engine.DeliveryQuery{Until: until, Limit: limit}), before)
			same(t, "a list of some time", s.listDeliveries(engine.DeliveryQuery{Since: since, Until: until, Limit: limit}), between)
			same(t, "a list of a status and some time", s.listDeliveries(engine.DeliveryQuery{Statuses: dead, Since: since, Until: until, Limit: limit}), deadBetween)
		}
	}
	same(t, "a list of a status that none has", s.listDeliveries(engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{"other"}}), nil)
	for _, cursor := range []string{"x", "\x00", "%", want[0].RunID, "msg_x_0", "msg_"} {
		if _, _, err := s.Deliveries().List(t.Context(), engine.DeliveryQuery{Limit: 1, Cursor: cursor}); !errors.Is(err, engine.ErrCursor) {
			t.Errorf("cursor %q: got %v, want ErrCursor", cursor, err)
		}
	}
	if page, next, err := s.Deliveries().List(t.Context(), engine.DeliveryQuery{}); len(page) > 0 || next != "" || err != nil {
		t.Errorf("a list without a limit: got %v, %q, %v", page, next, err)
	}
}

func droppedIsGone(t *testing.T, s *store) {
	all := s.endTo(3, toChat)
	s.drop(all[1])
	got := s.takes(all[:1])
	s.settle(got[0], engine.Dead, 0, "gone")
	s.drop(got[0])
	for _, d := range all[:2] {
		if err := s.Deliveries().Drop(t.Context(), d.ID); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("dropping it again: %v", err)
		}
		if deliveries := s.get(d.RunID).Deliveries; len(deliveries) > 0 {
			t.Errorf("the run still has %d deliveries", len(deliveries))
		}
	}
	for _, id := range []string{"", "msg_", "\x00", all[2].RunID, all[2].ID + "0", engine.DeliveryID(all[2].RunID, 1)} { // that never were
		_, getErr := s.Deliveries().Get(t.Context(), id)
		_, retryErr := s.Deliveries().Retry(t.Context(), id, &id)
		for _, err := range []error{getErr, retryErr, s.Deliveries().Drop(t.Context(), id)} {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%q: got %v, want ErrNotFound", id, err)
			}
		}
	}
	s.counts(1, 0)
	s.takes(all[2:])
}

func neitherRetriedNorDropped(t *testing.T, s *store) {
	_, deliveries := s.endWith(1)
	id := deliveries[0].ID
	refused := func(want error) {
		t.Helper()
		if _, err := s.Deliveries().Retry(t.Context(), id, nil); !errors.Is(err, want) {
			t.Errorf("retried: got %v, want %v", err, want)
		}
		if err := s.Deliveries().Drop(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("dropped: got %v, want %v", err, want)
		}
	}
	got := s.takes(deliveries)[0]
	refused(engine.ErrUnderWay)
	s.settle(got, engine.Delivered, 0, "")
	refused(engine.ErrDelivered)
	s.noneDue()
}

func arrivedIsSentAgain(t *testing.T, s *store) {
	deliveries := append(s.endTo(1, toChat), s.endTo(1, toHost)...)
	counted := func(n int) {
		t.Helper()
		s.counts(n, 0)
		channels, err := s.Deliveries().CountByChannel(t.Context())
		if sum := channels[""].Pending + channels[deliveries[0].Channel].Pending; err != nil || sum != n {
			t.Errorf("got %v and %v, want %d pending", channels, err, n)
		}
	}
	for _, body := range []string{"", "once \x00 more"} {
		got := s.takes(deliveries)
		for i, d := range got {
			d.Sent = 2
			s.settle(d, engine.Delivered, 0, "")
			deliveries[i] = d
		}
		counted(0)
		s.advance(time.Hour)
		for i, d := range deliveries {
			given := body
			again, err := s.Deliveries().Retry(t.Context(), d.ID, &given)
			if err != nil {
				t.Fatal(err)
			}
			s.isNow("Due of a delivery that is sent again", again.Due)
			d.Status, d.Restart, d.Due, d.Sent, d.Body, d.Token = engine.Pending, d.Attempt, again.Due, 0, body, ""
			d.Progress = ""
			d.Repeats++
			same(t, "the delivery that is sent again", again, d)
			same(t, "the delivery that was sent again", s.delivery(d.ID), d)
			counted(i + 1)
		}
		// It waits now, and keeps its body if it is retried once more.
		s.retry(deliveries[0])
	}
	got := s.takes(deliveries)
	if _, err := s.Deliveries().Retry(t.Context(), got[0].ID, &got[0].Body); !errors.Is(err, engine.ErrUnderWay) {
		t.Errorf("got %v, want ErrUnderWay", err)
	}
	s.settle(got[0], engine.Dead, 0, "gone")
	s.counts(1, 1)
	s.retry(got[0])
	if d := s.delivery(got[0].ID); d.Repeats != 2 || d.Body != "once \x00 more" {
		t.Errorf("got %+v", d)
	}
}

func sentAgainKeepsTheRun(t *testing.T, s *store) {
	run, deliveries := s.endWith(1)
	s.settle(s.takes(deliveries)[0], engine.Delivered, 0, "")
	s.advance(2 * time.Hour)
	body := "again"
	if _, err := s.Deliveries().Retry(t.Context(), deliveries[0].ID, &body); err != nil {
		t.Fatal(err)
	}
	s.prune(engine.Limits{Retention: time.Hour})
	s.get(run.ID)
	due, _ := s.due(10)
	if len(due) != 1 || due[0].Body != body {
		t.Fatalf("got %+v", due)
	}
	s.settle(due[0], engine.Delivered, 0, "")
	s.prune(engine.Limits{Retention: time.Hour})
	if _, err := s.Deliveries().Get(t.Context(), deliveries[0].ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	s.counts(0, 0)
}
