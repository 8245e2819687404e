package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// questioner asks what a test wants to be asked.
type questioner struct {
	beforeStart, beforeDelivery *engine.Question
	started                     []string
}

func (q *questioner) BeforeStart(context.Context, *engine.Run) (*engine.Question, error) {
	return copyOf(q.beforeStart), nil
}

func (q *questioner) Started(_ context.Context, run *engine.Run) error {
	q.started = append(q.started, run.ID)
	return nil
}

func (q *questioner) BeforeDelivery(*engine.Run, *engine.Outcome) *engine.Question {
	return copyOf(q.beforeDelivery)
}

func (q *questioner) FromAgent(_ *engine.Run, ask engine.Ask) *engine.Question {
	return &engine.Question{Text: ask.Text, Choices: ask.Choices, Channel: ask.Place.Channel, To: ask.Place.To, For: ask.Place.For,
		Else: ask.Place.Else}
}

func (q *questioner) Later(question string) *engine.Later {
	return &engine.Later{URL: "https://hooks.example/replies/" + question, Token: "secret"}
}

func (q *questioner) Link(question string) string { return "https://hooks.example/answers/" + question }

func copyOf(q *engine.Question) *engine.Question {
	if q == nil {
		return nil
	}
	question := *q
	return &question
}

// chatService is a channel that keeps what it is told.
type chatService struct {
	mu   sync.Mutex
	said []string
}

func (s *chatService) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, line)
}

func (s *chatService) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

func (s *chatService) Send(_ context.Context, d *engine.Delivery) error {
	s.note("send " + d.Body)
	return nil
}
func (*chatService) ValidTo(string) error { return nil }
func (s *chatService) Ask(_ context.Context, to string, q engine.ChannelQuestion) (string, error) {
	s.note(fmt.Sprintf("ask %s: %s %v", to, q.Text, q.Choices))
	return "message 1", nil
}
func (s *chatService) Close(_ context.Context, to, posted, text string) error {
	s.note(fmt.Sprintf("close %s of %s: %s", posted, to, text))
	return nil
}

// later is a runner whose agent takes every turn on.
type later struct {
	mu        sync.Mutex
	turns     []engine.Turn
	abandoned []string
	again     time.Duration
	limit     time.Duration
	looks     func(turn engine.Turn) (engine.Reply, error) // when it is asked how a turn goes; nil: it goes on
}

func (l *later) Run(_ context.Context, turn engine.Turn) (engine.Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns = append(l.turns, turn)
	if turn.TakenOn != "" && l.looks != nil {
		return l.looks(turn)
	}
	return engine.Reply{Session: "session"}, &engine.TakenOnError{State: "job of " + turn.Message, For: l.limit, Again: l.again}
}

func (l *later) Abandon(_ context.Context, state string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = append(l.abandoned, state)
	return nil
}

// laterFunc is a runner whose agent may answer later.
type laterFunc func(ctx context.Context, turn engine.Turn) (engine.Reply, error)

func (f laterFunc) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	return f(ctx, turn)
}
func (laterFunc) Abandon(context.Context, string) error { return nil }

// An agent that answers at once, and at its address as well, cannot approve its own answer.
func TestAnAgentDoesNotApproveItsOwnAnswer(t *testing.T) {
	for name, via := range map[string]string{"answer": engine.AnsweredByAgent, "push": engine.AnsweredByPush, "none": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e *engine.Engine
				var id string
				runner := laterFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
					id = turn.Later.URL[strings.LastIndex(turn.Later.URL, "/")+1:]
					if via != "" {
						if _, err := e.AnswerForAgent(ctx, id, engine.Answer{Text: engine.Yes, Via: via}); err != nil {
							t.Error(err)
						}
					}
					return engine.Reply{Text: "send me"}, nil
				})
				e, _ = startAside(t, runner, &questioner{beforeDelivery: &engine.Question{Text: "send it?", Choices: []string{engine.Yes, engine.No}}})
				run := newRun("chat", "hello")
				submit(t, e, run)
				if got := statusOf(t, e, run); got != engine.Waiting {
					t.Fatalf("the run is %s", got)
				}
				if _, err := e.AnswerForAgent(t.Context(), id, engine.Answer{Text: "later", Via: engine.AnsweredByAgent}); !errors.Is(err, engine.ErrAnswered) {
					t.Errorf("a later answer: %v", err)
				}
				if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(run.ID, 1), engine.Answer{Text: engine.Yes, Via: engine.AnsweredByAgent}); !errors.Is(err, engine.ErrAnswered) {
					t.Errorf("the agent answers for a person: %v", err)
				}
				if _, err := e.AnswerQuestion(t.Context(), engine.QuestionID(run.ID, 1), engine.Answer{Text: engine.Yes, By: "Ana", Via: engine.AnsweredByAPI}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if record := found(t, e, run); record.Status != engine.Completed || record.Outcome.Text != "send me" {
					t.Errorf("the run is %+v", record)
				}
			})
		})
	}
}

