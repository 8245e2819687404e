package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/runnerstate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
)

// A Store keeps runs with their questions and deliveries until they are pruned, idempotency keys, the sessions of chats, the live settings
// with their last changes, documents, what was counted in the last minutes, and what runs cost.
//
// Several nodes may work on the same data: each opens it and gets a Store of its own. Any node accepts runs, claims them,
// ends them and sends deliveries; Watch tells a node about changes that other nodes made. All times are those of one
// clock, the store's: no method takes the time of day, and durations are counted from the moment of the call. Somebody may
// set that clock: as long as the data is open, nothing becomes due, overdue or lost by it, nor is put off.
//
// A claim is for a lease, and has a token that is never used again. A node that stood still for longer than its lease
// finds that its token holds no more, and can end nothing that was given to another node.
//
// The interface is cut by subject, since an engine, an admin endpoint and a settings page each need only one of them, and
// since runs and deliveries have the same verbs.
//
// A Store is safe for use by many goroutines and never calls back into the engine. Whatever a method has reported as done
// survives the process, as far as anything kept in this store does. A method that fails has changed nothing, unless the
// store itself failed: then it cannot know. A store that has to wait, for a disk or for another machine, stops waiting when
// ctx is done, and then cannot know either: an engine gives up calls that take too long, so that it can cancel turns whose
// leases it cannot renew, and stop.
//
// A store that finds its data damaged is broken: it writes nothing more, and every call that would read or write fails at
// once with a *StoreBrokenError, until the store is closed and opened again.
type Store interface {
	// Node is the name of this opening of the store. No other opening, now or later, has the same name.
	Node() string

	Runs() Runs
	Deliveries() Deliveries
	Sessions() Sessions
	Settings() Settings
	Documents() Documents
	Questions() Questions
	Minutes() Minutes
	Ledger() Ledger
	Watch() Watch
	Streams() Streams

	// Prune forgets ended runs and keys that are older than the limits allow, a bounded number of them, and reports whether
	// there are more. Runs with pending deliveries stay, and runs with a delivery that was given up lately. What ended runs
	// were told is forgotten when it is older than the limits or the run itself allow, and if there is too much of it, the
	// oldest first. So are entries of the ledger that are kept no longer. A session is forgotten when no run has named it for as long as
	// ended runs are kept. When two nodes prune at the same time, one of them may find nothing to do.
	Prune(ctx context.Context, limits Limits) (more bool, err error)

	// Size is about how many bytes the data takes, where it is kept. It takes no longer if there is much.
	Size(ctx context.Context) (bytes int64, err error)

	// Close ends this opening. Claims that it still has are lost, when their lease is over at the latest.
	Close() error
}

