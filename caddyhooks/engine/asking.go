package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
)

// A Questioner writes the questions of runs, and knows where they are answered. The engine asks them, and goes by the answers. Kind, number
// and state of a question are the engine's.
type Questioner interface {
	// BeforeStart is the question that has to be answered with Yes before a run starts, nil if it may start.
	BeforeStart(ctx context.Context, run *Run) (*Question, error)
	// Started is called when a run starts because of that answer.
	Started(ctx context.Context, run *Run) error
	// BeforeDelivery is the question that has to be answered with Yes before the answer of a run is sent, nil if it may be sent.
	BeforeDelivery(run *Run, outcome *Outcome) *Question
	// FromAgent is a question of the agent that carries out a run.
	FromAgent(run *Run, ask Ask) *Question
	// Later is where an agent answers a question of this id.
	Later(question string) *Later
	// Link is where people answer a question of this id, "" if nowhere.
	Link(question string) string
}

// questions lets people and agents answer the questions of runs.
type questions struct {
	*node
	events *Events
}

// Question returns a question, or ErrNotFound.
func (s *questions) Question(ctx context.Context, id string) (*Question, error) {
	return ask(ctx, s.store, func(ctx context.Context) (*Question, error) { return s.store.Questions().Get(ctx, id) })
}

// OpenQuestions returns open questions for people, the one that was asked last first. For next see Questions.List.
func (s *questions) OpenQuestions(ctx context.Context, limit int, cursor string) (page []*Question, next string, err error) {
	ctx, stop := s.store.patience(ctx)
	defer stop()
	page, next, err = s.store.Questions().List(ctx, limit, cursor)
	s.store.noteBroken(err)
	return page, next, err
}

// CountQuestions is how many questions for people are open.
func (s *questions) CountQuestions(ctx context.Context) (int, error) {
	return ask(ctx, s.store, s.store.Questions().Count)
}

// AnswerQuestion answers a question of a person. ErrAnswered says that there is another answer already, which the question has that is
// returned. An *AnswerRefusedError says that the answer is none that can be given.
func (s *questions) AnswerQuestion(ctx context.Context, id string, answer Answer) (*Question, error) {
	q, err := s.Question(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case !q.Kind.ForPeople():
		return nil, ErrNotFound
	case q.Answer != nil:
		return q, answeredBefore(q, &answer)
	}
	if err := q.Accepts(answer.Text); err != nil {
		return q, err
	}
	return s.answer(ctx, q, answer)
}

// AnswerForAgent answers a question of this id that waits for an agent, asked already or not. For errors see AnswerQuestion.
func (s *questions) AnswerForAgent(ctx context.Context, id string, answer Answer) (*Question, error) {
	q, err := s.Question(ctx, id)
	if errors.Is(err, ErrNotFound) {
		runID, number, ok := ParseQuestionID(id)
		if !ok {
			return nil, ErrNotFound
		}
		q, err = &Question{RunID: runID, Number: number, Kind: AskAgent}, nil
	}
	switch {
	case err != nil:
		return nil, err
	case q.Kind != AskAgent && !q.AskedAt.IsZero():
		return q, ErrAnswered // the agent has put the turn aside itself, and goes on when it has its input
	}
	return s.answer(ctx, q, answer)
}

// NoteProgress tells those who follow a run that is put aside what its agent says meanwhile. Nothing of it is stored.
func (e *Engine) NoteProgress(ctx context.Context, runID, text string) error {
	record, err := e.records.get(ctx, runID)
	if err != nil || record.Status != Waiting || e.config().isHeldBack(record.Run) {
		return err
	}
	writer := e.streams.Begin(time.Now(), stream.Run{ID: runID, Waited: time.Since(record.Run.AcceptedAt)})
	write, shut := writer.Open()
	write(text)
	shut()
	time.AfterFunc(progressLasts, writer.Done)
	return nil
}

// progressLasts is how long those who follow a run have to read what its agent says meanwhile.
const progressLasts = 2 * time.Second

