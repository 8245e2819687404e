package acp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
)

const (
	initializePatience = 60 * time.Second // for an agent to say that it is there
	firstStartPause    = time.Second      // before an agent that did not start is started again
	longestStartPause  = time.Minute
)

// agentPool are the processes of a runner.
type agentPool struct {
	start func() (*agentProcess, error) // does not wait for the agent to answer
	most  int
	idle  time.Duration
	log   *zap.Logger

	redactor answers.Redactor

	apart chan struct{} // holds something for each process of a single turn

	mu       sync.Mutex
	agents   []*agentProcess // those that take turns
	closed   bool
	failures int       // starts in a row that came to nothing …
	cause    error     // … the last one for this reason
	notUntil time.Time // when the next start may be
}

func newAgentPool(a *ACP) *agentPool {
	p := &agentPool{most: a.Processes, idle: time.Duration(a.Idle), log: a.log, redactor: a.Redactor}
	if p.most == 0 {
		p.most = defaultProcesses
	}
	if p.idle == 0 {
		p.idle = defaultIdle
	}
	p.apart = make(chan struct{}, p.most)
	config := *a // the runner may be gone when another configuration goes on with the pool
	sessions := a.Sessions
	if sessions == 0 {
		sessions = defaultSessions
	}
	p.start = func() (*agentProcess, error) {
		dir, home, temp, err := config.Program.Folders()
		if err != nil {
			return nil, err
		}
		if err := config.settle(home); err != nil {
			return nil, err
		}
		kind := processKind{permit: config.Permit, folder: config.PlaceDir()}
		return config.startAgent(agentFolders{dir: dir, home: home, temp: temp}, kind, sessions)
	}
	return p
}

// acquire gives a turn to the process that has its session open, or else to the one with the fewest turns. A process is started
// if there is none, or if all are busy and there may be more. The turn must release the agent.
func (p *agentPool) acquire(ctx context.Context, session, chat string) (*agentProcess, error) {
	agent, err := p.choose(session, chat)
	if err != nil {
		return nil, err
	}
	if err := agent.awaitReady(ctx); err != nil {
		p.release(agent)
		return nil, err
	}
	if agent.failure != nil {
		p.release(agent)
		return nil, p.unavailable(agent.failure)
	}
	return agent, nil
}

func (p *agentPool) choose(session, chat string) (*agentProcess, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *agentProcess
	p.agents = slices.DeleteFunc(p.agents, (*agentProcess).gone) // of some it may just not have been noted
	for _, agent := range p.agents {
		if agent.has(session, chat) {
			best = agent
			break
		}
		if best == nil || agent.turns < best.turns {
			best = agent
		}
	}
	if best == nil || best.turns > 0 && len(p.agents) < p.most && !best.has(session, chat) {
		if wait := time.Until(p.notUntil); wait > 0 {
			if best == nil {
				err := fmt.Errorf("the agent is left alone for a moment after it did not start: %w", p.cause)
				return nil, &engine.UnavailableError{RetryAfter: wait, Err: err}
			}
		} else {
			agent, err := p.start()
			if err != nil {
				p.failed(err)
				if best == nil {
					return nil, p.unavailableLocked(err)
				}
			} else {
				best = agent
				p.agents = append(p.agents, agent)
				go p.attend(agent)
			}
		}
	}
	best.turns++
	best.busy()
	return best, nil
}

// attend sees an agent through its beginning, and notes its end.
func (p *agentPool) attend(agent *agentProcess) {
	agent.initialize()
	<-agent.client.Done()
	p.remove(agent)
	agent.stop()
	if !agent.proven() && !agent.wanted() {
		p.mu.Lock()
		p.failed(agent.problem("starting the agent", agent.client.Err()))
		p.mu.Unlock()
	}
	p.log.Debug("an agent's process has ended", zap.String("program", agent.name), zap.String("reason", agent.client.Err().Error()),
		zap.String("stderr", oneline.Of(answers.LastPart(p.redactor.Redact(agent.process.Stderr())), answers.MaxLine)))
}

// failed notes a start that came to nothing. The lock is held.
func (p *agentPool) failed(cause error) {
	pause := longestStartPause
	if doublings := p.failures; doublings < 6 {
		pause = min(longestStartPause, firstStartPause<<doublings)
	}
	p.failures++
	p.cause = cause
	p.notUntil = time.Now().Add(pause)
}

