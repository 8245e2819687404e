package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var throttleChecks = []check{
	{"a throttled chat waits, and others do not", throttledChatWaits},
	{"a throttled channel waits with all its chats", throttledChannelWaits},
	{"a retry lifts the throttles of its host and chat", retryLiftsThrottles},
	{"overdue deliveries are handed out in spite of a throttle", overdueInSpiteOfThrottle},
	{"what deliveries wait for is told, with the time", waitsAreShown},
	{"hosts that wait are told, the first one first", hostsThatWait},
	{"a throttle is forgotten when nothing is pending", throttleIsForgotten},
}

// throttle settles a delivery of its own, to bound what is handed out to others.
func (s *store) throttle(throttles ...engine.Throttle) {
	s.t.Helper()
	run := newRun("a")
	s.add(run)
	d := newDelivery(run, 0)
	s.end(s.claimFirst(run), endedWith(d))
	got, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 10, Lease: longLease, Host: d.Destination().Host})
	if len(got) != 1 || got[0].ID != d.ID {
		s.t.Fatalf("got %d deliveries to a host that has one", len(got))
	}
	s.settle(got[0], engine.Delivered, 0, "", throttles...)
}

func throttledChatWaits(_ *testing.T, s *store) {
	busy := s.endTo(2, toChat)
	s.throttle(engine.Throttle{To: busy[0].Destination(), AtOnce: 5, Pause: time.Hour})
	calm := s.endTo(1, toCalmChat)
	s.handsOut(10, calm, time.Hour-time.Minute)
	s.advance(time.Hour)
	got := s.handsOut(10, busy[:1], notATime) // AtOnce is of no account
	s.settle(got[0], engine.Pending, 0, "busy", engine.Throttle{To: busy[0].Destination(), Pause: time.Hour})
	s.handsOut(10, nil, time.Hour)
	s.throttle(engine.Throttle{To: busy[0].Destination()})
	s.handsOut(10, got[:1], notATime)
}

func throttledChannelWaits(_ *testing.T, s *store) {
	busy := s.endTo(2, toChat)
	calm := s.endTo(1, toCalmChat)
	channel := engine.Destination{Host: busy[0].Destination().Host}
	s.throttle(engine.Throttle{To: channel, AtOnce: 1, Pause: time.Hour})
	s.handsOut(10, nil, time.Hour)
	s.advance(time.Hour)
	got := s.handsOut(10, busy[:1], notATime)
	s.settle(got[0], engine.Delivered, 0, "", engine.Throttle{To: channel})
	s.handsOut(10, []*engine.Delivery{busy[1], calm[0]}, notATime)
}

func retryLiftsThrottles(_ *testing.T, s *store) {
	busy := s.endTo(3, toHost)
	got := s.handsOut(1, busy[:1], 0)[0]
	s.settle(got, engine.Dead, 0, "gone", engine.Throttle{To: got.Destination(), AtOnce: 1, Pause: time.Hour})
	s.handsOut(10, nil, time.Hour)
	s.retry(got)
	for _, d := range s.handsOut(10, []*engine.Delivery{busy[1], busy[2], got}, notATime) {
		s.settle(d, engine.Delivered, 0, "")
	}

	chats := append(s.endTo(2, toChat), s.endTo(1, toCalmChat)...)
	to := chats[0].Destination()
	got = s.handsOut(1, chats[:1], 0)[0]
	s.settle(got, engine.Pending, time.Hour, "busy", engine.Throttle{To: to, Pause: time.Hour},
		engine.Throttle{To: engine.Destination{Host: to.Host}, AtOnce: 1, Pause: 2 * time.Hour})
	s.handsOut(10, nil, 2*time.Hour)
	s.retry(got)
	s.handsOut(10, chats[1:], notATime)
}

func overdueInSpiteOfThrottle(t *testing.T, s *store) {
	busy := s.endTo(5, toHost) // due 5, 4, 3, 2 and 1 minutes ago
	_, other := s.endWith(1)
	host := busy[0].Destination().Host
	s.throttle(engine.Throttle{To: busy[0].Destination(), AtOnce: 1, Pause: 10 * time.Hour})
	claim := func(dueFor time.Duration, n int, want []*engine.Delivery) []*engine.Delivery {
		t.Helper()
		got, _ := s.claimDeliveries(engine.DeliveryBatch{Max: n, Lease: longLease, Host: host, DueFor: dueFor})
		s.areThese(got, want)
		return got
	}
	claim(time.Hour, 10, nil)
	claim(2*time.Minute+30*time.Second, 0, nil)
	got := claim(2*time.Minute+30*time.Second, 2, busy[:2])
	got = append(got, claim(2*time.Minute+30*time.Second, 10, busy[2:3])...)
	claim(2*time.Minute+30*time.Second, 10, nil)
	s.takes(other) // more are under way than the throttle allows
	s.staysWith(got...)
	for _, d := range got {
		s.settle(d, engine.Dead, 0, "too late")
	}
	s.takes(nil)
	s.advance(10 * time.Hour)
	s.takes(busy[3:4])
	// However many are under way.
	claim(time.Hour, 10, busy[4:])
}

