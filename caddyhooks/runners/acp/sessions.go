package acp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// openSessions are the sessions that are open in a process.
type openSessions struct {
	most int

	mu  sync.Mutex
	all map[string]*openSession
}

// openSession is an open session.
type openSession struct {
	id    string
	chat  string // whose it is
	mark  string // in the environment of its processes, "" if the agent has no way for that
	model string // that was set, "" for the one that it had at first
	setup acpclient.Session
	turns int
	used  time.Time
	cost  usage.Number // of its turns so far, nil if it is not known
}

func newOpenSessions(most int) *openSessions {
	return &openSessions{most: most, all: make(map[string]*openSession)}
}

// open returns the session of that id if it is the chat's. Agents may give a session the name that one of another chat had in a process
// before.
func (s *openSessions) open(id, chat string) *openSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.all[id]; session != nil && session.chat == chat {
		return session
	}
	return nil
}

// others reports whether the session of that id is another chat's.
func (s *openSessions) others(id, chat string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.all[id]
	return session != nil && session.chat != chat
}

// begin notes that a turn uses a session, and returns one that has to be closed for it, if any.
func (s *openSessions) begin(session *openSession) (tooMany *openSession) {
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

func (s *openSessions) end(session *openSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.turns--
	session.used = time.Now()
}

func (s *openSessions) forget(session *openSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[session.id] == session {
		delete(s.all, session.id)
	}
}

// sessionFor is the session of a chat with the model that it is to have. A new one that could not be given the model is closed.
func (a *ACP) sessionFor(ctx context.Context, agent *agentProcess, id string, kind sessionKind) (
	session *openSession, renewed bool, err error,
) {
	atOpening := a.preset.ownModel != ""
	if atOpening {
		if kind.model == "" && len(a.Tiers) > 0 {
			kind.model = a.preset.ownModel // or the session would go on with that of the last turn
		}
		if old := agent.sessions.open(id, kind.chat); old != nil && old.model != kind.model {
			agent.shut(ctx, old)
		}
	}
	session, renewed, err = a.openSession(ctx, agent, id, kind)
	if err != nil {
		return nil, false, err
	}
	if atOpening {
		session.model = kind.model
		return session, renewed, nil
	}
	err = agent.setModel(ctx, session, kind.model)
	var rejected *acpclient.Rejected
	if errors.As(err, &rejected) && session.model != "" && agent.can.Resume && agent.can.Close {
		// Codex cannot go back to a model that is not on its list, but begins with it.
		agent.shut(ctx, session)
		if session, renewed, err = a.openSession(ctx, agent, session.id, kind); err != nil {
			return nil, false, err
		}
		err = agent.setModel(ctx, session, kind.model)
	}
	switch {
	case err == nil || agent.has(session.id, kind.chat):
	case session.id == id: // the next turn of the chat wants it
		if old := agent.sessions.begin(session); old != nil {
			agent.closeSession(old)
		}
		agent.sessions.end(session)
	default:
		agent.closeSession(session)
	}
	return session, renewed, err
}

// shut closes a session that is to be opened again, so that it gets other options.
func (agent *agentProcess) shut(ctx context.Context, session *openSession) {
	agent.sessions.forget(session)
	if agent.can.Close {
		_ = agent.client.CloseSession(ctx, session.id) // what matters is that it can be opened
	}
}

// openSession opens the session of a chat, or makes a new one: if the chat has none, or if the agent has lost it.
func (a *ACP) openSession(ctx context.Context, agent *agentProcess, id string, kind sessionKind) (
	session *openSession, renewed bool, err error,
) {
	var meta map[string]any
	if a.preset.meta != nil {
		meta = a.preset.meta(kind)
	} else {
		kind.mark = ""
	}
	open := func(setup acpclient.Session, err error) (*openSession, error) {
		if err != nil {
			return nil, err
		}
		if setup.ID == "" {
			return nil, errors.New("the agent gave its session no name")
		}
		if agent.sessions.others(setup.ID, kind.chat) {
			return nil, errors.New("the agent gave two chats the same session")
		}
		session := &openSession{id: setup.ID, chat: kind.chat, mark: kind.mark, setup: setup}
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
			session, err = open(agent.load(ctx, id, meta, a.replayQuiet))
			a.tidy(agent, id)
		default:
			err = &acpclient.Rejected{}
		}
		var rejected *acpclient.Rejected
		if err == nil || !errors.As(err, &rejected) {
			return session, false, err
		}
	}
	if session, err = open(agent.client.NewSession(ctx, agent.dir, meta)); err == nil {
		session.cost = usage.Number("0")
	}
	return session, id != "" && err == nil, err
}

const (
	replayQuiet    = 500 * time.Millisecond
	replayPatience = 20 * time.Second
)

// load opens a session of which the agent repeats the conversation. Some agents do that while they answer already: an agent that says
// nothing for a while is through with it.
func (agent *agentProcess) load(
	ctx context.Context, id string, meta map[string]any, quietTime time.Duration,
) (acpclient.Session, error) {
	replay := &replayListener{heard: make(chan struct{}, 1)}
	defer agent.client.Listen(id, replay)()
	session, err := agent.client.LoadSession(ctx, id, agent.dir, meta)
	if err != nil {
		return session, err
	}
	longest := time.NewTimer(replayPatience)
	defer longest.Stop()
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-replay.heard:
			quiet.Reset(quietTime)
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

// replayListener notes that an agent repeats what was said.
type replayListener struct{ heard chan struct{} }

func (r *replayListener) Update(acpclient.Update, int) {
	select {
	case r.heard <- struct{}{}:
	default:
	}
}

func (r *replayListener) Permission(acpclient.PermissionRequest) (string, func(context.Context) string) {
	return "", nil
}

// setModel sets the model of a session, unless it has that model already. Without a model it gets back the one that it had at first.
func (agent *agentProcess) setModel(ctx context.Context, session *openSession, model string) error {
	if model == session.model {
		return nil
	}
	choose := func(first string) string {
		if model == "" {
			return first
		}
		return model
	}
	err := errors.New("the agent has no option for the model")
	if option, first := session.setup.ModelOption(); option != "" {
		err = agent.client.SetOption(ctx, session.id, option, choose(first))
	}
	if models := session.setup.Models; err != nil && models != nil {
		err = agent.client.SetModel(ctx, session.id, choose(models.Current))
	}
	if err != nil {
		return fmt.Errorf("setting the model %s: %w", model, err)
	}
	session.model = model
	return nil
}
