package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var sessionChecks = []check{
	{"there are none at first", func(_ *testing.T, s *store) { s.sessionIs("a runner", "a", "") }},
	{"the last session that a runner named for a chat is in force", lastSession},
	{"sessions of runners and chats are kept apart", sessionsApart},
	{"a session is kept as it was", sessionAsItWas},
	{"an end that names no session leaves the one before it", sessionLeft},
	{"a session is stored with every kind of end", sessionOfEveryEnd},
	{"a session is stored with a requeue", sessionOfRequeue},
	{"an end that is repeated does not name its session again", sessionOfRepeatedEnd},
	{"an end whose claim was lost names no session", sessionOfLostClaim},
	{"a session is forgotten when it was not named for as long as runs are kept", oldSessions},
	{"a session that is named again and again stays", sessionInUse},
	{"many sessions are forgotten in steps", manyOldSessions},
}

var durableSessionChecks = []check{
	{"sessions are there", durableSessions},
	{"old sessions are found", durableOldSessions},
}

var setClockSessionChecks = []check{
	{"a session stays when the clock is set back", sessionWithClockSetBack},
}

var nodeSessionChecks = []check{
	{"a session is in force on every node at once", sessionsOverNodes},
	{"a node that lost its run names no session", sessionOfLostNode},
	{"sessions are pruned by any node while others name them", sessionsPrunedByNodes},
}

// sessionIs expects a runner to have a session in a chat, "" for none.
func (s *store) sessionIs(runner, chat, want string) {
	s.t.Helper()
	got, err := s.Sessions().Get(s.t.Context(), runner, chat)
	if err != nil || got != want {
		s.t.Errorf("the session of runner %q in chat %q is %q, %v, want %q", runner, chat, got, err, want)
	}
}

// naming is an end that names a session.
func naming(end engine.End, runner, id string) engine.End {
	end.Session = engine.Session{Runner: runner, ID: id}
	return end
}

// name has a run of a chat name a session.
func (s *store) name(runner, chat, id string) {
	s.t.Helper()
	s.carryOut(newRun(chat), naming(ended(), runner, id))
}

func lastSession(_ *testing.T, s *store) {
	for _, id := range []string{"one", "two", "two", "a name that is longer than the one before it", "3"} {
		s.name("a runner", "a", id)
		s.sessionIs("a runner", "a", id)
	}
}

// Many of the pairs would be the same if one were just put after the other, also with a character between them.
func sessionsApart(_ *testing.T, s *store) {
	long := strings.Repeat("long", 100)
	pairs := [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"a", "b/c"}, {"a/b", "c"}, {"a", "b c"}, {"a b", "c"}, {"a", "b\x1fc"}, {"a\x1fb", "c"},
		{"a", "B C"}, {"2", "1ab"}, {"21", "ab"}, {"ä", "ü"}, {"a", long}, {"a", long + "er"}}
	for i, pair := range pairs {
		s.name(pair[0], pair[1], fmt.Sprint("session ", i))
	}
	for i, pair := range pairs {
		s.sessionIs(pair[0], pair[1], fmt.Sprint("session ", i))
		s.sessionIs(pair[0]+"x", pair[1], "")
		s.sessionIs(pair[0], pair[1]+"x", "")
	}
	s.name(pairs[1][0], pairs[1][1], "another")
	s.sessionIs(pairs[0][0], pairs[0][1], "session 0")
	s.sessionIs(pairs[1][0], pairs[1][1], "another")
}

func sessionAsItWas(_ *testing.T, s *store) {
	for i, id := range []string{" ", "ü ", "a\"b'c\\", strings.Repeat("x", engine.MaxSession), strings.Repeat("é", engine.MaxSession/2)} {
		chat := fmt.Sprint("chat ", i)
		s.name("a runner", chat, id)
		s.sessionIs("a runner", chat, id)
	}
}

func sessionLeft(_ *testing.T, s *store) {
	s.name("a runner", "a", "one")
	s.carryOut(newRun("a"), ended())
	s.carryOut(newRun("a"), naming(ended(), "a runner", ""))
	s.name("another", "a", "two")
	s.name("a runner", "b", "three")
	s.sessionIs("a runner", "a", "one")
}

