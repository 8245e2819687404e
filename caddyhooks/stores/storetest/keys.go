package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var keyChecks = []check{
	{"a run with a used key is not stored", usedKey},
	{"the first run with a key is told about in every state", firstInEveryState},
	{"a full queue still knows its keys", fullQueueKnowsKeys},
	{"a key is free again when it is old enough", oldKey},
	{"a key is free again if its run gave no answer", freedKeys},
	{"a key that has passed on is not freed by its first run", keyPassedOn},
}

// keyed makes a run with a key of its own, or with that of another run.
func keyed(chat string, key *engine.Key) *engine.Run {
	run := newRun(chat)
	run.Key = key
	return run
}

// another is the same key with another body.
func another(key *engine.Key) *engine.Key {
	other := *key
	other.Body = newKey().Body
	return &other
}

// duplicateOf expects a run not to be stored because its key belongs to first.
func (s *store) duplicateOf(first, run *engine.Run, limits engine.Limits) {
	s.t.Helper()
	err := s.tryAdd(run, limits)
	var duplicate *engine.DuplicateError
	if !errors.As(err, &duplicate) {
		s.t.Fatalf("a run with a used key: got %v, want a DuplicateError", err)
	}
	if same := first.Key.Body == run.Key.Body; duplicate.SameBody != same {
		s.t.Errorf("SameBody is %v, want %v", duplicate.SameBody, same)
	}
	got := duplicate.First
	if got.ID != first.ID || got.ChatID != first.ChatID || got.Action != first.Action || got.Sync != first.Sync {
		s.t.Errorf("the first is said to be %s %s %s sync=%v, want %s %s %s sync=%v",
			got.ID, got.ChatID, got.Action, got.Sync, first.ID, first.ChatID, first.Action, first.Sync)
	}
}

func usedKey(_ *testing.T, s *store) {
	first := keyed("a", newKey())
	first.Sync = true
	second := keyed("b", newKey())
	second.Action = engine.Wake
	s.add(first, second)
	for range 2 {
		s.duplicateOf(first, keyed("a", first.Key), engine.Limits{})
		s.duplicateOf(first, keyed("a", another(first.Key)), engine.Limits{})
		s.duplicateOf(second, keyed("c", second.Key), engine.Limits{})
		s.duplicateOf(second, keyed("b", another(second.Key)), engine.Limits{})
	}
	s.lists(engine.Query{}, first, second)
	s.claimAll(first, second)
}

func firstInEveryState(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour, Keys: 100, KeyAge: 24 * time.Hour}
	first := keyed("a", newKey())
	first.Sync = true
	duplicate := func() {
		s.t.Helper()
		s.duplicateOf(first, keyed("b", first.Key), limits)
		s.duplicateOf(first, keyed("b", another(first.Key)), limits)
	}
	s.add(first)
	duplicate()
	claim := s.claimFirst(first)
	duplicate()
	s.requeue(claim)
	duplicate()
	s.abandon(first)
	claim = s.reclaim(first)
	duplicate()
	s.end(claim, ended())
	duplicate()
	s.advance(2 * time.Hour)
	s.prune(limits)
	s.gone(first.ID)
	duplicate()
	s.lists(engine.Query{})
}

// oneOfManyIsStored has callers of all nodes add runs with the same key at once.
func oneOfManyIsStored(first, second *store) {
	t, nodes := first.t, []*store{first, second}
	const rounds, callers = 10, 8
	for range rounds {
		key := newKey()
		var mu sync.Mutex
		var stored, refused []string
		var adders sync.WaitGroup
		for i := range callers {
			adders.Go(func() {
				run := keyed("a", key)
				err := nodes[i%len(nodes)].tryAdd(run, engine.Limits{})
				mu.Lock()
				defer mu.Unlock()
				var duplicate *engine.DuplicateError
				switch {
				case err == nil:
					stored = append(stored, run.ID)
				case errors.As(err, &duplicate):
					refused = append(refused, duplicate.First.ID)
				default:
					t.Error(err)
				}
			})
		}
		adders.Wait()
		if len(stored) != 1 || len(refused) != callers-1 {
			t.Fatalf("%d were stored and %d refused", len(stored), len(refused))
		}
		for _, id := range refused {
			if id != stored[0] {
				t.Errorf("refused as a duplicate of %s, want %s", id, stored[0])
			}
		}
	}
	if n := len(nodes[0].list(engine.Query{})); n != rounds {
		t.Errorf("there are %d runs, want %d", n, rounds)
	}
}

