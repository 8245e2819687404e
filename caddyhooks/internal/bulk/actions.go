package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Actions has the actions of a store. A node carries out those that were started on it, and those of nodes that are gone.
type Actions struct {
	engine *engine.Engine
	store  engine.Store
	log    func() *zap.Logger

	base context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu            sync.Mutex
	here          map[string]*carried // carried out by this node
	seen          map[string]sighting // carried out by others
	adopts, ended bool
}

// carried is an action that this node carries out.
type carried struct {
	cancel context.CancelCauseFunc
	next   *Action // the action as it was resumed while it was being stopped
}

// sighting is the last sign of life of an action that another node carries out.
type sighting struct {
	revision int64
	at       time.Time
}

const (
	// maxRunning bounds how many actions go on at once.
	maxRunning = 4
	// kept is how many actions are kept that have ended.
	kept = 50
	// beatEvery is how often a node shows that it carries out an action.
	beatEvery = 2 * time.Second
	// silence is how long an action may stand still before another node takes it over.
	silence = 15 * time.Second
)

var (
	ErrNotFound  = errors.New("there is no such bulk action")
	ErrMany      = fmt.Errorf("%d bulk actions are going on already: wait for one of them, or stop it", maxRunning)
	ErrEnded     = errors.New("the bulk action has ended")
	ErrIsRunning = errors.New("the bulk action is going on")
	errStopped   = errors.New("the bulk action was stopped")
	errTaken     = errors.New("another node carries out the bulk action")
)

// New has the actions of an engine, which works on store. Nothing is carried out before Start or Adopt.
func New(e *engine.Engine, store engine.Store, log func() *zap.Logger) *Actions {
	s := &Actions{engine: e, store: store, log: log, here: make(map[string]*carried), seen: make(map[string]sighting)}
	s.base, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends what this node carries out. It goes on at the next start, or on another node.
func (s *Actions) Close() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop()
	s.all.Wait()
}

// Adopt carries out actions that nobody does, from now on: at once if no other node can be there, and otherwise when they have stood still
// for a while. It may be called more than once.
func (s *Actions) Adopt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopts || s.ended {
		return
	}
	s.adopts = true
	s.all.Go(func() {
		_, shared := s.store.(engine.Remote)
		for {
			s.adopt(shared)
			if !s.sleep(s.base, silence/3) {
				return
			}
		}
	})
}

func (s *Actions) adopt(shared bool) {
	actions, err := s.List(s.base)
	if err != nil {
		return // the store tells of itself
	}
	for _, a := range actions {
		s.mu.Lock()
		_, here := s.here[a.ID]
		last, seen := s.seen[a.ID]
		adoptable := a.State == Running && !here
		switch {
		case !adoptable:
			delete(s.seen, a.ID)
		case !seen || last.revision != a.revision:
			s.seen[a.ID] = sighting{a.revision, time.Now()}
		}
		s.mu.Unlock()
		if adoptable && (!shared || seen && last.revision == a.revision && time.Since(last.at) > silence) {
			s.begin(a)
		}
	}
}

