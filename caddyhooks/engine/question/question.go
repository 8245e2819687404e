// Package question has what an unfinished run has to be told before it goes on. It is a part of package engine, and knows neither runs nor
// stores.
package question

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Question is what an unfinished run has to be told before it goes on: by its agent, who has taken the turn on and answers later, or by a
// person. It is answered once.
type Question struct {
	RunID  string
	Number int // among the questions of the run, from 0

	Kind    Kind
	Text    string        // for people, at most MaxText bytes; what comes from outside is marked in it
	Choices []string      // the answers that can be given; none is any text
	Channel string        // the channel that it is asked on, "" if it is not …
	To      string        // … and the chat
	By      []string      // the ids, on the service of that channel, of those who may answer there; none is anybody in the chat
	For     time.Duration // how long it is open; 0 is until it is answered
	Else    string        // the answer that counts when nobody has given one by then

	// What the engine needs to go on, at most MaxState bytes. Neither operators nor callers see it. The end of the run forgets it.
	State []byte

	AskedAt time.Time // set by the store; zero if it was answered before it was asked
	Until   time.Time // AskedAt and For; zero if it stays open
	Answer  *Answer   // nil while it is open
}

// Kind is what a question is about.
type Kind string

const (
	AskAgent      Kind = "agent"      // the agent works on its turn
	AskStart      Kind = "start"      // may the run start?
	AskDeliver    Kind = "deliver"    // may the answer be sent?
	AskInput      Kind = "input"      // the agent wants to know something, and has put the turn aside
	AskPermission Kind = "permission" // the agent wants to do something, and waits in the middle of its turn
)

// The bounds of a question and of its answer.
const (
	Max      = 50 // of one run
	MaxText  = 16 << 10
	MaxState = 64 << 20
)

// Choices of questions that are answered with yes or no.
const (
	Yes = "yes"
	No  = "no"
)

// ForPeople reports whether a person is asked, and not the agent.
func (k Kind) ForPeople() bool { return k != AskAgent }

// Answer is the answer to a question.
type Answer struct {
	Text  string    // one of the choices, if there are some
	Error string    // of an agent: why it has no answer
	By    string    // who gave it, for operators
	Via   string    // how: AnsweredBy…
	At    time.Time // set by the store

	Usage []byte // of an agent: what the turn used, as it reported it, in JSON
}

// How a question was answered.
const (
	AnsweredByAgent    = "agent"
	AnsweredByPush     = "push"    // the agent says that there is news: it has to be asked what
	AnsweredByChannel  = "channel" // in the chat
	AnsweredByLink     = "link"
	AnsweredByPage     = "page"
	AnsweredByCommand  = "command"
	AnsweredByAPI      = "api"
	AnsweredByDeadline = "deadline" // nobody did in time
	AnsweredByEnd      = "end"      // the run ended, and nobody need answer any more
)

// ID names a question, so that its run and its number can be told from the name.
func (q *Question) ID() string { return IDOf(q.RunID, q.Number) }

// IDOf names a question of a run.
func IDOf(runID string, number int) string {
	return fmt.Sprintf("q_%s_%d", strings.ReplaceAll(runID, "-", ""), number)
}

// ParseID is the reverse of IDOf.
func ParseID(id string) (runID string, number int, ok bool) {
	digits, place, _ := strings.Cut(strings.TrimPrefix(id, "q_"), "_")
	run, err := uuid.Parse(digits)
	if err != nil {
		return "", 0, false
	}
	number, err = strconv.Atoi(place)
	if err != nil || number < 0 || number >= Max || IDOf(run.String(), number) != id {
		return "", 0, false
	}
	return run.String(), number, true
}

// DeliveryIndex is the index of the delivery that asks a question of a run, or that closes it, among the deliveries of the run.
func DeliveryIndex(number int, closes bool) int {
	index := firstDelivery + 2*number
	if closes {
		index++
	}
	return index
}

// firstDelivery comes after all other deliveries of a run.
const firstDelivery = 100

// Asked is the question as a store keeps it when it is asked at a time, or asked again. before is what it has under the same number
// already, nil if there is none: an answer that came first, or the same question with an earlier state.
func (q *Question) Asked(before *Question, now time.Time) *Question {
	asked := *q
	asked.Answer, asked.AskedAt = nil, time.Time{}
	if before != nil {
		asked.Answer, asked.AskedAt = before.Answer, before.AskedAt
	}
	if asked.AskedAt.IsZero() {
		asked.AskedAt = now
	}
	asked.Until = time.Time{}
	if asked.For > 0 {
		asked.Until = asked.AskedAt.Add(asked.For)
	}
	return &asked
}

// DueAfter is how long after it was asked, or asked again, the run of an open question is handed out though nobody has answered: when the
// question closes, or after the pause if that is sooner and not 0.
func (q *Question) DueAfter(pause time.Duration, now time.Time) time.Duration {
	due := forEver
	if !q.Until.IsZero() {
		due = max(q.Until.Sub(now), 0)
	}
	if pause > 0 {
		due = min(due, pause)
	}
	return due
}

// forEver is longer than anybody waits.
const forEver = 100 * 365 * 24 * time.Hour

// Closed is the question as a store keeps it when its run ends at a time.
func (q *Question) Closed(now time.Time) *Question {
	closed := *q
	closed.State = nil
	if closed.Answer == nil {
		closed.Answer = &Answer{Via: AnsweredByEnd, At: now}
	}
	return &closed
}

// Size is about how many bytes the question takes.
func (q *Question) Size() int {
	n := 512 + len(q.Text) + len(q.State) + len(q.Else)
	for _, texts := range [][]string{q.Choices, q.By} {
		for _, text := range texts {
			n += 16 + len(text)
		}
	}
	if q.Answer != nil {
		n += 128 + len(q.Answer.Text) + len(q.Answer.Error)
	}
	return n
}

// AnswerRefusedError says that a question cannot be answered like this.
type AnswerRefusedError struct{ Reason string }

func (e *AnswerRefusedError) Error() string { return e.Reason }

// maxAnswer is how many bytes a person may answer.
const maxAnswer = 16 << 10

// Accepts returns an *AnswerRefusedError for an answer that cannot be given.
func (q *Question) Accepts(text string) error {
	switch {
	case len(q.Choices) > 0 && !slices.Contains(q.Choices, text):
		return &AnswerRefusedError{"the answer must be one of: " + strings.Join(q.Choices, ", ")}
	case strings.TrimSpace(text) == "":
		return &AnswerRefusedError{"the answer is empty"}
	case len(text) > maxAnswer:
		return &AnswerRefusedError{fmt.Sprintf("the answer is longer than %d bytes", maxAnswer)}
	}
	return nil
}

// Sentence tells a chat how a question was answered.
func (a *Answer) Sentence() string {
	by := ""
	if a.By != "" {
		by = " by " + a.By
	}
	switch {
	case a.Via == AnsweredByEnd:
		return "The run has ended: no answer is needed any more."
	case a.Via == AnsweredByDeadline && a.Text == "":
		return "Nobody answered in time."
	case a.Via == AnsweredByDeadline:
		return fmt.Sprintf("Nobody answered in time, so the answer is: %s.", a.Text)
	default:
		return fmt.Sprintf("Answered%s: %s", by, a.Text)
	}
}
