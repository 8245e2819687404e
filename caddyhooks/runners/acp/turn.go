package acp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// cancelPatience is for an agent to end a turn that was cancelled. Tests shorten it.
var cancelPatience = 5 * time.Second

const (
	maxTurnBytes       = 64 << 20 // of all that an agent says in a turn
	maxPermissions     = 1000     // requests in a turn, all of which are answered
	maxPermissionNotes = 100      // of them that are noted
	maxPermissionTitle = 200
	maxToolCalls       = 1000    // of which the kind is remembered
	maxUseBytes        = 8 << 20 // of what else is remembered about them
)

// runInSession carries out a turn in a process that has other turns too.
func (a *ACP) runInSession(ctx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	id, err := turns.Session(ctx, turn)
	if err != nil {
		return reply, err
	}
	agent, err := a.pool.acquire(ctx, id, turn.ChatID)
	if err != nil {
		return reply, err
	}
	defer a.pool.release(agent)
	return a.runWith(ctx, turn, agent, id)
}

// runWith carries out a turn with an agent, in the session of that id or a new one. Some agents open a session that they have lost, and
// say so only when there is a message for it. The message then goes to a new one.
func (a *ACP) runWith(ctx context.Context, turn *engine.Turn, agent *agentProcess, id string) (reply engine.Reply, err error) {
	reply, err = a.runOnce(ctx, turn, agent, id)
	var lost *lostSessionError
	if errors.As(err, &lost) && id != "" && ctx.Err() == nil {
		again := *turn
		again.Sent = nil // it has been called
		reply, err = a.runOnce(ctx, &again, agent, "")
		reply.SessionRenewed = reply.Session != ""
	}
	return reply, err
}

// lostSessionError says that an agent has lost a session. Nothing was done in the turn.
type lostSessionError struct{ error }

func (e *lostSessionError) Unwrap() error { return e.error }

func (a *ACP) runOnce(ctx context.Context, turn *engine.Turn, agent *agentProcess, id string) (reply engine.Reply, err error) {
	kind := sessionKind{permit: a.Permit, ask: a.asked(), model: a.ByTier.For(turn), memory: turn.Memory(), isolated: turn.Isolated(),
		mark: agent.mark + "/" + rand.Text(), chat: turn.ChatID}
	if !turn.Memory() {
		kind.chat = kind.mark // it is nobody else's
	}
	message := a.neutralised(turn.Message)
	if !turn.Memory() && a.preset.meta != nil {
		kind.system = turns.SystemText(turn, nil)
	} else {
		message = turns.WithSystem(turn, message)
	}
	if err := a.untilReady(ctx, agent, id, kind.chat); err != nil {
		return reply, err
	}
	passage := agent.enter()
	var session *openSession
	var renewed bool
	err = turns.Patiently(ctx, cancelPatience, func(ctx context.Context) (err error) {
		session, renewed, err = a.sessionFor(ctx, agent, id, kind)
		return err
	}, a.endAgent(agent, "it did not open a session"))
	if err != nil {
		passage.leave()
		return reply, a.notBegun(ctx, agent, err)
	}
	a.pool.worked(agent)
	if turn.Memory() {
		reply.Session, reply.SessionRenewed = session.id, renewed
	}
	if old := agent.sessions.begin(session); old != nil {
		agent.closeSession(old)
	}
	defer func() {
		agent.sessions.end(session)
		if !turn.Memory() {
			agent.sessions.forget(session)
			agent.closeSession(session)
		}
	}()

	asking, endAsking := context.WithCancel(ctx)
	defer endAsking()
	t := &turnListener{runner: a, turn: turn, stderr: agent.process.Stderr(), stopped: make(chan struct{}), endAsking: endAsking}
	if !turn.Isolated() {
		t.tools, t.ask = true, askOneByOne(asking, turn)
	}
	passage.begin()
	defer passage.sweep(session)
	stop := agent.client.Listen(session.id, t)
	err = t.prompt(ctx, agent, session.id, message, a.endAgent(agent, "it did not end a turn that was cancelled"))
	stop()
	reply.Permissions = t.close()
	reply.Usage = t.used(session, kind.model)
	t.asks.Wait()
	var lost *lostSessionError
	var unavailable *engine.UnavailableError
	if errors.As(err, &lost) || id == "" && errors.As(err, &unavailable) { // the next try begins anew, without this message in its past
		agent.sessions.forget(session)
		reply.Session = ""
	}
	if err == nil {
		reply.Text, err = t.text.String(), ctx.Err()
	}
	if err != nil {
		reply.Text = ""
	}
	return reply, err
}

