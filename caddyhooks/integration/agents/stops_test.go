//go:build agents

package agents

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestAgentsStop tries turns that are cancelled, or take too long, while the model has more to say.
func TestAgentsStop(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		t.Run("when cancelled", s.cancels)
		t.Run("when their time is over", s.timesOut)
	})
}

func (s *site) cancels(t *testing.T) {
	// Gemini CLI keeps a message that was not answered, and sends it with the next one.
	s.model.Answer("Count to a million", modeltest.Step{Text: "One, two", Hang: true}, modeltest.Step{Text: "One, two, three."})
	id := s.accept(say("Count to a million.").remember("numbers"))
	call := s.model.WaitFor(t, "Count to a million")
	began := time.Now()
	s.CancelRun(id)
	hookstest.ReceiveWithin(t, "the call of the model ends", call.Gone)
	t.Logf("the model's call was closed %v after the cancel began", call.GoneAt.Sub(began).Round(time.Millisecond))
	if run := s.EndedWithin(modeltest.Patience, id); run.Status != "cancelled" || run.Reply != "" || !call.Left {
		t.Errorf("got %s", run.Body)
	}
	if s.runner == commandRunner {
		s.wantNothingNow(t, "a cancel")
	}
	// The chat goes on.
	run := s.ask(say("Count to three.").remember("numbers"))
	if run.Status != "completed" {
		t.Errorf("got %s, because %s", run.Body, s.ReasonOf(run.RunID))
	}
}

func (s *site) timesOut(t *testing.T) {
	s.model.Answer("Wait for me", modeltest.Step{Hang: true})
	for timeout := 5; ; timeout *= 2 { // until it is enough for the agent to ask the model
		run := s.ask(request{"message": "Wait for me.", "timeoutSeconds": timeout})
		if run.Status != "timed_out" || run.Reply != "" {
			t.Fatalf("got %s", run.Body)
		}
		if s.runner == commandRunner {
			s.wantNothingNow(t, "a timeout")
		}
		if calls := s.model.CallsFor("Wait for me"); len(calls) > 0 {
			hookstest.ReceiveWithin(t, "the call of the model ends", calls[0].Gone)
			if !calls[0].Left {
				t.Error("the call was not closed")
			}
			return
		}
	}
}

// wantNothingNow checks that no process of the agent is left.
func (s *site) wantNothingNow(t *testing.T, since string) {
	t.Helper()
	for _, dir := range []string{s.home, s.work} {
		if left := hookstest.ProcessesAtHome(dir); len(left) > 0 {
			t.Errorf("after %s there are processes: %s", since, describe(left))
		}
	}
}

func describe(pids []string) (text string) {
	for _, pid := range pids {
		text += fmt.Sprintf("\n%s %s", pid, hookstest.CommandLine(pid))
	}
	return text
}
