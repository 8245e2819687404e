package a2a

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// inOps is a place where people are asked.
var inOps = caddyconf.AskPlace{Channel: "ops", To: "-1", By: []string{"U1"}, For: caddy.Duration(time.Hour), Else: "no"}

func asking(a *A2A) {
	place := inOps
	a.Ask, a.Token = &place, "agent-token"
}

// asksBack asks for a city, and then for a day.
func asksBack(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
	said := ""
	for _, part := range ex.Message.Parts {
		said += part.Text()
	}
	switch said {
	case "weather":
		_ = tell(submit(ex)) && tell(artifact(ex, "a", false, a2a.NewTextPart("The weather in "))) &&
			tell(become(ex, a2a.TaskStateInputRequired, "Which city? (agent-token)"))
	case "Rome":
		_ = tell(artifact(ex, "a", true, a2a.NewTextPart("Rome"))) && tell(become(ex, a2a.TaskStateInputRequired, ""))
	default:
		_ = tell(artifact(ex, "a", true, a2a.NewTextPart(": "+said))) && tell(become(ex, a2a.TaskStateCompleted, ""))
	}
}

func TestA2AAgentAsksForInput(t *testing.T) {
	t.Parallel()
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, way, asksBack)
			a := newA2A(t, server.URL, asking)
			a.firstPoll = time.Millisecond
			turn := laterTurn("weather")
			turn.MemoryPreset = "general_chat"
			reply, err := a.Run(t.Context(), turn)
			first := takenOn(t, err)
			if first.Ask == nil || first.Ask.Text != "Which city? (REDACTED)" || len(first.Ask.Choices) > 0 || first.Again != 0 || first.For != 0 {
				t.Fatalf("got %+v, %+v", first, first.Ask)
			}
			if place := first.Ask.Place; place.Channel != "ops" || place.To != "-1" || place.By[0] != "U1" || place.For != time.Hour || place.Else != "no" {
				t.Errorf("asked at %+v", place)
			}
			if reply.Text != "" || reply.Session == "" {
				t.Errorf("got %+v", reply)
			}

			// Another process goes on with it.
			a = newA2A(t, server.URL, asking)
			a.firstPoll = time.Millisecond
			turn.TakenOn, turn.Input = first.State, "Rome"
			_, err = a.Run(t.Context(), turn)
			second := takenOn(t, err)
			if second.Ask == nil || second.Ask.Text != "The agent asks for more input, and does not say which." {
				t.Fatalf("got %+v", second)
			}
			turn.TakenOn, turn.Input = second.State, "today"
			last, err := a.Run(t.Context(), turn)
			if err != nil || last.Text != "The weather in Rome: today" || last.Session != reply.Session {
				t.Errorf("got %+v, %v", last, err)
			}
			kept, _ := readKeptTask(first.State)
			inputs := server.sent()
			if !way.streams {
				inputs = inputs[1:]
			}
			if len(inputs) != 2 {
				t.Fatalf("the agent got %s", inputs)
			}
			for i, input := range inputs {
				for _, want := range []string{
					`"messageId":"run:turn:input-` + string(rune('1'+i)) + `"`, `"taskId":"` + string(kept.Task) + `"`, `"contextId":"` + kept.Context + `"`,
				} {
					if !strings.Contains(input, want) {
						t.Errorf("the agent got %s, without %s", input, want)
					}
				}
				if strings.Contains(input, "weather") {
					t.Errorf("the agent got the message again: %s", input)
				}
			}
		})
	}
}

