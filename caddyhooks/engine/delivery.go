package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/retries"
)

// Delivery is one thing to send out for a run: its answer when it has ended, word that there is none, or a question to a person.
type Delivery struct {
	ID        string
	RunID     string
	Index     int // among the deliveries of the run
	ChatID    string
	Hook      string // of the run; "" of deliveries of before
	RunStatus Status
	Callback  string // the URL to post to, or "":
	Channel   string // the channel to use …
	To        string // … and the chat on it
	Progress  string // what the channel posted there when the run began, as its Begin returned it; Send replaces it with the answer

	// Of a delivery that asks a question in the chat, or says there that it needs no answer any more: which one. Progress is then what was
	// posted when it was asked.
	Question string
	Closes   bool

	ContentType string
	Body        string
	Sent        int // how many parts of a long body have arrived, if its sender sends it in parts

	Status    DeliveryStatus
	Attempt   int // attempts so far …
	Restart   int // … and how many there were when its schedule last began anew
	Repeats   int // how often it was sent again although it had arrived
	CreatedAt time.Time
	TriedAt   time.Time // when the last attempt began
	Due       time.Time // when the next one is
	Token     string    // of the last claim; stores use it to tell claims apart

	// How the last attempt failed.
	LastStatus int    // the status of the answer, 0 if there was none
	LastAnswer string // the beginning of the answer, as it came from outside
	LastError  string // why, in words fit for the run's owner

	History []Attempt // the last attempts, the oldest first
}

// Attempt is how one attempt at a delivery went.
type Attempt struct {
	At     time.Time // when it began
	Took   time.Duration
	Status int    // the status of the answer, 0 if there was none
	Error  string // as LastError, "" of one that went well
}

// KeptAttempts is how many attempts a delivery remembers. The oldest go first.
const KeptAttempts = 16

// remember adds an attempt to the history. Whoever else has the delivery keeps the history as it was.
func (d *Delivery) remember(attempt Attempt) {
	kept := d.History[max(0, len(d.History)-KeptAttempts+1):]
	d.History = append(kept[:len(kept):len(kept)], attempt)
}

// What stores use of package retries.
type (
	Destination = retries.Destination
	Throttle    = retries.Throttle
)

// PerHost is how many deliveries to one host are under way at once, unless it is throttled.
const PerHost = 16

// Destination tells where the delivery goes to.
func (d *Delivery) Destination() Destination {
	if d.Channel != "" {
		return retries.OnChannel(d.Channel, d.To)
	}
	return retries.ByCallback(d.Callback)
}

// CallbackHost is the host and port of a callback, "" of a delivery to a channel.
func (d *Delivery) CallbackHost() string { return retries.HostOf(d.Callback) }

// Created is the delivery as a store keeps it from the end of its run on: due at once.
func (d *Delivery) Created(now time.Time) *Delivery {
	created := *d
	created.Status, created.CreatedAt, created.Due = Pending, now, now
	return &created
}

// Settled is the delivery as a store keeps it after an attempt. One that arrived loses its body, and one that is still
// pending is due after the pause, if there is one.
func (d *Delivery) Settled(pause time.Duration, now time.Time) *Delivery {
	settled := *d
	switch {
	case d.Status == Delivered:
		settled.Body = ""
	case d.Status == Pending && pause > 0:
		settled.Due = now.Add(pause)
	}
	return &settled
}

// Retried is the delivery as a store keeps it when it is to be sent again: due at once, with a schedule that begins anew. One that
// has arrived is sent again as a whole, with the body that the store was given.
func (d *Delivery) Retried(body *string, now time.Time) *Delivery {
	retried := *d
	if d.Status == Delivered {
		retried.Body, retried.Sent, retried.Progress, retried.Repeats = *body, 0, "", d.Repeats+1
	}
	retried.Status, retried.Restart, retried.Due, retried.Token = Pending, d.Attempt, now, ""
	return &retried
}

// WithoutBody is the delivery as lists and runs show it.
func (d *Delivery) WithoutBody() *Delivery {
	shown := *d
	shown.Body = ""
	return &shown
}

// DeliveryStatus is where a delivery is.
type DeliveryStatus string

const (
	Pending   DeliveryStatus = "pending"
	Delivered DeliveryStatus = "delivered"
	Dead      DeliveryStatus = "dead" // given up
)

