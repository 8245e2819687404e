package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/questions"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// runQuestions writes the questions of the runs of an instance.
type runQuestions struct{ in *Instance }

// ask is what a hook asks before something, nil if it asks nothing. If the hook is gone, it is what the hook asked when it took the run.
func (q runQuestions) ask(ctx context.Context, run *engine.Run, before string) *settings.Ask {
	select {
	case <-q.in.Started: // before that, hooks are not known
	case <-ctx.Done():
		return nil
	}
	if hook := q.in.Active.Load().Hooks[run.Hook]; hook != nil {
		return hook.AskBefore(before)
	}
	return settings.KeptAsk(run, before)
}

// BeforeStart asks whether a run may start.
func (q runQuestions) BeforeStart(ctx context.Context, run *engine.Run) (*engine.Question, error) {
	ask := q.ask(ctx, run, settings.BeforeRun)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if ask == nil {
		return nil, nil
	}
	question := ask.Question()
	question.Text = questions.BeforeStart(run)
	if ask.First != "" {
		known, err := q.in.Service.senders.Knows(ctx, run.Hook, run.Sender)
		if known || err != nil {
			return nil, err
		}
		question.Text = questions.FirstOf(run)
	}
	return question, nil
}

// Started remembers the sender of a run, if it was asked about that one.
func (q runQuestions) Started(ctx context.Context, run *engine.Run) error {
	if ask := q.ask(ctx, run, settings.BeforeRun); ask == nil || ask.First == "" {
		return nil
	}
	return q.in.Service.senders.Remember(ctx, run.Hook, run.Sender)
}

// BeforeDelivery asks whether the answer of a run may be sent.
func (q runQuestions) BeforeDelivery(run *engine.Run, outcome *engine.Outcome) *engine.Question {
	ask := q.ask(context.Background(), run, settings.BeforeDeliver)
	if ask == nil {
		return nil
	}
	question := ask.Question()
	question.Text = questions.BeforeDelivery(run, outcome)
	return question
}

// FromAgent asks what an agent asks.
func (q runQuestions) FromAgent(run *engine.Run, ask engine.Ask) *engine.Question {
	place := ask.Place
	return &engine.Question{Text: questions.FromAgent(run, ask), Choices: ask.Choices, Channel: place.Channel, To: place.To, By: place.By,
		For: place.For, Else: place.Else}
}

// Later is where an agent answers, without a URL if nobody knows one. It is nil if the store does not have the key now.
func (q runQuestions) Later(question string) *engine.Later {
	token, ok := q.token(questions.Agent, question)
	if !ok {
		return nil
	}
	later := &engine.Later{Token: token}
	if base := q.in.baseURL(); base != "" {
		later.URL = base + "/replies/" + question
	}
	return later
}

// Link is where people answer. The token stands behind a #, which browsers keep to themselves: it is in no log.
func (q runQuestions) Link(question string) string {
	base := q.in.baseURL()
	token, ok := q.token(questions.Person, question)
	if base == "" || !ok {
		return ""
	}
	return base + "/answers/" + question + "#" + token
}

func (q runQuestions) token(who questions.Who, question string) (token string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), StorePatience)
	defer cancel()
	token, err := q.in.Service.Tokens.Of(ctx, who, question)
	if err != nil {
		q.in.Log.Warn("the key of questions cannot be read", zap.Error(err))
	}
	return token, err == nil
}

// baseURL is where agents and people outside reach the hooks, "" if nobody knows.
func (in *Instance) baseURL() string {
	if in.PublicURL != "" {
		return strings.TrimSuffix(in.PublicURL, "/") + in.Path
	}
	urls := in.Urls
	if i := slices.IndexFunc(urls, func(url string) bool { return strings.HasPrefix(url, "https://") }); i >= 0 {
		return urls[i]
	}
	return cmp.Or(append(urls, "")...)
}

// WarnAboutPublicURL logs that agents or people cannot answer, since nobody knows where they reach the hooks.
func (in *Instance) WarnAboutPublicURL() {
	if in.baseURL() != "" {
		return
	}
	if who := in.needsPublicURL(); who != nil {
		in.Log.Warn("agents and people have no URL to answer at: set public_url, since the site has no host name", who...)
	}
}

// needsPublicURL names a runner whose agents answer at a URL, or a hook about which people do, nil if there is none.
func (in *Instance) needsPublicURL() []zap.Field {
	runners := in.EngineConfig.Runners
	for _, name := range slices.Sorted(maps.Keys(runners)) {
		if runner, ok := runners[name].(interface{ AnswersLater() bool }); ok && runner.AnswersLater() {
			return []zap.Field{zap.String("runner", name)}
		}
	}
	for _, m := range in.Pinned.Mappings {
		for _, ask := range m.Ask {
			if _, buttons := in.Rules.Channels[ask.Channel].(engine.QuestionChannel); !buttons {
				return []zap.Field{zap.String("hook", m.Name), zap.String("channel", ask.Channel)}
			}
		}
	}
	return nil
}

// checkAskers finds runners that ask people in places where they cannot be asked.
func checkAskers(runners map[string]engine.Runner, channels map[string]engine.Channel) error {
	for name, runner := range runners {
		asker, ok := runner.(engine.Asker)
		if !ok {
			continue
		}
		for _, place := range asker.AskPlaces() {
			channel := channels[place.Channel]
			if channel == nil {
				return fmt.Errorf("ask of runner %s names no channel that is configured here: %s", name, place.Channel)
			}
			if err := channel.ValidTo(place.To); err != nil {
				return fmt.Errorf("ask of runner %s has a chat that is none on the channel %s: %w", name, place.Channel, err)
			}
			if _, buttons := channel.(engine.QuestionChannel); len(place.By) > 0 && !buttons {
				return fmt.Errorf("ask of runner %s has by, but the channel %s has no buttons, and cannot tell who answers", name, place.Channel)
			}
			if place.For > 366*24*time.Hour {
				return fmt.Errorf("ask of runner %s must be open for at most a year", name)
			}
		}
	}
	return nil
}

// Interface guards
var _ engine.Questioner = runQuestions{}
