package runners

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// acpSessions are the sessions that are open in a process.
type acpSessions struct {
	most int

	mu  sync.Mutex
	all map[string]*acpSession
}

// acpSession is an open session.
type acpSession struct {
	id    string
	chat  string // whose it is
	mark  string // in the environment of its processes, "" if the agent has no way for that
	model string // that was set, "" for the one that it had at first
	setup acpclient.Session
	turns int
	used  time.Time
}

// unknownModel stands for the model of an earlier turn, to which an agent may have returned. No model is called so.
const unknownModel = "?"

func newACPSessions(most int) *acpSessions {
	return &acpSessions{most: most, all: make(map[string]*acpSession)}
}

// open returns the session of that id if it is the chat's. Agents may give a session the name that one of another chat had in a process
// before.
func (s *acpSessions) open(id, chat string) *acpSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.all[id]; session != nil && session.chat == chat {
		return session
	}
	return nil
}

// others reports whether the session of that id is another chat's.
func (s *acpSessions) others(id, chat string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.all[id]
	return session != nil && session.chat != chat
}

// lone reports whether no turn uses a session.
func (s *acpSessions) lone(session *acpSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return session.turns == 0
}

// begin notes that a turn uses a session, and returns one that has to be closed for it, if any.
func (s *acpSessions) begin(session *acpSession) (tooMany *acpSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.turns++
	session.used = time.Now()
	s.all[session.id] = session
	if len(s.all) <= s.most {
		return nil
	}
	for _, other := range s.all {
		if other.turns == 0 && (tooMany == nil || other.used.Before(tooMany.used)) {
			tooMany = other
		}
	}
	if tooMany != nil {
		delete(s.all, tooMany.id)
	}
	return tooMany
}

func (s *acpSessions) end(session *acpSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.turns--
	session.used = time.Now()
}

func (s *acpSessions) forget(session *acpSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[session.id] == session {
		delete(s.all, session.id)
	}
}

// sessionFor is the session of a chat with the model that it is to have. A session that could not be given the model is closed.
func (a *ACP) sessionFor(ctx context.Context, agent *acpAgent, id string, kind acpSessionKind) (session *acpSession, renewed bool, err error) {
	session, renewed, err = a.openSession(ctx, agent, id, kind)
	if err != nil {
		return nil, false, err
	}
	err = a.setModel(ctx, agent, session, kind.model)
	var rejected *acpclient.Rejected
	if errors.As(err, &rejected) && a.preset.meta != nil && agent.can.Resume && agent.sessions.lone(session) {
		// A model that is not on the agent's list can only be given when a session is opened.
		agent.sessions.forget(session)
		session, renewed, err = a.openSession(ctx, agent, session.id, kind)
	}
	if err != nil && session != nil && !agent.has(session.id, kind.chat) {
		agent.closeSession(session)
	}
	return session, renewed, err
}

// openSession opens the session of a chat, or makes a new one: if the chat has none, or if the agent has lost it.
func (a *ACP) openSession(ctx context.Context, agent *acpAgent, id string, kind acpSessionKind) (session *acpSession, renewed bool, err error) {
	var meta map[string]any
	if a.preset.meta != nil {
		meta = a.preset.meta(kind)
	} else {
		kind.mark = ""
	}
	open := func(setup acpclient.Session, err error) (*acpSession, error) {
		if err != nil {
			return nil, err
		}
		if setup.ID == "" {
			return nil, errors.New("the agent gave its session no name")
		}
		if agent.sessions.others(setup.ID, kind.chat) {
			return nil, errors.New("the agent gave two chats the same session")
		}
		session := &acpSession{id: setup.ID, chat: kind.chat, mark: kind.mark, setup: setup}
		switch {
		case meta != nil && kind.model != "":
			session.model = kind.model
		case setup.ID == id && a.preset.ownModel != "" && len(a.tiers) > 0:
			session.model = unknownModel
		}
		if a.preset.mode != "" && setup.Modes.Current != a.preset.mode {
			if err := agent.client.SetMode(ctx, setup.ID, a.preset.mode); err != nil {
				agent.closeSession(session)
				return nil, fmt.Errorf("setting the mode %s: %w", a.preset.mode, err)
			}
		}
		return session, nil
	}
	if id != "" {
		if session := agent.sessions.open(id, kind.chat); session != nil {
			return session, false, nil
		}
		switch {
		case agent.sessions.others(id, kind.chat):
			err = &acpclient.Rejected{}
		case agent.can.Resume:
			session, err = open(agent.client.ResumeSession(ctx, id, agent.dir, meta))
		case agent.can.Load:
			session, err = open(agent.load(ctx, id, meta))
			a.tidy(agent, id)
		default:
			err = &acpclient.Rejected{}
		}
		var rejected *acpclient.Rejected
		if err == nil || !errors.As(err, &rejected) {
			return session, false, err
		}
	}
	session, err = open(agent.client.NewSession(ctx, agent.dir, meta))
	return session, id != "" && err == nil, err
}

const (
	replayQuiet    = 500 * time.Millisecond // without an update: the conversation has been repeated
	replayPatience = 20 * time.Second
)

// load opens a session of which the agent repeats the conversation. Some agents do that while they answer already: an agent that says
// nothing for a while is through with it.
func (agent *acpAgent) load(ctx context.Context, id string, meta map[string]any) (acpclient.Session, error) {
	replay := &acpReplay{heard: make(chan struct{}, 1)}
	defer agent.client.Listen(id, replay)()
	session, err := agent.client.LoadSession(ctx, id, agent.dir, meta)
	if err != nil {
		return session, err
	}
	longest := time.NewTimer(replayPatience)
	defer longest.Stop()
	quiet := time.NewTimer(replayQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-replay.heard:
			quiet.Reset(replayQuiet)
		case <-quiet.C:
			return session, nil
		case <-longest.C:
			return session, errors.New("the agent does not stop to repeat the conversation")
		case <-agent.client.Done():
			return session, agent.client.Err()
		case <-ctx.Done():
			return session, context.Cause(ctx)
		}
	}
}

// acpReplay notes that an agent repeats what was said.
type acpReplay struct{ heard chan struct{} }

func (r *acpReplay) Update(acpclient.Update, int) {
	select {
	case r.heard <- struct{}{}:
	default:
	}
}

func (r *acpReplay) Permission(acpclient.PermissionRequest) string { return "" }

// setModel sets the model of a session, unless it has that model already. Without a model it gets back the one that it had at first.
func (a *ACP) setModel(ctx context.Context, agent *acpAgent, session *acpSession, model string) error {
	if model == session.model {
		return nil
	}
	option, value := session.setup.ModelOption()
	switch {
	case model != "":
		value = model
	case a.preset.ownModel != "":
		value = a.preset.ownModel
	}
	err := errors.New("the agent has no option for the model")
	if option != "" {
		err = agent.client.SetOption(ctx, session.id, option, value)
	}
	if err != nil && session.setup.Models != nil {
		err = agent.client.SetModel(ctx, session.id, value)
	}
	if err != nil {
		return fmt.Errorf("setting the model %s: %w", value, err)
	}
	session.model = model
	return nil
}
