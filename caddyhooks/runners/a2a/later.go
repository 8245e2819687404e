package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// keptTask is what is kept of a task that is put aside: the State of a *engine.TakenOnError.
type keptTask struct {
	Task    a2a.TaskID    `json:"task"`
	Context string        `json:"context,omitempty"`
	Pause   time.Duration `json:"pause,omitempty"`  // the last one before the agent was asked
	Inputs  int           `json:"inputs,omitempty"` // how often the agent was given more input …
	Given   time.Time     `json:"given,omitzero"`   // … and when it last was …
	Asked   string        `json:"asked,omitempty"`  // … after it had asked for it with this status: see statusMark
	Until   time.Time     `json:"until,omitzero"`   // when the time of the task is over
	For     time.Duration `json:"for,omitempty"`    // how long it had when it could first reply to the URL …
	Reply   string        `json:"reply,omitempty"`  // … that it can reply to now
	Pushed  string        `json:"pushed,omitempty"` // the URL that it was told to send news to …
	Pushes  int           `json:"pushes,omitempty"` // … and how often it was told so
}

const (
	// asideAfter is how long the runner waits for a task before it puts it aside: most agents answer soon.
	asideAfter = 5 * time.Second

	// pushPause is the pause before an agent is asked that says by itself when there is news. The news may get lost.
	pushPause = 5 * time.Minute

	// maxPushes is how often an agent is told to send news. Some send it for each word, and a run has only so many questions.
	maxPushes = 20

	// maxTaskName bounds the names of a task and of its context.
	maxTaskName = 4 << 10

	// pushName names where an agent sends news of a task, so that the next place replaces the one before.
	pushName = "caddyhooks"
)

// restore has the turn go on with its task, if it was put aside.
func (t *agentTurn) restore() error {
	if t.turn.TakenOn == "" {
		return nil
	}
	kept, err := readKeptTask(t.turn.TakenOn)
	t.kept, t.restored = kept, true
	return err
}

var errKeptTask = errors.New("what is kept about the task cannot be read")

func readKeptTask(text string) (kept keptTask, err error) {
	if err := json.Unmarshal([]byte(text), &kept); err != nil || kept.Task == "" || kept.Pause < 0 || kept.For < 0 || kept.Inputs < 0 {
		return keptTask{}, errKeptTask
	}
	return kept, nil
}

// goOn gives the agent the input that it asked for, or looks how the task goes.
func (t *agentTurn) goOn(ctx context.Context) error {
	if t.turn.Input != "" {
		_, err := t.ask(ctx, t.input())
		return err
	}
	t.renewPush(ctx)
	return t.poll(ctx)
}

// canBePutAside reports whether the run can be put aside for the task.
func (t *agentTurn) canBePutAside() bool {
	return t.runner.Push > 0 && t.turn.Later != nil && t.isNamed()
}

// isNamed reports whether the task has a name by which it can be found again.
func (t *agentTurn) isNamed() bool {
	if t.answer == nil { // which has not begun
		return t.restored
	}
	return t.answer.task != "" && len(t.answer.task) <= maxTaskName && len(t.answer.context) <= maxTaskName
}

// unless is the error of a turn that cannot go on for now, unless its task can be put aside: that goes on. Input that was not sent is kept
// by whoever calls the runner again.
func (t *agentTurn) unless(ctx context.Context, err error) error {
	if !t.canBePutAside() || t.restored && t.turn.Input != "" && t.answer == nil {
		return err
	}
	if ctx.Err() == nil {
		t.runner.log.Warn("asking how a turn goes on failed; asking again", zap.String("run_id", t.turn.RunID), zap.Error(t.runner.Clean(err)))
	}
	return t.takenOn()
}

// takenOn is the error of a turn whose task goes on.
func (t *agentTurn) takenOn() error {
	kept, reply, push := &t.kept, t.turn.Later.URL, time.Duration(t.runner.Push)
	switch left := time.Until(kept.Until); {
	case kept.Until.IsZero():
		kept.Until, kept.For, kept.Reply = time.Now().Add(push), push, reply
	case kept.Reply == reply: // the time began when the agent was first asked to reply there
	case left <= 0:
		return fmt.Errorf("the agent has taken the turn on, and did not answer within %v", push)
	default:
		kept.For, kept.Reply = left, reply
	}
	kept.Pause = turns.NextPause(kept.Pause, t.runner.firstPause)
	again := kept.Pause
	if reply != "" && kept.Pushed == reply {
		again = pushPause
	}
	return t.keep(&engine.TakenOnError{For: kept.For, Again: again})
}

// keep completes the error of a turn that is put aside with what is kept of its task.
func (t *agentTurn) keep(aside *engine.TakenOnError) error {
	if t.answer != nil {
		t.kept.Task, t.kept.Context = t.answer.task, t.answer.context
	}
	state, err := json.Marshal(&t.kept)
	if err != nil {
		return err
	}
	aside.State = string(state)
	return aside
}

// push is where the agent sends news of a task, nil if it cannot.
func (t *agentTurn) push(task a2a.TaskID) *a2a.PushConfig {
	later, kept := t.turn.Later, &t.kept
	if t.runner.Push == 0 || later == nil || later.URL == "" || !t.agent.pushes || kept.Pushes >= maxPushes {
		return nil
	}
	kept.Pushed, kept.Pushes = later.URL, kept.Pushes+1
	return &a2a.PushConfig{
		TaskID: task, ID: pushName, URL: later.URL, Token: later.Token,
		Auth: &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: later.Token},
	}
}

// renewPush tells the agent to send its next news to another URL: each is good for once. It does so before the task is looked at, so that
// nothing is missed. An agent that does not do so is asked.
func (t *agentTurn) renewPush(ctx context.Context) {
	if t.turn.Later == nil || t.kept.Pushed == t.turn.Later.URL {
		return
	}
	config := t.push(t.answer.task)
	if config == nil {
		return
	}
	call := t.newCall()
	_, err := t.agent.client.CreateTaskPushConfig(call.with(ctx), config)
	call.way.End()
	if err != nil {
		t.kept.Pushed = ""
	}
}

// AnswersLater reports whether the agent needs a URL to send news to.
func (a *A2A) AnswersLater() bool { return a.Push > 0 }

// TakesOn reports whether a run may be put aside for a task, or for a question of the agent.
func (a *A2A) TakesOn() bool { return a.Push > 0 || a.Ask != nil }

// Abandon cancels a task that was put aside.
func (a *A2A) Abandon(ctx context.Context, state string) error {
	kept, err := readKeptTask(state)
	if err != nil {
		return err
	}
	agent, err := a.agents.get(ctx)
	if err == nil {
		err = agent.cancel(ctx, kept.Task, "")
	}
	return a.Clean(err)
}