// What a run that failed has for a text is not sent either.
func TestATextOfARunThatFailedIsNotSentUnapproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) { return engine.Reply{Text: "no JSON"}, nil })
		e, service := startAside(t, never, &questioner{beforeDelivery: &engine.Question{Text: "send it?"}})
		run := newRun("chat", "no JSON")
		run.Schema, run.Channel, run.To = []byte(`{"type":"object"}`), "team", "C1"
		submit(t, e, run)
		synctest.Wait()
		if record := found(t, e, run); record.Status != engine.Failed || record.Outcome.HasText || len(service.lines()) != 0 {
			t.Errorf("the run is %+v, the chat has %q", record, service.lines())
		}
	})
}

func startAside(t *testing.T, runner engine.Runner, questions *questioner) (*engine.Engine, *chatService) {
	t.Helper()
	c := config(runner)
	service := new(chatService)
	c.Questions, c.Channels = questions, map[string]engine.Channel{"team": service}
	return startOn(t, memory.New().Store(), c), service
}

func statusOf(t *testing.T, e *engine.Engine, run *engine.Run) engine.Status {
	t.Helper()
	synctest.Wait()
	return found(t, e, run).Status
}

func TestATurnThatWasTakenOnIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := new(later)
		e, _ := startAside(t, runner, new(questioner))
		first, second := newRun("chat", "one"), newRun("chat", "two")
		submit(t, e, first)
		submit(t, e, second)
		if got := statusOf(t, e, first); got != engine.Waiting {
			t.Fatalf("the run is %s", got)
		}
		time.Sleep(48 * time.Hour)
		if got := statusOf(t, e, second); got != engine.Queued || len(runner.turns) != 1 {
			t.Fatalf("the next run of the chat is %s after %d turns", got, len(runner.turns))
		}
		id := engine.QuestionID(first.ID, 0)
		if runner.turns[0].Later.URL != "https://hooks.example/replies/"+id {
			t.Errorf("the agent was to answer at %s", runner.turns[0].Later.URL)
		}
		answer := engine.Answer{Text: "the answer", Via: engine.AnsweredByAgent}
		if _, err := e.AnswerForAgent(t.Context(), id, answer); err != nil {
			t.Fatal(err)
		}
		if _, err := e.AnswerForAgent(t.Context(), id, answer); err != nil {
			t.Errorf("the same answer again: %v", err)
		}
		answer.Text = "another one"
		if q, err := e.AnswerForAgent(t.Context(), id, answer); !errors.Is(err, engine.ErrAnswered) || q.Answer.Text != "the answer" {
			t.Errorf("another answer: %+v, %v", q, err)
		}
		synctest.Wait()
		record := found(t, e, first)
		if record.Status != engine.Completed || record.Outcome.Text != "the answer" || record.Attempts != 1 || len(record.Questions) != 1 {
			t.Errorf("the run is %+v", record)
		}
		if step := record.Steps[len(record.Steps)-1]; step.Took < 48*time.Hour || step.Bytes != len("the answer") {
			t.Errorf("the turn was %+v", step)
		}
		if len(runner.turns) != 2 || runner.turns[1].Message != "two" {
			t.Errorf("there were %d turns", len(runner.turns))
		}
	})
}

func TestAnAnswerThatIsQuickerThanTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *engine.Engine
		runner := laterFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			id := turn.Later.URL[strings.LastIndex(turn.Later.URL, "/")+1:]
			for range 2 { // the agent may not have heard that its answer was stored
				if _, err := e.AnswerForAgent(ctx, id, engine.Answer{Text: "quick", Via: engine.AnsweredByAgent}); err != nil {
					t.Error(err)
				}
			}
			if _, err := e.AnswerForAgent(ctx, id, engine.Answer{Text: "another", Via: engine.AnsweredByAgent}); !errors.Is(err, engine.ErrAnswered) {
				t.Errorf("another answer: %v", err)
			}
			return engine.Reply{}, &engine.TakenOnError{}
		})
		e, _ = startAside(t, runner, new(questioner))
		if outcome, err := e.Do(t.Context(), syncRun("chat", "hello"), 0); err != nil || outcome.Text != "quick" {
			t.Errorf("got %+v, %v", outcome, err)
		}
	})
}

// The node goes down after the agent has answered, and before it has stored that the agent took the turn on. The answer counts, and the turn
// is not sent again. A repair is.
func TestAnAnswerThatCameBeforeACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data, run := memory.New(), newRun("chat", "one")
		run.Schema = []byte(`{"type":"object"}`)
		gone := data.Store()
		if err := gone.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		if claims, _, err := gone.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Second}); err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		id := engine.QuestionID(run.ID, 0)
		if _, err := gone.Questions().Answer(t.Context(), id, engine.Answer{Text: "done", Via: engine.AnsweredByAgent}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		runner := new(later)
		c := config(runner)
		c.Questions = new(questioner)
		e := startOn(t, data.Store(), c)
		synctest.Wait()
		record := found(t, e, run)
		if record.Status != engine.Waiting || len(record.Questions) != 2 {
			t.Errorf("the run is %+v", record)
		}
		if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(run.ID, 1), engine.Answer{Text: "{}", Via: engine.AnsweredByAgent}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if record := found(t, e, run); record.Status != engine.Completed || record.Outcome.Text != "done" || string(record.Outcome.JSON) != "{}" {
			t.Errorf("the run is %+v", record)
		}
		if len(runner.turns) != 1 || runner.turns[0].Repair != 1 {
			t.Errorf("the turns were %+v", runner.turns)
		}
	})
}

func TestAnAgentThatIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &later{again: time.Minute}
		looks := 0
		runner.looks = func(turn engine.Turn) (engine.Reply, error) {
			if looks++; looks < 5 {
				return engine.Reply{}, &engine.TakenOnError{State: turn.TakenOn + "+", Again: time.Minute}
			}
			return engine.Reply{Text: turn.TakenOn}, nil
		}
		e, _ := startAside(t, runner, new(questioner))
		run := newRun("chat", "one")
		submit(t, e, run)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		record := found(t, e, run)
		if record.Status != engine.Completed || record.Outcome.Text != "job of one++++" || record.Attempts != 1 {
			t.Errorf("the run is %+v", record)
		}
		if len(record.Questions) != 1 || len(record.Steps) != 2 {
			t.Errorf("%d questions, steps %+v", len(record.Questions), record.Steps)
		}
	})
}

func TestAnAgentThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &later{limit: 24 * time.Hour}
		e, _ := startAside(t, runner, new(questioner))
		run := newRun("chat", "one")
		submit(t, e, run)
		time.Sleep(24*time.Hour - time.Minute)
		if got := statusOf(t, e, run); got != engine.Waiting {
			t.Errorf("before its time is over, the run is %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := statusOf(t, e, run); got != engine.TimedOut || !slices.Equal(runner.abandoned, []string{"job of one"}) {
			t.Errorf("the run is %s, abandoned %v", got, runner.abandoned)
		}
	})
}

func TestRepairsGoTheSameWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := new(later)
		e, _ := startAside(t, runner, new(questioner))
		run := newRun("chat", "one")
		run.Schema = []byte(`{"type":"object","required":["a"]}`)
		submit(t, e, run)
		for n, text := range []string{"no JSON", "{}", `{"a":1}`} {
			synctest.Wait()
			if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(run.ID, n), engine.Answer{Text: text, Via: engine.AnsweredByAgent,
				Usage: fmt.Appendf(nil, `[{"model":"m","inputTokens":%d}]`, n+1)}); err != nil {
				t.Fatalf("answer %d: %v", n, err)
			}
		}
		synctest.Wait()
		record := found(t, e, run)
		used := engine.Use{Model: "m", HasTokens: true, Input: 1 + 2 + 3}
		if costs, err := e.Costs(t.Context(), time.Hour); err != nil || !slices.Equal(record.Outcome.Usage, []engine.Use{used}) ||
			len(costs) != 1 || costs[0].Use.Input != used.Input || costs[0].Runs != 1 {
			t.Errorf("the run used %+v, and %+v was spent: %v", record.Outcome.Usage, costs, err)
		}
		if record.Status != engine.Completed || string(record.Outcome.JSON) != `{"a":1}` || record.Outcome.Repairs != 2 {
			t.Errorf("the run is %+v", record)
		}
		if len(runner.turns) != 3 || runner.turns[1].Repair != 1 || runner.turns[2].Repair != 2 || len(record.Steps) != 4 {
			t.Errorf("%d turns, steps %+v", len(runner.turns), record.Steps)
		}
	})
}

func TestACallerWhoWaitsForARunThatIsPutAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := startAside(t, new(later), new(questioner))
		run := syncRun("chat", "one")
		outcome, err := e.Do(t.Context(), run, 0)
		if err != nil || outcome.Status != engine.TimedOut {
			t.Errorf("the caller gets %+v, %v", outcome, err)
		}
		if got := statusOf(t, e, run); got != engine.Waiting {
			t.Errorf("the run is %s", got)
		}
		if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(run.ID, 0), engine.Answer{Text: "after all", Via: engine.AnsweredByAgent}); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, e, run); got != engine.Completed {
			t.Errorf("after its answer, the run is %s", got)
		}
	})
}

func TestARunThatSomebodyHasToApprove(t *testing.T) {
	asked := &engine.Question{Text: "may it?", Choices: []string{engine.Yes, engine.No}, Channel: "team", To: "C1", For: time.Hour, Else: engine.No}
	for name, test := range map[string]struct {
		act    func(t *testing.T, e *engine.Engine, run *engine.Run, id string)
		status engine.Status
		closed string
	}{
		"yes": {func(t *testing.T, e *engine.Engine, _ *engine.Run, id string) {
			if _, err := e.AnswerQuestion(t.Context(), id, engine.Answer{Text: "perhaps"}); err == nil {
				t.Error("an answer that is no choice was taken")
			}
			answer := engine.Answer{Text: engine.Yes, By: "Ana", Via: engine.AnsweredByChannel}
			if _, err := e.AnswerQuestion(t.Context(), id, answer); err != nil {
				t.Error(err)
			}
		}, engine.Completed, "Answered by Ana: yes"},
		"no": {func(t *testing.T, e *engine.Engine, _ *engine.Run, id string) {
			if _, err := e.AnswerQuestion(t.Context(), id, engine.Answer{Text: engine.No, By: "Ana", Via: engine.AnsweredByPage}); err != nil {
				t.Error(err)
			}
		}, engine.Cancelled, "Answered by Ana: no"},
		"no answer": {func(*testing.T, *engine.Engine, *engine.Run, string) { time.Sleep(61 * time.Minute) },
			engine.Cancelled, "Nobody answered in time, so the answer is: no."},
		"cancelled": {func(t *testing.T, e *engine.Engine, run *engine.Run, _ string) {
			if _, err := e.Cancel(t.Context(), run.ID, "a test"); err != nil {
				t.Error(err)
			}
		}, engine.Cancelled, "The run has ended: no answer is needed any more."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				questions := &questioner{beforeStart: asked}
				e, service := startAside(t, echo, questions)
				run := newRun("chat", "hello")
				submit(t, e, run)
				if got := statusOf(t, e, run); got != engine.Waiting {
					t.Fatalf("the run is %s", got)
				}
				test.act(t, e, run, engine.QuestionID(run.ID, 0))
				synctest.Wait()
				record := found(t, e, run)
				if record.Status != test.status || record.Questions[0].Answer == nil {
					t.Errorf("the run is %+v", record)
				}
				want := []string{"ask C1: may it? [yes no]", "close message 1 of C1: may it?\n\n" + test.closed}
				if got := service.lines(); !slices.Equal(got, want) {
					t.Errorf("the chat has %q", got)
				}
				if started := len(questions.started) == 1; started != (name == "yes") {
					t.Errorf("started %v", questions.started)
				}
			})
		})
	}
}

