package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var watchChecks = append(alone(pairChecks), check{"nothing is told after stop", nothingAfterStop})

// pairCheck is a property that one node sees of what another one does, or of what it does itself.
type pairCheck struct {
	name string
	run  func(s, watcher *store)
}

var pairChecks = []pairCheck{
	{"word comes when a run was added or requeued", hearOfRuns},
	{"a node that claims all there is at every word misses nothing", claimAtWord},
	{"word comes when a run is to be cancelled", hearOfCancel},
	{"word comes when there are deliveries to claim", hearOfDeliveries},
	{"word comes when the settings were saved", hearOfSettings},
	{"the end of a run is told to all who watch it", hearOfEnds},
	{"the end of a queued run is told", hearOfEndsOfQueued},
	{"only the end of the run is told", hearOnlyOfEnds},
	{"each delivery is handed out once to many who ask", handOutToMany},
	{"of settings that are saved at once exactly one is made from each revision, and one change is listed", saveAtOnce},
	{"nothing is claimed twice", everythingIsClaimedOnce},
	{"of runs that are added at once with one key exactly one is stored", oneOfManyIsStored},
}

// alone has one node make the checks.
func alone(pairs []pairCheck) (checks []check) {
	for _, pair := range pairs {
		checks = append(checks, check{pair.name, func(_ *testing.T, s *store) { pair.run(s, s) }})
	}
	return checks
}

// inPairs has two nodes make them.
func inPairs(pairs []pairCheck) (checks []check) {
	for _, pair := range pairs {
		checks = append(checks, check{pair.name, func(_ *testing.T, s *store) { pair.run(s, s.join()) }})
	}
	return checks
}

// hear waits for word.
func hear(t *testing.T, word <-chan struct{}, after string) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-word:
	case <-timeout.C:
		t.Fatalf("no word came after %s", after)
	}
}

// hears makes a change, and waits for word of it. Several changes may share one word, so word of earlier changes is taken
// away first.
func hears(t *testing.T, word <-chan struct{}, change string, make func()) {
	t.Helper()
	for {
		select {
		case <-word:
			continue
		default:
		}
		break
	}
	make()
	hear(t, word, change)
}

// silent expects that an end is not told.
func silent(t *testing.T, ended <-chan struct{}, after string) {
	t.Helper()
	select {
	case <-ended:
		t.Errorf("an end was told after %s", after)
	default:
	}
}

// hearOfRuns changes runs on one node, and expects word on another one or on the same.
func hearOfRuns(s, watcher *store) {
	t := s.t
	word := watcher.Watch().Claimable()
	var runs []*engine.Run
	hears(t, word, "a run was added", func() { runs = s.addTo("a") })
	claim := s.claimFirst(runs[0])
	hears(t, word, "a run was requeued", func() { s.requeue(claim) })
	claim = s.claimFirst(runs[0])
	hears(t, word, "a run was added to another chat", func() { s.addTo("b") })
	hears(t, word, "a run was requeued while another one waits", func() { s.requeue(claim) })
}

