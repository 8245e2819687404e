package acp

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// processes are some of an agent's.
type processes map[processKey]bool

type processKey struct {
	pid   int
	start uint64
}

func (p processes) has(child supervise.Child) bool { return p[processKey{child.PID, child.Start}] }

// processesNow are those that there are now.
func (agent *agentProcess) processesNow() processes {
	now := make(processes)
	for _, child := range agent.process.Children() {
		now[processKey{child.PID, child.Start}] = true
	}
	return now
}

// passage is a turn of an agent, from before its session is opened until what it left behind is ended.
type passage struct {
	agent   *agentProcess
	alone   bool // no other turn was under way when it began …
	overlap int  // … nor has one started since, if the count is still this
	before  processes
}

// enter notes that a turn is under way: its session is opened next, for which agents start processes.
func (agent *agentProcess) enter() *passage {
	agent.firstTurn.Do(func() { agent.own = agent.processesNow() })
	agent.mu.Lock()
	defer agent.mu.Unlock()
	agent.underWay++
	if agent.underWay > 1 {
		agent.overlap++
	}
	return &passage{agent: agent, alone: agent.underWay == 1, overlap: agent.overlap}
}

// leave notes that the turn is over. It reports whether no other one was under way in the meantime, and whether none is now.
func (p *passage) leave() (alone, last bool) {
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	p.agent.underWay--
	return p.alone && p.agent.overlap == p.overlap, p.agent.underWay == 0
}

// begin is called before the message is sent. The agent's own helpers are there by then.
func (p *passage) begin() { p.before = p.agent.processesNow() }

// sweep ends what the turn left behind: what has the mark of its session, and all that is new if no other turn was under way in the
// meantime. Otherwise it is not known whose a process is. When no turn is under way any more, those end whose parent has ended: no
// agent waits for them.
func (p *passage) sweep(session *openSession) {
	agent := p.agent
	if agent.gone() {
		p.leave()
		return // all of it is ended
	}
	after := agent.process.Children() // before another turn can begin
	alone, last := p.leave()
	var left []supervise.Child
	for _, child := range after {
		marked := session.mark != "" && child.Turn == session.mark
		if !p.before.has(child) && (alone || marked) || last && child.Orphan && !agent.own.has(child) {
			left = append(left, child)
		}
	}
	if len(left) > 0 {
		agent.process.Kill(left)
	}
}