// Runs keeps runs from acceptance until they are pruned.
type Runs interface {
	// Add gives a new run its id, a UUIDv7, and its time of acceptance, and stores it as the last of its chat: after every
	// run whose Add had returned, on any node, before this one began. When it returns nil the run is kept. ErrQueueFull and
	// ErrChatFull say that a limit was reached, ErrSettingsChanged that terms.Settings is not the revision in force. A run
	// whose key was used before is not stored: the *DuplicateError tells about the first one.
	//
	// If run.AgainOf names a run that has ended, that run is marked in the same step: its record names the new one. With
	// terms.Once the new run is not stored if the other one is marked already (ErrRunAgain) or is not there (ErrNotFound).
	Add(ctx context.Context, run *Run, terms Terms) error

	// AddAll is Add for the runs of one request, in one step: all of them are stored or none is, in their order. Key, Replay
	// and AgainOf are those of the first, whose Together then names all of them, also in a *DuplicateError. The limits are for
	// all of them together.
	//
	// A run whose gate of the kind Once or Alone is closed is left out, and has no ID then. If all are, nothing is stored, and the error is
	// the *gate.ClosedError of the first. So it is if the Rate of one of them is closed. The gates of runs that are stored are passed in
	// the same step, and no others are. Keys are looked at before gates, and terms.Refuse only after those of the kind Once.
	AddAll(ctx context.Context, runs []*Run, terms Terms) error

	// Claim hands out runs to be carried out now. A chat has at most one claim, and its runs are handed out in the order in which they
	// were added. A claim that is not renewed within its lease can be given to another node, soon after the lease is over: a store need
	// not notice at once. wait is how long until a run that waits is due, negative if there is none; leases of others do not count.
	//
	// A run with a Fold is handed out when its window is over, counted from its acceptance, or when Max runs of it stand together: runs of
	// the same hook and runner, with a Fold and as often started as the first, one after the other in the chat, which nobody waits for and
	// which are no other run again. Those that stand behind it, up to Max and as long as their messages have no more than MaxFoldMessage
	// bytes, come along as Claim.Folded, and count as one run for the batch. Nor does a run wait when the next one would be too much. The
	// window of a run that waits counts for wait, and Watch tells when one is opened that is over before all others.
	Claim(ctx context.Context, batch Batch) (claims []*Claim, wait time.Duration, err error)

	// Renew lets claims hold for another lease, and says that this node is alive, also if it holds none. A claim whose lease
	// is over is renewed too, as long as nobody else has got the run. lost are the claims that hold no more, cancelled those
	// whose run somebody wants to be cancelled.
	Renew(ctx context.Context, claims []*Claim, lease time.Duration) (lost []*Claim, cancelled []Cancellation, err error)

	// End ends a run or, if end.Requeue is set, puts it back to the head of its chat as if it had not been started, possibly to wait
	// there. With end.Interrupted its start counts, it is not overdue, and Resume does not end its wait. It stores the run's deliveries
	// and its session, adds what it spent to the ledger, and claims the next batch, all in one step. The claim tells which run, and by
	// what right: a claim without a token is for a run that is queued. ErrClaimLost says that the claim does not hold, or that the run
	// is not queued, and then nothing was done. An End that is repeated with the same token, since its answer was lost, does nothing and
	// returns nil. claim.Run is the whole run, as Claim or Get gave it out; its input is kept for as long as its History says. The next
	// batch may hold the run that was requeued.
	//
	// With end.Question the run is put aside: it is Waiting, at the head of its chat, until the question is answered or its time is over. It
	// does not count as queued, Resume does not end its wait, and it is not overdue, also not later. No run that has a Fold is put aside. If
	// the question was answered before it was asked, the run is queued at once. A claim without a token ends a run that is put aside, too.
	// Claim.Questions of the next claim are all questions of the run. A delivery that the run has already stays as it is.
	//
	// The runs that are folded into a claim end with it, in the same step and with the same outcome, or go back with it in
	// their order, to be folded again. Only the first is a past turn of the chat.
	End(ctx context.Context, claim *Claim, end End, next Batch) (claims []*Claim, err error)

	// Resume makes the queued runs of some runners due that wait, those of all runners if none is named, and lets them start
	// with short waits again.
	Resume(ctx context.Context, runners ...string) error

	// Overdue returns queued runs that were never started and are older than their queue time, up to a number, and how long
	// until there are more, negative if that is not a question of time. They stay queued until somebody ends them.
	Overdue(ctx context.Context, most int) (runs []*Run, wait time.Duration, err error)

	// Cancel asks the node that carries out a run to cancel it. Watch and Renew tell that node, until its claim is over, and
	// by whom it was asked first. The run may be one that was folded into a claim: then the node has to decide what becomes of
	// the others. ErrNotFound says that nobody carries it out.
	Cancel(ctx context.Context, id, by string) error

	// Get returns what is known about a run, or ErrNotFound.
	Get(ctx context.Context, id string) (*Record, error)

	// Unfinished reports whether a run is queued, put aside or being carried out. It is asked for every caller that waits, so it should be
	// quicker than Get.
	Unfinished(ctx context.Context, id string) (bool, error)

	// Beside returns the ids of unfinished runs of the hook of a run: those that stand before it in its chat and those behind it, the last
	// ones first, up to a number of each. In rare cases some are of another chat. A run that has ended has none.
	Beside(ctx context.Context, run *Run, most int) (before, behind []string, err error)

	// List returns runs, the newest first unless the query says otherwise, with as much of their texts as the query asks for.
	// next is the Cursor of the query for the page after this one, "" if there is none. It has the form of a run id, and its time
	// tells how far the query got. A page can be short or empty although there is more: a query looks at a bounded number of runs, and
	// at a bounded number of bytes.
	List(ctx context.Context, query Query) (page []*Record, next string, err error)

	// Chats returns chats that somebody named, the one with the newest run first. For next see List. A chat that gets a run
	// between two pages is on neither of them if it was to be on the second one: it belongs on the first now.
	Chats(ctx context.Context, query ChatQuery) (page []*ChatSummary, next string, err error)

	// Past returns the last runs of a chat that later turns of their chat recall, as Run.IsRecalled says, the newest first, with their
	// input and their answers: at most so many, and none after the one with which message and answer of all have more than so
	// many bytes. Runs that do not keep their message any more are left out, and if there are many of them, what is before them. It
	// takes no longer in a long chat, or in a large store. A turn that several runs were folded into is one of them, the record is
	// that of the first, and Followers are the others.
	Past(ctx context.Context, chat string, turns, bytes int) ([]*Record, error)

	// Queued is how many runs wait to be carried out, on whatever node, without those that are put aside. It takes no longer if there are
	// many.
	Queued(ctx context.Context) (int, error)

	// Backlog is the same and more. It takes no longer if there are many runs either.
	Backlog(ctx context.Context) (Backlog, error)
}