// claimAtWord adds runs on one node, and claims them on another one or on the same, at every word.
func claimAtWord(s, claimer *store) {
	const chats, each = 10, 10
	t := s.t
	var adders sync.WaitGroup
	defer adders.Wait()
	for chat := range chats {
		adders.Go(func() {
			for range each {
				if err := s.tryAdd(newRun(fmt.Sprint(chat)), engine.Limits{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for left := chats * each; left > 0; {
		hear(t, claimer.Watch().Claimable(), fmt.Sprintf("all but %d runs were claimed", left))
		for claims := claimer.claim(3); len(claims) > 0; {
			claims = append(claims[1:], claimer.endAnd(claims[0], ended(), upTo(1))...)
			left--
			if len(claims) == 0 {
				claims = claimer.claim(3)
			}
		}
	}
}

// hearOfCancel wants runs to be cancelled on one node, and expects word on the node that carries them out.
func hearOfCancel(s, holder *store) {
	t := s.t
	runs := holder.addTo("a", "b")
	claims := holder.claimAll(runs...)
	for i, claim := range claims {
		hears(t, holder.Watch().Cancelled(), "a run is to be cancelled", func() { s.cancel(claim.Run) })
		_, cancelled := holder.renew(longLease, claims...)
		if len(cancelled) != i+1 {
			t.Errorf("%d runs are to be cancelled, want %d", len(cancelled), i+1)
		}
	}
}

// hearOfDeliveries changes deliveries on one node, and expects word on another one or on the same. A node that settles a
// delivery knows that there may be more, so it need not hear of it.
func hearOfDeliveries(s, watcher *store) {
	t := s.t
	word := watcher.Watch().Due()
	settled := func(d *engine.Delivery, change string, status engine.DeliveryStatus, throttles ...engine.Throttle) {
		t.Helper()
		settle := func() { s.settle(d, status, 0, "", throttles...) }
		if watcher != s {
			hears(t, word, change, settle)
		} else {
			settle()
		}
	}
	var deliveries []*engine.Delivery
	hears(t, word, "a run ended with a delivery", func() { _, deliveries = s.endWith(1) })
	d := s.takes(deliveries)[0]
	settled(d, "a delivery was settled that is still due", engine.Pending)
	d = s.takes([]*engine.Delivery{d})[0]
	s.settle(d, engine.Pending, time.Hour, "busy")
	hears(t, word, "a delivery that waits was retried", func() { s.retry(d) })
	d = s.takes([]*engine.Delivery{d})[0]
	s.settle(d, engine.Dead, 0, "gone")
	hears(t, word, "a delivery that was given up was retried", func() { s.retry(d) })
	d = s.takes([]*engine.Delivery{d})[0]
	s.settle(d, engine.Delivered, 0, "")

	chats := s.endTo(2, toChat)
	first := s.takes(chats[:1])[0]
	settled(first, "a delivery made room for the next of its chat", engine.Delivered)
	second := s.takes(chats[1:])[0]
	s.settle(second, engine.Delivered, 0, "")

	busy := s.endTo(2, toHost)
	s.throttle(engine.Throttle{To: busy[0].Destination(), Pause: time.Hour})
	_, others := s.endWith(1)
	other := s.takes(others)[0]
	settled(other, "a throttle was lifted", engine.Delivered, engine.Throttle{To: busy[0].Destination()})
	s.takes(busy)
}

// hearOfSettings saves settings on one node, and expects word on another one or on the same.
func hearOfSettings(s, watcher *store) {
	t := s.t
	revision := int64(0)
	for i := range 3 {
		settings := fmt.Sprint("settings ", i)
		hears(t, watcher.Watch().SettingsChanged(), "settings were saved", func() { revision = s.save(settings, revision) })
		watcher.loads([]byte(settings), revision)
	}
}

// hearOfEnds ends runs on one node, and expects that another one or the same is told.
func hearOfEnds(s, watcher *store) {
	t := s.t
	runs := s.addTo("a", "a", "b")
	claims := s.claimAll(runs[0], runs[2])
	if claims[0].Run.ID != runs[0].ID {
		claims[0], claims[1] = claims[1], claims[0]
	}
	var first []<-chan struct{}
	for range 3 {
		done, stop := watcher.Watch().Ended(runs[0].ID)
		defer stop()
		first = append(first, done)
	}
	second, stopSecond := watcher.Watch().Ended(runs[1].ID)
	defer stopSecond()
	third, stopThird := watcher.Watch().Ended(runs[2].ID)
	defer stopThird()
	next := s.endAnd(claims[0], ended(), upTo(1))
	for _, done := range first {
		hear(t, done, "a run ended")
	}
	silent(t, second, "the run before it ended")
	silent(t, third, "a run of another chat ended")
	watcher.status(runs[0], engine.Completed, 1) // the end is there when it is told
	s.end(next[0], endedAs(engine.Failed, engine.RunnerFailed))
	hear(t, second, "a run failed")
	s.end(claims[1], endedAs(engine.Cancelled, ""))
	hear(t, third, "a run was cancelled")
}

func hearOfEndsOfQueued(s, watcher *store) {
	t := s.t
	runs := s.addTo("a", "a")
	for _, run := range []*engine.Run{runs[1], runs[0]} {
		done, stop := watcher.Watch().Ended(run.ID)
		defer stop()
		s.endQueued(run, endedAs(engine.Cancelled, ""))
		hear(t, done, "a queued run ended")
	}
}

// That nothing was told is looked at when the end of another run has been told.
func hearOnlyOfEnds(s, watcher *store) {
	t := s.t
	later := func() {
		t.Helper()
		run := s.addTo("later")[0]
		done, stop := watcher.Watch().Ended(run.ID)
		defer stop()
		s.endQueued(run, ended())
		hear(t, done, "a run ended")
	}
	over := newRun("a")
	s.carryOut(over, ended())
	done, stop := watcher.Watch().Ended(over.ID)
	defer stop()
	unknown, stopUnknown := watcher.Watch().Ended("no id")
	defer stopUnknown()
	later()
	silent(t, done, "it had ended before it was watched")
	silent(t, unknown, "a run ended")

	run := s.addTo("a")[0]
	done, stop = watcher.Watch().Ended(run.ID)
	defer stop()
	claim := s.claimFirst(run)
	s.cancel(run)
	s.requeue(claim)
	later()
	silent(t, done, "a requeue")
	s.abandon(run)
	claim = s.reclaim(run)
	later()
	silent(t, done, "a claim was lost")
	s.end(claim, ended())
	hear(t, done, "a run ended")
}

func nothingAfterStop(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	stopped, stop := s.Watch().Ended(run.ID)
	done, stopWatch := s.Watch().Ended(run.ID)
	stop()
	stop()
	s.endQueued(run, ended())
	hear(t, done, "a run ended, and another one who watched it had stopped")
	silent(t, stopped, "stop")
	stopWatch()
	stopWatch()

	// A run can be watched again.
	run = s.addTo("a")[0]
	_, stop = s.Watch().Ended(run.ID)
	stop()
	done, stop = s.Watch().Ended(run.ID)
	defer stop()
	s.endQueued(run, ended())
	hear(t, done, "a run ended that is watched again")
}
