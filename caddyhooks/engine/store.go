package engine

import (
	"context"
	"errors"
	"time"
)

// A Store keeps runs from acceptance to their end, deliveries until they arrived, and the live settings. It is safe for
// use by many goroutines, and never calls back into the engine.
type Store interface {
	// Add stores a new run as the last of its chat. When it returns nil the run is kept. ErrQueueFull and ErrChatFull
	// say that a limit was reached, and then nothing was stored.
	Add(ctx context.Context, run *Run, limits Limits) error

	// Claim hands out up to max runs to be carried out now. A chat has at most one claimed run, and its runs are
	// handed out in the order in which they were added.
	Claim(ctx context.Context, max int) ([]*Run, error)

	// Claimable receives a value after Add or Release made a run claimable. Whoever calls Finish claims anew itself.
	Claimable() <-chan struct{}

	// Release puts a claimed run back to the head of its chat.
	Release(ctx context.Context, id string) error

	// Finish ends a claimed run and stores its deliveries in the same step.
	Finish(ctx context.Context, id string, outcome Outcome, deliveries []*Delivery) error

	// Withdraw is Finish for a run that still waits. ErrNotFound says that it does not: it was claimed, or has ended.
	Withdraw(ctx context.Context, id string, outcome Outcome, deliveries []*Delivery) error

	// ClaimDeliveries hands out up to max deliveries that are due at now, and says when the next one is (the zero time
	// if there is none).
	ClaimDeliveries(ctx context.Context, now time.Time, max int) (due []*Delivery, next time.Time, err error)

	// SettleDelivery records the end of an attempt: the delivery is over, or due again at its Due time.
	SettleDelivery(ctx context.Context, d *Delivery, over bool) error

	// Settings returns what SaveSettings stored last, nil if nothing was.
	Settings(ctx context.Context) ([]byte, error)
	SaveSettings(ctx context.Context, settings []byte) error

	Close() error
}

// A StoreOpener is the configuration of a store. Two openers with the same key open the same data, which must not be
// open twice; instance is the name of the hooks instance that the store is for.
type StoreOpener interface {
	StoreKey(instance string) string
	OpenStore(ctx context.Context, instance string) (Store, error)
}

// Limits bound how many runs may wait; 0 is no limit.
type Limits struct {
	Queue int // of all chats
	Chat  int // of one chat
}

var (
	ErrQueueFull = errors.New("the queue is full")
	ErrChatFull  = errors.New("the queue of this chat is full")
	ErrStopping  = errors.New("the engine is stopping")
	ErrNotFound  = errors.New("there is no such run")
)
