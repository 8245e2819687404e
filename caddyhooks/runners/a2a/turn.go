package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// agentTurn is one turn on its way.
type agentTurn struct {
	runner *A2A
	turn   *engine.Turn
	agent  *knownAgent
	quiet  *httpcall.Silence
	answer *turnAnswer
	broken error // what the agent says cannot be taken in
	sent   sync.Once
}

// converse is Run with errors that may show a secret.
func (a *A2A) converse(turnCtx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	agent, err := a.agents.get(turnCtx)
	if err != nil {
		return reply, err
	}
	session, err := turns.Session(turnCtx, turn)
	if err != nil {
		return reply, err
	}
	ctx, end := context.WithCancelCause(turnCtx)
	defer end(nil)
	t := &agentTurn{runner: a, turn: turn, agent: agent, quiet: &httpcall.Silence{Limit: a.idle(agent), End: end}}
	defer t.quiet.Stop()
	t.begin()
	lost, err := t.ask(ctx, session)
	if lost {
		t.begin()
		reply.SessionRenewed = true
		_, err = t.ask(ctx, "")
	}
	if err == nil {
		reply.Text, err = t.answer.result()
	}
	if err == nil && turnCtx.Err() != nil { // it was cancelled while the end of the answer was on its way
		err = turnCtx.Err()
	}
	if turn.Memory() {
		reply.Session = t.answer.context
		reply.SessionRenewed = reply.SessionRenewed || session != "" && t.answer.context != "" && t.answer.context != session
	}
	if files := t.answer.files(); files > 0 && err == nil {
		a.log.Info("files in an agent's answer are not read", zap.String("run_id", turn.RunID), zap.Int("files", files))
	}
	if err == nil {
		return reply, nil
	}
	if t.answer.open() {
		t.cancel(ctx)
	}
	reply.Text = ""
	if silent := httpcall.WasSilent(ctx); silent != nil {
		return reply, silent
	}
	if turnCtx.Err() == nil && !t.answer.ended() {
		a.agents.forget(agent)
	}
	return reply, err
}

// idle is how long the agent may be silent.
func (a *A2A) idle(agent *knownAgent) time.Duration {
	if a.IdleTimeout == 0 && agent.streams {
		return httpcall.DefaultIdle
	}
	return time.Duration(a.IdleTimeout)
}

func (t *agentTurn) begin() {
	t.answer = &turnAnswer{schema: t.turn.ResponseSchema != nil, emit: t.turn.Emit}
}

// newCall is a request of the turn.
func (t *agentTurn) newCall() *agentCall {
	call := newAgentCall(t.quiet, t.arrived)
	call.trace = t.turn.TraceParent
	return call
}

// arrived is called when a request is with the agent.
func (t *agentTurn) arrived() {
	t.sent.Do(func() {
		if t.turn.Sent != nil {
			t.turn.Sent()
		}
	})
}

// ask sends the message and collects the answer until the agent will do no more. lost reports that the agent does not know the
// context, and has not started.
func (t *agentTurn) ask(ctx context.Context, session string) (lost bool, err error) {
	call := t.newCall()
	req := t.request(session)
	if t.agent.streams {
		err = t.stream(call.with(ctx), req)
	} else {
		err = t.send(call.with(ctx), req)
	}
	call.way.End()
	switch {
	case t.broken == nil && t.answer.ended():
		return false, nil // whatever the end of the stream was like
	case ctx.Err() != nil && err != nil:
		return false, call.problem(err)
	case t.broken != nil:
		return false, httpcall.ReadingError(t.broken)
	case errors.Is(call.err, answers.ErrTooLarge):
		return false, call.err
	case t.answer.task != "" && !isAgentError(err):
		return false, t.poll(ctx) // the agent goes on, also if the connection broke
	case err != nil && session != "" && !t.answer.heard && lostContext(call, err):
		return true, nil
	case err != nil:
		return false, agentError(call, err)
	default:
		return false, errors.New("the agent's stream ended without an answer")
	}
}

func (t *agentTurn) stream(ctx context.Context, req *a2a.SendMessageRequest) error {
	for event, err := range t.agent.client.SendStreamingMessage(ctx, req) {
		if err == nil {
			t.broken = t.answer.add(event)
		}
		if err != nil || t.broken != nil || t.answer.ended() {
			return err
		}
	}
	return nil
}

// send has the agent name its task at once, so that the task can be cancelled. A turn that ends in the meantime waits a moment for
// that name.
func (t *agentTurn) send(ctx context.Context, req *a2a.SendMessageRequest) error {
	return turns.Patiently(ctx, taskNamePatience, func(ctx context.Context) error {
		result, err := t.agent.client.SendMessage(ctx, req)
		if err == nil {
			t.broken = t.answer.add(result)
		}
		return err
	}, func() {})
}

