package storetest

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var setClockChecks = []check{
	{"a run is not overdue because the clock was set", setClockAndQueueTimes},
	{"a lease is not over because the clock was set, and ends in time", setClockAndLeases},
	{"the wait of a run is as long as it was, however the clock is set", setClockAndWaits},
	{"the pause of a delivery is as long as it was, however the clock is set", setClockAndDeliveries},
	{"a host is throttled as long as it was, however the clock is set", setClockAndThrottles},
	{"a delivery that is put back is as due as before, however the clock is set", setClockAndPutBack},
	{"a key is known when the clock is set back, and forgotten when it was far ahead", setClockAndKeys},
	{"a clock that was set back prunes nothing", setClockAndPruning},
	{"runs stay in order when the clock is set", setClockAndOrder},
	{"a list has all runs of a time, however the clock was set", filtersAndSetClocks},
	{"a session stays when the clock is set back", sessionWithClockSetBack},
	{"no clock opens or closes a window", setClockAndFolds},
}

var durableSetClockChecks = []check{
	{"a clock that is set back between two processes gives a run its queue time again, and no more", setClockBetweenQueueTimes},
	{"a clock that is set back between two processes gives a fold its window again, and no more", setClockBetweenFolds},
	{"a clock that is set back between two processes puts off no wait for long", setClockBetweenWaits},
	{"a clock that is set back between two processes puts off no delivery for long", setClockBetweenDeliveries},
}

// someSets are ways to set a clock: by hours, as somebody does who has the time zone wrong, and by years, as a machine does
// that has no battery.
var someSets = []time.Duration{3 * time.Hour, -3 * time.Hour, 30 * year, -30 * year}

const year = 365 * 24 * time.Hour

// setClock sets the store's clock.
func (s *store) setClock(d time.Duration) {
	s.t.Helper()
	s.options.SetClock(s.t, s.Store, d)
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.advanced += d
}

// claimedAfter claims one run, and expects it to be this one and to have waited for so long, whatever its times say.
func (s *store) claimedAfter(waited time.Duration, run *engine.Run) *engine.Claim {
	s.t.Helper()
	claims, _, err := s.Runs().Claim(s.t.Context(), upTo(1))
	if err != nil {
		s.t.Fatalf("claiming: %v", err)
	}
	s.sameRuns("claimed", claims, run)
	s.isNow("StartedAt", claims[0].StartedAt)
	s.lasted("Waited", claims[0].Waited, waited)
	return claims[0]
}

func setClockAndQueueTimes(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addWithQueueTime(time.Hour)
		s.setClock(set)
		s.overdue(time.Hour)
		s.advance(time.Minute)
		s.end(s.claimedAfter(time.Minute, run), ended())
		run = s.addWithQueueTime(time.Hour)
		s.setClock(-set)
		s.advance(time.Hour + slack)
		s.overdue(0, run)
		s.endQueued(run, endedAs(engine.Expired, ""))
	}
}

func setClockAndLeases(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addTo("a")[0]
		claim := s.claimFor(shortLease, 1)[0]
		_, deliveries := s.endWithClaimed()
		s.setClock(set)
		s.claimAll()
		s.holds(shortLease, claim)
		s.advance(shortLease + slack)
		s.end(s.claimedAfter(shortLease+slack, run), ended())
		got, _ := s.due(10)
		if len(got) != 1 || got[0].ID != deliveries[0].ID {
			s.t.Fatalf("got %d deliveries when the lease of one was over", len(got))
		}
		got[0].LastError = ""
		s.settle(got[0], engine.Delivered, 0, "")
	}
}

// endWithClaimed carries out a run of another chat, whose delivery is claimed for a short lease.
func (s *store) endWithClaimed() (run *engine.Run, deliveries []*engine.Delivery) {
	s.t.Helper()
	run = newRun("with a delivery")
	s.add(run)
	s.end(s.claimFirst(run), endedWith(newDelivery(run, 0)))
	deliveries, _ = s.claimDeliveries(engine.DeliveryBatch{Max: 1, Lease: shortLease})
	if len(deliveries) != 1 {
		s.t.Fatalf("claimed %d deliveries", len(deliveries))
	}
	return run, deliveries
}

func setClockAndWaits(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addTo("a")[0]
		s.end(s.claimFirst(run), waitFor(time.Hour))
		s.setClock(set)
		s.claimAll()
		s.advance(time.Hour - time.Minute)
		s.claimAll()
		s.advance(time.Minute + slack)
		s.end(s.claimedAfter(time.Hour+slack, run), ended())
	}
}

