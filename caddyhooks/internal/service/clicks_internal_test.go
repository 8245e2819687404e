package service

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/clicks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// askingChannel is a channel of some service that keeps what it asks.
type askingChannel struct {
	service string
	mu      sync.Mutex
	asked   []string // ids of questions
	closed  []string
	heard   []string // what it showed to one person
	hangs   chan struct{}
}

func (c *askingChannel) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: caddy.ModuleID("hooks.channels." + c.service)}
}

func (*askingChannel) Send(context.Context, *engine.Delivery) error { return nil }
func (*askingChannel) ValidTo(string) error                         { return nil }

func (c *askingChannel) Ask(_ context.Context, _ string, q engine.ChannelQuestion) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q.ID)
	return "C0123456789/1700000000.000200", nil
}

func (c *askingChannel) Close(_ context.Context, _, _, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = append(c.closed, text)
	return nil
}

func (c *askingChannel) Whisper(ctx context.Context, chat, thread, person, text string) error {
	if c.hangs != nil {
		select {
		case <-c.hangs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, fmt.Sprintf("%s %s %s: %s", chat, thread, person, text))
	return nil
}

// beforeEachRun asks a question before each run.
type beforeEachRun struct {
	engine.Questioner
	question engine.Question
}

func (q *beforeEachRun) BeforeStart(context.Context, *engine.Run) (*engine.Question, error) {
	question := q.question
	return &question, nil
}
func (*beforeEachRun) Started(context.Context, *engine.Run) error                   { return nil }
func (*beforeEachRun) BeforeDelivery(*engine.Run, *engine.Outcome) *engine.Question { return nil }
func (*beforeEachRun) Later(string) *engine.Later                                   { return nil }
func (*beforeEachRun) Link(string) string                                           { return "" }

type silentRunner struct{}

func (silentRunner) Run(context.Context, engine.Turn) (engine.Reply, error) {
	return engine.Reply{Text: "done"}, nil
}

// startAsking starts an instance whose runs wait for the answer to a question.
func startAsking(t *testing.T, question engine.Question) (in *Instance, channels map[string]*askingChannel) {
	t.Helper()
	channels = map[string]*askingChannel{"team": {service: "slack"}, "ops": {service: "telegram"}, "crew": {service: "discord"}}
	in = &Instance{Log: zap.NewNop(), Service: &Service{Engine: engine.New(memory.New().Store())}}
	in.Rules = settings.Rules{Channels: make(map[string]engine.Channel)}
	for name, channel := range channels {
		in.Rules.Channels[name] = channel
	}
	detach := in.Service.Engine.Attach(engine.Config{
		Runners: map[string]engine.Runner{"only": silentRunner{}}, DefaultRunner: "only", Channels: in.Rules.Channels, Workers: 4,
		Questions: &beforeEachRun{question: question}, Log: in.Log, Limits: engine.Limits{Retention: 24 * time.Hour}, MaxAttempts: 3,
	})
	t.Cleanup(func() {
		in.whispers.end()
		detach()
		in.Service.Engine.Stop()
	})
	return in, channels
}

// ask starts a run, and returns the id of its question.
func ask(t *testing.T, in *Instance) (question string) {
	t.Helper()
	run := &engine.Run{ID: uuid.Must(uuid.NewV7()).String(), Hook: "deploy", Action: engine.Agent, ChatID: uuid.NewString(), Message: "deploy", Timeout: time.Minute}
	if err := in.Service.Engine.SubmitAll(t.Context(), []*engine.Run{run}, 0); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return engine.QuestionID(run.ID, 0)
}

// click is what a service sends when somebody presses a button.
func click(t *testing.T, service, chat, person, name, question string, choice int) *clicks.Click {
	t.Helper()
	body := map[string]string{
		"slack": `{"type":"block_actions","user":{"id":%[2]q,"name":%[3]q},"channel":{"id":%[1]q,"name":"general"},"container":{"thread_ts":"1.1","message_ts":"1700000000.000200"},
			"actions":[{"type":"button","value":"%[4]s:%[5]d"}]}`,
		"telegram": `{"callback_query":{"id":"77","from":{"id":%[2]s,"first_name":%[3]q},"message":{"chat":{"id":%[1]s}},"data":"%[4]s:%[5]d"}}`,
		"discord":  `{"type":3,"channel_id":%[1]q,"member":{"user":{"id":%[2]q,"username":%[3]q}},"data":{"custom_id":"%[4]s:%[5]d"}}`,
	}[service]
	body = fmt.Sprintf(body, chat, person, name, question, choice)
	if service == "slack" {
		body = "payload=" + url.QueryEscape(body)
	}
	c := clicks.Parse(service, []byte(body))
	if c == nil {
		t.Fatalf("%s is no click", body)
	}
	return c
}

// press presses a button, and returns what the person is told.
func press(t *testing.T, in *Instance, channel *askingChannel, c *clicks.Click) string {
	t.Helper()
	reply, err := in.AnswerByClick(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if (reply == nil) != (c.Service == "slack") {
		t.Fatalf("%s is answered %s", c.Service, reply)
	}
	if reply != nil {
		return string(reply)
	}
	synctest.Wait()
	channel.mu.Lock()
	defer channel.mu.Unlock()
	if len(channel.heard) == 0 {
		return ""
	}
	return channel.heard[len(channel.heard)-1]
}

var questionPlaces = map[string]struct{ channel, to, chat, other string }{
	"slack": {"team", "C0123456789/1.1", "C0123456789", "C9"}, "telegram": {"ops", "-100123/7", "-100123", "-100124"},
	"discord": {"crew", "123456789012345678", "123456789012345678", "123456789012345679"},
}

func TestClicksAnswerQuestions(t *testing.T) {
	for service, place := range questionPlaces {
		t.Run(service, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, channels := startAsking(t, engine.Question{Text: "May it start?", Choices: []string{"yes", "no"}, Channel: place.channel, To: place.to, By: []string{"1", "2"}})
				channel := channels[place.channel]
				question := ask(t, in)
				if !slices.Equal(channel.asked, []string{question}) {
					t.Fatalf("asked are %q", channel.asked)
				}
				told := func(c *clicks.Click, words string) {
					t.Helper()
					if got := press(t, in, channel, c); !strings.Contains(got, words) {
						t.Errorf("is told %q, want %q", got, words)
					}
				}
				told(click(t, service, place.chat, "3", "Eve", question, 0), "You may not answer this question.")
				told(click(t, service, place.other, "1", "Ana", question, 0), "You may not answer this question.")
				told(click(t, service, place.chat, "1", "Ana", question, 2), "This question is closed.")
				for other, elsewhere := range questionPlaces {
					if other != service {
						if reply, err := in.AnswerByClick(t.Context(), click(t, other, elsewhere.chat, "1", "Ana", question, 0)); err != nil || reply != nil && !strings.Contains(string(reply), "You may not answer") {
							t.Errorf("a click on %s is answered %s, %v", other, reply, err)
						}
					}
				}
				unknown := engine.QuestionID(uuid.NewString(), 0)
				reply, err := in.AnswerByClick(t.Context(), click(t, service, place.chat, "1", "Ana", unknown, 0))
				if err != nil || reply != nil && !strings.Contains(string(reply), "This question is closed.") {
					t.Errorf("a question that does not exist is answered %s, %v", reply, err)
				}
				if q, err := in.Service.Engine.Question(t.Context(), question); err != nil || q.Answer != nil {
					t.Fatalf("%+v, %v", q, err)
				}
				for range 2 { // services repeat requests
					told(click(t, service, place.chat, "1", "Ana", question, 0), "You answered yes.")
				}
				told(click(t, service, place.chat, "1", "Ana B.", question, 1), "You answered yes.")
				told(click(t, service, place.chat, "2", "Bob", question, 0), "Ana answered first: yes.")
				told(click(t, service, place.chat, "2", "Ana (1)", question, 1), "Ana answered first: yes.")
				synctest.Wait()
				q, err := in.Service.Engine.Question(t.Context(), question)
				if err != nil || q.Answer == nil || q.Answer.Text != "yes" || q.Answer.By != "Ana (1)" || q.Answer.Via != engine.AnsweredByChannel {
					t.Errorf("%+v, %v", q.Answer, err)
				}
				if len(channel.closed) != 1 || !strings.Contains(channel.closed[0], "Ana (1)") {
					t.Errorf("closed with %q", channel.closed)
				}
			})
		})
	}
}