// ClaimingRuns are those of a store that can accept runs and claim some in one step.
type ClaimingRuns interface {
	Runs

	// AddAndClaim is AddAll, and claims a batch in the same step, which may have the new runs. Nothing is claimed if they are not stored.
	// A store may claim fewer than it could, and leave the others to Claim, for which Watch then tells.
	AddAndClaim(ctx context.Context, runs []*Run, terms Terms, batch Batch) (claims []*Claim, err error)
}

// Deliveries keeps the deliveries of runs until those are pruned.
type Deliveries interface {
	// Claim hands out pending deliveries that are due, the one that has been due for longest first, for a lease. wait is how
	// long until there is more, negative if that is not a question of time; leases of others do not count. No more than PerHost to one host
	// are under way at once over all nodes, and to one chat of a channel only one. TriedAt of a claimed delivery is now; List and Get may know
	// it no sooner than Settle.
	Claim(ctx context.Context, batch DeliveryBatch) (due []*Delivery, wait time.Duration, err error)

	// Renew lets claimed deliveries stay with this node for another lease, and returns those that are lost.
	Renew(ctx context.Context, held []*Delivery, lease time.Duration) (lost []*Delivery, err error)

	// Settle stores how an attempt ended, as the delivery tells it, and throttles destinations, in one step. A delivery that
	// is still pending is due after the pause; if that is 0 it is as due as before. Settle makes room for another delivery
	// when it is called, not when it returns. ErrClaimLost says that the delivery's token does not hold. A Settle that is
	// repeated with the same token, since its answer was lost, does nothing and returns nil.
	Settle(ctx context.Context, d *Delivery, pause time.Duration, throttles ...Throttle) error

	// Retry makes a delivery due now that was given up or waits for its next attempt, has its schedule begin anew, and lifts
	// the throttles of its host and chat. So it does with one that has arrived if its body is given, as Delivery.Retried says. The
	// errors are ErrNotFound, ErrUnderWay and, without a body, ErrDelivered.
	Retry(ctx context.Context, id string, body *string) (*Delivery, error)

	// Drop forgets a delivery that was given up or waits for its next attempt. The errors are ErrNotFound, ErrUnderWay and ErrDelivered.
	Drop(ctx context.Context, id string) error

	// Get returns a delivery as a whole, or ErrNotFound.
	Get(ctx context.Context, id string) (*Delivery, error)

	// List returns deliveries, those of the newest run first, without their bodies. For next see Runs.List.
	List(ctx context.Context, query DeliveryQuery) (page []*Delivery, next string, err error)

	// Paused returns hosts and channels for which deliveries are pending and to which none is handed out for now, up to a
	// number, the one whose pause is over first before the others. Pauses of single chats do not count.
	Paused(ctx context.Context, most int) ([]PausedHost, error)

	// Waits tells of each of some deliveries what it waits for. The zero value is for one that does not wait: it is due, under
	// way or not pending any more.
	Waits(ctx context.Context, deliveries []*Delivery) ([]DeliveryWait, error)

	// Count is how many deliveries are pending, and how many were given up. It takes no longer if there are many.
	Count(ctx context.Context) (pending, dead int, err error)

	// CountByChannel is Count for each channel that has some, and for callbacks, as that of "". It takes no longer if there are many: a
	// store may count no more than MaxCounted pending ones of a channel, and of those that were given up no more than the newest
	// MaxCounted of all.
	CountByChannel(ctx context.Context) (map[string]Undelivered, error)
}

