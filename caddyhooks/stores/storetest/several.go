package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var severalChecks = []check{
	{"several runs are added or none is", severalOrNone},
	{"a repeated request is told about all its runs", severalRepeated},
	{"the key of several runs stays, whatever becomes of the first", severalKeepTheirKey},
	{"a repeated signature is a repeated request", repeatedSignature},
	{"a signature is known again when its run is forgotten", signatureOutlivesItsRun},
	{"a refused request is stored only if it never is", refusedUnlessRepeated},
}

// tryAddAll adds several runs.
func (s *store) tryAddAll(terms engine.Terms, runs ...*engine.Run) error {
	return s.Runs().AddAll(s.t.Context(), runs, terms)
}

// addAll adds several runs that must be taken.
func (s *store) addAll(runs ...*engine.Run) {
	s.t.Helper()
	if err := s.tryAddAll(engine.Terms{}, runs...); err != nil {
		s.t.Fatalf("adding %d runs: %v", len(runs), err)
	}
	for _, run := range runs {
		s.isNow("AcceptedAt", run.AcceptedAt)
	}
}

// siblings are some runs as the first of them names them.
func siblings(runs ...*engine.Run) (together []engine.Sibling) {
	for _, run := range runs {
		together = append(together, engine.Sibling{ID: run.ID, ChatID: run.ChatID})
	}
	return together
}

// repeated expects a run to be refused since it repeats another one, whose siblings are these.
func (s *store) repeated(limits engine.Limits, first, run *engine.Run, sameBody bool, together ...engine.Sibling) {
	s.t.Helper()
	var duplicate *engine.DuplicateError
	if err := s.tryAdd(run, limits); !errors.As(err, &duplicate) {
		s.t.Fatalf("a repeated request: got %v, want a DuplicateError", err)
	}
	if duplicate.First.ID != first.ID || duplicate.SameBody != sameBody || !slices.Equal(duplicate.First.Together, together) {
		s.t.Errorf("it repeats %s with %v, the same body: %v, want %s with %v, %v",
			duplicate.First.ID, duplicate.First.Together, duplicate.SameBody, first.ID, together, sameBody)
	}
}

func severalOrNone(t *testing.T, s *store) {
	first := s.addTo("a")[0]
	runs := []*engine.Run{keyed("a", newKey()), newRun("b"), newRun("a")}
	for _, c := range []struct {
		terms engine.Terms
		want  error
	}{
		{engine.Terms{Limits: engine.Limits{Queue: 3}}, engine.ErrQueueFull},
		{engine.Terms{Limits: engine.Limits{Chat: 2}}, engine.ErrChatFull},
		{engine.Terms{Settings: 7}, engine.ErrSettingsChanged},
	} {
		if err := s.tryAddAll(c.terms, runs...); !errors.Is(err, c.want) {
			t.Errorf("adding with %+v: got %v, want %v", c.terms, err, c.want)
		}
	}
	s.lists(engine.Query{}, first)
	s.backlogIs(engine.Backlog{Queued: 1})
	if err := s.tryAddAll(engine.Terms{Limits: engine.Limits{Queue: 4, Chat: 3}}, runs...); err != nil {
		t.Fatal(err)
	}
	s.addAll() // none is none
	s.lists(engine.Query{}, append([]*engine.Run{first}, runs...)...)
}

func severalRepeated(t *testing.T, s *store) {
	runs := []*engine.Run{keyed("a", newKey()), newRun("b"), newRun("c")}
	s.addAll(runs...)
	for range 2 {
		s.repeated(engine.Limits{}, runs[0], keyed("d", runs[0].Key), true, siblings(runs...)...)
		s.repeated(engine.Limits{}, runs[0], keyed("d", another(runs[0].Key)), false, siblings(runs...)...)
	}
	again := []*engine.Run{keyed("a", runs[0].Key), newRun("b")}
	var duplicate *engine.DuplicateError
	if err := s.tryAddAll(engine.Terms{}, again...); !errors.As(err, &duplicate) || again[0].ID != "" {
		t.Errorf("adding the request again: %v", err)
	}
	s.lists(engine.Query{}, runs...)
}

func severalKeepTheirKey(_ *testing.T, s *store) {
	runs := []*engine.Run{keyed("a", newKey()), newRun("b")}
	s.addAll(runs...)
	s.endQueued(runs[0], endedAs(engine.Cancelled, ""))
	s.repeated(engine.Limits{}, runs[0], keyed("a", runs[0].Key), true, siblings(runs...)...)
	alone := keyed("c", newKey())
	alone.Together = make([]engine.Sibling, 1)
	s.addAll(alone)
	s.endQueued(alone, endedAs(engine.Cancelled, ""))
	s.add(keyed("c", alone.Key))
}

// signed makes a run with a key, and one of its signature.
func signed(key, replay *engine.Key) *engine.Run {
	run := keyed("a", key)
	run.Replay = replay
	return run
}

func repeatedSignature(t *testing.T, s *store) {
	first := signed(newKey(), newKey())
	s.add(first)
	s.repeated(engine.Limits{}, first, signed(newKey(), first.Replay), true)
	s.repeated(engine.Limits{}, first, signed(nil, first.Replay), true)
	s.repeated(engine.Limits{}, first, signed(first.Key, newKey()), true)
	s.repeated(engine.Limits{}, first, signed(another(first.Key), newKey()), false)
	s.repeated(engine.Limits{}, first, signed(another(first.Key), first.Replay), true)
	unkeyed := signed(nil, newKey())
	s.add(unkeyed)
	s.repeated(engine.Limits{}, unkeyed, signed(newKey(), unkeyed.Replay), true)
	s.repeated(engine.Limits{}, unkeyed, signed(first.Key, unkeyed.Replay), true)
	same(t, "the run", s.get(first.ID).Run, first)
}

// A run is forgotten seconds after its end, and its signature repeated nearly a day later.
func signatureOutlivesItsRun(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: 5 * time.Second, Keys: 10, KeyAge: 24 * time.Hour}
	first := signed(newKey(), newKey())
	s.carryOut(first, ended())
	for _, later := range []time.Duration{10 * time.Second, 30 * time.Second, 23 * time.Hour} {
		s.advance(later)
		s.prune(limits)
		s.gone(first.ID)
		if s.options.Reopen != nil {
			s.reopen()
		}
		s.repeated(limits, first, signed(newKey(), first.Replay), true)
		s.repeated(limits, first, signed(nil, first.Replay), true)
	}
}

func refusedUnlessRepeated(t *testing.T, s *store) {
	first := keyed("a", newKey())
	s.add(first)
	refuse := errors.New("too many")
	if err := s.tryAddAll(engine.Terms{Refuse: refuse}, newRun("a"), newRun("b")); !errors.Is(err, refuse) {
		t.Errorf("got %v, want the error of the terms", err)
	}
	var duplicate *engine.DuplicateError
	if err := s.tryAddAll(engine.Terms{Refuse: refuse}, keyed("a", first.Key)); !errors.As(err, &duplicate) {
		t.Errorf("got %v, want a DuplicateError", err)
	}
	s.lists(engine.Query{}, first)
}
