package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A Store keeps runs from acceptance until they are pruned, deliveries likewise, the keys by which callers mark a request
// that they may repeat, and the live settings. It is safe for use by many goroutines and never calls back into the
// engine. What a method has reported as done survives the process, as far as anything kept in this store does. A method
// that fails has changed nothing, unless the store itself failed: then it cannot know.
type Store interface {
	// Add gives a new run its id, a UUIDv7 greater than those of all runs before it, and stores it as the last of its
	// chat. When it returns nil the run is kept. ErrQueueFull and ErrChatFull say that a limit was reached. A run whose
	// key was used before is not stored: the *DuplicateError tells about the first one.
	Add(ctx context.Context, run *Run, limits Limits) error

	// Claim hands out runs to be carried out now. A chat has at most one claimed run, and its runs are handed out in
	// the order of their ids. A claim that is not renewed within its lease is lost: the run can be claimed again.
	Claim(ctx context.Context, want Want) ([]*Claim, error)

	// Claimable receives a value after runs have become claimable other than by Finish, which claims on its own.
	Claimable() <-chan struct{}

	// Renew lets the claims hold for another lease, and returns those that are lost.
	Renew(ctx context.Context, claims []*Claim, lease time.Duration) (lost []*Claim, err error)

	// Release puts a claimed run back to the head of its chat, as if it had not been started.
	Release(ctx context.Context, claim *Claim) error

	// Finish ends a claimed run, stores its deliveries, and claims what else is wanted, all in one step. ErrClaimLost
	// says that the claim no longer holds, and then nothing was done.
	Finish(ctx context.Context, claim *Claim, end End, want Want) (next []*Claim, err error)

	// Withdraw is Finish for a run that is queued. ErrNotFound says that it is not: it was claimed, or has ended.
	Withdraw(ctx context.Context, id string, end End) error

	// Get returns what is known about a run, or ErrNotFound.
	Get(ctx context.Context, id string) (*Record, error)

	// List returns runs, the newest first, without what they were told and what they replied. next is the Cursor of
	// the query that goes on from there, "" if there is no more. A page can be short or empty although there is more:
	// a query looks at a bounded number of runs.
	List(ctx context.Context, query Query) (page []*Record, next string, err error)

	// ClaimDeliveries hands out up to max pending deliveries that are due at now, the one that has been due for longest
	// first, and says when the next one can be handed out (the zero time if that is not a question of time). No more
	// than PerHost to one host are under way at once, and to one chat of a channel only one.
	ClaimDeliveries(ctx context.Context, now time.Time, max int) (due []*Delivery, next time.Time, err error)

	// Throttle bounds what is handed out to a host from now on: no more than atOnce under way at once, 0 for PerHost, and
	// nothing before a time. If a chat is named, nothing goes to that chat before the time, and atOnce does not matter. It
	// holds until it is called again, and is forgotten when nothing is pending for the host or the chat any more.
	Throttle(to Destination, atOnce int, until time.Time)

	// ClaimOverdue hands out up to max pending deliveries to a host that were due before a time and have not been sent
	// since, throttled or not.
	ClaimOverdue(ctx context.Context, host string, before time.Time, max int) ([]*Delivery, error)

	// SettleDelivery records the end of an attempt, as the delivery tells it. One that is still pending will be handed
	// out again when it is due. It makes room for another one when it is called, not when it returns. What is not
	// pending any more is ErrNotFound.
	SettleDelivery(ctx context.Context, d *Delivery) error

	// Delivery returns a delivery as a whole, or ErrNotFound.
	Delivery(ctx context.Context, id string) (*Delivery, error)

	// ListDeliveries returns deliveries, those of the newest run first, without their bodies. For next see List.
	ListDeliveries(ctx context.Context, query DeliveryQuery) (page []*Delivery, next string, err error)

	// RetryDelivery lets a delivery be due at now that was given up or waits for its next attempt, and has the schedule of
	// attempts begin anew. The errors are ErrNotFound, ErrUnderWay and ErrDelivered.
	RetryDelivery(ctx context.Context, id string, now time.Time) (*Delivery, error)

	// DropDelivery forgets a delivery that was given up or waits for its next attempt. The errors are those of
	// RetryDelivery.
	DropDelivery(ctx context.Context, id string) error

	// Prune forgets finished runs and keys that are older than limits say, a bounded number of them, and reports
	// whether there are more. Runs with pending deliveries stay, and those with one that was given up lately. It is called by one goroutine at a time.
	Prune(ctx context.Context, now time.Time, limits Limits) (more bool, err error)

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

// Limits bound what a store holds; 0 is no limit.
type Limits struct {
	Queue     int           // queued runs of all chats
	Chat      int           // queued runs of one chat
	Retention time.Duration // how long finished runs are kept
	Keys      int           // how many idempotency keys are kept …
	KeyAge    time.Duration // … and for how long
}

// Want says how many runs to claim, and for how long they are the claimer's own unless it renews them.
type Want struct {
	Runs  int
	Lease time.Duration
}

// Claim is the right to carry out a run. The attempt tells claims of one run apart.
type Claim struct {
	Run       *Run
	Attempt   int // counted from 1; one that the process did not survive counts too
	StartedAt time.Time
}

// End is what is stored when a run has ended.
type End struct {
	Outcome    Outcome
	Deliveries []*Delivery
	At         time.Time
	Unstarted  bool // the claim was not used: the run was not started again
}

// Record is what a store knows about a run. Once it has ended, its Run has no message, metadata or schema any more.
type Record struct {
	Run        *Run
	Status     Status
	Attempts   int
	StartedAt  time.Time // of the last attempt
	FinishedAt time.Time
	Outcome    Outcome     // once it has ended
	Deliveries []*Delivery // without their bodies
}

// Query selects runs; what is "" does not matter.
type Query struct {
	Hook   string
	ChatID string
	Status Status
	Limit  int    // how many at most
	Cursor string // where an earlier query ended
}

// DeliveryQuery selects deliveries; what is "" does not matter.
type DeliveryQuery struct {
	Status  DeliveryStatus
	Channel string
	Host    string // of a callback, with its port or without
	Limit   int
	Cursor  string
}

// Selects reports whether a delivery is one of those that the query is about.
func (q *DeliveryQuery) Selects(d *Delivery) bool {
	if q.Host != "" {
		host := d.CallbackHost()
		name, _, _ := net.SplitHostPort(host)
		if host == "" || q.Host != host && q.Host != name {
			return false
		}
	}
	return (q.Status == "" || q.Status == d.Status) && (q.Channel == "" || q.Channel == d.Channel)
}

// DuplicateError says that a run with the same key was accepted before.
type DuplicateError struct {
	First    *Run // its ID, ChatID, Action and Sync
	SameBody bool
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("run %s was accepted with the same key", e.First.ID)
}

var (
	ErrQueueFull = errors.New("the queue is full")
	ErrChatFull  = errors.New("the queue of this chat is full")
	ErrStopping  = errors.New("the engine is stopping")
	ErrNotFound  = errors.New("there is no such run")
	ErrClaimLost = errors.New("the claim on the run was lost")
	ErrUnderWay  = errors.New("the delivery is under way")
	ErrDelivered = errors.New("the delivery has arrived already")
	ErrCursor    = errors.New("the cursor is not one of this list")
)
