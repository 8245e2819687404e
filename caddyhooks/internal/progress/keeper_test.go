package progress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// service is a chat that keeps messages, and the channel to it.
type service struct {
	mu       sync.Mutex
	messages []string
	removed  int
	begins   int
	hangs    chan struct{} // if not nil, Begin waits for it
	err      error
	panics   bool
}

func (s *service) Begin(ctx context.Context, to, text string) (string, error) {
	s.mu.Lock()
	s.begins++
	hangs := s.hangs
	s.mu.Unlock()
	if s.panics {
		panic("a channel with a mistake")
	}
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	s.messages = append(s.messages, to+": "+text)
	return fmt.Sprint(len(s.messages) + s.removed), nil
}

func (s *service) Withdraw(_ context.Context, to, progress string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = slices.DeleteFunc(s.messages, func(message string) bool { return message == to+": working" })
	s.removed++
	return nil
}

func (s *service) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.messages)
}

// chats has one channel, "team".
type chats struct{ *service }

func (chats) ProgressText(run *engine.Run) string { return run.Name }
func (c chats) ProgressChannel(name string) engine.ProgressChannel {
	if name != "team" {
		return nil
	}
	return c.service
}

// documents are those of a store.
type documents struct {
	engine.Documents
	mu  sync.Mutex
	all map[string]engine.Document
}

func (d *documents) Load(_ context.Context, kind string) (found []engine.Document, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, document := range d.all {
		if kind == "" || document.Kind == kind {
			found = append(found, document)
		}
	}
	return found, nil
}

func (d *documents) Save(_ context.Context, documents ...engine.Document) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, document := range documents {
		if d.all[document.Kind].Revision != document.Revision {
			return engine.ErrDocumentChanged
		}
		if document.Revision++; document.Value == nil {
			delete(d.all, document.Kind)
		} else {
			d.all[document.Kind] = document
		}
	}
	return nil
}

func (d *documents) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// runs knows how runs ended.
type runs struct {
	engine.Runs
	ended map[string]*engine.Record
}

func (r runs) Get(_ context.Context, id string) (*engine.Record, error) {
	if record := r.ended[id]; record != nil {
		return record, nil
	}
	return nil, engine.ErrNotFound
}

type store struct {
	engine.Store
	documents documents
	runs      runs
}

func (s *store) Documents() engine.Documents { return &s.documents }
func (s *store) Runs() engine.Runs           { return s.runs }

func newStore() *store {
	return &store{documents: documents{all: make(map[string]engine.Document)}, runs: runs{ended: make(map[string]*engine.Record)}}
}

func newKeeper(s *store) *Keeper { return New(s, zap.NewNop) }

func newRun(to string) *engine.Run {
	return &engine.Run{ID: uuid.NewString(), Hook: "bot", Name: "working", Channel: "team", To: to}
}

func answerOf(run *engine.Run) []*engine.Delivery {
	return []*engine.Delivery{{RunID: run.ID, Callback: "https://example.com"}, {RunID: run.ID, Channel: run.Channel, To: run.To}}
}

func TestAnAnswerTakesThePlaceOfWhatWasPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat, s := chats{&service{}}, newStore()
		k := newKeeper(s)
		defer k.Close()
		run := newRun("C1")
		turn := k.Begin([]*engine.Run{run, newRun("C1"), newRun("C2"), {Channel: "other", Name: "working"}, {Channel: "team"}, {Name: "working"}}, chat)
		synctest.Wait()
		if got := chat.shown(); got != "[C1: working C2: working]" && got != "[C2: working C1: working]" || s.documents.count() != 2 {
			t.Fatalf("posted is %s, and %d documents are stored", got, s.documents.count())
		}
		answer := answerOf(run)
		turn.Fill(answer)
		if answer[0].Progress != "" || answer[1].Progress == "" {
			t.Errorf("the deliveries replace %q and %q", answer[0].Progress, answer[1].Progress)
		}
		turn.Done()
		synctest.Wait()
		if got := chat.shown(); got != "[C1: working]" || s.documents.count() != 0 {
			t.Errorf("after the end %s is there, and %d documents", got, s.documents.count())
		}
	})
}

func TestWhatNoAnswerFollowsIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(k *Keeper, run *engine.Run, chat chats){
			"it failed": func(k *Keeper, run *engine.Run, chat chats) {
				turn := k.Begin([]*engine.Run{run}, chat)
				synctest.Wait()
				turn.Fill(nil)
				turn.Done()
			},
			"it was quicker than the service": func(k *Keeper, run *engine.Run, chat chats) {
				chat.hangs = make(chan struct{})
				turn := k.Begin([]*engine.Run{run}, chat)
				synctest.Wait()
				answer := answerOf(run)
				turn.Fill(answer)
				turn.Done()
				if answer[1].Progress != "" {
					t.Error("the answer replaces what is not there")
				}
				close(chat.hangs)
			},
			"it was cancelled after it went back": func(k *Keeper, run *engine.Run, chat chats) {
				k.Begin([]*engine.Run{run}, chat)
				synctest.Wait()
				k.Ended(run, chat)
			},
		} {
			chat, s := chats{&service{}}, newStore()
			k := newKeeper(s)
			end(k, newRun("C1"), chat)
			synctest.Wait()
			if got := chat.shown(); got != "[]" || chat.begins != 1 || chat.removed != 1 || s.documents.count() != 0 {
				t.Errorf("%s: %s is there after %d and %d calls, and %d documents", name, got, chat.begins, chat.removed, s.documents.count())
			}
			k.Close()
		}
	})
}

func TestTheNextAttemptPostsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat, s, run := chats{&service{}}, newStore(), newRun("C1")
		killed := newKeeper(s)
		killed.Begin([]*engine.Run{run}, chat)
		synctest.Wait()
		killed.Close()
		k := newKeeper(s) // of the next process, or of another node
		defer k.Close()
		turn := k.Begin([]*engine.Run{run}, chat)
		synctest.Wait()
		answer := answerOf(run)
		turn.Fill(answer)
		turn.Done()
		synctest.Wait()
		if chat.begins != 1 || answer[1].Progress != "1" || s.documents.count() != 0 {
			t.Errorf("%d were posted, the answer replaces %q, and %d documents are left", chat.begins, answer[1].Progress, s.documents.count())
		}
	})
}

func TestWhatAKilledProcessLeftIsSweptUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat, s := chats{&service{}}, newStore()
		killed := newKeeper(s)
		open, failed, answered, gone := newRun("open"), newRun("failed"), newRun("answered"), newRun("gone")
		killed.Begin([]*engine.Run{open, failed, answered, gone}, chat)
		synctest.Wait()
		killed.Close()
		message, _, _ := killed.find(t.Context(), answered.ID)
		replaced := &engine.Delivery{Channel: "team", To: "answered", Progress: message.Progress}
		s.runs.ended = map[string]*engine.Record{
			open.ID: {Run: open}, failed.ID: {Run: failed, FinishedAt: time.Now()},
			answered.ID: {Run: answered, FinishedAt: time.Now(), Deliveries: []*engine.Delivery{replaced}},
		}
		k := newKeeper(s)
		defer k.Close()
		k.Sweep(chat)
		synctest.Wait()
		if s.documents.count() != 4 {
			t.Error("another node may be about to do that")
		}
		time.Sleep(2 * sweepAge)
		synctest.Wait()
		if got := len(chat.messages); got != 2 || chat.removed != 2 || s.documents.count() != 1 {
			t.Errorf("%s is there, and %d documents", chat.shown(), s.documents.count())
		}
	})
}

func TestAServiceThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat, s := chats{&service{hangs: make(chan struct{})}}, newStore()
		k := newKeeper(s)
		start := time.Now()
		for range 1000 {
			run := newRun(uuid.NewString())
			turn := k.Begin([]*engine.Run{run}, chat)
			turn.Fill(answerOf(run))
			turn.Done()
		}
		synctest.Wait()
		if chat.begins != maxCalls || time.Since(start) != 0 {
			t.Errorf("%d calls are under way after %v", chat.begins, time.Since(start))
		}
		time.Sleep(callTime)
		synctest.Wait()
		if len(k.lines) != 0 {
			t.Errorf("%d calls are left", k.lines["team"].underWay)
		}
		k.Begin([]*engine.Run{newRun("C1")}, chat)
		start = time.Now()
		k.Close()
		if took := time.Since(start); took != closeTime {
			t.Errorf("closing took %v", took)
		}
		if k.Begin([]*engine.Run{newRun("C2")}, chat); chat.begins != maxCalls+1 {
			t.Error("something is posted after the end")
		}
	})
}

func TestWhatMustBeRemovedWaitsForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat, s := chats{&service{}}, newStore()
		k := newKeeper(s)
		defer k.Close()
		var turns []engine.TurnProgress
		for range 3 * maxCalls {
			turns = append(turns, k.Begin([]*engine.Run{newRun(uuid.NewString())}, chat))
			synctest.Wait()
		}
		for _, turn := range turns {
			turn.Done()
		}
		synctest.Wait()
		if chat.shown() != "[]" || s.documents.count() != 0 {
			t.Errorf("%s is there, and %d documents", chat.shown(), s.documents.count())
		}
	})
}

func TestAChannelThatFailsOrPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, chat := range []chats{{&service{err: errors.New("not now")}}, {&service{panics: true}}} {
			s, run := newStore(), newRun("C1")
			k := newKeeper(s)
			turn := k.Begin([]*engine.Run{run}, chat)
			synctest.Wait()
			answer := answerOf(run)
			turn.Fill(answer)
			turn.Done()
			synctest.Wait()
			if answer[1].Progress != "" || s.documents.count() != 0 {
				t.Errorf("the answer replaces %q", answer[1].Progress)
			}
			k.Close()
		}
	})
}
