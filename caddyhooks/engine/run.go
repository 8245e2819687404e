package engine

import (
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// Run is what was accepted: one message for the agent, with all that is needed to carry it out and to answer for it.
// It does not change after it was submitted; how it went is its Outcome.
type Run struct {
	ID     string // a UUIDv7, and so tells about when the run was accepted
	ChatID string
	Hook   string // "wake", "agent" or the name of the custom hook
	Action Action
	Name   string // the caller's label, for logs

	Message  string
	Metadata json.RawMessage // an object, or nil

	Tier           string // "" is the runner's own default
	ValidationTier string // with a schema: for the turn and its repairs
	MemoryPreset   string
	Schema         json.RawMessage // what the answer has to match, or nil

	Sync        bool // a caller waits for the answer
	CallbackURL string
	Channel     string // deliver to this channel …
	To          string // … and this chat on it

	Timeout     time.Duration // counts from when the runner takes it on or, if a caller waits, from its acceptance
	QueueTime   time.Duration // how long after its acceptance a runner may take it on; 0 is for ever
	History     time.Duration // how long message, metadata and schema are kept after the end; 0 is not at all
	AcceptedAt  time.Time
	TraceParent string
	AgainOf     string // the id of the run whose message this is, if it was run again
	NewChat     bool   // nobody named the chat: it was made for this run, or for the one that this is again
	Test        bool   // an operator tries out a hook

	Runner string // the name of the runner that carries it out, "" for the default one
	Fold   Fold   // the turn waits for more runs of the hook in the chat; the zero value is none
	Key    *Key   // if the caller marked the request as one that it may repeat
	Replay *Key   // of the signature, if it has a time: a request that repeats it is a repeated one, whatever its Key
	Owner  string // the node of the caller that waits

	// IDPlaceholder stands in Message and ChatID for the id of the run, which nobody knows yet. Add puts the id in its place. It is
	// random, so that no text from outside can hold it; "" is none.
	IDPlaceholder string

	// Together are all runs of a request that became several, of the first of them, which is included. Add fills it in. A request
	// that could have become several has one element here before that.
	Together []Sibling

	// Gates let the run in only so often. Stores look at them when they accept it, and do not keep them with it.
	Gates []gate.Gate

	// Replaces says that the unfinished runs of its hook in its chat that are older are cancelled.
	Replaces bool

	// Sender is by what the hook tells senders apart, if somebody is asked about new ones.
	Sender string

	// Asks is what the hook asked people before it runs or delivers, when the run was accepted: it holds if the hook is gone by then. The
	// Questioner reads it; nil is nothing.
	Asks []byte

	// Budgets are the accounts that the run spends on, of budgets that tell apart who spends: see budget.Budget.Account.
	Budgets []string

	// For operators alone: neither callers nor runners are told.
	RequestID string // by which the sender knows the request, as NewRequestID makes it; "" if it gave none
	Client    string // the address of the caller, "" if it is unknown
	KeyHeader string // the name of the header that held the key
}

// NewRequestID makes a sender's id of a request fit to be kept, shown and looked for: one line of at most 256 bytes.
func NewRequestID(id string) string { return oneline.Of(id, 256) }

// Fold has runs of a hook that stand together in a chat carried out in one turn.
type Fold struct {
	Window time.Duration // how long after its acceptance the first run waits for others
	Max    int           // so many runs do not wait for more, and no turn has more
	Latest bool          // the turn is told the newest message alone
	Alike  uint32        // a digest of what the runs of a turn have in common; the engine sets it
}

// IsSet reports whether runs are folded at all.
func (f Fold) IsSet() bool { return f.Max > 1 }

// alike is a digest of what a turn takes from its first run alone. Only runs that agree in it are carried out together.
func (r *Run) alike() uint32 {
	digest := fnv.New32a()
	for _, part := range [...]string{r.Timeout.String(), r.Tier, r.ValidationTier, r.MemoryPreset, string(r.Metadata), string(r.Schema),
		strings.Join(r.Budgets, ""), strconv.FormatBool(r.Fold.Latest)} {
		_, _ = digest.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = digest.Write([]byte(part))
	}
	return digest.Sum32()
}

// Sibling is a run of a request that became several.
type Sibling struct{ ID, ChatID string }

// FillID puts the id of a run where IDPlaceholder stands for it.
func (r *Run) FillID() {
	if r.IDPlaceholder != "" {
		r.Message, r.ChatID = strings.ReplaceAll(r.Message, r.IDPlaceholder, r.ID), strings.ReplaceAll(r.ChatID, r.IDPlaceholder, r.ID)
		r.IDPlaceholder = ""
	}
}

// Kept is the part of a run that is kept with its end, and that lists show. For the rest see Input.
func (r *Run) Kept() *Run {
	kept := *r
	kept.Message, kept.Metadata, kept.Schema = "", nil, nil
	return &kept
}

// IsRecalled reports whether later turns of the chat recall the run if it ends like this, as long as its message is kept.
func (r *Run) IsRecalled(status Status) bool {
	return status == Completed && r.MemoryPreset != MemoryDisabled && r.History > 0
}

// Repeats is the error for a run whose key was first used by another one.
func (r *Run) Repeats(first *Run) error {
	return &DuplicateError{First: first, SameBody: r.Key.AnyBody || first.Key.Body == r.Key.Body}
}

// Key is how requests are recognised that a caller sends again, by digests of what the caller chose and of the body.
type Key struct {
	ID      [32]byte
	Body    [32]byte
	AnyBody bool // a repeated request is one whatever its body, and Body may be left out
}

// Status is where a run is. It is queued, running, possibly waiting, queued and running again, and then one of the others, which
// are final.
type Status string

const (
	Queued    Status = "queued"
	Running   Status = "running"
	Waiting   Status = "waiting" // put aside for a question
	Completed Status = "completed"
	Failed    Status = "failed"
	TimedOut  Status = "timed_out"
	Cancelled Status = "cancelled"
	Expired   Status = "expired" // no runner took it on within its queue time
)

// Statuses are all of them.
var Statuses = []Status{Queued, Running, Waiting, Completed, Failed, TimedOut, Cancelled, Expired}

// Outcome is how a run ended.
type Outcome struct {
	Status  Status
	Text    string // what the turn answered, as it was; also of a run that failed later
	HasText bool
	JSON    []byte // the part of an answer that matches the schema, byte for byte
	Repairs int    // repair calls that were made for it
	Checked bool   // the answer had to match a schema

	Failure    Failure       // why, when Status is Failed, or Cancelled by a newer run
	Message    string        // one sentence about it for the caller
	RetryAfter time.Duration // when it makes sense to ask again, if it does

	SessionRenewed bool // the agent had lost the conversation of the chat, and the turn began another one

	Usage   []Use   // what the agent reported for the turns of the run, by model; for operators alone
	Account Account // likewise
}

// Failure tells apart the ways in which a run fails, for callers that act on them.
type Failure string

const (
	RunnerFailed      Failure = "runner_failed"
	RunnerUnavailable Failure = "runner_unavailable"
	SchemaUnmet       Failure = "schema_unmet"
	ShuttingDown      Failure = "shutting_down"
	Interrupted       Failure = "interrupted" // by the end of the process, or by that of the agent
	Replaced          Failure = "replaced"    // cancelled by a newer run
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s != Queued && s != Running && s != Waiting }

// ForgetsKey reports whether the key of a run that ended like this can be used again: there is no answer that a repeated
// request could be given.
func (o *Outcome) ForgetsKey() bool {
	return o.Status == Cancelled && o.Failure != Replaced || o.Status == Expired || o.Failure == RunnerUnavailable ||
		o.Failure == ShuttingDown || o.Failure == Interrupted
}

// hasDeliveries reports whether someone other than a waiting caller is told how the run ended.
func (r *Run) hasDeliveries() bool { return r.CallbackURL != "" || r.Channel != "" }

// Tiers are the model tiers that a run may ask for.
var Tiers = []string{"balanced", "smart", "coding", "deep", "special1", "special2", "special3", "special4", "special5"}

// MemoryPresets are those that a run may ask for.
var MemoryPresets = []string{MemoryDisabled, "coding_balanced", "coding_fast", "coding_deep", MemoryPlain, "research_analyst",
	"ops_support"}

// TurnTier is the tier of the turn. Tiers come from the request alone; nothing of the chat's history plays a part.
func (r *Run) TurnTier() string {
	if r.Schema != nil && r.ValidationTier != "" {
		return r.ValidationTier
	}
	return r.Tier
}

// repairTier is the tier of repairs.
func (r *Run) repairTier() string {
	if tier := r.TurnTier(); tier != "" {
		return tier
	}
	return "balanced"
}
