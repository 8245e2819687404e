// Package agent is what an engine and the runners of agents say to each other: a turn, its reply, and why there is none. It is a part of
// package engine, and knows neither runs nor stores.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/question"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// A Runner carries out one turn of the agent loop. Run returns when the turn is over or ctx is done; after that the
// turn has no further effects. The text of an error is for the operator's log, never for the caller of a webhook.
type Runner interface {
	Run(ctx context.Context, turn Turn) (Reply, error)
}

// A Redactor is a Runner with secrets that its answers may repeat. The engine asks it before it tells operators about an answer
// that does not match its schema. The reply of a run that completes is for its caller, and stays as it is.
type Redactor interface {
	// Redact returns a text of any length without the runner's secrets.
	Redact(text string) string
}

// A Selective is a Runner to which some model tiers or memory presets make no difference. Pages offer those that a runner uses; any
// other Runner is taken to use all of them.
type Selective interface {
	// Uses returns the model tiers and the memory presets that change a turn. A runner that only knows turns with and without a
	// memory names MemoryPlain alone.
	Uses() (tiers, memoryPresets []string)
}

// Turn is one call of the runner.
type Turn struct {
	RunID  string
	ChatID string
	Action Action
	Hook   string
	Name   string

	// Repair is 0 for the turn itself, and counts from 1 the calls that mend an answer which did not fit its schema.
	// Those are isolated: they must see no history, no tools and no memory.
	Repair int

	Message        string
	System         string // instructions for the system prompt, if any
	Tier           string // "" is the runner's own default
	MemoryPreset   string // "disabled": nothing is recalled, and nothing persisted
	ResponseSchema json.RawMessage
	Metadata       json.RawMessage
	Timeout        time.Duration
	Deadline       time.Time
	TraceParent    string

	// Folded are the runs that the turn carries out, if they are several: in order, and RunID is the first of them. Their messages
	// are all in Message, and all get the same reply.
	Folded []FoldedRun

	// Chat is what the turn may know of its chat. It is nil if the turn has no memory: see Memory.
	Chat Chat

	// Sent tells that the turn is with the agent: from now on it is not known to be without effects, and its time counts. It
	// may be nil. A runner in this process need not call it.
	Sent func()

	// Later is how the agent can answer later, when Run has returned a *TakenOnError. It is nil if it cannot: Run has to wait for the answer.
	Later *Later

	// TakenOn is the State of a *TakenOnError that an earlier Run of this very turn returned. Run looks how the turn goes on, and does not
	// start it again. Input is what a person answered, if the error had a question.
	TakenOn string
	Input   string

	// Ask asks a person something in the middle of the turn, and waits for the answer without holding a worker. It is nil if nobody can be
	// asked. The error is that of ctx, or of the store.
	Ask func(ctx context.Context, ask Ask) (question.Answer, error)

	// Emit tells what the runner says while it works, as far as it is known before its reply. It is nil if nobody can
	// listen, does not block, and must not be called after Run has returned.
	Emit func(Progress)
}

// Later is where an agent sends the answer to a turn that it has taken on. It is the same however often the turn is sent, also after a
// crash.
type Later struct {
	URL   string // "" if no agent can reach this instance, by all one knows: the runner has to ask again
	Token string // a secret that the agent sends with the answer
}

// TakenOnError is returned by a Runner whose agent has taken the turn on and answers later. The run is put aside until then.
type TakenOnError struct {
	State string        // by which a later Run finds the turn again: it is Turn.TakenOn then. At most MaxTakenOn bytes
	For   time.Duration // how long the agent has, from when it took the turn on; 0 is for as long as it takes
	Again time.Duration // call Run again after so long, unless the agent answers before; 0 if it answers by itself
	Ask   *Ask          // if a person has to answer something before the agent goes on
}

func (e *TakenOnError) Error() string { return "the agent has taken the turn on, and answers later" }

// MaxTakenOn bounds the State of a *TakenOnError.
const MaxTakenOn = 16 << 10

// An Abandoner is a Runner that can tell an agent to give up a turn that it has taken on. Nobody waits for that, and it is tried once.
type Abandoner interface {
	// Abandon is given the State of the *TakenOnError.
	Abandon(ctx context.Context, state string) error
}

// A Postponer is an Abandoner that lets its agent answer later only if that is configured. Any other Abandoner is taken to do so always.
type Postponer interface {
	// TakesOn reports whether Run may return a *TakenOnError. Otherwise turns have no Later, unless they were taken on before.
	TakesOn() bool
}

// TakesOn reports whether a runner may return a *TakenOnError.
func TakesOn(runner Abandoner) bool {
	postponer, ok := runner.(Postponer)
	return !ok || postponer.TakesOn()
}