// A StoreOpener is the configuration of a store. Openers with the same key open the same data, and a process opens it
// once; instance is the name of the hooks instance that the store is for.
type StoreOpener interface {
	StoreKey(instance string) string
	OpenStore(ctx context.Context, instance string) (Store, error)
}

// Terms are the conditions under which a run is accepted.
type Terms struct {
	Limits   Limits
	Settings int64 // the revision of the live settings that the request was checked against
	Once     bool  // of a run that is another one again: not if that was run again before

	// If it is set, nothing is stored: this is the error, unless the request is a repeated one.
	Refuse error
}

// The longest pauses that an engine asks for, of a run before it is handed out again and of a delivery. If data that a store
// opens has a longer one, then the clock was set back.
const (
	LongestRunPause      = runnerstate.LongestRetryAfter
	LongestDeliveryPause = 24 * time.Hour
)

// Claim is the right to carry out a run.
type Claim struct {
	Run       *Run
	Token     string // of this claim alone
	Attempt   int    // counted from 1; one that the process did not survive counts too
	StartedAt time.Time
	Waited    time.Duration // since the run was accepted
	Waits     int           // how often in a row it was put back to wait; see End.Held
	Awaited   bool          // a caller waits for the answer, and its node is alive
	Folded    []*Run        // that this turn carries out too, in their order; Attempt and the rest hold for them as well, but for Waited
	Questions []*Question   // of the run so far, in their order
}

// Cancellation is somebody's wish that a claimed run be cancelled.
type Cancellation struct {
	Claim *Claim
	RunID string // that of the claim, or of one that is folded into it
	By    string // as Runs.Cancel was told
}

// overdue reports whether nobody took the run on within its queue time. Somebody did if it has questions.
func (c *Claim) overdue() bool {
	return c.Run.QueueTime > 0 && c.Waited > c.Run.QueueTime && !c.Awaited && (c.Attempt == 1 || c.Waits > 0) && len(c.Questions) == 0
}

// End is how a run ends, or goes back to the queue.
type End struct {
	Outcome    Outcome
	Deliveries []*Delivery // of the run and of those that are folded into the claim, as their RunID tells
	Steps      []Step      // the turns of the last attempt
	Unstarted  bool        // the claim was not used: the run was not started again
	Requeue    bool        // the run does not end, and this start does not count
	// With Requeue: its turn was under way and was cut off, so that this start counts. The run does not wait for its runner any more.
	Interrupted bool

	// What the turns under this claim have used. It is added to the ledger.
	Spent []LedgerEntry

	// If it has an ID: the next turn of the runner in the chat of the run goes on with it.
	Session Session

	// With Requeue: the reason why the run is not handed out again before the pause is over, "" if it may be at once.
	WaitingFor string
	Pause      time.Duration
	// With WaitingFor, and without Interrupted: its runner was not tried. Waits of the next claim is that of this one, but at least 1.
	Held bool

	// With Requeue: the run is put aside for this question, which may be one that it was put aside for before and that is still open. Pause,
	// if it is not 0, is after how long the run is handed out although nobody has answered. Deliveries are stored too.
	Question *Question
}

