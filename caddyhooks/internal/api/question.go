package api

import (
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Question is a question of a run as operators see it.
type Question struct {
	ID      string              `json:"id"`
	RunID   string              `json:"runId"`
	Hook    string              `json:"hook,omitempty"`
	ChatID  string              `json:"chatId,omitempty"` // of the run
	Kind    engine.QuestionKind `json:"kind"`
	Text    string              `json:"text,omitempty"`    // with marks around what comes from outside
	Choices []string            `json:"choices,omitempty"` // the answers that can be given; without them it is any text
	Channel string              `json:"channel,omitempty"` // the channel that it is asked on
	To      string              `json:"to,omitempty"`      // and the chat there
	By      []string            `json:"by,omitempty"`      // the ids of those who may answer there; without them it is anybody
	AskedAt *time.Time          `json:"askedAt,omitempty"`
	Until   *time.Time          `json:"until,omitempty"`  // when it closes, unless it stays open
	Else    string              `json:"else,omitempty"`   // the answer that counts then
	Answer  *QuestionAnswer     `json:"answer,omitempty"` // unless it is open
}

// QuestionAnswer is how a question was answered, or closed.
type QuestionAnswer struct {
	Text  string     `json:"text,omitempty"`  // that of an agent is the reply of the run, and left out
	Error string     `json:"error,omitempty"` // of an agent: why it has no answer
	By    string     `json:"by,omitempty"`    // who gave it
	Via   string     `json:"via"`             // page, command, api, channel, link, agent, push, deadline, or end if the run ended first
	At    *time.Time `json:"at"`
}

// QuestionsPage is a page of the list of questions.
type QuestionsPage struct {
	Questions []Question `json:"questions"`
	Cursor    string     `json:"cursor,omitempty"` // of the next page
}

// NewQuestion shows a question, but for the hook and the chat of its run.
func NewQuestion(q *engine.Question) Question {
	shown := Question{ID: q.ID(), RunID: q.RunID, Kind: q.Kind, Text: q.Text, Choices: q.Choices, Channel: q.Channel, To: q.To, By: q.By,
		AskedAt: text.JSONTime(q.AskedAt), Until: text.JSONTime(q.Until), Else: q.Else}
	if a := q.Answer; a != nil {
		shown.Answer = &QuestionAnswer{Text: a.Text, Error: a.Error, By: a.By, Via: a.Via, At: text.JSONTime(a.At)}
		if !q.Kind.ForPeople() {
			shown.Answer.Text = ""
		}
	}
	return shown
}

// String says how a question was answered.
func (a *QuestionAnswer) String() string {
	switch {
	case a.Via == engine.AnsweredByEnd:
		return "closed, since the run ended"
	case a.Via == engine.AnsweredByDeadline && a.Text == "":
		return "closed, since nobody answered in time"
	case a.Via == engine.AnsweredByDeadline:
		return fmt.Sprintf("%q, since nobody answered in time", text.Abridge(a.Text))
	case a.Error != "":
		return "the agent failed: " + a.Error
	}
	said := "answered"
	if a.Text != "" {
		said = fmt.Sprintf("%q", text.Abridge(a.Text))
	}
	if a.By != "" {
		said += " by " + a.By
	}
	return said + " (" + a.Via + ")"
}