// Ask is a question of an agent to a person.
type Ask struct {
	Text    string   // from outside: what the agent says
	Choices []string // the answers that can be given; none is any text
	Place   AskPlace
}

// AskPlace says where a question is asked, and what becomes of it if nobody answers. The operator configures it.
type AskPlace struct {
	Channel string
	To      string
	By      []string      // the ids of those who may answer in the chat; none is anybody
	For     time.Duration // how long it is open; 0 is until somebody answers
	Else    string        // the answer that counts then
}

// An Asker is a Runner that asks people. The places are checked when the configuration is loaded.
type Asker interface {
	AskPlaces() []AskPlace
}

// Progress is a part of what a runner says while it works.
type Progress struct {
	Text string // to be added to the text so far
}

// Isolated reports whether the turn must run without history, tools and memory.
func (t *Turn) Isolated() bool { return t.Repair > 0 }

// Memory reports whether the turn may recall notes and persist new ones.
func (t *Turn) Memory() bool { return t.MemoryPreset != MemoryDisabled && !t.Isolated() }

// Chat is what a turn may know of the chat that it belongs to.
type Chat interface {
	// Past returns the last completed turns of the chat that had a memory, the oldest first: at most so many, and with at most
	// so many bytes of text together. Without a history there are none.
	Past(ctx context.Context, turns, bytes int) ([]PastTurn, error)

	// Session is what the last turn of this runner in the chat returned as Reply.Session, "" if there was none.
	Session(ctx context.Context) (string, error)
}

// PastTurn is a message of a chat and the answer to it, as far as they are kept.
type PastTurn struct {
	Message string
	Reply   string
}

// MemoryDisabled is the preset of a turn without memory.
const MemoryDisabled = "disabled"

// MemoryPlain is the memory preset to offer where all but MemoryDisabled mean the same.
const MemoryPlain = "general_chat"

// Reply is what the agent answered.
type Reply struct {
	Text string

	// Session names the conversation on the side of the agent, if the agent chose the name. It is kept for the next turn of
	// the chat on the same runner, also if Run returns an error with it. A turn without memory leaves it "".
	Session string

	// SessionRenewed tells that the agent had lost the conversation of the chat, and that the turn began another one. Operators
	// and callers are told.
	SessionRenewed bool

	// Permissions are what the agent asked to be allowed in the turn, and the answers it got. Operators see them, also if Run
	// returns an error with them.
	Permissions []account.Permission

	// Usage is what the agent reported of what the turn used, a report for each model, none if it reported nothing. It counts also if
	// Run returns an error with it. What cannot be right is left to the engine.
	Usage []usage.Report
}

// InterruptedError is returned by a Runner whose agent went down in the middle of a turn, through no fault of the turn. What the
// turn did by then is unknown, as after a crash of this process, and the same rules say whether it is started again.
type InterruptedError struct{ Err error }

func (e *InterruptedError) Error() string { return e.Err.Error() }
func (e *InterruptedError) Unwrap() error { return e.Err }

// CutShortError is returned by a Runner whose turn was ended from outside, such as by its time. Operators are told what the agent said
// last.
type CutShortError struct {
	LastWords string // on one line
	Err       error  // that of the context
}

func (e *CutShortError) Error() string { return e.Err.Error() + e.words() }
func (e *CutShortError) Unwrap() error { return e.Err }
func (e *CutShortError) words() string { return "; its last words: " + e.LastWords }

// LastWordsIn are the last words of an agent whose turn was cut short, for the end of a sentence. There may be none.
func LastWordsIn(err error) string {
	if cut, ok := errors.AsType[*CutShortError](err); ok && cut.LastWords != "" {
		return cut.words()
	}
	return ""
}

// UnavailableError is returned by a Runner that could not take the turn on: it is busy, or cannot be reached. The turn
// had no effects and may be tried again.
type UnavailableError struct {
	Busy       bool          // it is there, and asked to be called later
	Failing    bool          // it is there, and failed; the turn may be the cause, and is tried failingTries times at most
	RetryAfter time.Duration // as long as it asked for, 0 when it did not say
	Err        error
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// An AnswerError is an error that a Runner may return, wrapped or not, about an answer that cannot be used.
type AnswerError interface {
	error

	// Answer is the beginning of that answer, without secrets, for operators. It is "" if the text of the error says it all.
	Answer() string
}

// FoldedRun is one of the runs that a turn carries out.
type FoldedRun struct {
	RunID      string
	AcceptedAt time.Time
}

// Action says what the caller of a run gets back.
type Action string

const (
	Wake  Action = "wake"  // an acknowledgement only
	Agent Action = "agent" // a run id, or the answer itself
)
