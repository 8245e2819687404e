package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Reply is what an agent sends that has taken a turn on: one of the three.
type Reply struct {
	Text     string `json:"text,omitempty"`     // the answer, at most 1 MiB
	Error    string `json:"error,omitempty"`    // why there is none
	Progress string `json:"progress,omitempty"` // what those see who follow the run
}

// Replied is the answer to that.
type Replied struct {
	Status string `json:"status"` // "ok"
	RunID  string `json:"runId"`
}

// GivenAnswer is what somebody answers to a question by its link. Without an answer it shows the question.
type GivenAnswer struct {
	Answer string `json:"answer,omitempty"`
}

// LinkedQuestion is a question as the page of its link shows it.
type LinkedQuestion struct {
	Text    string     `json:"text"`
	Choices []string   `json:"choices"`          // the answers that can be given; none is any text
	Until   *time.Time `json:"until,omitempty"`  // how long it is open
	Open    bool       `json:"open"`             // nobody has answered
	Answer  string     `json:"answer,omitempty"` // the answer that was given …
	By      string     `json:"by,omitempty"`     // … by whom, unless it was by a link …
	At      *time.Time `json:"at,omitempty"`     // … and when
}

// NewLinkedQuestion shows a question.
func NewLinkedQuestion(q *engine.Question) LinkedQuestion {
	shown := LinkedQuestion{Text: q.Text, Choices: q.Choices, Open: q.Answer == nil}
	if shown.Choices == nil {
		shown.Choices = []string{}
	}
	if !q.Until.IsZero() {
		shown.Until = &q.Until
	}
	if q.Answer != nil {
		shown.Answer, shown.At = q.Answer.Text, &q.Answer.At
		if q.Answer.Via != engine.AnsweredByLink { // otherwise it is an address
			shown.By = q.Answer.By
		}
	}
	return shown
}