const (
	// taskNamePatience is how long an agent may take to name the task of a message that is not wanted any more.
	taskNamePatience = time.Second

	// The pauses between two questions for the state of a task grow from the first to the second.
	firstPoll = 100 * time.Millisecond
	slowPoll  = 2 * time.Second

	// pollFailures is how many times in a row an agent that was reached before may not be reached.
	pollFailures = 5
)

// poll asks for the task until the agent will do no more.
func (t *agentTurn) poll(ctx context.Context) error {
	failures, none, slowest := 0, 0, slowPoll
	if limit := t.quiet.Limit; limit > 0 {
		slowest = min(slowest, limit/2) // an agent that is not asked says nothing
	}
	for pause := t.runner.firstPoll; !t.answer.ended(); pause = 2 * pause {
		pause = min(pause, slowest)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		call := t.newCall()
		task, err := t.agent.client.GetTask(call.with(ctx), &a2a.GetTaskRequest{ID: t.answer.task, HistoryLength: &none})
		call.way.End()
		if err == nil {
			failures = 0
			if err := t.answer.add(task); err != nil {
				return httpcall.ReadingError(err)
			}
			continue
		}
		problem := agentError(call, err)
		var unavailable *engine.UnavailableError
		busy := errors.As(problem, &unavailable)
		failures++
		if failures == pollFailures || !busy && call.status != 0 || call.err == nil || errors.Is(call.err, answers.ErrTooLarge) {
			if busy { // for this request, but the turn has started
				problem = unavailable.Err
			}
			return fmt.Errorf("asking for the state of the task: %w", problem)
		}
	}
	return nil
}

// cancelTimeout is how long an agent may take to hear that a task is not wanted any more.
const cancelTimeout = 2 * time.Second

// cancel tells the agent to leave the task. Nothing depends on whether it does.
func (t *agentTurn) cancel(ctx context.Context) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer end()
	call := newAgentCall(nil, nil)
	call.trace = t.turn.TraceParent
	_, _ = t.agent.client.CancelTask(call.with(ctx), &a2a.CancelTaskRequest{ID: t.answer.task})
	call.way.End()
}

// request is the message with what the agent may know of the turn. A2A has no other place for the system text.
func (t *agentTurn) request(session string) *a2a.SendMessageRequest {
	turn, none := t.turn, 0
	facts := map[string]any{"runId": turn.RunID, "phase": "turn"}
	id := turn.RunID + ":turn"
	if turn.Isolated() {
		facts["phase"] = "repair"
		id = fmt.Sprintf("%s:repair-%d", turn.RunID, turn.Repair)
	}
	for name, value := range map[string]string{"hook": turn.Hook, "tier": turn.Tier} {
		if value != "" {
			facts[name] = value
		}
	}
	for name, value := range map[string]json.RawMessage{"metadata": turn.Metadata, "responseJsonSchema": turn.ResponseSchema} {
		if value != nil {
			facts[name] = value
		}
	}
	return &a2a.SendMessageRequest{
		Message: &a2a.Message{
			ID: id, ContextID: session, Role: a2a.MessageRoleUser,
			Parts:    a2a.ContentParts{a2a.NewTextPart(turns.WithSystem(turn, turn.Message))},
			Metadata: facts,
		},
		Config: &a2a.SendMessageConfig{
			AcceptedOutputModes: []string{"text/plain", "application/json"}, HistoryLength: &none, ReturnImmediately: !t.agent.streams,
		},
	}
}

// lostContext reports whether an agent refused a message because it does not know the context.
func lostContext(call *agentCall, err error) bool {
	text := err.Error()
	var answer *answers.Error
	if errors.As(call.err, &answer) {
		text = answer.Text
	}
	switch {
	case errors.Is(err, a2a.ErrTaskNotFound), call.status == http.StatusNotFound, call.status == http.StatusGone:
		return true
	case call.err != nil && call.status != http.StatusBadRequest && call.status != http.StatusUnprocessableEntity:
		return false
	default:
		return strings.Contains(strings.ToLower(text), "context")
	}
}

// isAgentError reports whether an error comes from the agent.
func isAgentError(err error) bool {
	var reported *a2a.Error
	return errors.As(err, &reported)
}

// agentError is the error of a request that the client made.
func agentError(call *agentCall, err error) error {
	if call.err != nil {
		return call.err
	}
	err = call.problem(err)
	problem := "the answer is not that of an A2A agent"
	var reported *a2a.Error
	if errors.As(err, &reported) {
		problem = "the agent answered with an error"
		if reported.Err != nil && reported.Err.Error() != reported.Message {
			problem += ", " + reported.Err.Error()
		}
		return &answers.Error{Problem: problem, Text: answers.Beginning(reported.Message)}
	}
	text := err.Error()
	return &answers.Error{Problem: problem, Text: answers.Beginning(text)}
}