// sleep reports false if there is no time left.
func (s *Actions) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// List returns the actions, the newest first.
func (s *Actions) List(ctx context.Context) ([]*Action, error) {
	documents, err := s.store.Documents().Load(ctx, documentKind)
	if err != nil {
		return nil, err
	}
	var actions []*Action
	for _, d := range slices.Backward(documents) { // ids ascend with time
		a, err := actionOf(d)
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// Get returns an action, or ErrNotFound.
func (s *Actions) Get(ctx context.Context, id string) (*Action, error) {
	actions, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(actions, func(a *Action) bool { return a.ID == id }); i >= 0 {
		return actions[i], nil
	}
	return nil, ErrNotFound
}

// Start stores an action and carries it out, on all runs or deliveries that match now.
func (s *Actions) Start(ctx context.Context, a *Action) (*Action, error) {
	actions, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	changed := []engine.Document{}
	running, ended := 0, 0
	for _, other := range actions {
		if other.State == Running {
			running++
		} else if ended++; ended > kept {
			changed = append(changed, engine.Document{Kind: documentKind, Name: other.ID, Revision: other.revision})
		}
	}
	if running >= maxRunning {
		return nil, ErrMany
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	a.ID, a.State, a.StartedAt = id.String(), Running, time.Now().UTC()
	if a.Runs != nil {
		if err := s.bound(ctx, a); err != nil {
			return nil, err
		}
		a.Last = a.Newest == ""
	}
	if err := s.store.Documents().Save(ctx, append(changed, a.document())...); err != nil {
		return nil, err
	}
	a.revision++
	s.log().Info("bulk action started", zap.String("bulk", a.ID), zap.String("do", string(a.Do)), zap.Any("filter", a.Filter),
		zap.String("by", a.By))
	shown := *a
	s.begin(a)
	return &shown, nil
}

// bound has an action end at the newest run. Runs are started again from the oldest on, so that those of a chat keep their order, and
// cancelled from the newest on, so that none starts since the one before it is gone.
func (s *Actions) bound(ctx context.Context, a *Action) error {
	a.Runs.Limit = pageSize
	newest := engine.Query{Limit: 1}
	for {
		page, next, err := s.engine.List(ctx, newest)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			a.Newest = page[0].Run.ID
			if a.Do == Again {
				a.Runs.OldestFirst, a.Runs.UpTo, a.Runs.Replies = true, a.Newest, true
			}
			return nil
		}
		if next == "" {
			return nil
		}
		newest.Cursor = next
	}
}

// Stop has an action end before all is done. What is under way is finished.
func (s *Actions) Stop(ctx context.Context, id, by string) (*Action, error) {
	a, err := s.change(ctx, id, func(a *Action) error {
		if a.State != Running {
			return ErrEnded
		}
		a.State, a.StoppedBy, a.Waiting = Stopped, by, ""
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	here := s.here[id]
	s.mu.Unlock()
	if here != nil {
		here.cancel(errStopped)
	}
	s.log().Info("bulk action stopped", zap.String("bulk", id), zap.String("by", by))
	return a, nil
}

// Resume has an action go on that was stopped or failed.
func (s *Actions) Resume(ctx context.Context, id string) (*Action, error) {
	a, err := s.change(ctx, id, func(a *Action) error {
		switch a.State {
		case Running:
			return ErrIsRunning
		case Done:
			return ErrEnded
		}
		a.State, a.StoppedBy, a.Error, a.EndedAt = Running, "", "", time.Time{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	shown := *a
	s.begin(a)
	return &shown, nil
}

// change changes an action that others may change at the same time.
func (s *Actions) change(ctx context.Context, id string, edit func(*Action) error) (*Action, error) {
	for {
		a, err := s.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := edit(a); err != nil {
			return nil, err
		}
		err = s.store.Documents().Save(ctx, a.document())
		if err == nil {
			a.revision++
			return a, nil
		}
		if !errors.Is(err, engine.ErrDocumentChanged) {
			return nil, err
		}
	}
}

// begin carries out an action on this node. If it still does so, it begins when that has ended.
func (s *Actions) begin(a *Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here := s.here[a.ID]; here != nil {
		here.next = a
		return
	}
	if s.ended {
		return
	}
	ctx, cancel := context.WithCancelCause(s.base)
	here := &carried{cancel: cancel}
	s.here[a.ID] = here
	delete(s.seen, a.ID)
	s.all.Go(func() {
		defer cancel(nil)
		w := &work{Actions: s, action: a}
		resumed := w.carryOut(ctx, cancel)
		s.mu.Lock()
		delete(s.here, a.ID)
		next := here.next
		s.mu.Unlock()
		if resumed {
			next = a // which has what was done since
		}
		if next != nil {
			s.begin(next)
		}
	})
}
