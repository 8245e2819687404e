//go:build agents

package agents

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestATurnEndsItsOwnToolsOnly has two turns in one process of Claude Code, each with a tool that leaves something behind. What the
// first one left is gone at its end, and what the other one has is still there.
func TestATurnEndsItsOwnToolsOnly(t *testing.T) {
	t.Parallel()
	s := claude.start(t, acpRunner, "permit execute")
	most, stop := s.countProcesses(claude.acp[0])
	const first, other = "3101.271828182", "3102.314159265"
	goOn := make(chan struct{})
	s.model.Answer("Leave something.", modeltest.Step{Tool: "setsid sleep " + first + " & true"}, modeltest.Step{Text: "Left it.", Wait: goOn})
	s.model.Answer("Work on.", modeltest.Step{Tool: "setsid sleep " + other + " & true"}, modeltest.Step{Hang: true})
	ids := []string{s.accept(say("Leave something.").remember("first")), s.accept(say("Work on.").remember("other"))}
	for _, seconds := range []string{first, other} {
		hookstest.Within(t, modeltest.Patience, "both tools run", func() bool { return len(hookstest.ProcessesWith(seconds)) > 0 })
	}
	close(goOn)
	if run := s.EndedWithin(modeltest.Patience, ids[0]); run.Status != "completed" {
		t.Errorf("got %s, because %s", run.Body, s.ReasonOf(ids[0]))
	}
	if left := hookstest.ProcessesWith(first); len(left) > 0 {
		t.Errorf("of the first turn there is left:%s", describe(left))
	}
	if len(hookstest.ProcessesWith(other)) == 0 {
		t.Error("the tool of the other turn was ended")
	}
	s.CancelRun(ids[1])
	s.EndedWithin(modeltest.Patience, ids[1])
	if left := hookstest.ProcessesWith(other); len(left) > 0 {
		t.Errorf("of the other turn there is left:%s", describe(left))
	}
	stop()
	if *most != 1 {
		t.Errorf("there were %d processes of the agent", *most)
	}
}