func setClockAndDeliveries(_ *testing.T, s *store) {
	for _, set := range someSets {
		_, deliveries := s.endWith(1)
		s.pauseNew(deliveries[0], time.Hour)
		s.setClock(set)
		s.handsOut(1, nil, time.Hour)
		s.advance(time.Hour - time.Minute)
		s.handsOut(1, nil, time.Minute)
		s.advance(time.Minute + slack)
		got := s.handsOut(1, deliveries, notATime)
		s.settle(got[0], engine.Delivered, 0, "")
	}
}

func setClockAndThrottles(_ *testing.T, s *store) {
	for _, set := range someSets {
		all := s.endTo(2, toHost)
		got, _ := s.due(1)
		s.settle(got[0], engine.Delivered, 0, "", engine.Throttle{To: got[0].Destination(), AtOnce: 1, Pause: time.Hour})
		s.setClock(set)
		s.handsOut(1, nil, time.Hour)
		s.advance(time.Hour + slack)
		got = s.handsOut(1, all[1:], notATime)
		s.settle(got[0], engine.Delivered, 0, "", engine.Throttle{To: got[0].Destination()})
	}
}

func setClockAndPutBack(_ *testing.T, s *store) {
	for _, set := range someSets {
		_, deliveries := s.endWith(1)
		got := s.handsOut(1, deliveries, notATime)
		s.setClock(set)
		s.settle(got[0], engine.Pending, 0, "stopped")
		*deliveries[0] = *got[0]
		got = s.handsOut(1, deliveries, notATime)
		s.settle(got[0], engine.Delivered, 0, "")
	}
}

func setClockAndKeys(_ *testing.T, s *store) {
	limits := engine.Limits{Keys: 10, KeyAge: 24 * time.Hour}
	before := keyed("a", newKey())
	s.addWithin(limits, before)
	s.setClock(-3 * time.Hour)
	after := keyed("b", newKey())
	s.addWithin(limits, after)
	s.prune(limits)
	s.duplicateOf(before, keyed("c", before.Key), limits)
	s.duplicateOf(after, keyed("c", after.Key), limits)
	s.setClock(-30 * year)
	s.prune(limits)
	s.addWithin(limits, keyed("c", before.Key))
	s.addWithin(limits, keyed("d", after.Key))
}

func setClockAndPruning(_ *testing.T, s *store) {
	for _, set := range []time.Duration{-3 * time.Hour, -30 * year} {
		run := s.addTo("a")[0]
		s.end(s.claimFirst(run), ended())
		s.setClock(set)
		s.prune(engine.Limits{Retention: time.Hour})
		s.status(run, engine.Completed, 1)
	}
}

func setClockAndOrder(_ *testing.T, s *store) {
	var all []*engine.Run
	for _, set := range someSets {
		all = append(all, s.addTo("a")...)
		s.setClock(set)
	}
	all = append(all, s.addTo("a")...)
	for _, run := range all {
		s.end(s.claimedAfter(0, run), ended())
	}
}

func setClockBetweenQueueTimes(_ *testing.T, s *store) {
	run := s.addWithQueueTime(time.Hour)
	s.advance(30 * time.Minute)
	s.setClock(-year)
	s.reopen()
	s.overdue(time.Hour)
	s.advance(time.Hour + slack)
	s.overdue(0, run)
}

func setClockBetweenFolds(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 10, 2)
	s.advance(foldWindow / 2)
	s.setClock(-30 * year)
	s.reopen()
	s.waitsAnHour()
	s.advance(foldWindow + slack)
	s.isFold(s.claimBatch(upTo(1), runs[0])[0], runs...)
}

func setClockBetweenWaits(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.end(s.claimFirst(run), waitFor(30*time.Second))
	s.setClock(-year)
	s.reopen()
	s.claimAll()
	s.advance(engine.LongestRunPause + slack)
	s.claimedAfter(engine.LongestRunPause+slack, run)
}

func setClockBetweenDeliveries(_ *testing.T, s *store) {
	_, deliveries := s.endWith(1)
	s.pauseNew(deliveries[0], time.Hour)
	s.setClock(-year)
	s.reopen()
	s.handsOut(1, nil, engine.LongestDeliveryPause)
	s.advance(engine.LongestDeliveryPause + slack)
	s.handsOut(1, deliveries, notATime)
}