// Started is how often a run was started, and when last, if it ends like this under a claim.
func (e *End) Started(claim *Claim) (attempts int, startedAt time.Time) {
	if e.Unstarted {
		return claim.Attempt - 1, time.Time{}
	}
	return claim.Attempt, claim.StartedAt
}

// NoteFold fills in whether a run that ends under a claim was carried out together with others.
func (c *Claim) NoteFold(record *Record) {
	switch {
	case len(c.Folded) == 0:
	case record.Run.ID == c.Run.ID:
		record.Folded = 1 + len(c.Folded)
	default:
		record.FoldedInto = c.Run.ID
		record.Outcome.Usage = nil // of the turn, which counts for the first
	}
}

// DeliveriesOf are the deliveries of a run that ends like this under a claim. Those that name no other run are of the first.
func (e *End) DeliveriesOf(claim *Claim, run *Run) []*Delivery {
	if len(claim.Folded) == 0 {
		return e.Deliveries
	}
	isFolded := func(id string) bool {
		return slices.ContainsFunc(claim.Folded, func(folded *Run) bool { return folded.ID == id })
	}
	var own []*Delivery
	for _, d := range e.Deliveries {
		if d.RunID == run.ID || run.ID == claim.Run.ID && !isFolded(d.RunID) {
			own = append(own, d)
		}
	}
	return own
}

// Record is what a store knows about a run. Once it has ended, its Run has message, metadata and schema as far as Kept says.
type Record struct {
	Run        *Run
	Kept       Kept // of a run that has ended
	Status     Status
	Attempts   int
	StartedAt  time.Time // of the last attempt
	FinishedAt time.Time
	WaitingFor string      // why it is not carried out yet, while it is put back to wait or put aside; possibly until it is claimed
	Paused     string      // why an operator's pause keeps it queued, for operators; a store does not know
	Outcome    Outcome     // once it has ended
	Steps      []Step      // once it has ended: as End had them
	Questions  []*Question // that the run had so far; lists leave them out
	AgainAs    string      // the id of the run that was last started as this one again, "" if none was
	Deliveries []*Delivery // without their bodies

	// Once it has ended, of a run that was folded into the turn of another one: the id of that one, whose Outcome and Steps
	// are its own.
	FoldedInto string
	// Of that other one: how many runs its turn had, itself included. It is 0 for a run that was alone.
	Folded int
	// Of a past turn (see Runs.Past): the runs besides the first, in their order. Message is "" where it is not kept any more.
	Followers []*Run
}

// HasPending reports whether a delivery of the run is still pending.
func (r *Record) HasPending() bool {
	for _, d := range r.Deliveries {
		if d.Status == Pending {
			return true
		}
	}
	return false
}

// IsPastTurn reports whether later turns of the chat recall a run that has ended, as long as its message is kept. Of runs
// that were folded the first stands for all.
func (r *Record) IsPastTurn() bool { return r.FoldedInto == "" && r.Run.IsRecalled(r.Status) }

// OverSince is when a run was over: it had ended, and its last delivery that failed was given up. Retention counts from
// then on.
func (r *Record) OverSince() time.Time {
	at := r.FinishedAt
	for _, d := range r.Deliveries {
		if d.Status == Dead && d.TriedAt.After(at) {
			at = d.TriedAt
		}
	}
	return at
}

// Listed is the record as a list shows it.
func (r *Record) Listed() *Record {
	listed := *r
	listed.Run, listed.Kept, listed.AgainAs, listed.Deliveries, listed.Steps, listed.Questions = r.Run.Kept(), KeptNothing, "", nil, nil, nil
	listed.Outcome.Text, listed.Outcome.JSON = "", nil
	account := &listed.Outcome.Account
	account.LastAnswer, account.ValidationErrors, account.Permissions, account.MorePermissions = "", nil, nil, 0
	return &listed
}