func sessionOfEveryEnd(_ *testing.T, s *store) {
	for i, end := range []engine.End{endedAs(engine.Failed, engine.RunnerFailed), endedAs(engine.TimedOut, ""), endedAs(engine.Cancelled, ""),
		endedAs(engine.Failed, engine.RunnerUnavailable), endedWith(newDelivery(newRun("a"), 0))} {
		s.name("a runner", "a", fmt.Sprint("before ", i))
		run := newRun("a")
		s.add(run)
		claim := s.claimFirst(run)
		for j := range end.Deliveries {
			end.Deliveries[j] = newDelivery(run, j)
		}
		s.end(claim, naming(end, "a runner", fmt.Sprint("session ", i)))
		s.sessionIs("a runner", "a", fmt.Sprint("session ", i))
	}
}

func sessionOfRequeue(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	requeue := naming(engine.End{Requeue: true}, "a runner", "one")
	s.end(claim, requeue)
	s.sessionIs("a runner", "a", "one")
	s.status(run, engine.Queued, 0)
	s.end(claim, naming(requeue, "a runner", "late")) // it was done before
	s.sessionIs("a runner", "a", "one")
	again := s.claimFirst(run)
	s.endsNothing(claim, naming(requeue, "a runner", "late"))
	s.sessionIs("a runner", "a", "one")
	s.end(again, naming(engine.End{Requeue: true, WaitingFor: "The agent is away.", Pause: time.Minute}, "a runner", "two"))
	s.sessionIs("a runner", "a", "two")
}

func sessionOfRepeatedEnd(_ *testing.T, s *store) {
	runs := s.addTo("a", "a")
	claim := s.claimFirst(runs[0])
	end := naming(ended(), "a runner", "one")
	s.end(claim, end)
	s.isRepeated(claim, end)
	s.sessionIs("a runner", "a", "one")
	s.end(s.claimFirst(runs[1]), naming(ended(), "a runner", "two"))
	s.isRepeated(claim, end)
	s.isRepeated(claim, naming(ended(), "another", "three"))
	s.sessionIs("a runner", "a", "two")
	s.sessionIs("another", "a", "")
}

func sessionOfLostClaim(_ *testing.T, s *store) {
	s.name("a runner", "a", "one")
	run := s.addTo("a")[0]
	old := s.abandon(run)
	claim := s.reclaim(run)
	for _, end := range []engine.End{ended(), {Requeue: true}} {
		s.endsNothing(old, naming(end, "a runner", "of a lost claim"))
		s.endsNothing(&engine.Claim{Run: run, Token: "another"}, naming(end, "a runner", "of a token that never was"))
		s.endsNothing(queued(run), naming(end, "a runner", "of a run that is not queued"))
	}
	s.sessionIs("a runner", "a", "one")
	s.end(claim, naming(ended(), "a runner", "two"))
	s.sessionIs("a runner", "a", "two")
}

func oldSessions(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	s.name("a runner", "a", "one")
	s.advance(30 * time.Minute)
	s.name("a runner", "b", "two")
	s.advance(29 * time.Minute)
	s.sessionIs("a runner", "a", "one") // to ask for it is no use that counts
	s.prune(limits)
	s.sessionIs("a runner", "a", "one")
	s.advance(2 * time.Minute)
	s.prune(engine.Limits{KeyAge: time.Nanosecond, History: engine.NoHistory})
	s.sessionIs("a runner", "a", "one")
	s.prune(limits)
	s.sessionIs("a runner", "a", "")
	s.sessionIs("a runner", "b", "two")
	s.advance(30 * time.Minute)
	s.prune(limits)
	s.sessionIs("a runner", "b", "")
	s.name("a runner", "a", "three")
	s.prune(limits)
	s.sessionIs("a runner", "a", "three")
}

func sessionInUse(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	for range 5 {
		s.name("a runner", "a", "one")
		s.advance(40 * time.Minute)
		s.prune(limits)
		s.sessionIs("a runner", "a", "one")
	}
	s.advance(30 * time.Minute)
	s.prune(limits)
	s.sessionIs("a runner", "a", "")
	s.name("a runner", "a", "one")
	s.advance(50 * time.Minute)
	s.prune(limits)
	s.sessionIs("a runner", "a", "one")
}