func TestAnAnswerThatSomebodyHasToApprove(t *testing.T) {
	for answer, sent := range map[string]bool{engine.Yes: true, engine.No: false} {
		synctest.Test(t, func(t *testing.T) {
			followed := runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
				if turn.Emit != nil {
					t.Error("the answer can be followed before anybody agreed")
				}
				return engine.Reply{Text: turn.Message, Usage: []usage.Report{{Cost: usage.Number("2")}}}, nil
			})
			e, service := startAside(t, followed, &questioner{beforeDelivery: &engine.Question{Text: "send it?", Choices: []string{engine.Yes, engine.No}}})
			run := newRun("chat", "hello")
			run.Channel, run.To = "team", "C1"
			submit(t, e, run)
			if got := statusOf(t, e, run); got != engine.Waiting {
				t.Fatalf("the run is %s", got)
			}
			if page, _, err := e.OpenQuestions(t.Context(), 10, ""); err != nil || len(page) != 1 || page[0].Text != "send it?" {
				t.Errorf("open questions: %+v, %v", page, err)
			}
			if _, err := e.AnswerQuestion(t.Context(), engine.QuestionID(run.ID, 0), engine.Answer{Text: answer, By: "Ana", Via: engine.AnsweredByAPI}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			record, lines := found(t, e, run), service.lines()
			if costs, err := e.Costs(t.Context(), time.Hour); err != nil || usage.Sum(record.Outcome.Usage).Cost != 2*usage.Dollar ||
				len(costs) != 1 || costs[0].Use.Cost != 2*usage.Dollar {
				t.Errorf("the run used %+v, and %+v was spent: %v", record.Outcome.Usage, costs, err)
			}
			if sent && (record.Status != engine.Completed || !slices.Equal(lines, []string{"send hello"})) {
				t.Errorf("the run is %+v, the chat has %q", record, lines)
			}
			if !sent && (record.Status != engine.Cancelled || record.Outcome.HasText || record.Outcome.Account.LastAnswer != "hello" || len(lines) != 0) {
				t.Errorf("the run is %+v, the chat has %q", record, lines)
			}
		})
	}
}

