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
	{"runs with pending deliveries stay until those are over", pendingDeliveriesStay},
	{"runs whose deliveries were given up lately stay", lateDeadStay},
	{"many runs, keys and sessions are forgotten in steps", forgottenInSteps},
}

func pendingDeliveriesStay(t *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	run, deliveries := s.endWith(3)
	s.advance(50 * time.Minute)
	young := newRun("a")
	s.carryOut(young, ended())
	s.advance(50 * time.Minute)
	forget := func() { s.t.Helper(); s.prune(limits) }

	forget()
	s.lists(engine.Query{}, run, young)
	due := s.handsOut(10, deliveries, notATime)
	forget() // they are under way
	s.lists(engine.Query{}, run, young)
	s.settle(due[0], engine.Delivered, 0, "")
	s.settle(due[1], engine.Pending, 0, "busy")
	s.settle(due[2], engine.Delivered, 0, "")
	forget() // one is to be tried again
	s.lists(engine.Query{}, run, young)
	again := s.handsOut(10, due[1:2], notATime)
	s.settle(again[0], engine.Delivered, 0, "")
	forget()
	s.lists(engine.Query{}, young) // though a younger run ended before the deliveries of this one were over
	s.gone(run.ID)
	if _, err := s.Deliveries().Get(t.Context(), due[0].ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a delivery of a run that is forgotten: %v", err)
	}
	s.advance(time.Hour)
	forget()
	s.gone(young.ID)
	s.noneDue()
}

func lateDeadStay(t *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	run, deliveries := s.endWith(1)
	s.advance(8 * time.Hour)
	got := s.handsOut(1, deliveries, notATime)[0]
	s.settle(got, engine.Dead, 0, "gone")
	s.advance(30 * time.Minute)
	s.prune(limits)
	s.lists(engine.Query{}, run)
	// If it is sent again the time counts from there.
	s.retry(got)
	s.advance(100 * time.Hour)
	s.prune(limits)
	s.lists(engine.Query{}, run)
	got = s.handsOut(1, []*engine.Delivery{got}, notATime)[0]
	s.settle(got, engine.Dead, 0, "gone")
	s.advance(59 * time.Minute)
	s.prune(limits)
	s.lists(engine.Query{}, run)
	s.advance(2 * time.Minute)
	s.prune(limits)
	s.lists(engine.Query{})
	if _, err := s.Deliveries().Get(t.Context(), got.ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a delivery of a run that is forgotten: %v", err)
	}
}

func forgottenInSteps(t *testing.T, s *store) {
	const workers, each = 8, 60
	keys, sessions := make(chan *engine.Key, workers*each), make(chan [2]string, workers*each)
	var adders sync.WaitGroup
	for i := range workers {
		adders.Go(func() {
			for range each {
				run := keyed(fmt.Sprint("chat ", i), newKey())
				if err := s.tryAdd(run, engine.Limits{}); err != nil {
					t.Error(err)
					return
				}
				end := ended()
				end.Session = engine.Session{Runner: run.ID, ID: "one"}
				if _, err := s.Runs().End(t.Context(), queued(run), end, engine.Batch{}); err != nil {
					t.Error(err)
				}
				sessions <- [2]string{run.ID, run.ChatID}
				keys <- run.Key
			}
		})
	}
	adders.Wait()
	s.advance(90 * time.Minute)
	young := keyed("young", newKey())
	s.carryOut(young, ended())
	waiting := s.addTo("queued")[0]
	s.prune(engine.Limits{Retention: time.Hour})
	s.lists(engine.Query{}, young, waiting)
	s.duplicateOf(young, keyed("a", young.Key), engine.Limits{})
	close(sessions)
	for of := range sessions {
		if id, err := s.Sessions().Get(t.Context(), of[0], of[1]); id != "" || err != nil {
			t.Fatalf("a session is still there: %q, %v", id, err)
		}
	}

	s.prune(engine.Limits{KeyAge: time.Hour})
	close(keys)
	for key := range keys { // a store looks at the key before it looks at the limit
		if err := s.tryAdd(keyed("queued", key), engine.Limits{Queue: 1}); !errors.Is(err, engine.ErrQueueFull) {
			t.Fatalf("a key is still there: %v", err)
		}
	}
	s.duplicateOf(young, keyed("a", young.Key), engine.Limits{})
	s.lists(engine.Query{}, young, waiting)
}
