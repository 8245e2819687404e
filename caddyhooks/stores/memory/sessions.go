package memory

import (
	"container/list"
	"context"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// sessionList keeps the sessions of chats. Those that were named longest ago are at the front.
type sessionList struct {
	places map[sessionKey]*list.Element // of *session
	order  list.List
	bytes  int
}

// sessionKey tells whose session it is.
type sessionKey struct{ runner, chat string }

// session is a session that is kept.
type session struct {
	sessionKey
	id    string
	named time.Time // last, by the steady clock: nobody has it for longer or shorter because the clock was set
}

// size is about what a session takes in memory.
func (s *session) size() int { return 256 + len(s.runner) + len(s.chat) + len(s.id) }

// put keeps a session in the place of the one before it.
func (l *sessionList) put(s *session) {
	if old := l.places[s.sessionKey]; old != nil {
		l.remove(old)
	}
	if l.places == nil {
		l.places = make(map[sessionKey]*list.Element)
	}
	l.places[s.sessionKey] = l.order.PushBack(s)
	l.bytes += s.size()
}

func (l *sessionList) remove(place *list.Element) {
	s := l.order.Remove(place).(*session)
	delete(l.places, s.sessionKey)
	l.bytes -= s.size()
}

// forgetOldest forgets the session that was named longest ago, if that was so long ago.
func (l *sessionList) forgetOldest(before time.Time) bool {
	oldest := l.order.Front()
	if oldest == nil || oldest.Value.(*session).named.After(before) {
		return false
	}
	l.remove(oldest)
	return true
}

// nameSession keeps the session that an end names.
func (s runs) nameSession(claim *engine.Claim, named engine.Session) {
	if named.ID != "" {
		key := sessionKey{strings.Clone(named.Runner), strings.Clone(claim.Run.ChatID)} // or what they were cut out of would stay
		s.sessions.put(&session{key, strings.Clone(named.ID), s.clock.Steady()})
	}
}

func (s sessions) Get(_ context.Context, runner, chat string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if place := s.Data.sessions.places[sessionKey{runner, chat}]; place != nil {
		return place.Value.(*session).id, nil
	}
	return "", nil
}
