package storetest

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var minuteChecks = []check{
	{"a minute is kept as it was", keptMinute},
	{"minutes are loaded from a time on, the oldest first", minutesFromATime},
	{"a minute that is saved again is replaced", minuteSavedAgain},
	{"minutes of the same time are kept apart", minutesOfTheSameTime},
	{"minutes are forgotten after a week", oldMinutes},
}

// aMinute is when the minutes of the checks begin.
var aMinute = time.Date(2026, 5, 17, 10, 0, 0, 0, time.UTC)

// minuteAt is a minute so many minutes later, in which something happened.
func minuteAt(n int) engine.Minute {
	return engine.Minute{At: aMinute.Add(time.Duration(n) * time.Minute), Part: uint64(n + 1), Accepted: int64(n + 1)}
}

// fullMinute has something in every field.
func fullMinute() engine.Minute {
	m := minuteAt(0)
	m.Completed, m.Failed, m.TimedOut, m.Cancelled, m.Expired = 1<<40, 3, 4, 5, 6
	m.Answered2xx, m.Answered4xx, m.Answered5xx, m.Delivered, m.Dead = 7, 8, 9, 10, 11
	m.Ignored, m.Challenges = 20, 21
	m.Queued, m.Oldest, m.Longest = 12, 13*time.Second+14*time.Nanosecond, time.Hour
	var hook engine.HookMinute
	hook.Accepted, hook.Ended, hook.Failed, hook.Last, hook.Longest = 15, 19, 16, aMinute.Add(17*time.Second), 18*time.Second
	for i := range m.Durations {
		m.Durations[i] = int64(i) * 1000
	}
	for i := range hook.Durations {
		hook.Durations[i] = int64(len(hook.Durations) - i)
	}
	m.Hooks = map[string]engine.HookMinute{"github": hook, "": {Accepted: 1}, "a.b_c-1": {Failed: 2}}
	return m
}

func (s *store) saveMinutes(minutes ...engine.Minute) {
	s.t.Helper()
	if err := s.Minutes().Save(s.t.Context(), minutes...); err != nil {
		s.t.Fatalf("saving minutes: %v", err)
	}
}