// worked notes that an agent is ready for a message.
func (p *agentPool) worked(agent *agentProcess) {
	if agent.prove() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failures, p.notUntil = 0, time.Time{}
	}
}

// unavailable is the error for a turn that did not begin.
func (p *agentPool) unavailable(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailableLocked(err)
}

func (p *agentPool) unavailableLocked(err error) error {
	return &engine.UnavailableError{RetryAfter: max(0, time.Until(p.notUntil)), Err: err}
}

// release ends the turn of an agent. If it has no other one, its time without turns begins.
func (p *agentPool) release(agent *agentProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	agent.turns--
	if agent.turns > 0 || agent.gone() {
		return
	}
	if p.closed {
		p.endLocked(agent, errNotNeeded)
		return
	}
	if agent.rest != nil {
		agent.rest.Stop()
	}
	agent.rest = time.AfterFunc(p.idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if agent.turns == 0 {
			p.endLocked(agent, errNotNeeded)
		}
	})
}

var errNotNeeded = errors.New("it is not needed any more")

// end ends an agent that cannot go on.
func (p *agentPool) end(agent *agentProcess, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(agent, cause)
}

// endLocked returns a channel that is closed when nothing is left of the agent.
func (p *agentPool) endLocked(agent *agentProcess, cause error) <-chan struct{} {
	p.agents = slices.DeleteFunc(p.agents, func(other *agentProcess) bool { return other == agent })
	agent.want(cause)
	go func() {
		agent.client.Close(cause)
		agent.stop()
	}()
	return agent.process.Done()
}

func (p *agentPool) remove(agent *agentProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agents = slices.DeleteFunc(p.agents, func(other *agentProcess) bool { return other == agent })
	if agent.rest != nil {
		agent.rest.Stop()
	}
}

// Destruct ends all processes that have no turn, and has the others end after their last one.
func (p *agentPool) Destruct() error {
	var ended []<-chan struct{}
	p.mu.Lock()
	p.closed = true
	for _, agent := range slices.Clone(p.agents) {
		if agent.turns == 0 {
			ended = append(ended, p.endLocked(agent, errNotNeeded))
		}
	}
	p.mu.Unlock()
	for _, done := range ended {
		<-done
	}
	return nil
}

// agentProcess is a process of an agent.
type agentProcess struct {
	name     string // of the program
	process  *supervise.Process
	mark     string // of all its processes; those of a session may have one below it
	client   *acpclient.Client
	dir      string
	home     string
	sessions *openSessions

	ready   chan struct{} // closed when it is known whether the agent can be used
	failure error         // why not; set before ready is closed
	can     acpclient.Abilities

	turns int         // owned by the pool
	rest  *time.Timer // owned by the pool

	mu       sync.Mutex
	took     bool // a message
	reason   error
	overlap  int // turns that were under way at the same time as another one, counted up
	underWay int

	firstTurn sync.Once
	own       processes // that were there before the first turn
}

