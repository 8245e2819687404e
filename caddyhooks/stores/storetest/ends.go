package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var endChecks = []check{
	{"the end of a run lets the next one of its chat be claimed in the same step", finishClaimsNext},
	{"the end of a run claims what else is wanted", finishClaimsOthers},
	{"ends are final", endsAreFinal},
	{"a queued run is withdrawn, and the others keep their order", withdrawKeepsOrder},
	{"a run that was withdrawn has ended like any other", withdrawIsAnEnd},
	{"what is not queued cannot be withdrawn", onlyQueuedIsWithdrawn},
	{"a run that was given back can be withdrawn", givenBackIsWithdrawn},
	{"a failed call changes nothing", cancelledContext},
}

func isClaimLost(err error) bool { return errors.Is(err, engine.ErrClaimLost) }

func finishClaimsNext(t *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	claim := s.claimFirst(runs[0])
	for _, run := range runs[1:] {
		next := s.finishAnd(claim, ended(), wanting(5))
		s.sameRuns("claimed", next, run)
		claim = next[0]
		s.status(run, engine.Running, 1)
		s.claimAll()
	}
	if next := s.finishAnd(claim, ended(), wanting(5)); len(next) > 0 {
		t.Errorf("got %d runs more", len(next))
	}
	// A claim that was got like this can be lost as well.
	runs = s.addTo("a", "a")
	next := s.finishAnd(s.claimFirst(runs[0]), ended(), engine.Want{Runs: 1, Lease: shortLease})
	s.sameRuns("claimed", next, runs[1])
	if again := s.reclaim(runs[1]); again.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", again.Attempt)
	}
	s.isLost(next[0])
}

func finishClaimsOthers(_ *testing.T, s *store) {
	claim := s.claimFirst(s.addTo("a")[0])
	runs := s.addTo("a", "b", "b", "c")
	s.sameRuns("claimed", s.finishAnd(claim, ended(), wanting(10)), runs[0], runs[1], runs[3])
	s.claimAll()
}

func endsAreFinal(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	first := ended()
	first.Outcome.Text = "the first answer"
	first.Deliveries = []*engine.Delivery{newDelivery(run, 0, time.Now())}
	s.finish(claim, first)
	before := s.get(run.ID)
	due, _ := s.due(time.Now(), 10)
	if len(due) != 1 {
		t.Fatalf("got %d deliveries", len(due))
	}

	s.addTo("b")
	s.isLost(claim)
	if err := s.Withdraw(t.Context(), run.ID, endedAs(engine.Cancelled, "")); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("withdrawing it: got %v, want ErrNotFound", err)
	}
	same(t, "the run", s.get(run.ID), before)
	if text := s.get(run.ID).Outcome.Text; text != "the first answer" {
		t.Errorf("the answer is %q now", text)
	}
	if n := len(s.claim(10)); n != 1 {
		t.Errorf("claimed %d runs, want just the other one", n)
	}
}

func withdrawKeepsOrder(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a", "a", "a", "a", "b")
	s.withdraw(runs[0], ended())
	s.withdraw(runs[3], ended())
	s.withdraw(runs[5], ended())
	claims := s.claimAll(runs[1], runs[6])
	s.withdraw(runs[2], ended()) // it waited for one that is claimed
	s.claimAll()
	for _, claim := range claims {
		s.finish(claim, ended())
	}
	s.claimThrough(runs[4])
}

func withdrawIsAnEnd(t *testing.T, s *store) {
	runs := []*engine.Run{fullRun(t, "a"), fullRun(t, "a")}
	s.add(runs...)
	due := time.Now().Add(-time.Minute)
	end := endedAs(engine.TimedOut, "")
	end.Deliveries = []*engine.Delivery{newDelivery(runs[0], 0, due), newDelivery(runs[0], 1, due.Add(time.Second))}
	s.withdraw(runs[0], end)
	want := recordOf(runs[0], end)
	same(t, "the run", s.get(runs[0].ID), want)
	got, _ := s.due(time.Now(), 10)
	same(t, "its deliveries", got, end.Deliveries)
	s.claimThrough(runs[1])
}

func onlyQueuedIsWithdrawn(t *testing.T, s *store) {
	runs := s.addTo("claimed", "ended", "withdrawn", "pruned", "queued")
	s.withdraw(runs[3], endedAs(engine.Cancelled, ""))
	s.prune(time.Now().Add(2*time.Hour), engine.Limits{Retention: time.Hour})
	s.withdraw(runs[2], endedAs(engine.Cancelled, ""))
	var held *engine.Claim
	for _, claim := range s.claimAll(runs[0], runs[1], runs[4]) {
		switch claim.Run.ChatID {
		case "claimed":
			held = claim
		case "ended":
			s.finish(claim, ended())
		case "queued":
			s.release(claim)
		}
	}
	before := map[string]*engine.Record{}
	for _, run := range runs[:3] {
		before[run.ID] = s.get(run.ID)
	}

	queued := runs[4].ID
	for what, id := range map[string]string{
		"a claimed run":   runs[0].ID,
		"an ended run":    runs[1].ID,
		"a withdrawn run": runs[2].ID,
		"a pruned run":    runs[3].ID,
		"an unknown run":  uuid.Must(uuid.NewV7()).String(),
		"nothing":         "",
		"half an id":      queued[:18],
		"more than an id": queued + "0",
		"no id":           strings.Repeat("z", len(queued)),
		"NUL":             "\x00",
	} {
		end := endedAs(engine.Cancelled, "")
		end.Deliveries = []*engine.Delivery{newDelivery(&engine.Run{ID: id, ChatID: "a"}, 0, time.Now())}
		if err := s.Withdraw(t.Context(), id, end); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("withdrawing %s: got %v, want ErrNotFound", what, err)
		}
	}
	for id, record := range before {
		same(t, "the run", s.get(id), record)
	}
	s.noneDue()
	s.finish(held, ended())
	s.claimThrough(runs[4])
}

func givenBackIsWithdrawn(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	s.release(s.claimFirst(runs[0]))
	s.withdraw(runs[0], ended())
	s.status(runs[0], engine.Completed, 0)

	s.abandon(runs[1])
	s.release(s.reclaim(runs[1]))
	s.withdraw(runs[1], ended())
	s.status(runs[1], engine.Completed, 1)
	s.claimThrough(runs[2])
}

// A call whose caller is gone may fail or not. What it reports has to be true.
func cancelledContext(t *testing.T, s *store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	run := newRun("a")
	if err := s.Add(ctx, run, engine.Limits{}); err != nil {
		s.lists(engine.Query{})
		s.add(run)
	}
	s.lists(engine.Query{}, run)

	claims, err := s.Claim(ctx, wanting(1))
	if err != nil {
		s.status(run, engine.Queued, 0)
		claims = s.claim(1)
	}
	s.sameRuns("claimed", claims, run)

	end := ended()
	end.Deliveries = []*engine.Delivery{newDelivery(run, 0, time.Now())}
	if _, err := s.Finish(ctx, claims[0], end, wanting(1)); err != nil {
		s.status(run, engine.Running, 1)
		s.noneDue()
		s.finish(claims[0], end)
	}
	s.status(run, engine.Completed, 1)
	if due, _ := s.due(time.Now(), 10); len(due) != 1 {
		t.Errorf("got %d deliveries, want 1", len(due))
	}
}