// minutesAre expects the minutes from a time on.
func (s *store) minutesAre(since time.Time, want ...engine.Minute) {
	s.t.Helper()
	got, err := s.Minutes().Load(s.t.Context(), since)
	if err != nil {
		s.t.Fatalf("loading minutes: %v", err)
	}
	if len(got) != len(want) {
		s.t.Fatalf("there are %d minutes, want %d", len(got), len(want))
	}
	for i := range got {
		if !sameMinute(got[i], want[i]) {
			s.t.Errorf("minute %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
}

// sameMinute compares minutes, whatever zone their times are in.
func sameMinute(a, b engine.Minute) bool {
	for _, m := range []*engine.Minute{&a, &b} {
		m.At = m.At.UTC()
		hooks := map[string]engine.HookMinute{}
		for name, hook := range m.Hooks {
			hook.Last = hook.Last.UTC()
			hooks[name] = hook
		}
		m.Hooks = hooks
	}
	return reflect.DeepEqual(a, b)
}

func keptMinute(_ *testing.T, s *store) {
	mine := fullMinute()
	s.saveMinutes(mine)
	clear(mine.Hooks) // it is the caller's, to use for something else
	s.minutesAre(time.Time{}, fullMinute())
	loaded, err := s.Minutes().Load(s.t.Context(), time.Time{})
	if err != nil {
		s.t.Fatal(err)
	}
	clear(loaded[0].Hooks)
	s.minutesAre(time.Time{}, fullMinute())
}

func minutesFromATime(_ *testing.T, s *store) {
	s.saveMinutes(minuteAt(3), minuteAt(1))
	s.saveMinutes(minuteAt(2))
	s.saveMinutes()
	s.minutesAre(aMinute, minuteAt(1), minuteAt(2), minuteAt(3))
	s.minutesAre(minuteAt(2).At, minuteAt(2), minuteAt(3))
	s.minutesAre(minuteAt(2).At.Add(time.Nanosecond), minuteAt(3))
	s.minutesAre(minuteAt(4).At)
}

func minuteSavedAgain(_ *testing.T, s *store) {
	for range 2 {
		s.saveMinutes(minuteAt(1))
	}
	s.saveMinutes(minuteAt(1), minuteAt(2))
	s.minutesAre(aMinute, minuteAt(1), minuteAt(2))
	grown := minuteAt(1) // it was under way
	grown.Accepted, grown.Hooks = 9, map[string]engine.HookMinute{"a": {Accepted: 9}}
	s.saveMinutes(grown)
	s.minutesAre(aMinute, grown, minuteAt(2))
}

func minutesOfTheSameTime(_ *testing.T, s *store) {
	first, second := minuteAt(1), minuteAt(1)
	second.Part, second.Accepted = 7, 8 // somebody set the clock back
	s.saveMinutes(first)
	s.saveMinutes(second)
	s.minutesAre(aMinute, first, second)
}

func oldMinutes(_ *testing.T, s *store) {
	const week = int(engine.KeptMinutes / time.Minute)
	s.saveMinutes(minuteAt(0), minuteAt(1), minuteAt(week))
	s.minutesAre(time.Time{}, minuteAt(0), minuteAt(1), minuteAt(week))
	s.saveMinutes(minuteAt(week + 1))
	s.minutesAre(time.Time{}, minuteAt(1), minuteAt(week), minuteAt(week+1))
}

var backlogChecks = []check{
	{"queued and running runs are counted, and the oldest that waits is known", backlogOfRuns},
	{"deliveries are counted by channel", countedByChannel},
	{"the size of the data is known", knownSize},
	{"dead deliveries of runs that are pruned do not count", countedWhenPruned},
}

func (s *store) backlogIs(want engine.Backlog) {
	s.t.Helper()
	got, err := s.Runs().Backlog(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.lasted("the wait of the oldest run", got.Oldest, want.Oldest)
	if got.Oldest, want.Oldest = 0, 0; got != want {
		s.t.Errorf("the backlog is %+v, want %+v", got, want)
	}
}

func backlogOfRuns(_ *testing.T, s *store) {
	s.add(newRun("a"))
	s.advance(time.Hour)
	second := newRun("b")
	s.add(second)
	s.advance(time.Hour)
	s.backlogIs(engine.Backlog{Queued: 2, Oldest: 2 * time.Hour})
	first := s.claimFor(100*time.Hour, 1)[0]
	s.backlogIs(engine.Backlog{Queued: 1, Running: 1, Oldest: time.Hour})
	s.requeue(first)
	s.backlogIs(engine.Backlog{Queued: 2, Oldest: 2 * time.Hour})
	s.endQueued(second, engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}})
	s.backlogIs(engine.Backlog{Queued: 1, Oldest: 2 * time.Hour})
	s.end(s.claim(1)[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}})
	s.backlogIs(engine.Backlog{})
}

// counts expects so many deliveries.
func (s *store) counts(pending, dead int) {
	s.t.Helper()
	gotPending, gotDead, err := s.Deliveries().Count(s.t.Context())
	if got, want := fmt.Sprint(gotPending, gotDead, err), fmt.Sprint(pending, dead, nil); got != want {
		s.t.Errorf("deliveries pending and dead: got %s, want %s", got, want)
	}
}

// countsBy expects so many deliveries of callbacks, which are under "", and of channels.
func (s *store) countsBy(want map[string]engine.Undelivered) {
	s.t.Helper()
	got, err := s.Deliveries().CountByChannel(s.t.Context())
	if err != nil || !maps.Equal(got, want) {
		s.t.Errorf("deliveries by channel: got %v (%v), want %v", got, err, want)
	}
}

func countedByChannel(_ *testing.T, s *store) {
	type by = map[string]engine.Undelivered
	s.countsBy(by{})
	s.endTo(3, func(*engine.Delivery) {})
	s.endTo(2, func(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "ops", "one" })
	s.endTo(1, func(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "a/b", "three" })
	s.endTo(1, func(d *engine.Delivery) { d.Callback, d.Channel, d.To = "", "zebra ✓", "two" })
	s.countsBy(by{"": {Pending: 3}, "ops": {Pending: 2}, "a/b": {Pending: 1}, "zebra ✓": {Pending: 1}})
	due, _ := s.due(6) // all but the second to the same chat
	for _, d := range due {
		s.settle(d, engine.Dead, 0, "gone")
	}
	s.countsBy(by{"": {Dead: 3}, "ops": {Pending: 1, Dead: 1}, "a/b": {Dead: 1}, "zebra ✓": {Dead: 1}})
	for _, d := range due {
		switch d.Channel {
		case "ops":
			s.retry(d)
		case "a/b":
			s.drop(d)
		}
	}
	want := by{"": {Dead: 3}, "ops": {Pending: 2}, "zebra ✓": {Dead: 1}}
	s.countsBy(want)
	if s.options.Reopen != nil {
		s.reopen()
		s.countsBy(want)
	}
	for range 2 {
		due, _ = s.due(1)
		s.settle(due[0], engine.Delivered, 0, "")
	}
	s.countsBy(by{"": {Dead: 3}, "zebra ✓": {Dead: 1}})
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour})
	s.countsBy(by{})
}

func knownSize(t *testing.T, s *store) {
	size := func() int64 {
		bytes, err := s.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before, chance := size(), random(1)
	for range 20 { // a store may have room for some of them, or give some back meanwhile
		run, message := newRun("a"), make([]byte, 1<<20)
		for i := range message {
			message[i] = byte('a' + chance.IntN(26)) // which cannot be made much shorter
		}
		run.Message = string(message)
		s.add(run)
		if size() > before {
			return
		}
	}
	t.Errorf("the size is %d with 20 long runs, and was %d before", size(), before)
}

func countedWhenPruned(_ *testing.T, s *store) {
	s.endWith(2)
	due, _ := s.due(2)
	s.settle(due[0], engine.Dead, 0, "gone")
	s.settle(due[1], engine.Delivered, 0, "")
	s.counts(0, 1)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour})
	s.counts(0, 0)
}
