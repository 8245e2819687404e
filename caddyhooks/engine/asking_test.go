package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

type deliveriesOfStore = engine.Deliveries

// slowlyStored is a store that is still storing that a question was asked when others may be sent to its chat already.
type slowlyStored struct {
	engine.Store
	deliveriesOfStore
	mu    sync.Mutex
	reads int // that are too early
}

func (s *slowlyStored) Deliveries() engine.Deliveries { return s }

func (s *slowlyStored) Get(ctx context.Context, id string) (*engine.Delivery, error) {
	d, err := s.deliveriesOfStore.Get(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && d.Question != "" && !d.Closes && s.reads > 0 {
		s.reads--
		before := *d
		before.Status, before.Progress, before.Due = engine.Pending, "", before.CreatedAt
		return &before, nil
	}
	return d, err
}

// A question that is answered as soon as it is asked is closed in its chat.
func TestAQuestionThatIsAnsweredAtOnceIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New().Store()
		store := &slowlyStored{Store: data, deliveriesOfStore: data.Deliveries(), reads: 2}
		service := new(chatService)
		c := config(new(later))
		c.Questions = &questioner{beforeStart: &engine.Question{Text: "May it?", Choices: []string{engine.Yes, engine.No}, Channel: "team", To: "C1"}}
		c.Channels = map[string]engine.Channel{"team": service}
		e := startOn(t, store, c)
		run := newRun("chat", "one")
		submit(t, e, run)
		synctest.Wait()
		if _, err := e.AnswerQuestion(t.Context(), engine.QuestionID(run.ID, 0), engine.Answer{Text: engine.No, Via: engine.AnsweredByChannel}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		lines := service.lines()
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "ask C1") || !strings.HasPrefix(lines[1], "close message 1 of C1") {
			t.Errorf("the chat has %q", lines)
		}
		if store.reads != 0 {
			t.Error("nobody looked too early")
		}
	})
}
