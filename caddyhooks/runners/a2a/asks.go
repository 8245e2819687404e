package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// readAsk reads
//
//	ask input-required in <channel> <to> [<duration>] [by <id>...] [else <text>]
func readAsk(d *caddyfile.Dispenser) (*caddyconf.AskPlace, error) {
	place := *d
	words := d.RemainingArgs()
	if len(words) < 2 || words[0] != "input-required" || words[1] != "in" {
		return nil, place.Err("ask takes input-required and where to ask, as in: ask input-required in ops -100123 24h")
	}
	to, err := caddyconf.ReadAskPlace(words[2:])
	if err == nil {
		err = checkAsk(&to)
	}
	if err != nil {
		return nil, place.Errf("ask %v", err)
	}
	return &to, nil
}

// checkAsk checks where people are asked. Its errors follow the name of the directive.
func checkAsk(place *caddyconf.AskPlace) error {
	if place.Else != "" && place.For == 0 {
		return errors.New("needs a duration before else, after which that text is the answer")
	}
	return place.Check()
}

// AskPlaces is where the runner asks people.
func (a *A2A) AskPlaces() []engine.AskPlace {
	if a.Ask == nil {
		return nil
	}
	return []engine.AskPlace{a.Ask.Place()}
}

// result is the answer of the agent, or the question that it has.
func (t *agentTurn) result() (string, error) {
	answer := t.answer
	asks := answer.message == nil && answer.state == a2a.TaskStateInputRequired
	if !asks || t.runner.Ask == nil || t.turn.Later == nil || !t.isNamed() {
		return answer.result()
	}
	words := answers.Beginning(answer.pick([]*partContent{&answer.stateMessage}))
	if strings.TrimSpace(words) == "" {
		words = "The agent asks for more input, and does not say which."
	}
	t.kept.Asked = answer.mark
	ask := &engine.Ask{Text: t.runner.Redact(strings.ToValidUTF8(words, "\ufffd")), Place: t.runner.Ask.Place()}
	return "", t.keep(&engine.TakenOnError{Ask: ask})
}

// input is the message with what a person answered. It goes to the same task, whose time begins anew.
func (t *agentTurn) input() *a2a.SendMessageRequest {
	kept := &t.kept
	*kept = keptTask{
		Task: kept.Task, Context: kept.Context, Pushes: kept.Pushes, Inputs: kept.Inputs + 1, Asked: kept.Asked, Given: time.Now(),
	}
	req := t.request(kept.Context)
	req.Message.ID += fmt.Sprintf(":input-%d", kept.Inputs)
	req.Message.TaskID = kept.Task
	req.Message.Parts = a2a.ContentParts{a2a.NewTextPart(t.turn.Input)}
	req.Config.ReturnImmediately = true // what the task had before is asked for with the rest
	req.Config.PushConfig = t.push(kept.Task)
	return req
}

// inputPatience is how long an agent that was given input may still say that it needs some, as it did before.
const inputPatience = time.Minute

// take takes an event in. A task whose agent has not heard the input yet counts as one that is worked on.
func (t *agentTurn) take(event a2a.Event) error {
	err := t.answer.add(event)
	if t.kept.Asked != "" && t.answer.mark == t.kept.Asked && time.Since(t.kept.Given) < inputPatience {
		t.answer.state = a2a.TaskStateWorking
	}
	return err
}

// statusMark tells one status of a task from another.
func statusMark(status a2a.TaskStatus) string {
	var mark strings.Builder
	mark.WriteString(string(status.State))
	if status.Timestamp != nil {
		mark.WriteString(status.Timestamp.UTC().Format(time.RFC3339Nano))
	}
	if status.Message != nil {
		mark.WriteString(status.Message.ID)
		for _, part := range status.Message.Parts {
			if part != nil {
				mark.WriteString(part.Text())
			}
		}
	}
	sum := sha256.Sum256([]byte(mark.String()))
	return hex.EncodeToString(sum[:16])
}