// deliveriesOf lists what has to be sent out now that run ended with outcome.
func (c *Config) deliveriesOf(run *Run, outcome Outcome) []*Delivery {
	if !run.hasDeliveries() {
		return nil
	}
	var all []*Delivery
	add := func() *Delivery {
		d := &Delivery{ID: DeliveryID(run.ID, len(all)), RunID: run.ID, Index: len(all), ChatID: run.ChatID, Hook: run.Hook,
			RunStatus: outcome.Status, Status: Pending}
		all = append(all, d)
		return d
	}
	if run.CallbackURL != "" {
		d := add()
		d.Callback = run.CallbackURL
		d.ContentType, d.Body = textType, outcome.Text
		if !outcome.HasText {
			d.Body = outcome.Message
			if c.ErrorBody != nil {
				d.ContentType, d.Body = c.ErrorBody(outcome.Message)
			}
		}
	}
	if run.Channel != "" && outcome.HasText {
		d := add()
		d.Channel, d.To = run.Channel, run.To
		d.ContentType, d.Body = textType, outcome.Text
	}
	return all
}

const textType = "text/plain; charset=utf-8"

// DeliveryID names a delivery, so that its run and its place among the deliveries of the run can be told from the name.
func DeliveryID(runID string, index int) string {
	return fmt.Sprintf("msg_%s_%d", strings.ReplaceAll(runID, "-", ""), index)
}

// ParseDeliveryID is the reverse of DeliveryID.
func ParseDeliveryID(id string) (runID string, index int, ok bool) {
	digits, place, _ := strings.Cut(strings.TrimPrefix(id, "msg_"), "_")
	run, err := uuid.Parse(digits)
	if err != nil {
		return "", 0, false
	}
	index, err = strconv.Atoi(place)
	if err != nil || index < 0 || index > 255 || DeliveryID(run.String(), index) != id {
		return "", 0, false
	}
	return run.String(), index, true
}

// A Sender makes one attempt at a delivery. It notes in it what the other side answered, in LastStatus and LastAnswer, and
// how much has arrived, in Sent, and leaves the rest of it alone. The text of an error is for the operator's log, and for
// whoever may look at the run: it holds no secret, and neither does LastAnswer.
type Sender interface {
	Send(ctx context.Context, d *Delivery) error
}

// A Channel pushes answers to chats of a messaging service. It is configured by the operator; a request names it and
// the chat, and nothing else.
type Channel interface {
	Sender
	// ValidTo reports whether to can be a chat of this channel, with an error fit to be shown to a caller.
	ValidTo(to string) error
}

// ProgressChannel is a Channel that can say in a chat that an answer is being worked on. Nothing waits for it, and nothing is tried twice.
type ProgressChannel interface {
	// Begin posts text, or what else the service has for that, and returns how to find it again: at most MaxProgress bytes, "" if there is
	// nothing to replace or to remove. With an error nothing was posted, as far as is known.
	Begin(ctx context.Context, to, text string) (progress string, err error)
	// Withdraw removes what Begin posted: no answer takes its place.
	Withdraw(ctx context.Context, to, progress string) error
}

// QuestionChannel is a Channel that can ask a question with buttons. On others it is asked as a text with a link.
type QuestionChannel interface {
	// Ask posts a question, and returns how to find it again: at most MaxProgress bytes. When somebody presses a button, the service sends
	// an event with the id of the question and the number of the choice. Errors are those of Send.
	Ask(ctx context.Context, to string, question ChannelQuestion) (posted string, err error)
	// Close puts text in the place of a question that Ask posted, without buttons. Errors are those of Send.
	Close(ctx context.Context, to, posted, text string) error
}

// ChannelQuestion is a question as a channel asks it.
type ChannelQuestion struct {
	ID      string
	Text    string // has outside text in it, which is marked
	Choices []string
	Link    string // where it can be answered as well, "" if nowhere
}

// MaxProgress bounds what Begin returns.
const MaxProgress = 512

// AuthorChannel is a Channel that knows how its service names it in the events that come of its own messages.
type AuthorChannel interface {
	// Authors asks the service for the ids of whoever posts with the channel's token. Each is written as the scheme of the service
	// (`auth slack`, …) finds it in an event. There is at least one, unless there is an error.
	Authors(ctx context.Context) ([]string, error)
}

// FinalError is returned by a Sender when another attempt would be of no use.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }
func (e *FinalError) Unwrap() error { return e.Err }

// UnreachableError is returned by a Sender when there was no connection to send anything over, or no answer in time, so
// that other deliveries to the same host would probably fail too.
type UnreachableError struct{ Err error }

func (e *UnreachableError) Error() string { return e.Err.Error() }
func (e *UnreachableError) Unwrap() error { return e.Err }

// RetryLaterError is returned by a Sender when the other side asked for a pause before the next attempt.
type RetryLaterError struct {
	After        time.Duration
	WholeChannel bool // the pause is for all chats of the channel
	Err          error
}

func (e *RetryLaterError) Error() string { return e.Err.Error() }
func (e *RetryLaterError) Unwrap() error { return e.Err }