func waitsAreShown(t *testing.T, s *store) {
	all := append(s.endTo(2, toHost), s.endTo(2, toChat)...)
	_, calm := s.endWith(1)
	all = append(all, calm...)
	tells := func(want ...engine.DeliveryWait) (untils []time.Time) {
		t.Helper()
		got, err := s.Deliveries().Waits(t.Context(), all)
		if err != nil || len(got) != len(all) {
			t.Fatalf("got %v, %v", got, err)
		}
		for i, w := range got {
			if w.For != want[i].For || w.Until.IsZero() != want[i].Until.IsZero() {
				t.Errorf("%d: got %+v, want %+v", i, w, want[i])
			}
			untils = append(untils, w.Until)
		}
		return untils
	}
	var none engine.DeliveryWait
	behind, paused, scheduled := engine.DeliveryWait{For: engine.EarlierOne}, engine.DeliveryWait{For: engine.PauseOfHost, Until: time.Unix(1, 0)}, engine.DeliveryWait{Until: time.Unix(1, 0)}
	tells(none, none, none, behind, none)
	got := s.takes(slices.Delete(slices.Clone(all), 3, 4))
	tells(none, none, none, behind, none) // the first of the chat is under way

	host, chat := all[0].Destination(), all[2].Destination()
	s.settle(got[2], engine.Pending, 0, "no", engine.Throttle{To: chat, Pause: time.Hour})
	s.settle(got[3], engine.Pending, 2*time.Hour, "no")
	s.settle(got[0], engine.Pending, 0, "no", engine.Throttle{To: host, AtOnce: 1, Pause: 3 * time.Hour})
	s.settle(got[1], engine.Delivered, 0, "")
	untils := tells(paused, none, scheduled, behind, scheduled)
	if a, b := untils[4].Sub(untils[2]).Round(time.Minute), untils[0].Sub(untils[2]).Round(time.Minute); a != time.Hour || b != 2*time.Hour {
		t.Errorf("the pauses are %v and %v longer than that of the chat, want 1h and 2h", a, b)
	}
	s.throttle(engine.Throttle{To: host, AtOnce: 1})
	more := s.endTo(1, toHost)
	all[1] = more[0]
	if taken, _ := s.due(100); len(taken) != 1 || taken[0].ID != all[0].ID {
		t.Fatalf("got %v, want the first one of the host", taken)
	}
	tells(none, engine.DeliveryWait{For: engine.OthersOfHost}, scheduled, behind, scheduled)
}

func hostsThatWait(t *testing.T, s *store) {
	busy, chat := s.endTo(1, toHost)[0].Destination(), s.endTo(1, toChat)[0].Destination()
	channel := engine.Destination{Host: chat.Host}
	s.throttle(engine.Throttle{To: busy, Pause: 2 * time.Hour}, engine.Throttle{To: channel, Pause: time.Hour}, engine.Throttle{To: chat, Pause: time.Minute})
	tells := func(most int, want ...string) {
		t.Helper()
		paused, err := s.Deliveries().Paused(t.Context(), most)
		got := []string{}
		for _, host := range paused {
			got = append(got, host.Host)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("hosts that wait, up to %d: got %v (%v), want %v", most, got, err, want)
		}
	}
	tells(0)
	tells(1, channel.Host)
	tells(10, channel.Host, busy.Host)
	s.advance(90 * time.Minute)
	tells(10, busy.Host)
}

func throttleIsForgotten(_ *testing.T, s *store) {
	for _, to := range []func(d *engine.Delivery){toHost, toChat} {
		got := s.takes(s.endTo(1, to))[0]
		here := engine.Throttle{To: got.Destination(), AtOnce: 1, Pause: 10 * time.Hour}
		s.settle(got, engine.Dead, 0, "gone", here) // it was the last one
		got = s.takes(s.endTo(1, to))[0]
		s.throttle(here) // nor is one kept that was there before the last one went
		s.settle(got, engine.Delivered, 0, "")
		s.settle(s.takes(s.endTo(1, to))[0], engine.Delivered, 0, "")
	}
}
