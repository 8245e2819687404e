package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var pruneChecks = []check{
	{"there is nothing to forget at first", nothingToForget},
	{"finished runs are forgotten when they are old enough", forgottenWhenOld},
	{"without a limit nothing is forgotten", nothingForgottenWithoutLimit},
	{"unfinished runs stay", unfinishedStay},
	{"runs with pending deliveries stay until those are over", pendingDeliveriesStay},
	{"runs whose deliveries were given up lately stay", lateDeadStay},
	{"many runs and keys are forgotten in steps", forgottenInSteps},
}

func nothingToForget(t *testing.T, s *store) {
	more, err := s.Prune(t.Context(), time.Now(), engine.Limits{Retention: time.Hour, Keys: 10, KeyAge: time.Hour})
	if more || err != nil {
		t.Errorf("got %v and %v", more, err)
	}
}

// endedAt is an end at a time of the test's choice.
func endedAt(at time.Time) engine.End {
	end := ended()
	end.At = at
	return end
}

func forgottenWhenOld(t *testing.T, s *store) {
	start := time.Now()
	limits := engine.Limits{Retention: time.Hour}
	var runs []*engine.Run
	for _, minutes := range []int{0, 30, 10, 20} { // not in the order in which they end
		run := fullRun(t, "a")
		s.carryOut(run, endedAt(start.Add(time.Duration(minutes)*time.Minute)))
		runs = append(runs, run)
	}
	withdrawn := s.addTo("a")[0]
	s.withdraw(withdrawn, endedAt(start.Add(25*time.Minute)))
	runs = append(runs, withdrawn)

	for _, c := range []struct {
		minutes int
		left    []*engine.Run
	}{
		{0, runs},
		{59, runs},
		{61, runs[1:]},
		{71, []*engine.Run{runs[1], runs[3], runs[4]}},
		{84, []*engine.Run{runs[1], runs[4]}},
		{86, []*engine.Run{runs[1]}},
		{89, []*engine.Run{runs[1]}},
		{91, nil},
	} {
		s.prune(start.Add(time.Duration(c.minutes)*time.Minute), limits)
		s.lists(engine.Query{}, c.left...)
		s.lists(engine.Query{ChatID: "a", Status: engine.Completed, Limit: 1}, c.left...)
		for _, run := range c.left {
			s.status(run, engine.Completed, s.get(run.ID).Attempts)
		}
	}
	for _, run := range runs {
		s.gone(run.ID)
	}
	// The chat goes on.
	s.claimThrough(s.addTo("a", "a")...)
}

func nothingForgottenWithoutLimit(t *testing.T, s *store) {
	run := keyed("a", newKey())
	s.carryOut(run, ended())
	s.prune(time.Now().Add(100_000*time.Hour), engine.Limits{})
	s.prune(time.Now().Add(100_000*time.Hour), engine.Limits{Queue: 1, Chat: 1, Keys: 1})
	s.status(run, engine.Completed, 1)
	s.duplicateOf(run, keyed("a", run.Key), engine.Limits{})
	s.prune(time.Now().Add(100_000*time.Hour), engine.Limits{KeyAge: time.Hour})
	s.status(run, engine.Completed, 1)
	if err := s.Add(t.Context(), keyed("a", run.Key), engine.Limits{}); err != nil {
		t.Errorf("the key is still there: %v", err)
	}
}

func unfinishedStay(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	claim := s.claimFirst(runs[0])
	forget := func() {
		s.t.Helper()
		s.prune(time.Now().Add(1000*time.Hour), engine.Limits{Retention: time.Nanosecond, KeyAge: time.Nanosecond})
	}
	forget()
	s.lists(engine.Query{}, runs...)
	s.status(runs[0], engine.Running, 1)
	s.finish(claim, ended())
	forget()
	s.lists(engine.Query{}, runs[1:]...)
	s.gone(runs[0].ID)
	s.isOver(claim)
	claim = s.claimFirst(runs[1])
	s.release(claim)
	forget()
	s.claimThrough(runs[1:]...)
}

// isOver expects that a claim on a run that is gone is lost.
func (s *store) isOver(claim *engine.Claim) {
	s.t.Helper()
	if _, err := s.Finish(s.t.Context(), claim, ended(), engine.Want{}); !isClaimLost(err) {
		s.t.Errorf("finishing a run that is gone: got %v, want ErrClaimLost", err)
	}
	s.gone(claim.Run.ID)
}

