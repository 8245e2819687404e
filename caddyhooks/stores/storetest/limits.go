package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var limitChecks = []check{
	{"a full queue takes no more", fullQueue},
	{"a full chat takes no more and leaves room for others", fullChat},
	{"0 is no limit", zeroIsNoLimit},
	{"runs that are claimed or ended take no room", roomIsMade},
	{"runs that are given back take their room again", givenBackTakeRoom},
	{"of a run that was refused nothing stays", nothingStays},
	{"a limit holds when runs are added at once", limitHoldsAtOnce},
	{"as many are queued as wait", queuedAreCounted},
}

func fullQueue(t *testing.T, s *store) {
	limits := engine.Limits{Queue: 2}
	for _, chat := range []string{"a", "b"} {
		if err := s.tryAdd(newRun(chat), limits); err != nil {
			t.Fatal(err)
		}
	}
	s.refuse(newRun("a"), limits, engine.ErrQueueFull)
	s.refuse(newRun("c"), limits, engine.ErrQueueFull)
	// The limit is what this call says.
	if err := s.tryAdd(newRun("c"), engine.Limits{Queue: 3}); err != nil {
		t.Error(err)
	}
	s.refuse(newRun("c"), engine.Limits{Queue: 1}, engine.ErrQueueFull)
}

func fullChat(t *testing.T, s *store) {
	limits := engine.Limits{Chat: 2}
	for _, chat := range []string{"a", "a", "b"} {
		if err := s.tryAdd(newRun(chat), limits); err != nil {
			t.Fatal(err)
		}
	}
	s.refuse(newRun("a"), limits, engine.ErrChatFull)
	for _, chat := range []string{"b", "c", "c"} {
		if err := s.tryAdd(newRun(chat), limits); err != nil {
			t.Errorf("chat %s: %v", chat, err)
		}
	}
	s.refuse(newRun("b"), limits, engine.ErrChatFull)
}

func zeroIsNoLimit(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	s.refuse(newRun("a"), engine.Limits{Queue: 3}, engine.ErrQueueFull)
	s.refuse(newRun("a"), engine.Limits{Chat: 3}, engine.ErrChatFull)
	s.claimThrough(append(runs, s.addTo("a")...)...)
}

func roomIsMade(t *testing.T, s *store) {
	limits := engine.Limits{Queue: 2, Chat: 2}
	full := func(why string) {
		t.Helper()
		for s.tryAdd(newRun("a"), limits) == nil {
			if len(s.list(engine.Query{Statuses: []engine.Status{engine.Queued}})) > 2 {
				t.Fatalf("%s: more than 2 runs are queued", why)
			}
		}
		if n := len(s.list(engine.Query{Statuses: []engine.Status{engine.Queued}})); n != 2 {
			t.Fatalf("%s: %d runs are queued, want 2", why, n)
		}
	}
	full("at first")
	claims := s.claim(1)
	full("after a run was claimed")
	claims = s.endAnd(claims[0], ended(), upTo(1))
	full("after another one was claimed at the end of the first")
	s.end(claims[0], ended())
	s.refuse(newRun("a"), engine.Limits{Queue: 2}, engine.ErrQueueFull) // the end of a claimed run makes no room
	s.refuse(newRun("a"), engine.Limits{Chat: 2}, engine.ErrChatFull)
	queued := s.list(engine.Query{Statuses: []engine.Status{engine.Queued}})
	s.endQueued(queued[0].Run, ended())
	full("after a queued run was ended")
}

func givenBackTakeRoom(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	if err := s.tryAdd(newRun("a"), engine.Limits{Queue: 1, Chat: 1}); err != nil {
		t.Fatal(err)
	}
	s.requeue(claim) // although there is no room
	s.refuse(newRun("a"), engine.Limits{Queue: 2}, engine.ErrQueueFull)
	s.refuse(newRun("a"), engine.Limits{Chat: 2}, engine.ErrChatFull)
	s.claimFirst(run)
	if err := s.tryAdd(newRun("a"), engine.Limits{Queue: 2, Chat: 2}); err != nil {
		t.Error(err)
	}
}

func nothingStays(t *testing.T, s *store) {
	first := s.addTo("a")[0]
	refused := fullRun(t, "a")
	s.refuse(refused, engine.Limits{Queue: 1}, engine.ErrQueueFull)
	s.refuse(refused, engine.Limits{Chat: 1}, engine.ErrChatFull)
	s.lists(engine.Query{}, first)
	s.claimThrough(first)
	// Not even its key.
	if err := s.tryAdd(refused, engine.Limits{Queue: 1, Chat: 1}); err != nil {
		t.Fatalf("adding the run when there is room: %v", err)
	}
	s.lists(engine.Query{}, first, refused)
	s.claimThrough(refused)
}

func limitHoldsAtOnce(t *testing.T, s *store) {
	limits := engine.Limits{Queue: 20, Chat: 7}
	var adders sync.WaitGroup
	for range 8 {
		adders.Go(func() {
			for i := range 10 {
				err := s.tryAdd(newRun(fmt.Sprint("chat ", i%5)), limits)
				if err != nil && !errors.Is(err, engine.ErrQueueFull) && !errors.Is(err, engine.ErrChatFull) {
					t.Error(err)
				}
			}
		})
	}
	adders.Wait()
	perChat := map[string]int{}
	all := s.list(engine.Query{})
	for _, record := range all {
		perChat[record.Run.ChatID]++
	}
	if len(all) != limits.Queue {
		t.Errorf("%d runs are queued, want %d", len(all), limits.Queue)
	}
	for chat, n := range perChat {
		if n > limits.Chat {
			t.Errorf("%d runs of %s are queued, more than %d", n, chat, limits.Chat)
		}
	}
}

func queuedAreCounted(t *testing.T, s *store) {
	want := func(n int, when string) {
		t.Helper()
		if got, err := s.Runs().Queued(t.Context()); got != n || err != nil {
			t.Errorf("%d runs are queued %s, %v; want %d", got, when, err, n)
		}
	}
	want(0, "at first")
	runs := s.addTo("a", "a", "b")
	want(3, "after three were added")
	claims := s.claimAll(runs[0], runs[2])
	want(1, "after two were claimed")
	s.requeue(claims[0])
	want(2, "after one was put back")
	s.end(claims[1], engine.End{Outcome: engine.Outcome{Status: engine.Completed}})
	s.endQueued(runs[1], engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}})
	want(1, "after two have ended")
	again := s.claimFirst(runs[0])
	if _, err := s.Runs().End(t.Context(), again, engine.End{Requeue: true, WaitingFor: "The agent is away.", Pause: longLease}, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	want(1, "while one waits for its runner")
}
