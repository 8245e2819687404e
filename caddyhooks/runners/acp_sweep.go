package runners

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// enter notes that a turn is under way: its session is opened next, for which agents start processes. What it returns says that it is
// over, and whether no other turn was under way in the meantime.
func (agent *acpAgent) enter() (leave func() (alone bool)) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	agent.underWay++
	if agent.underWay > 1 {
		agent.overlap++
	}
	alone, overlap := agent.underWay == 1, agent.overlap
	return func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		agent.underWay--
		return alone && agent.overlap == overlap
	}
}

// sweeper notes which processes there are before a message. What it returns ends those that the turn left behind: those that have the
// mark of the session, and all new ones if no other turn was under way in the meantime. The agent's own helpers were there before.
func (agent *acpAgent) sweeper(session *acpSession, leave func() (alone bool)) (sweep func()) {
	type process struct {
		pid   int
		start uint64
	}
	before := make(map[process]bool)
	for _, child := range agent.process.Children() {
		before[process{child.PID, child.Start}] = true
	}
	return func() {
		if agent.gone() {
			leave()
			return // all of it is ended
		}
		after := agent.process.Children() // before another turn can begin
		alone := leave()
		var left []supervise.Child
		for _, child := range after {
			if !before[process{child.PID, child.Start}] && (alone || session.mark != "" && child.Turn == session.mark) {
				left = append(left, child)
			}
		}
		if len(left) > 0 {
			agent.process.Kill(left)
		}
	}
}
