package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var sessionChecks = []check{
	{"each runner has a session of its own in each chat", sessionsApart},
	{"a session comes back as it was named", sessionAsItWas},
	{"a session is stored with a requeue", sessionOfRequeue},
	{"a session is forgotten when it was not named for as long as runs are kept", oldSessions},
	{"a session that is named again and again stays", sessionInUse},
}

// sessionIs expects the runner to have a session in a chat, "" for none.
func (s *store) sessionIs(chat, want string) {
	s.t.Helper()
	got, err := s.Sessions().Get(s.t.Context(), "a runner", chat)
	if err != nil || got != want {
		s.t.Errorf("the session of the runner in chat %q is %q, %v, want %q", chat, got, err, want)
	}
}

// naming is an end that names a session.
func naming(end engine.End, id string) engine.End {
	end.Session = engine.Session{Runner: "a runner", ID: id}
	return end
}

// name has a run of a chat name a session.
func (s *store) name(chat, id string) {
	s.t.Helper()
	s.carryOut(newRun(chat), naming(ended(), id))
}

// Many of the pairs would be the same if one were just put after the other, also with a character between them.
func sessionsApart(t *testing.T, s *store) {
	long := strings.Repeat("long", 100)
	pairs := [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"a", "b/c"}, {"a/b", "c"}, {"a", "b c"}, {"a b", "c"}, {"a", "b\x1fc"}, {"a\x1fb", "c"},
		{"a", "B C"}, {"2", "1ab"}, {"21", "ab"}, {"ä", "ü"}, {"a", long}, {"a", long + "er"}}
	for i, pair := range pairs {
		end := ended()
		end.Session = engine.Session{Runner: pair[0], ID: fmt.Sprint("session ", i)}
		s.carryOut(newRun(pair[1]), end)
	}
	for i, pair := range pairs {
		for runner, want := range map[string]string{pair[0]: fmt.Sprint("session ", i), pair[0] + "x": ""} {
			if got, err := s.Sessions().Get(t.Context(), runner, pair[1]); err != nil || got != want {
				t.Errorf("the session of runner %q in chat %q is %q, %v, want %q", runner, pair[1], got, err, want)
			}
		}
	}
}

func sessionAsItWas(_ *testing.T, s *store) {
	for i, id := range []string{" ", "ü ", "a\"b'c\\", strings.Repeat("x", engine.MaxSession), strings.Repeat("é", engine.MaxSession/2)} {
		chat := fmt.Sprint("chat ", i)
		s.name(chat, id)
		s.sessionIs(chat, id)
	}
}

func sessionOfRequeue(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	requeue := naming(engine.End{Requeue: true}, "one")
	s.end(claim, requeue)
	s.sessionIs("a", "one")
	s.status(run, engine.Queued, 0)
	s.end(claim, naming(requeue, "late")) // it was done before
	s.sessionIs("a", "one")
	again := s.claimFirst(run)
	s.endsNothing(claim, naming(requeue, "late"))
	s.sessionIs("a", "one")
	s.end(again, naming(engine.End{Requeue: true, WaitingFor: "The agent is unreachable.", Pause: time.Minute}, "two"))
	s.sessionIs("a", "two")
}

func oldSessions(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	s.name("a", "one")
	s.advance(30 * time.Minute)
	s.name("b", "two")
	s.advance(29 * time.Minute)
	s.sessionIs("a", "one") // to ask for it is no use that counts
	s.prune(limits)
	s.sessionIs("a", "one")
	s.advance(2 * time.Minute)
	s.prune(engine.Limits{KeyAge: time.Nanosecond, History: engine.NoHistory})
	s.sessionIs("a", "one")
	s.prune(limits)
	s.sessionIs("a", "")
	s.sessionIs("b", "two")
	s.advance(30 * time.Minute)
	s.prune(limits)
	s.sessionIs("b", "")
	s.name("a", "three")
	s.prune(limits)
	s.sessionIs("a", "three")
}

func sessionInUse(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	for range 5 {
		s.name("a", "one")
		s.advance(40 * time.Minute)
		s.prune(limits)
		s.sessionIs("a", "one")
	}
	s.advance(30 * time.Minute)
	s.prune(limits)
	s.sessionIs("a", "")
	s.name("a", "one")
	s.advance(50 * time.Minute)
	s.prune(limits)
	s.sessionIs("a", "one")
}

// The clock is right again, and so is the time for which the session stays once it was named again.
func sessionWithClockSetBack(_ *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour}
	s.setClock(1000 * time.Hour)
	s.name("a", "one")
	s.name("b", "two")
	s.setClock(-1000 * time.Hour)
	s.prune(limits)
	s.sessionIs("a", "one")
	s.name("a", "three")
	s.prune(limits)
	s.sessionIs("a", "three")
	s.sessionIs("b", "two")
	s.advance(61 * time.Minute)
	s.prune(limits)
	s.sessionIs("a", "")
}