func manyOldSessions(t *testing.T, s *store) {
	const many = 450
	for i := range many {
		s.name("a runner", fmt.Sprint("chat ", i), "one")
	}
	s.advance(time.Hour)
	s.name("a runner", "chat 7", "two")
	s.advance(30 * time.Minute)
	more, err := s.Prune(t.Context(), engine.Limits{Retention: time.Hour})
	if err != nil || !more {
		t.Errorf("the first step: %v, %v", more, err)
	}
	s.prune(engine.Limits{Retention: time.Hour})
	for i := range many {
		want := ""
		if i == 7 {
			want = "two"
		}
		s.sessionIs("a runner", fmt.Sprint("chat ", i), want)
	}
}

func durableSessions(_ *testing.T, s *store) {
	s.name("a runner", "a", "one")
	s.name("a runner", "b", "two")
	s.reopen()
	s.sessionIs("a runner", "a", "one")
	s.sessionIs("a runner", "b", "two")
	s.name("a runner", "a", "three")
	run := s.addTo("b")[0]
	s.end(s.claimFirst(run), naming(engine.End{Requeue: true}, "a runner", "four"))
	s.reopen()
	s.sessionIs("a runner", "a", "three")
	s.sessionIs("a runner", "b", "four")
}

func durableOldSessions(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	s.name("a runner", "a", "one")
	s.name("a runner", "b", "two")
	s.advance(40 * time.Minute)
	s.reopen()
	s.name("a runner", "b", "three")
	s.advance(30 * time.Minute)
	s.reopen()
	s.sessionIs("a runner", "a", "one")
	s.prune(limits)
	s.reopen()
	s.sessionIs("a runner", "a", "")
	s.sessionIs("a runner", "b", "three")
	s.advance(31 * time.Minute)
	s.prune(limits)
	s.reopen()
	s.sessionIs("a runner", "b", "")
}

// The clock is right again, and so is the time for which the session stays once it was named again.
func sessionWithClockSetBack(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	s.setClock(1000 * time.Hour)
	s.name("a runner", "a", "one")
	s.name("a runner", "b", "two")
	s.setClock(-1000 * time.Hour)
	s.prune(limits)
	s.sessionIs("a runner", "a", "one")
	s.name("a runner", "a", "three")
	s.prune(limits)
	s.sessionIs("a runner", "a", "three")
	s.sessionIs("a runner", "b", "two")
	s.advance(61 * time.Minute)
	s.prune(limits)
	s.sessionIs("a runner", "a", "")
}

func sessionsOverNodes(_ *testing.T, a *store) {
	b := a.join()
	a.name("a runner", "a", "one")
	b.sessionIs("a runner", "a", "one")
	b.name("a runner", "a", "two")
	a.sessionIs("a runner", "a", "two")

	// The next run of the chat is handed out in the same step.
	runs := a.addTo("a", "a")
	claim := a.claimFirst(runs[0])
	a.end(claim, naming(ended(), "a runner", "three"))
	next := b.claimFirst(runs[1])
	b.sessionIs("a runner", "a", "three")
	b.end(next, ended())
	a.close()
	b.sessionIs("a runner", "a", "three")
}

func sessionOfLostNode(_ *testing.T, a *store) {
	b := a.join()
	run := a.addTo("a")[0]
	old := a.abandon(run)
	claim := b.reclaim(run)
	a.endsNothing(old, naming(ended(), "a runner", "of the first node"))
	b.sessionIs("a runner", "a", "")
	b.end(claim, naming(ended(), "a runner", "of the second node"))
	a.endsNothing(old, naming(ended(), "a runner", "of the first node"))
	a.sessionIs("a runner", "a", "of the second node")
}

func sessionsPrunedByNodes(_ *testing.T, a *store) {
	b := a.join()
	limits := engine.Limits{Retention: time.Hour}
	for round := range 6 {
		a.name("a runner", "a", fmt.Sprint("one ", round))
		if round == 0 {
			a.name("a runner", "b", "two")
		}
		a.advance(45 * time.Minute)
		b.prune(limits)
		a.prune(limits)
		b.sessionIs("a runner", "a", fmt.Sprint("one ", round))
	}
	a.sessionIs("a runner", "b", "")
}