// Two people press at once: one wins, and the other is told who it was.
func TestOneOfManyClicksCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := startAsking(t, engine.Question{Text: "May it start?", Choices: []string{"yes", "no"}, Channel: "ops", To: "-100123"})
		for range 50 {
			question := ask(t, in)
			names, replies := []string{"Ana", "Bob"}, make([]string, 2)
			var pressed sync.WaitGroup
			for i, name := range names {
				c := click(t, "telegram", "-100123", fmt.Sprint(i+1), name, question, i)
				pressed.Go(func() {
					reply, err := in.AnswerByClick(t.Context(), c)
					if err != nil {
						t.Error(err)
					}
					replies[i] = string(reply)
				})
			}
			pressed.Wait()
			first := slices.IndexFunc(replies, func(reply string) bool { return strings.Contains(reply, `"You answered `) })
			if first < 0 {
				t.Fatalf("nobody won: %q", replies)
			}
			given := []string{"yes", "no"}[first]
			if want := fmt.Sprintf("%s answered first: %s.", names[first], given); !strings.Contains(replies[first], "You answered "+given) || !strings.Contains(replies[1-first], want) {
				t.Errorf("told are %q", replies)
			}
		}
	})
}

func TestClicksOnQuestionsThatNeedNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, channels := startAsking(t, engine.Question{Text: "May it start?", Choices: []string{"yes", "no"}, Channel: "team", To: "#general", For: time.Hour, Else: "no"})
		late, byPage, cancelled := ask(t, in), ask(t, in), ask(t, in)
		if _, err := in.Service.Engine.AnswerQuestion(t.Context(), byPage, engine.Answer{Text: "yes", Via: engine.AnsweredByPage}); err != nil {
			t.Fatal(err)
		}
		runID, _, _ := engine.ParseQuestionID(cancelled)
		if _, err := in.Service.Engine.Cancel(t.Context(), runID, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for question, want := range map[string]string{late: "This question is closed.", cancelled: "This question is closed.", byPage: "Somebody answered first: yes."} {
			if got := press(t, in, channels["team"], click(t, "slack", "C1", "U1", "Ana", question, 0)); got != "C1 1.1 U1: "+want {
				t.Errorf("is told %q, want %q", got, want)
			}
		}
	})
}

