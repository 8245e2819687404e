//go:build agents

package agents

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
)

// TestAgentsTellWhatTurnsUsed compares what comes out of the agents with what the model said: in a chat that goes on, over a restart, and
// without memory.
func TestAgentsTellWhatTurnsUsed(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		output := modeltest.OutputTokens
		if a == gemini && runner == acpRunner {
			output -= modeltest.ThoughtTokens // which it does not tell
		}
		turns, calls, answers, cost := 0, 0, 0, 0.0
		// turn has the agent answer, and returns what each call of the model cost. Claude Code asks for a title beside that, when it has time.
		turn := func(r request) float64 {
			t.Helper()
			turns++
			message := fmt.Sprintf("This is turn %d.", turns)
			r["message"] = message
			s.wantReply(t, r, "You said: "+message)
			calls += len(s.model.CallsFor(message))
			beside := 0
			for _, call := range s.model.Calls() {
				if call.Beside {
					beside++
				}
			}
			in, out := s.metric(t, `tokens_total{.*direction="input".*}`), s.metric(t, `tokens_total{.*direction="output".*}`)
			answersBefore, costBefore := answers, cost
			answers, cost = int(in)/modeltest.InputTokens, s.metric(t, `cost_usd_total{.*}`)
			if answers < calls || answers > calls+beside || in != float64(answers*modeltest.InputTokens) || out != float64(answers*output) {
				t.Errorf("turn %d: %d calls of the model, and %d beside, used %v tokens in, and %v out", turns, calls, beside, in, out)
			}
			return (cost - costBefore) / float64(max(answers-answersBefore, 1))
		}
		restart := func() {
			s.Restart(s.config)
			calls, answers, cost = 0, 0, 0 // which are counted from the start
		}
		chat := func() request { return request{}.remember("a chat") }
		first, second := turn(chat()), turn(chat())
		restart()
		third, fourth := turn(chat()), turn(chat())
		alone := turn(request{})
		const most = 1e-9
		same := func(cost float64) bool { return cost > first-most && cost < first+most }
		switch {
		case a != claude: // the others tell no cost
			if first != 0 || fourth != 0 || alone != 0 {
				t.Errorf("the turns cost %v, %v and %v", first, fourth, alone)
			}
		case first <= 0 || !same(second) || !same(fourth) || !same(alone):
			t.Errorf("the turns cost %v, %v, %v and %v", first, second, fourth, alone)
		case runner == commandRunner && !same(third), runner == acpRunner && third != 0:
			t.Errorf("the turn after a restart cost %v, and one before it %v", third, first)
		}
	})
}

// metric is the sum of the series that match.
func (s *site) metric(t *testing.T, series string) (sum float64) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^caddy_hooks_` + series + ` (\S+)$`)
	for _, line := range lines.FindAllStringSubmatch(s.AdminRequest("GET", "/metrics", "").Body, -1) {
		value, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}