// settle writes settings into the runner's own home, unless there are some. In the home of another user that user does it.
func (a *ACP) settle(home string) error {
	as, err := a.Owner()
	if err != nil || as != nil || a.Home != "" {
		return err
	}
	for name, text := range a.preset.settings {
		path := filepath.Join(home, name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := programs.LastingHome(home, "", nil).Write(name, []byte(text)); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return nil
}

// agentFolders is where a process works and keeps its things.
type agentFolders struct {
	dir, home, temp string
	more            map[string]string // variables
}

// startAgent starts a process.
func (a *ACP) startAgent(place agentFolders, kind processKind, sessions int) (*agentProcess, error) {
	env := maps.Clone(a.preset.env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, place.more)
	args := a.command
	if a.preset.switches != nil {
		more, variables, err := a.preset.switches(kind)
		if err != nil {
			return nil, err
		}
		args = slices.Concat(args, more)
		maps.Copy(env, variables)
	}
	maps.DeleteFunc(env, func(name, _ string) bool {
		_, ok := a.Variables()[name]
		return ok // the operator's goes before ours
	})
	mark := "acp:" + rand.Text()
	process, err := supervise.Start(supervise.Program{
		Args: args, Env: a.Program.Environment(place.home, place.temp, env), Dir: place.dir, User: a.User, Turn: mark,
	})
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", a.command[0], err)
	}
	programs.ProcessWarnings.Started(a.log, process)
	agent := &agentProcess{
		name: a.command[0], process: process, mark: mark, dir: place.dir, home: place.home,
		ready: make(chan struct{}), sessions: newOpenSessions(sessions),
	}
	agent.client = acpclient.Connect(process.Stdin, process.Stdout, a.Preset != "")
	go func() {
		<-process.Done()
		programs.ProcessWarnings.Ended(a.log, process, zap.String("program", agent.name))
		waitUpTo(agent.client.Done(), lastWordsPatience) // what it has written is still read
		agent.client.Close(acpclient.ErrClosed)
	}()
	return agent, nil
}

// lastWordsPatience is how long the end of what an agent wrote is waited for.
const lastWordsPatience = time.Second

// waitUpTo waits for a channel to be closed, but not for long.
func waitUpTo(done <-chan struct{}, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// initialize waits until the agent can be used.
func (agent *agentProcess) initialize() {
	defer close(agent.ready)
	tooSlow := fmt.Errorf("it did not answer within %v", initializePatience)
	ctx, cancel := context.WithTimeoutCause(context.Background(), initializePatience, tooSlow)
	defer cancel()
	if agent.can, agent.failure = agent.client.Initialize(ctx, clientVersion); agent.failure != nil {
		if errors.Is(agent.failure, acpclient.ErrClosed) {
			agent.failure = agent.endedEarly()
		}
		agent.failure = agent.problem("starting the agent", agent.failure)
		agent.client.Close(agent.failure)
	}
}

const clientVersion = "1"

// endedEarly says that the program has ended before it answered.
func (agent *agentProcess) endedEarly() error {
	waitUpTo(agent.process.Done(), lastWordsPatience)
	select {
	case <-agent.process.Done():
		exit := agent.process.Exit()
		return fmt.Errorf("the program %s, without a message of the Agent Client Protocol", programs.ExitText(&exit))
	default:
		return errors.New("the program closed its standard output, without a message of the Agent Client Protocol")
	}
}

// problem is an error of the agent, with the end of what it wrote to its standard error if it is gone.
func (agent *agentProcess) problem(doing string, err error) error {
	var rejected *acpclient.Rejected
	if errors.As(err, &rejected) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if agent.gone() {
		waitUpTo(agent.process.Done(), lastWordsPatience)
	}
	if line := oneline.Of(answers.LastPart(agent.process.Stderr()), answers.MaxLine); line != "" {
		return fmt.Errorf("%s: %w; it wrote: %s", doing, err, line)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// awaitReady waits until it is known whether the agent can be used.
func (agent *agentProcess) awaitReady(ctx context.Context) error {
	select {
	case <-agent.ready:
		return nil
	case <-ctx.Done():
		words := "the program has not answered the first message of the Agent Client Protocol"
		if line := oneline.Of(answers.LastPart(agent.process.Stderr()), answers.MaxLine); line != "" {
			words += ", and wrote: " + line
		}
		return &engine.CutShortError{LastWords: words, Err: ctx.Err()}
	}
}

// stderrSince is what the agent wrote to its standard error since it had written that, as far as it is kept.
func (agent *agentProcess) stderrSince(before string) string {
	now := agent.process.Stderr()
	if rest, ok := strings.CutPrefix(now, before); ok {
		return rest
	}
	return now
}

// stop returns when nothing is left of the process.
func (agent *agentProcess) stop() { agent.process.Stop(programs.StopGrace) }

func (agent *agentProcess) busy() {
	if agent.rest != nil {
		agent.rest.Stop()
	}
}

// has reports whether a session of a chat is open in the agent.
func (agent *agentProcess) has(session, chat string) bool {
	return agent.sessions.open(session, chat) != nil
}

// want notes that the agent is ended on purpose.
func (agent *agentProcess) want(cause error) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if agent.reason == nil {
		agent.reason = cause
	}
}

func (agent *agentProcess) wanted() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return agent.reason != nil
}

// prove notes that the agent is ready for a message, and reports whether it is the first.
func (agent *agentProcess) prove() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	first := !agent.took
	agent.took = true
	return first
}

func (agent *agentProcess) proven() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return agent.took
}