// neutralised is a message that the agent takes for text. Agents take a slash at the beginning for a command, and unlike their
// other ways to be called, this one is the same for all.
func (a *ACP) neutralised(message string) string {
	const strictest = "gemini"
	if a.Preset == "claude" {
		return turns.Neutralise(a.Preset, message)
	}
	return turns.Neutralise(strictest, message)
}

func (a *ACP) endAgent(agent *agentProcess, why string) func() {
	return func() { a.pool.end(agent, errors.New(why)) }
}

// notBegun is the error of a turn whose message was not sent.
func (a *ACP) notBegun(ctx context.Context, agent *agentProcess, err error) error {
	var rejected *acpclient.Rejected
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &rejected):
		return rejectedError("opening a session", err.Error(), rejected.Code)
	}
	return a.pool.unavailable(agent.problem("opening a session", err))
}

// closeSession has the agent free a session, if it can.
func (agent *agentProcess) closeSession(session *openSession) {
	if !agent.can.Close {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	go func() {
		defer cancel()
		_ = agent.client.CloseSession(ctx, session.id) // if it stays open, that does no harm
	}()
}

// turnListener listens to the agent during a turn.
type turnListener struct {
	runner *ACP
	turn   *engine.Turn
	tools  bool   // it may use some
	stderr string // of the agent, when the turn began

	ask       askFunc // nil if nobody can be asked
	endAsking func()
	asks      sync.WaitGroup // of requests that wait for people

	end acpclient.TurnEnd // for the one who called prompt

	mu          sync.Mutex
	text        strings.Builder
	held        strings.Builder // the end of text, which was not emitted yet
	said        string          // last by the agent itself, not by the model
	messageID   string
	broken      bool // something came between two pieces of text
	size        int
	acted       bool // the agent said or did something, or asked for it
	failed      bool
	closed      bool
	cancelled   bool
	asked       int
	waiting     int                          // requests that wait for people
	uses        map[string]acpclient.ToolUse // by their ids, as far as the agent has told …
	useBytes    int                          // … and how much that is, without kinds
	permissions []engine.Permission
	cost        usage.Number // of all turns of the session
	problem     error
	stopped     chan struct{} // closed when problem is set
}

var errPermissions = fmt.Errorf("the agent asked for permission more than %d times in a turn", maxPermissions)

// prompt sends the message and waits for the end of the turn.
func (t *turnListener) prompt(ctx context.Context, agent *agentProcess, session, message string, end func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.turn.Sent != nil {
		t.turn.Sent()
	}
	type ended struct {
		acpclient.TurnEnd
		err error
	}
	result := make(chan ended, 1)
	within, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	go func() {
		end, err := agent.client.Prompt(within, session, message, t.turn.TraceParent)
		result <- ended{end, err}
	}()
	var err error
	select {
	case r := <-result:
		t.end = r.TurnEnd
		return t.outcome(ctx, agent, r.StopReason, r.err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.stopped:
		err = t.problem
	}
	t.mu.Lock()
	t.cancelled = true
	t.endAsking()
	if ctx.Err() != nil {
		err = answers.CutShort(err, cmp.Or(t.said, agent.stderrSince(t.stderr)))
	}
	t.mu.Unlock()
	_ = agent.client.Cancel(session) // the agent is gone if that fails, and then there is a result
	timer := time.NewTimer(cancelPatience)
	defer timer.Stop()
	select {
	case r := <-result:
		t.end = r.TurnEnd
	case <-timer.C:
		end()
	}
	return err
}

// outcome says whether the turn has an answer.
func (t *turnListener) outcome(ctx context.Context, agent *agentProcess, reason string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rejected *acpclient.Rejected
	switch {
	case t.problem != nil:
		return t.problem
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &rejected):
		err := rejectedError("the agent answered with an error", rejected.Error(), rejected.Code)
		switch {
		case t.acted:
			return err
		case t.runner.preset.lostSession(rejected):
			return &lostSessionError{err}
		case rejected.Code >= http.StatusBadRequest: // the codes of the protocol are negative: it is the status of the model
			return answers.ModelRefusal(rejected.Code, 0, err)
		}
		return answers.ReportedRefusal(rejected.Message, err)
	case err != nil && agent.gone():
		return &engine.InterruptedError{Err: agent.problem("during the turn", err)}
	case err != nil:
		return agent.problem("during the turn", err)
	case t.failed:
		err := &answers.Error{Problem: "the agent could not ask its model", Text: t.said}
		if t.acted {
			return err
		}
		return answers.ReportedRefusal(t.said, err)
	case reason != string(acp.StopReasonEndTurn):
		return &answers.Error{Problem: "the agent ended the turn early: " + oneline.Of(reason, answers.MaxLine), Text: t.text.String()}
	case strings.TrimSpace(t.text.String()) == "":
		return &answers.Error{Problem: "the agent ended the turn without an answer", Text: t.said}
	}
	if t.held.Len() > 0 && t.turn.Emit != nil {
		t.turn.Emit(engine.Progress{Text: t.held.String()})
	}
	return nil
}

// rejectedError is the error of a request that an agent refused.
func rejectedError(problem, answer string, code int) error {
	failure := &answers.Error{Problem: problem, Text: answer}
	if code == loginNeeded {
		failure.Hint = "its key in env is missing or wrong, or nobody has logged in with its home"
	}
	return failure
}

// loginNeeded is the code of the protocol for an agent that does not know who pays.
const loginNeeded = -32000

func (agent *agentProcess) gone() bool {
	select {
	case <-agent.client.Done():
		return true
	default:
		return false
	}
}

// close ends the listening, and returns what was asked.
func (t *turnListener) close() []engine.Permission {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.endAsking()
	return t.permissions
}

// fail ends the turn. The lock is held.
func (t *turnListener) fail(problem error) {
	if t.problem == nil {
		t.problem = problem
		close(t.stopped)
	}
}

// Update takes what the agent says.
func (t *turnListener) Update(update acpclient.Update, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.problem != nil {
		return
	}
	if t.size += size; t.size > t.runner.maxBytes {
		t.fail(fmt.Errorf("the agent said more than %d bytes in a turn", t.runner.maxBytes))
		return
	}
	preset := &t.runner.preset
	if preset.failed != nil && preset.failed(&update) {
		t.failed = true
	}
	if preset.trouble != nil {
		t.noteTrouble(preset.trouble(&update))
	}
	switch update.Kind {
	case acpclient.UsageUpdate:
		if dollars := update.Dollars(); dollars != nil {
			_ = t.cost.UnmarshalJSON(dollars) // which takes anything
		}
	case acpclient.Thought:
		t.acted = true
	case acpclient.ToolCall:
		t.acted, t.broken = true, true
		t.noteUse(&update.ToolUse)
	case acpclient.ToolCallUpdate:
		t.noteUse(&update.ToolUse)
	case acpclient.MessageChunk:
		text := update.Text()
		if text == "" {
			return
		}
		if preset.answers != nil && !preset.answers(&update) {
			t.said = answers.Beginning(text)
			return
		}
		held := preset.holds != nil && preset.holds(&update)
		t.acted = t.acted || !held
		t.say(text, update.MessageID, held)
	}
}

// noteTrouble notes what the agent says about its model. One that cannot be reached is not waited for by the agent: it might do so for
// as long as the turn may take.
func (t *turnListener) noteTrouble(words string) {
	if words == "" {
		return
	}
	t.said = answers.Beginning(words)
	if !t.acted && answers.ReportsUnreachable(words) {
		t.fail(answers.ModelUnreachable(&answers.Error{Problem: "the agent cannot reach its model", Text: t.said}))
	}
}

// say adds to the answer. Messages of their own are set off by a blank line. What may be an error is not emitted before the turn has
// ended well, nor what comes after it.
func (t *turnListener) say(text, messageID string, hold bool) {
	if (t.broken || messageID != t.messageID) && t.text.Len() > 0 && !strings.HasSuffix(t.text.String(), "\n") {
		text = "\n\n" + text
	}
	t.broken, t.messageID = false, messageID
	if t.text.Len()+len(text) > answers.MaxReply {
		t.fail(answers.ErrTooLarge)
		return
	}
	t.text.WriteString(text)
	switch {
	case hold || t.held.Len() > 0:
		t.held.WriteString(text)
	case t.turn.Emit != nil && !t.cancelled:
		t.turn.Emit(engine.Progress{Text: text})
	}
}

// noteUse notes what the agent tells about the use of a tool before it asks for permission. The lock is held.
func (t *turnListener) noteUse(told *acpclient.ToolUse) {
	known, ok := t.uses[told.ID]
	if !ok && len(t.uses) == maxToolCalls {
		return
	}
	if t.uses == nil {
		t.uses = make(map[string]acpclient.ToolUse)
	}
	use := with(told, &known)
	size := t.useBytes - sizeOf(&known) + sizeOf(use)
	if len(t.runner.Ask) == 0 || size > maxUseBytes {
		t.uses[told.ID] = acpclient.ToolUse{Kind: use.Kind}
		t.useBytes -= sizeOf(&known)
		return
	}
	t.uses[told.ID], t.useBytes = *use, size
}

func sizeOf(use *acpclient.ToolUse) int { return len(use.Title) + len(use.Input) + len(use.Locations) }

// with is what is told about the use of a tool, and what was told before of the rest.
func with(use, before *acpclient.ToolUse) *acpclient.ToolUse {
	whole := *use
	whole.Title, whole.Kind = cmp.Or(use.Title, before.Title), cmp.Or(use.Kind, before.Kind)
	if !hasInput(use.Input) {
		whole.Input = before.Input
	}
	if !hasInput(use.Locations) {
		whole.Locations = before.Locations
	}
	return &whole
}

// Permission answers by the kind of the tool, or has people decide.
func (t *turnListener) Permission(request acpclient.PermissionRequest) (option string, decide func(context.Context) string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.cancelled || t.problem != nil {
		return "", nil
	}
	t.acted = true
	if t.asked++; t.asked > maxPermissions {
		t.fail(errPermissions)
		return "", nil
	}
	known := t.uses[request.ToolCall.ID]
	use := with(&request.ToolCall, &known)
	kind := use.Kind
	if !slices.Contains(toolKinds, kind) {
		kind = otherTool
	}
	if place, ok := t.runner.placeFor(kind); ok && t.tools {
		return t.askPeople(place, kind, use, &request)
	}
	answer := "rejected"
	if t.tools && slices.Contains(t.runner.Permit, kind) {
		if option = request.Option(acp.PermissionOptionKindAllowOnce); option != "" {
			answer = "allowed"
		}
	}
	if option == "" {
		option = request.Option(acp.PermissionOptionKindRejectOnce)
	}
	t.note(kind, use.Title, answer)
	return option, nil
}

// note notes a request and the answer to it, which may be changed while the lock is held and the turn goes on.
func (t *turnListener) note(kind, title, answer string) *string {
	if len(t.permissions) == maxPermissionNotes {
		return &answer
	}
	if t.permissions == nil {
		t.permissions = make([]engine.Permission, 0, maxPermissionNotes) // so that answers stay where they are
	}
	title = oneline.First(t.runner.Redact(title), maxPermissionTitle)
	t.permissions = append(t.permissions, engine.Permission{Kind: kind, Title: title, Answer: answer})
	return &t.permissions[len(t.permissions)-1].Answer
}

// Interface guards
var _ acpclient.Listener = (*turnListener)(nil)
