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

	kept     keptTask // what is kept of the task when it is put aside
	restored bool     // it was put aside before
}

// converse is Run with errors that may show a secret.
func (a *A2A) converse(turnCtx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	t := &agentTurn{runner: a, turn: turn}
	if err := t.restore(); err != nil {
		return reply, err
	}
	if t.agent, err = a.agents.get(turnCtx); err != nil {
		return reply, t.unless(turnCtx, err)
	}
	session := t.kept.Context
	if !t.restored {
		if session, err = turns.Session(turnCtx, turn); err != nil {
			return reply, err
		}
	}
	ctx, end := context.WithCancelCause(turnCtx)
	defer end(nil)
	t.quiet = &httpcall.Silence{Limit: a.idle(t.agent), End: end}
	defer t.quiet.Stop()
	t.begin()
	renewed, err := t.carryOut(ctx, session)
	var takenOn *engine.TakenOnError
	reply.Usage = t.answer.used
	if err == nil {
		reply.Text, err = t.result()
	}
	if err == nil && turnCtx.Err() != nil { // it was cancelled while the end of the answer was on its way
		err = turnCtx.Err()
	}
	if turn.Memory() {
		reply.Session = t.answer.context
		reply.SessionRenewed = renewed || session != "" && t.answer.context != "" && t.answer.context != session
	}
	switch {
	case err == nil:
		if files := t.answer.files(); files > 0 {
			a.log.Info("files in an agent's answer are not read", zap.String("run_id", turn.RunID), zap.Int("files", files))
		}
		return reply, nil
	case errors.As(err, &takenOn):
		reply.Text, reply.Usage = "", nil // which the task tells at its end, for all of it
		return reply, err
	}
	if t.answer.open() {
		t.cancel(ctx)
	}
	reply.Text = ""
	if silent := httpcall.WasSilent(ctx); silent != nil {
		return reply, silent
	}
	if turnCtx.Err() == nil && !t.answer.ended() {
		a.agents.forget(t.agent)
	}
	return reply, err
}

// carryOut has the agent answer. renewed reports that the agent had lost the context.
func (t *agentTurn) carryOut(ctx context.Context, session string) (renewed bool, err error) {
	if t.restored {
		return false, t.goOn(ctx)
	}
	req := t.request(session)
	if !t.agent.streams {
		req.Config.PushConfig = t.push("")
	}
	if renewed, err = t.ask(ctx, req); renewed {
		t.begin()
		req.Message.ContextID = ""
		_, err = t.ask(ctx, req)
	}
	return renewed, err
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
	if t.restored { // its listeners have heard a part of it already
		t.answer.task, t.answer.context, t.answer.emit = t.kept.Task, t.kept.Context, nil
	}
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
func (t *agentTurn) ask(ctx context.Context, req *a2a.SendMessageRequest) (lost bool, err error) {
	call := t.newCall()
	if !req.Config.ReturnImmediately {
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
	case err != nil && !t.restored && req.Message.ContextID != "" && !t.answer.heard && lostContext(call, err):
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
			t.broken = t.take(event)
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
			t.broken = t.take(result)
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

// poll asks for the task until the agent will do no more. A task that can be put aside is, after a while.
func (t *agentTurn) poll(ctx context.Context) error {
	failures, slowest := 0, slowPoll
	if limit := t.quiet.Limit; limit > 0 {
		slowest = min(slowest, limit/2) // an agent that is not asked says nothing
	}
	pause, aside := t.runner.firstPoll, time.Now().Add(t.runner.asideAfter)
	if t.restored {
		pause, aside = 0, time.Now()
	}
	for !t.answer.ended() {
		if err := turns.Wait(ctx, min(pause, slowest)); err != nil {
			return t.unless(ctx, err)
		}
		temporary, err := t.look(ctx)
		switch failures++; {
		case err == nil:
			failures = 0
		case temporary && t.canBePutAside():
			return t.unless(ctx, err)
		case !temporary || failures == pollFailures:
			return err
		}
		if !t.answer.ended() && t.canBePutAside() && !time.Now().Before(aside) {
			return t.takenOn()
		}
		pause = max(2*pause, t.runner.firstPoll)
	}
	return nil
}

// look asks for the task once. temporary reports that the agent could not be asked for now.
func (t *agentTurn) look(ctx context.Context) (temporary bool, err error) {
	none := 0
	call := t.newCall()
	task, err := t.agent.client.GetTask(call.with(ctx), &a2a.GetTaskRequest{ID: t.answer.task, HistoryLength: &none})
	call.way.End()
	if err == nil {
		if err := t.take(task); err != nil {
			return false, httpcall.ReadingError(err)
		}
		return false, nil
	}
	problem := agentError(call, err)
	var unavailable *engine.UnavailableError
	busy := errors.As(problem, &unavailable)
	if busy { // for this request, but the turn has started
		problem = unavailable.Err
	}
	if isGone(call, err) {
		problem = fmt.Errorf("the task is gone: %w", problem)
	}
	problem = fmt.Errorf("asking for the state of the task: %w", problem)
	down := call.status == 0 || call.status >= http.StatusInternalServerError && t.canBePutAside()
	return call.err != nil && (busy || down) && !errors.Is(call.err, answers.ErrTooLarge), problem
}

// cancelTimeout is how long an agent may take to hear that a task is not wanted any more.
const cancelTimeout = 2 * time.Second

// cancel tells the agent to leave the task. Nothing depends on whether it does.
func (t *agentTurn) cancel(ctx context.Context) {
	_ = t.agent.cancel(context.WithoutCancel(ctx), t.answer.task, t.turn.TraceParent)
}

func (k *knownAgent) cancel(ctx context.Context, task a2a.TaskID, trace string) error {
	ctx, end := context.WithTimeout(ctx, cancelTimeout)
	defer end()
	call := newAgentCall(nil, nil)
	call.trace = trace
	_, err := k.client.CancelTask(call.with(ctx), &a2a.CancelTaskRequest{ID: task})
	call.way.End()
	if err == nil || isGone(call, err) || errors.Is(err, a2a.ErrTaskNotCancelable) {
		return nil
	}
	return agentError(call, err)
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
	case isGone(call, err):
		return true
	case call.err != nil && call.status != http.StatusBadRequest && call.status != http.StatusUnprocessableEntity:
		return false
	default:
		return strings.Contains(strings.ToLower(text), "context")
	}
}

// isGone reports whether an agent does not know a task any more.
func isGone(call *agentCall, err error) bool {
	return errors.Is(err, a2a.ErrTaskNotFound) || call.status == http.StatusNotFound || call.status == http.StatusGone
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