func TestAnAgentThatAsksInTheMiddleOfATurn(t *testing.T) {
	asks := runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
		if turn.Message == "plain" {
			return engine.Reply{Text: "plain"}, nil
		}
		answer, err := turn.Ask(ctx, engine.Ask{Text: "may I?", Choices: []string{"allow", "reject"},
			Place: engine.AskPlace{Channel: "team", To: "C1", For: time.Hour, Else: "reject"}})
		if err != nil {
			return engine.Reply{}, err
		}
		return engine.Reply{Text: answer.Text}, nil
	})
	for name, test := range map[string]struct {
		act    func(e *engine.Engine, run *engine.Run)
		status engine.Status
		text   string
	}{
		"allowed": {func(e *engine.Engine, run *engine.Run) {
			time.Sleep(30 * time.Minute) // longer than the time of the run
			if _, err := e.AnswerQuestion(context.Background(), engine.QuestionID(run.ID, 0), engine.Answer{Text: "allow", Via: engine.AnsweredByAPI}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}, engine.Completed, "allow"},
		"no answer": {func(*engine.Engine, *engine.Run) { time.Sleep(61 * time.Minute) }, engine.Completed, "reject"},
		"cancelled": {func(e *engine.Engine, run *engine.Run) {
			if _, err := e.Cancel(context.Background(), run.ID, "a test"); err != nil {
				t.Error(err)
			}
		}, engine.Cancelled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(asks)
				c.Workers = 1
				service := new(chatService)
				c.Questions, c.Channels = new(questioner), map[string]engine.Channel{"team": service}
				e := startOn(t, memory.New().Store(), c)
				run, other := newRun("chat", "hello"), newRun("other chat", "plain")
				submit(t, e, run)
				if got := statusOf(t, e, run); got != engine.Waiting {
					t.Errorf("the run is %s", got)
				}
				submit(t, e, other)
				if got := statusOf(t, e, other); got != engine.Completed {
					t.Errorf("while the only worker waits for a person, another run is %s", got)
				}
				test.act(e, run)
				synctest.Wait()
				record := found(t, e, run)
				if record.Status != test.status || record.Outcome.Text != test.text || record.Questions[0].Answer == nil {
					t.Errorf("the run is %+v", record)
				}
				if lines := service.lines(); len(lines) != 2 || !strings.HasPrefix(lines[1], "close message 1") {
					t.Errorf("the chat has %q", lines)
				}
			})
		})
	}
}

func TestAnAgentThatPutsItsTurnAsideForInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.TakenOn != "" {
				return engine.Reply{Text: turn.TakenOn + " with " + turn.Input}, nil
			}
			return engine.Reply{}, &engine.TakenOnError{State: "task 7", Ask: &engine.Ask{Text: "which branch?"}}
		})
		e, _ := startAside(t, runner, new(questioner))
		run := newRun("chat", "hello")
		submit(t, e, run)
		synctest.Wait()
		if _, err := e.AnswerQuestion(t.Context(), engine.QuestionID(run.ID, 0), engine.Answer{Text: "main", Via: engine.AnsweredByCommand}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if record := found(t, e, run); record.Outcome.Text != "task 7 with main" {
			t.Errorf("the run is %+v", record)
		}
	})
}

// The engine stops and another one goes on, as after a restart: nothing is started again, and the deadline holds.
func TestARunThatIsPutAsideOutlivesTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &later{limit: time.Hour}
		c := config(runner)
		c.Questions = new(questioner)
		data := memory.New()
		first := engine.New(data.Store())
		first.Attach(c)
		answered, late := newRun("one", "one"), newRun("two", "two")
		for _, run := range []*engine.Run{answered, late} {
			if err := first.Submit(t.Context(), run, 0); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		first.Stop()
		time.Sleep(30 * time.Minute)
		e := startOn(t, data.Store(), c)
		if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(answered.ID, 0), engine.Answer{Text: "done", Via: engine.AnsweredByAgent}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Minute)
		if got := statusOf(t, e, answered); got != engine.Completed {
			t.Errorf("the run that was answered is %s", got)
		}
		if got := statusOf(t, e, late); got != engine.TimedOut || len(runner.turns) != 2 {
			t.Errorf("the other run is %s, and there were %d turns", got, len(runner.turns))
		}
	})
}

// promptFunc is a runner that could abandon a turn, and whose agent never takes one on.
type promptFunc struct{ *laterFunc }

func (promptFunc) TakesOn() bool { return false }

func TestAnAgentThatTakesNothingOnGetsNoPlaceToAnswerLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offered *engine.Later
		answers := laterFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			offered = turn.Later
			return engine.Reply{Text: "done"}, nil
		})
		for runner, offers := range map[engine.Runner]bool{promptFunc{&answers}: false, &answers: true} {
			e, _ := startAside(t, runner, new(questioner))
			run := newRun("chat", "hello")
			submit(t, e, run)
			if got := statusOf(t, e, run); got != engine.Completed || (offered != nil) != offers {
				t.Errorf("the run is %s, and the agent of a %T may answer at %+v", got, runner, offered)
			}
		}
	})
}