// answer stores an answer.
func (s *questions) answer(ctx context.Context, q *Question, answer Answer) (*Question, error) {
	closing := s.config().closingDeliveries(q, &answer)
	answered, err := ask(context.WithoutCancel(ctx), s.store, func(ctx context.Context) (*Question, error) {
		return s.store.Questions().Answer(ctx, q.ID(), answer, closing...)
	})
	if errors.Is(err, ErrAnswered) {
		return answered, answeredBefore(answered, &answer)
	}
	if err != nil {
		return nil, err
	}
	s.log().Info("question answered", zap.String("run_id", q.RunID), zap.String("question_id", q.ID()), zap.String("kind", string(q.Kind)),
		zap.String("via", answer.Via), zap.String("by", answer.By))
	s.events.Runs.Publish(q.RunID)
	for _, d := range closing {
		s.events.Deliveries.Publish(d.ID)
	}
	return answered, nil
}

// answeredBefore is nil if the answer that a question has is this very one, whose sender has not heard that it was stored.
func answeredBefore(q *Question, answer *Answer) error {
	first := q.Answer
	if first.Text == answer.Text && first.Error == answer.Error && first.By == answer.By && first.Via == answer.Via {
		return nil
	}
	return ErrAnswered
}

// closeQuestion answers a question that nobody has answered. If somebody has at the last moment, that counts.
func (n *node) closeQuestion(config *Config, q *Question, answer Answer) (*Question, error) {
	ctx, stop := n.store.context()
	defer stop()
	closed, err := n.store.Questions().Answer(ctx, q.ID(), answer, config.closingDeliveries(q, &answer)...)
	if err != nil && !errors.Is(err, ErrAnswered) {
		n.store.failed("closing a question failed, trying again", err, zap.String("run_id", q.RunID))
		return nil, err
	}
	return closed, nil
}

// questionDeliveries asks a question in its chat.
func (c *Config) questionDeliveries(run *Run, q *Question) []*Delivery {
	if q.Channel == "" {
		return nil
	}
	index := QuestionDeliveryIndex(q.Number, false)
	return []*Delivery{{ID: DeliveryID(run.ID, index), RunID: run.ID, Index: index, ChatID: run.ChatID, Hook: run.Hook, RunStatus: Waiting,
		Channel: q.Channel, To: q.To, Question: q.ID(), ContentType: textType, Body: q.Text, Status: Pending}}
}

// closingDeliveries says in the chat of a question that it needs no answer any more, and why.
func (c *Config) closingDeliveries(q *Question, answer *Answer) []*Delivery {
	if q.Channel == "" {
		return nil
	}
	index := QuestionDeliveryIndex(q.Number, true)
	return []*Delivery{{ID: DeliveryID(q.RunID, index), RunID: q.RunID, Index: index, RunStatus: Waiting, Channel: q.Channel, To: q.To,
		Question: q.ID(), Closes: true, ContentType: textType, Body: q.Text + "\n\n" + answer.Sentence(), Status: Pending}}
}

// closings close the open questions of a run that ends.
func (c *Config) closings(questions []*Question) (all []*Delivery) {
	for _, q := range questions {
		if q.Answer == nil {
			all = append(all, c.closingDeliveries(q, &Answer{Via: AnsweredByEnd})...)
		}
	}
	return all
}

// askedAsText says of a delivery that its question was asked without buttons: there is no message to change.
const askedAsText = "sent"

