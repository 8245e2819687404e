package a2a

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// metadataOf is metadata with a usage.
func metadataOf(t *testing.T, usage string) map[string]any {
	t.Helper()
	var metadata map[string]any
	if err := json.Unmarshal([]byte(`{"usage":`+usage+`}`), &metadata); err != nil {
		t.Fatal(err)
	}
	return metadata
}

func TestA2AAgentsTellWhatWasUsed(t *testing.T) {
	t.Parallel()
	const (
		report = `{"model":"gpt-5","inputTokens":1200,"outputTokens":34,"cachedTokens":1000,"reasoningTokens":4,"costUsd":0.0123}`
		used   = "gpt-5: 1200 (1000 cached) in, 34 (4 reasoning) out $0.0123"
	)
	message := func(usage string) agentScript {
		return tellAll(func(*a2asrv.ExecutorContext) []a2a.Event {
			said := a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("Hello"))
			said.Metadata = metadataOf(t, usage)
			return []a2a.Event{said}
		})
	}
	task := func(change func(event *a2a.TaskStatusUpdateEvent)) agentScript {
		return tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
			last := become(ex, a2a.TaskStateCompleted, "Done").(*a2a.TaskStatusUpdateEvent)
			change(last)
			working := become(ex, a2a.TaskStateWorking, "").(*a2a.TaskStatusUpdateEvent)
			working.Metadata = metadataOf(t, `{"inputTokens":1}`) // so far
			return []a2a.Event{submit(ex), working, artifact(ex, "a", false, a2a.NewTextPart("Hello")), last}
		})
	}
	type agent struct {
		script agentScript
		text   string
		used   string
	}
	agents := map[string]agent{
		"a message":         {message(report), "Hello", used},
		"a list":            {message("[" + report + `,{"inputTokens":2}]`), "Hello", used + "; : 2 (0 cached) in, 0 (0 reasoning) out"},
		"none":              {message("null"), "Hello", ""},
		"the end of a task": {task(func(e *a2a.TaskStatusUpdateEvent) { e.Metadata = metadataOf(t, report) }), "Hello", used},
		"its last message":  {task(func(e *a2a.TaskStatusUpdateEvent) { e.Status.Message.Metadata = metadataOf(t, report) }), "Hello", used},
		"a task that fails": {task(func(e *a2a.TaskStatusUpdateEvent) {
			e.Status.State, e.Metadata = a2a.TaskStateFailed, metadataOf(t, report)
		}), "", used},
		"a task that is over": {task(func(*a2a.TaskStatusUpdateEvent) {}), "Hello", ": 1 (0 cached) in, 0 (0 reasoning) out"},
	}
	for _, number := range runnertest.HostileNumbers {
		agents["inputTokens "+number] = agent{message(`{"inputTokens":` + number + `}`), "Hello", "refused"}
		agents["costUsd "+number] = agent{message(`[{"outputTokens":1,"costUsd":[` + number + `]}]`), "Hello", "refused"}
	}
	for way, binding := range bindings {
		for name, agent := range agents {
			a := newA2A(t, newTestServer(t, binding, agent.script).URL, nil)
			reply, err := a.Run(t.Context(), turnOf("hi"))
			if (err == nil) != (agent.text != "") || reply.Text != agent.text || runnertest.Used(reply.Usage) != agent.used {
				t.Errorf("%s, %s: got %q, %v, used %s", way, name, reply.Text, err, runnertest.Used(reply.Usage))
			}
		}
	}
}

// A task that is put aside tells at its end what all of it used.
func TestA2ATaskThatIsPutAsideTellsNothingYet(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	works := worksUntil(done)
	server := newTestServer(t, bindings["REST"], func(ctx context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
		works(ctx, ex, func(event a2a.Event) bool {
			switch event := event.(type) {
			case *a2a.Task:
				event.Metadata = metadataOf(t, `{"inputTokens":3}`)
			case *a2a.TaskStatusUpdateEvent:
				event.Metadata = metadataOf(t, `{"inputTokens":7}`)
			}
			return tell(event)
		})
	})
	a := newPushA2A(t, server.URL)
	turn := laterTurn("hi")
	reply, err := a.Run(t.Context(), turn)
	turn.TakenOn = takenOn(t, err).State
	if reply.Usage != nil {
		t.Errorf("the task used %s before its end", runnertest.Used(reply.Usage))
	}
	close(done)
	var end engine.Reply
	if end, err = lookUntil(t, a, turn); err != nil || runnertest.Used(end.Usage) != ": 7 (0 cached) in, 0 (0 reasoning) out" {
		t.Errorf("the task used %s, %v", runnertest.Used(end.Usage), err)
	}
}
