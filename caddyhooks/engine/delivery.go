package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Delivery is one thing to send out when a run has ended: its answer, or word that there is none.
type Delivery struct {
	ID        string
	RunID     string
	Index     int // among the deliveries of the run
	ChatID    string
	RunStatus Status
	Callback  string // the URL to post to, or "":
	Channel   string // the channel to use …
	To        string // … and the chat on it

	ContentType string
	Body        string

	Status    DeliveryStatus
	Attempt   int // attempts so far
	Due       time.Time
	LastError string // why the last attempt failed, in words fit for the run's owner
}

// DeliveryStatus is where a delivery is.
type DeliveryStatus string

const (
	Pending   DeliveryStatus = "pending"
	Delivered DeliveryStatus = "delivered"
	Dead      DeliveryStatus = "dead" // given up
)

// deliveriesOf lists what has to be sent out now that run ended with outcome.
func deliveriesOf(run *Run, outcome Outcome, now time.Time) []*Delivery {
	if !run.hasDeliveries() {
		return nil
	}
	var all []*Delivery
	add := func() *Delivery {
		d := &Delivery{ID: "msg_" + uuid.NewString(), RunID: run.ID, Index: len(all), ChatID: run.ChatID,
			RunStatus: outcome.Status, Status: Pending, Due: now}
		all = append(all, d)
		return d
	}
	if run.CallbackURL != "" {
		d := add()
		d.Callback = run.CallbackURL
		d.ContentType, d.Body = "text/plain; charset=utf-8", outcome.Text
		if !outcome.HasText {
			d.ContentType, d.Body = "application/json", string(ErrorBody(outcome.Message))
		}
	}
	if run.Channel != "" && outcome.HasText {
		d := add()
		d.Channel, d.To = run.Channel, run.To
		d.ContentType, d.Body = "text/plain; charset=utf-8", outcome.Text
	}
	return all
}

// A Sender makes one attempt at a delivery. The text of an error is for the operator's log, and for whoever may look at
// the run: it holds no secret.
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

// FinalError is returned by a Sender when another attempt would be of no use.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }
func (e *FinalError) Unwrap() error { return e.Err }

// RetryLaterError is returned by a Sender when the other side asked for a pause before the next attempt.
type RetryLaterError struct {
	After time.Duration
	Err   error
}

func (e *RetryLaterError) Error() string { return e.Err.Error() }
func (e *RetryLaterError) Unwrap() error { return e.Err }