// Query selects runs; a filter that is empty selects all.
type Query struct {
	Hooks     []string // of one of these
	Statuses  []Status // likewise
	Runners   []string // likewise, as runs name them
	ChatID    string
	RequestID string    // that the sender gave. There is an index of it: the query takes no longer in a large store
	Since     time.Time // accepted then or later …
	Until     time.Time // … and before that
	Prefix    string    // the id of a run, or its beginning
	Text      string    // words that all are in the texts of a run, whatever their case; see Words
	Limit     int       // how many at most
	Cursor    string    // where an earlier query ended

	// What the records have besides. Otherwise they are as Record.Listed makes them.
	Input      bool // the run's input, as far as it is kept
	Replies    bool // its answer and account, and as which run it was run again
	Deliveries bool // without their bodies

	OldestFirst bool   // begin with the oldest run …
	UpTo        string // … and end with the run of this id, which need not be one that is selected; "" is the newest
}

// Selects reports whether the query is about a run, whatever texts it is about.
func (q *Query) Selects(r *Record) bool {
	return strings.HasPrefix(r.Run.ID, q.Prefix) &&
		(len(q.Hooks) == 0 || slices.Contains(q.Hooks, r.Run.Hook)) &&
		(len(q.Runners) == 0 || slices.Contains(q.Runners, r.Run.Runner)) &&
		(q.ChatID == "" || q.ChatID == r.Run.ChatID) && (q.RequestID == "" || q.RequestID == r.Run.RequestID) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, r.Status)) &&
		!r.Run.AcceptedAt.Before(q.Since) &&
		(q.Until.IsZero() || r.Run.AcceptedAt.Before(q.Until))
}

// Listed is a record as a list shows it that this query asks for.
func (q *Query) Listed(r *Record) *Record {
	listed := r.Listed()
	if q.Input {
		listed.Run, listed.Kept = r.Run, r.Kept
	}
	if q.Replies {
		listed.Outcome, listed.AgainAs = r.Outcome, r.AgainAs
	}
	if q.Deliveries {
		listed.Deliveries = r.Deliveries
	}
	return listed
}

// Words are the words of a text to look for, in small letters.
func (q *Query) Words() Words { return strings.Fields(strings.ToLower(q.Text)) }

// Words are words to look for in the texts of runs.
type Words []string

// In reports whether each of the words is, whatever its case, in the chat id of a run, in its message, its answer, or the
// message and reason of its end. The record has to be whole.
func (w Words) In(r *Record) bool {
	if len(w) == 0 {
		return true
	}
	texts := [...]string{r.Run.ChatID, r.Run.Message, r.Outcome.Text, r.Outcome.Message, r.Outcome.Account.Reason, ""}
	if r.Outcome.Text == "" {
		texts[5] = string(r.Outcome.JSON) // otherwise a part of the text
	}
	return storage.HaveAll(texts[:], w)
}

// DeliveryQuery selects deliveries; a filter that is empty selects all.
type DeliveryQuery struct {
	Statuses []DeliveryStatus // of one of these
	Channel  string
	Host     string    // of a callback, with its port or without
	Since    time.Time // of a run that was accepted then or later, by the milliseconds in its id …
	Until    time.Time // … and before that
	Limit    int
	Cursor   string
}

// Selects reports whether the query is about a delivery.
func (q *DeliveryQuery) Selects(d *Delivery) bool {
	if q.Host != "" {
		host := d.CallbackHost()
		name, _, _ := net.SplitHostPort(host)
		if host == "" || q.Host != host && q.Host != name {
			return false
		}
	}
	return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, d.Status)) && (q.Channel == "" || q.Channel == d.Channel)
}

// DuplicateError says that a run with the same key was accepted before.
type DuplicateError struct {
	First    *Run // its ID, ChatID, Action, Sync and Together
	SameBody bool
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("run %s was accepted with the same key", e.First.ID)
}

var (
	ErrQueueFull       = errors.New("the queue is full")
	ErrChatFull        = errors.New("the queue of this chat is full")
	ErrStopping        = errors.New("the engine is stopping")
	ErrNotFound        = errors.New("there is no such run")
	ErrSettingsChanged = errors.New("the live settings were changed meanwhile")
	ErrUnderWay        = errors.New("the delivery is under way")
	ErrDelivered       = errors.New("the delivery has arrived already")
	ErrRunAgain        = errors.New("the run was run again already")
	ErrCursor          = errors.New("the cursor is not one of this list")
)
