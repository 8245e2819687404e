package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var streamChecks = []check{
	{"what nobody follows can be sent", sentToNobody},
	{"a feed can be closed twice, and after its store", feedIsClosedLate},
}

func sentToNobody(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.sends(run.ID, engine.Frame{Turn: 1, Text: "hello"})
	s.sends("no id", engine.Frame{Turn: 1, Text: "hello"})
	feed := s.Streams().Follow("no id")
	feed.Ask()
	feed.Close()
	if wanted := s.Streams().Wanted(); len(wanted) != 0 {
		t.Errorf("it wants %v", wanted)
	}
}

func feedIsClosedLate(_ *testing.T, s *store) {
	feed, other := s.Streams().Follow("a"), s.Streams().Follow("a")
	feed.Close()
	feed.Close()
	feed.Ask()
	s.close()
	other.Ask()
	other.Close()
}

// sends sends a frame that nobody has to wait for.
func (s *store) sends(id string, frame engine.Frame) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.Streams().Send(ctx, id, frame); err != nil {
		s.t.Errorf("sending a frame: %v", err)
	}
}

// wants waits until other nodes want these runs of a node and no others.
func (s *store) wants(ids ...string) map[string]uint64 {
	s.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		wanted := s.Streams().Wanted()
		all := len(wanted) == len(ids)
		for _, id := range ids {
			_, ok := wanted[id]
			all = all && ok
		}
		if all {
			return wanted
		}
		select {
		case <-s.Streams().Asked():
		case <-timeout.C:
			s.t.Fatalf("others want %v, which is not %v", wanted, ids)
		}
	}
}

// isTold waits until a node is told that others want something else.
func (s *store) isTold() {
	s.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-s.Streams().Asked():
	case <-timeout.C:
		s.t.Fatal("the node is not told")
	}
}

// receives waits for a frame.
func receives(t *testing.T, feed engine.Feed) engine.Frame {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case frame := <-feed.Frames():
		return frame
	case <-timeout.C:
		t.Fatal("no frame came")
		return engine.Frame{}
	}
}

func noFrame(t *testing.T, feed engine.Feed) {
	t.Helper()
	select {
	case frame := <-feed.Frames():
		t.Errorf("a frame came: %+v", frame)
	default:
	}
}

func othersLearn(_ *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "b")
	select {
	case <-b.Streams().Asked(): // since it joined
	default:
	}
	first := a.Streams().Follow(runs[0].ID)
	b.isTold()
	b.wants(runs[0].ID)
	second := a.Streams().Follow(runs[1].ID)
	b.wants(runs[0].ID, runs[1].ID)
	first.Close()
	b.wants(runs[1].ID)
	second.Close()
	b.wants()
	a.wants()
}

func joiningNodeLearns(_ *testing.T, a *store) {
	run := a.addTo("a")[0]
	feed := a.Streams().Follow(run.ID)
	defer feed.Close()
	a.join().wants(run.ID)
}

func whoAsksAgainIsHeard(t *testing.T, a *store) {
	b, c := a.join(), a.join()
	run := a.addTo("a")[0]
	feed := a.Streams().Follow(run.ID)
	defer feed.Close()
	before := b.wants(run.ID)[run.ID]
	changes := func(what string) {
		t.Helper()
		timeout := time.NewTimer(patience)
		defer timeout.Stop()
		for {
			if now := b.Streams().Wanted()[run.ID]; now != before {
				before = now
				return
			}
			select {
			case <-b.Streams().Asked():
			case <-timeout.C:
				t.Fatalf("nothing was heard after %s", what)
			}
		}
	}
	feed.Ask()
	changes("a node asked again")
	other := c.Streams().Follow(run.ID)
	changes("another node asked")
	other.Ask()
	changes("another node asked again")
	feed.Ask()
	changes("a node asked for the third time")
	other.Close()
	b.wants(run.ID)
}

func wantedUntilTheLast(_ *testing.T, a *store) {
	b, c := a.join(), a.join()
	run := a.addTo("a")[0]
	feeds := []engine.Feed{a.Streams().Follow(run.ID), c.Streams().Follow(run.ID), c.Streams().Follow(run.ID), b.Streams().Follow(run.ID)}
	for i, feed := range feeds[:3] {
		b.wants(run.ID)
		feed.Close()
		if i == 0 {
			a.wants(run.ID)
		}
	}
	b.wants()
	a.wants(run.ID)
	feeds[3].Close()
	a.wants()
}

func closedNodeWantsNothing(_ *testing.T, a *store) {
	b, c := a.join(), a.join()
	run := a.addTo("a")[0]
	feed := c.Streams().Follow(run.ID)
	b.wants(run.ID)
	c.close()
	b.wants()
	feed.Ask()
	feed.Close()
	b.wants()
}

func framesArrive(t *testing.T, a *store) {
	b := a.join()
	run := a.addTo("a")[0]
	feed := a.Streams().Follow(run.ID)
	defer feed.Close()
	b.wants(run.ID)
	frames := []engine.Frame{
		{Turn: 1},
		{Turn: 1<<52 + 12345, Text: "hello", Said: 5},
		{Turn: 1 << 52, At: 5, Text: "quotes \"'\\ \u2028 \x00 \x7f é 漢字 🙂", Said: 1 << 20},
		{Turn: 1 << 52, At: 1<<20 - 1, Text: "half of a character \xe6\xbc", Over: true},
		{Turn: 2, Text: strings.Repeat("\x01", engine.MaxFrameText)},
		{Turn: 2, Text: strings.Repeat("漢", engine.MaxFrameText/3)},
		{Turn: 2, At: 4096, Said: 4096, Over: true},
	}
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		for range 20 {
			for _, frame := range frames {
				b.sends(run.ID, frame)
			}
		}
	})
	for i := range 20 * len(frames) {
		if got, want := receives(t, feed), frames[i%len(frames)]; got != want {
			t.Fatalf("frame %d is %+v, want %+v", i, got, want)
		}
	}
	noFrame(t, feed)
}

func framesArriveAtAll(t *testing.T, a *store) {
	b, c := a.join(), a.join()
	runs := a.addTo("a", "b")
	var feeds []engine.Feed
	for _, node := range []*store{a, c, c} {
		feed := node.Streams().Follow(runs[0].ID)
		defer feed.Close()
		feeds = append(feeds, feed)
	}
	other := a.Streams().Follow(runs[1].ID)
	defer other.Close()
	own := b.Streams().Follow(runs[0].ID)
	defer own.Close()
	b.wants(runs[0].ID, runs[1].ID)
	for i := range 3 {
		b.sends(runs[0].ID, engine.Frame{Turn: 1, At: i, Text: fmt.Sprint(i)})
		for _, feed := range feeds {
			if frame := receives(t, feed); frame.At != i {
				t.Errorf("frame %d is %+v", i, frame)
			}
		}
	}
	noFrame(t, other)
	noFrame(t, own)
}

func slowNodeIsNotWaitedFor(t *testing.T, a *store) {
	b := a.join()
	run := a.addTo("a")[0]
	feed := a.Streams().Follow(run.ID)
	b.wants(run.ID)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range 10_000 {
			if b.Streams().Send(ctx, run.ID, engine.Frame{Turn: 1, At: i, Text: "x"}) != nil {
				return
			}
		}
	})
	cancel()
	sender.Wait()
	// Nor does a feed hold it that is closed meanwhile.
	sender.Go(func() {
		for i := range 10_000 {
			b.sends(run.ID, engine.Frame{Turn: 1, At: i, Text: "x"})
		}
	})
	feed.Close()
	sender.Wait()
}