func pendingDeliveriesStay(t *testing.T, s *store) {
	end := time.Now()
	limits := engine.Limits{Retention: time.Hour}
	run, _ := s.endWith(end, end, end)
	young := newRun("a")
	s.carryOut(young, endedAt(end.Add(50*time.Minute)))
	forget := func() { s.t.Helper(); s.prune(end.Add(100*time.Minute), limits) }

	forget()
	s.lists(engine.Query{}, run, young)
	due, _ := s.due(end, 10)
	if len(due) != 3 {
		t.Fatalf("got %d deliveries, want 3", len(due))
	}
	forget() // they are under way
	s.lists(engine.Query{}, run, young)
	s.settle(due[0], engine.Delivered, end, "")
	s.settle(due[1], engine.Pending, end.Add(time.Minute), "busy")
	s.settle(due[2], engine.Dead, end, "gone")
	forget() // one is to be tried again
	s.lists(engine.Query{}, run, young)
	again, _ := s.due(end.Add(time.Minute), 10)
	if len(again) != 1 || again[0].Body != due[1].Body {
		t.Fatalf("got %d deliveries, want the one that is to be tried again", len(again))
	}
	s.settle(again[0], engine.Delivered, end, "")
	forget()
	s.lists(engine.Query{}, young) // though a younger one ended before the deliveries of this one were over
	s.gone(run.ID)
	s.prune(end.Add(1000*time.Hour), limits)
	s.gone(young.ID)
	s.noneDue()
}

func forgottenInSteps(t *testing.T, s *store) {
	const workers, each = 8, 60
	keys := make(chan *engine.Key, workers*each)
	var adders sync.WaitGroup
	for i := range workers {
		adders.Go(func() {
			for range each {
				run := keyed(fmt.Sprint("chat ", i), newKey())
				if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
					t.Error(err)
					return
				}
				if err := s.Withdraw(t.Context(), run.ID, ended()); err != nil {
					t.Error(err)
				}
				keys <- run.Key
			}
		})
	}
	adders.Wait()
	young := keyed("young", newKey())
	s.carryOut(young, endedAt(time.Now().Add(time.Hour)))
	queued := s.addTo("queued")[0]
	s.prune(time.Now().Add(90*time.Minute), engine.Limits{Retention: time.Hour})
	s.lists(engine.Query{}, young, queued)
	s.duplicateOf(young, keyed("a", young.Key), engine.Limits{})

	s.prune(time.Now().Add(90*time.Minute), engine.Limits{KeyAge: time.Hour})
	close(keys)
	for key := range keys { // that a key is known is found out before that the queue is full
		if err := s.Add(t.Context(), keyed("queued", key), engine.Limits{Queue: 1}); !errors.Is(err, engine.ErrQueueFull) {
			t.Fatalf("a key is still there: %v", err)
		}
	}
	s.lists(engine.Query{}, young, queued)
}

func lateDeadStay(t *testing.T, s *store) {
	start := time.Now()
	limits := engine.Limits{Retention: time.Hour}
	run, _ := s.endWith(longAgo())
	got, _ := s.due(time.Now(), 1)
	got[0].TriedAt = start.Add(8 * time.Hour)
	s.settle(got[0], engine.Dead, got[0].Due, "gone")
	s.prune(start.Add(8*time.Hour+30*time.Minute), limits)
	s.lists(engine.Query{}, run)
	// If it is sent again it counts from there.
	s.retry(got[0], longAgo())
	s.prune(start.Add(100*time.Hour), limits)
	s.lists(engine.Query{}, run)
	got, _ = s.due(time.Now(), 1)
	got[0].TriedAt = start.Add(20 * time.Hour)
	s.settle(got[0], engine.Dead, got[0].Due, "gone")
	s.prune(start.Add(20*time.Hour+59*time.Minute), limits)
	s.lists(engine.Query{}, run)
	s.prune(start.Add(21*time.Hour+time.Minute), limits)
	s.lists(engine.Query{})
	if _, err := s.Delivery(t.Context(), got[0].ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a delivery of a run that is forgotten: %v", err)
	}
}