// sendQuestion asks a question in a chat, or closes it there.
func (s *deliveries) sendQuestion(ctx context.Context, config *Config, channel Channel, d *Delivery) error {
	buttons, hasButtons := channel.(QuestionChannel)
	if d.Closes {
		asked, err := s.store.Deliveries().Get(ctx, DeliveryID(d.RunID, d.Index-1))
		switch {
		case errors.Is(err, ErrNotFound):
			return nil // nobody was asked there
		case err != nil:
			return err
		case asked.Progress == "" && asked.Status == Pending && !asked.Due.After(time.Now()):
			// It was sent, and that is being stored, or it is sent before this the next time.
			return &RetryLaterError{After: time.Second, Err: errors.New("the question is being asked")}
		case asked.Progress == "":
			return nil
		}
		if !hasButtons {
			return channel.Send(ctx, d)
		}
		return buttons.Close(ctx, d.To, asked.Progress, d.Body)
	}
	q, err := s.store.Questions().Get(ctx, d.Question)
	if errors.Is(err, ErrNotFound) || err == nil && q.Answer != nil {
		return nil // there is nothing to ask any more
	}
	if err != nil {
		return err
	}
	link := ""
	if config.Questions != nil && len(q.By) == 0 { // a link does not tell who answers
		link = config.Questions.Link(q.ID())
	}
	if hasButtons {
		d.Progress, err = buttons.Ask(ctx, d.To, ChannelQuestion{ID: q.ID(), Text: q.Text, Choices: q.Choices, Link: link})
		return err
	}
	plain := *d
	if link != "" {
		plain.Body += "\n\n" + link
	}
	err = channel.Send(ctx, &plain)
	d.Sent, d.LastStatus, d.LastAnswer = plain.Sent, plain.LastStatus, plain.LastAnswer
	if err == nil {
		d.Progress = askedAsText
	}
	return err
}

// askInTurn asks a person something in the middle of a turn, and waits for the answer. Meanwhile neither a worker nor the time of the run
// is used up.
func (p *workerPool) askInTurn(ctx context.Context, a *attempt, of Ask) (answer Answer, err error) {
	run := a.claim.Run
	q := a.config.Questions.FromAgent(run, of)
	q.Kind, q.RunID = AskPermission, run.ID
	if err := p.storeAsked(a, q); err != nil {
		return Answer{}, err
	}
	p.ends.publish(a.claim)
	a.config.Log.Info("run put aside", zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("question", string(q.Kind)))
	resume := a.deadline.Pause()
	p.lend()
	defer p.takeBack()
	defer resume()
	return p.awaitAnswer(ctx, a, q)
}

// storeAsked stores a question in the middle of a turn, one at a time: numbers have no gaps.
func (p *workerPool) storeAsked(a *attempt, q *Question) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.Number = a.nextQuestion(); q.Number >= MaxQuestions {
		return fmt.Errorf("the run had %d questions already", MaxQuestions)
	}
	ctx, stop := p.store.context()
	defer stop()
	if err := p.store.Questions().Ask(ctx, a.claim, q, a.config.questionDeliveries(a.claim.Run, q)...); err != nil {
		return fmt.Errorf("asking a question: %w", err)
	}
	a.asked++
	return nil
}

// lookForAnswer is how often to look whether a question in the middle of a turn was answered, on whatever node.
const lookForAnswer = 500 * time.Millisecond

// awaitAnswer waits for the answer to a question. If ctx ends first, the question is closed with the run.
func (p *workerPool) awaitAnswer(ctx context.Context, a *attempt, q *Question) (answer Answer, err error) {
	ticker := time.NewTicker(lookForAnswer)
	defer ticker.Stop()
	until := time.Time{}
	if q.For > 0 {
		until = time.Now().Add(q.For)
	}
	for {
		select {
		case <-ctx.Done():
			a.mu.Lock()
			a.unanswered = append(a.unanswered, q)
			a.mu.Unlock()
			return answer, ctx.Err()
		case <-ticker.C:
		}
		asking, stop := p.store.context()
		now, err := p.store.Questions().Get(asking, q.ID())
		stop()
		if err == nil && now.Answer == nil && !until.IsZero() && !time.Now().Before(until) {
			now, err = p.closeQuestion(a.config, q, Answer{Text: q.Else, Via: AnsweredByDeadline})
		}
		switch {
		case errors.Is(err, ErrNotFound):
			return answer, err
		case err == nil && now.Answer != nil:
			return *now.Answer, nil
		}
	}
}

// lend lets another worker work while this one waits for a person, and takeBack ends that.
func (p *workerPool) lend() {
	p.mu.Lock()
	p.active--
	p.mu.Unlock()
	signal(p.free)
}

func (p *workerPool) takeBack() {
	p.mu.Lock()
	p.active++
	p.mu.Unlock()
}
