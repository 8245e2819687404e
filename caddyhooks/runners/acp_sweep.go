package runners

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// sweeper notes which processes there are before a turn. What it returns ends those that the turn left behind: those that have the
// mark of the session, and all new ones if no other turn was under way in the meantime. The agent's own helpers were there before.
func (agent *acpAgent) sweeper(session *acpSession) (sweep func()) {
	type process struct {
		pid   int
		start uint64
	}
	before := make(map[process]bool)
	for _, child := range agent.process.Children() {
		before[process{child.PID, child.Start}] = true
	}
	agent.mu.Lock()
	agent.underWay++
	if agent.underWay > 1 {
		agent.overlap++
	}
	alone, overlap := agent.underWay == 1, agent.overlap
	agent.mu.Unlock()
	return func() {
		agent.mu.Lock()
		agent.underWay--
		alone = alone && agent.overlap == overlap
		agent.mu.Unlock()
		if agent.gone() {
			return // all of it is ended
		}
		var left []supervise.Child
		for _, child := range agent.process.Children() {
			if !before[process{child.PID, child.Start}] && (alone || session.mark != "" && child.Turn == session.mark) {
				left = append(left, child)
			}
		}
		if len(left) > 0 {
			agent.process.Kill(left)
		}
	}
}
