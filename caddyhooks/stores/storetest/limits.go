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
	{"runs that are claimed or ended take no room", roomIsMade},
	{"of a run that was refused nothing stays", nothingStays},
	{"a limit holds when runs are added at once", limitHoldsAtOnce},
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
