package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/clicks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// AnswerByClick answers a question with the button that somebody has pressed. The service that sent the click is answered with reply, nil
// if it takes no answer: then the channel shows the person what came of it, in the background. An error is that of the store.
func (in *Instance) AnswerByClick(ctx context.Context, click *clicks.Click) (reply []byte, err error) {
	q, err := in.Service.Engine.Question(ctx, click.Question)
	if errors.Is(err, engine.ErrNotFound) {
		return click.Reply(replyClosed, true), nil
	}
	if err != nil {
		return nil, err
	}
	text, refused, err := in.answerByClick(ctx, q, click)
	if err != nil {
		return nil, err
	}
	if reply = click.Reply(text, refused); reply == nil && settings.ServiceOf(in.Rules.Channels[q.Channel]) == click.Service {
		in.whispers.begin(in.Rules.Channels[q.Channel], click, text, in.Log)
	}
	return reply, nil
}

// What somebody is told who has pressed a button.
const (
	replyNotAllowed = "You may not answer this question."
	replyClosed     = "This question is closed."
)

// answerByClick is what the person is told, and whether that is a refusal. Who may not answer does not learn whether others have.
func (in *Instance) answerByClick(ctx context.Context, q *engine.Question, click *clicks.Click) (text string, refused bool, err error) {
	here, err := in.wasAskedHere(ctx, q, click)
	switch {
	case err != nil:
		return "", false, err
	case !here, len(q.By) > 0 && !slices.Contains(q.By, click.Person):
		return replyNotAllowed, true, nil
	case click.Choice >= len(q.Choices):
		return replyClosed, true, nil
	}
	answer := engine.Answer{Text: q.Choices[click.Choice], By: whoClicked(click), Via: engine.AnsweredByChannel}
	answered, err := in.Service.Engine.AnswerQuestion(ctx, click.Question, answer)
	switch {
	case errors.Is(err, engine.ErrAnswered), err == nil:
		text, refused = replyToAnswered(answered.Answer, click)
		return text, refused, nil
	case errors.Is(err, engine.ErrNotFound):
		return replyClosed, true, nil
	}
	return "", false, err
}

// wasAskedHere reports whether a question was asked in the chat of a click. A chat whose name does not tell, such as that of a private
// channel of Slack, is known by the message that was posted.
func (in *Instance) wasAskedHere(ctx context.Context, q *engine.Question, click *clicks.Click) (bool, error) {
	switch {
	case settings.ServiceOf(in.Rules.Channels[q.Channel]) != click.Service:
		return false, nil
	case click.IsIn(q.To):
		return true, nil
	case click.Posted == "":
		return false, nil
	}
	asked, err := in.Service.Engine.Delivery(ctx, engine.DeliveryID(q.RunID, engine.QuestionDeliveryIndex(q.Number, false)))
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil && asked.Progress == click.Posted, err
}

// whoClicked names a person for operators: "Ana (U012)". The id is that of the service, and the name is what the person likes.
func whoClicked(click *clicks.Click) string {
	if click.Name == "" {
		return click.Person
	}
	return click.Name + clickSuffix(click.Person)
}

func clickSuffix(person string) string { return " (" + person + ")" }

// replyToAnswered tells somebody of the answer that a question has.
func replyToAnswered(answer *engine.Answer, click *clicks.Click) (text string, refused bool) {
	given := clicks.OneLine(answer.Text)
	switch answer.Via {
	case engine.AnsweredByDeadline, engine.AnsweredByEnd:
		return replyClosed, true
	case engine.AnsweredByChannel:
		if answer.By == click.Person || strings.HasSuffix(answer.By, clickSuffix(click.Person)) {
			return "You answered " + given + ".", false
		}
	}
	by := answer.By
	if i := strings.LastIndex(by, " ("); i > 0 && answer.Via == engine.AnsweredByChannel {
		by = by[:i]
	}
	if by = clicks.OneLine(by); by == "" {
		by = "Somebody"
	}
	return by + " answered first: " + given + ".", true
}

// whispers shows people what came of a click, where the service takes no answer. Each is tried once, and some are left out if there are
// too many.
type whispers struct {
	mu      sync.Mutex
	running int
	ended   bool
	pending sync.WaitGroup
}

// A whisperer is a channel that can show something to one person in a chat.
type whisperer interface {
	Whisper(ctx context.Context, chat, thread, person, text string) error
}

const (
	maxWhispers     = 16
	whisperPatience = 10 * time.Second
)

// begin shows a text to whoever pressed a button. Nobody waits for it but end.
func (s *whispers) begin(through engine.Channel, click *clicks.Click, text string, log *zap.Logger) {
	channel, ok := through.(whisperer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || click.Chat == "" || s.ended || s.running >= maxWhispers {
		return
	}
	s.running++
	s.pending.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), whisperPatience)
		defer cancel()
		if err := channel.Whisper(ctx, click.Chat, click.Thread, click.Person, text); err != nil {
			log.Info("reply to a click not shown", zap.String("question_id", click.Question), zap.Error(err))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	})
}

// end waits for those that were begun.
func (s *whispers) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.pending.Wait()
}