func fullQueueKnowsKeys(_ *testing.T, s *store) {
	first := keyed("a", newKey())
	s.add(first)
	for _, limits := range []engine.Limits{{Queue: 1}, {Chat: 1}, {Queue: 1, Chat: 1}} {
		s.duplicateOf(first, keyed("a", first.Key), limits)
		s.duplicateOf(first, keyed("a", another(first.Key)), limits)
	}
	s.refuse(keyed("a", newKey()), engine.Limits{Queue: 1}, engine.ErrQueueFull)
}

func oldKey(t *testing.T, s *store) {
	limits := engine.Limits{KeyAge: 24 * time.Hour}
	first := keyed("a", newKey())
	s.add(first)
	s.duplicateOf(first, keyed("a", first.Key), limits)
	s.duplicateOf(first, keyed("a", first.Key), engine.Limits{}) // 0 is no limit
	s.advance(23 * time.Hour)
	s.duplicateOf(first, keyed("a", first.Key), limits)
	s.advance(2 * time.Hour)
	s.duplicateOf(first, keyed("a", first.Key), engine.Limits{})
	s.duplicateOf(first, keyed("a", first.Key), engine.Limits{KeyAge: 48 * time.Hour})
	second := keyed("b", another(first.Key))
	s.addWithin(limits, second)
	s.duplicateOf(second, keyed("a", second.Key), limits)
	s.duplicateOf(second, keyed("a", first.Key), limits)
	s.lists(engine.Query{}, first, second)
	same(t, "the first run", s.get(first.ID).Run, first)
	s.claimAll(first, second)
}

func freedKeys(t *testing.T, s *store) {
	for end, isFree := range map[[2]string]bool{
		{string(engine.Completed)}: false, {string(engine.TimedOut)}: false, {string(engine.Failed), string(engine.RunnerFailed)}: false,
		{string(engine.Failed), string(engine.SchemaUnmet)}: false, {string(engine.Cancelled)}: true,
		{string(engine.Failed), string(engine.RunnerUnavailable)}: true, {string(engine.Failed), string(engine.ShuttingDown)}: true,
		{string(engine.Failed), string(engine.Interrupted)}: true,
	} {
		first := keyed("a", newKey())
		s.carryOut(first, endedAs(engine.Status(end[0]), engine.Failure(end[1])))
		again := keyed("a", first.Key)
		if err := s.tryAdd(again, engine.Limits{}); (err == nil) != isFree {
			t.Errorf("a repeated request after %v: %v", end, err)
		} else if isFree {
			s.endQueued(again, ended())
		}
	}
}

func keyPassedOn(t *testing.T, s *store) {
	// Because it was too old.
	first := keyed("a", newKey())
	s.add(first)
	s.advance(2 * time.Hour)
	second := keyed("b", first.Key)
	s.addWithin(engine.Limits{KeyAge: time.Hour}, second)
	// By now the first is too old and the second is not.
	s.prune(engine.Limits{KeyAge: time.Hour})
	s.duplicateOf(second, keyed("c", first.Key), engine.Limits{})
	s.endQueued(first, endedAs(engine.Cancelled, ""))
	s.duplicateOf(second, keyed("c", first.Key), engine.Limits{})

	// Because there were too many.
	third := keyed("c", newKey())
	if err := s.tryAdd(third, engine.Limits{Keys: 1}); err != nil {
		t.Fatal(err)
	}
	fourth := keyed("d", second.Key)
	if err := s.tryAdd(fourth, engine.Limits{Keys: 1}); err != nil {
		t.Fatal(err)
	}
	s.endQueued(second, endedAs(engine.Cancelled, ""))
	s.duplicateOf(fourth, keyed("e", second.Key), engine.Limits{})
	s.claimAll(third, fourth)
}