// Slack does not tell the names of private channels. The message that was posted tells.
func TestClicksInAChatOfAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, channels := startAsking(t, engine.Question{Text: "May it start?", Choices: []string{"yes", "no"}, Channel: "team", To: "#secret"})
		question := ask(t, in)
		if got := press(t, in, channels["team"], click(t, "slack", "C1", "U1", "Eve", question, 0)); got != "C1 1.1 U1: You may not answer this question." {
			t.Errorf("elsewhere is told %q", got)
		}
		if got := press(t, in, channels["team"], click(t, "slack", "C0123456789", "U1", "Ana", question, 0)); got != "C0123456789 1.1 U1: You answered yes." {
			t.Errorf("is told %q", got)
		}
	})
}

// A Slack that hangs is not asked by more than a few, holds up no click, and the end waits for it.
func TestWhispersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, channels := startAsking(t, engine.Question{Text: "May it start?", Choices: []string{"yes", "no"}, Channel: "team", To: "C1"})
		team := channels["team"]
		team.hangs = make(chan struct{})
		question := ask(t, in)
		for range 3 * maxWhispers {
			if _, err := in.AnswerByClick(t.Context(), click(t, "slack", "C1", "U1", "Ana", question, 0)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(team.hangs)
		synctest.Wait()
		if len(team.heard) != maxWhispers {
			t.Errorf("%d are shown", len(team.heard))
		}
		in.whispers.end()
		if _, err := in.AnswerByClick(t.Context(), click(t, "slack", "C1", "U1", "Ana", question, 0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(team.heard) != maxWhispers {
			t.Error("something is shown after the end")
		}
	})
}

func TestLimitedChannelsAsk(t *testing.T) {
	in := new(Instance)
	asks, ok := in.limited(&limitedAsking{}).(engine.QuestionChannel)
	if !ok {
		t.Fatal("a channel with allow_to does not ask")
	}
	if posted, err := asks.Ask(t.Context(), "C1", engine.ChannelQuestion{}); posted == "" || err != nil {
		t.Errorf("%q, %v", posted, err)
	}
	if _, ok := in.limited(&limitedSilent{}).(engine.QuestionChannel); ok {
		t.Error("a channel without buttons asks")
	}
	// Answers go to chats that are allowed alone, questions where the operator says.
	limited := in.limited(&limitedSilent{})
	if err := limited.Send(t.Context(), &engine.Delivery{To: "C1"}); !errors.Is(err, errChatNotAllowed) {
		t.Error(err)
	}
	if err := limited.Send(t.Context(), &engine.Delivery{To: "C1", Question: "q"}); err != nil {
		t.Error(err)
	}
}

// limitedAsking and limitedSilent are channels that allow no chats.
type limitedAsking struct{ askingChannel }

func (*limitedAsking) AllowsTo(string) bool { return false }
func (*limitedAsking) LimitsTo() bool       { return true }

type limitedSilent struct{ engine.Channel }

func (*limitedSilent) Send(context.Context, *engine.Delivery) error { return nil }
func (*limitedSilent) AllowsTo(string) bool                         { return false }
func (*limitedSilent) LimitsTo() bool                               { return true }