// With push, the run is put aside again while the agent works on the input.
func TestA2ATaskIsPutAsideAfterInput(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	server := newTestServer(t, bindings["REST"], func(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
		if ex.StoredTask == nil {
			_ = tell(submit(ex)) && tell(become(ex, a2a.TaskStateInputRequired, "Which one?"))
			return
		}
		tell(become(ex, a2a.TaskStateWorking, ""))
		<-done
		tell(become(ex, a2a.TaskStateCompleted, "done"))
	})
	a := newA2A(t, server.URL, func(a *A2A) {
		asking(a)
		a.Push = caddy.Duration(time.Hour)
	})
	a.firstPoll, a.asideAfter = time.Millisecond, 0
	turn := laterTurn("hi")
	_, err := lookUntil(t, a, turn)
	asked := takenOn(t, err)
	turn.TakenOn, turn.Input = asked.State, "I have"
	_, err = a.Run(t.Context(), turn)
	if taken := takenOn(t, err); taken.Ask != nil || taken.For != time.Hour {
		t.Errorf("got %+v", taken)
	}
	close(done)
	turn.TakenOn, turn.Input = takenOn(t, err).State, ""
	if reply, err := lookUntil(t, a, turn); err != nil || reply.Text != "done" {
		t.Errorf("got %+v, %v", reply, err)
	}
	if sent := server.sent(); len(sent) != 2 {
		t.Errorf("the agent got %s", sent)
	}
}

func TestA2ANobodyIsAsked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*A2A, *engine.Turn){
		"without ask":            func(a *A2A, _ *engine.Turn) { a.Ask = nil },
		"if it cannot put aside": func(_ *A2A, turn *engine.Turn) { turn.Later = nil },
	} {
		server := newTestServer(t, bindings["REST"], asksBack)
		a, turn := newA2A(t, server.URL, asking), laterTurn("weather")
		a.firstPoll = time.Millisecond
		change(a, &turn)
		_, err := a.Run(t.Context(), turn)
		var taken *engine.TakenOnError
		if err == nil || errors.As(err, &taken) || !strings.HasPrefix(err.Error(), "the agent asks for more input (input-required)") || !server.wasCanceled() {
			t.Errorf("%s: got %v, cancelled: %t", name, err, server.wasCanceled())
		}
	}
}

func TestA2APlacesWherePeopleAreAsked(t *testing.T) {
	t.Parallel()
	if places := new(A2A).AskPlaces(); places != nil {
		t.Errorf("got %+v", places)
	}
	a := new(A2A)
	asking(a)
	if places := a.AskPlaces(); len(places) != 1 || places[0].Channel != "ops" || places[0].For != time.Hour {
		t.Errorf("got %+v", places)
	}
	for want, change := range map[string]func(*A2A){
		"ask needs a channel and a chat":   func(a *A2A) { a.Ask.To = "" },
		"ask needs a duration before else": func(a *A2A) { a.Ask.For = 0 },
		"push must not be negative":        func(a *A2A) { a.Push = -1 },
	} {
		a := &A2A{URL: "https://a.example"}
		asking(a)
		change(a)
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Whatever an agent asks, the question is good text that is not too long.
func FuzzA2AAsk(f *testing.F) {
	f.Add("Which city?", "TASK_STATE_INPUT_REQUIRED")
	f.Add("\xff\x1b[2J", "TASK_STATE_AUTH_REQUIRED")
	f.Add("", "TASK_STATE_DREAMING")
	a := &A2A{Client: httpcall.Client{Redactor: answers.NewRedactor("agent-token", "")}}
	asking(a)
	f.Fuzz(func(t *testing.T, words, state string) {
		turn := laterTurn("hi")
		agent := &agentTurn{runner: a, turn: &turn}
		agent.begin()
		message := a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(words))
		if err := agent.answer.add(&a2a.Task{ID: "t", ContextID: "c", Status: a2a.TaskStatus{State: a2a.TaskState(state), Message: message}}); err != nil {
			return
		}
		text, err := agent.result()
		var taken *engine.TakenOnError
		if !errors.As(err, &taken) {
			return
		}
		ask := taken.Ask.Text
		if text != "" || len(taken.State) > engine.MaxTakenOn || len(ask) > engine.MaxQuestionText || strings.TrimSpace(ask) == "" || !strings.Contains(ask, strings.ToValidUTF8(ask, "")) {
			t.Errorf("asked %q with %s", ask, taken.State)
		}
	})
}
