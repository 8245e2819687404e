// Package api has the JSON of the run API and of the operator's API: what a run, a delivery, a chat or a refusal looks like to those
// who ask, and how a refused request is answered. The run API, the admin API, the events of the page and the command line share it.
// It imports engine and text.
package api

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// Run is a run as the run API and the admin API show it.
type Run struct {
	Status         engine.Status `json:"status"`
	RunID          string        `json:"runId"`
	ChatID         string        `json:"chatId"`
	Hook           string        `json:"hook"` // "wake", "agent", or the name of the custom hook
	Action         engine.Action `json:"action"`
	Runner         string        `json:"runner,omitempty"` // by its name in the configuration
	Name           string        `json:"name,omitempty"`   // that the caller gave it
	AcceptedAt     *time.Time    `json:"acceptedAt"`
	StartedAt      *time.Time    `json:"startedAt,omitempty"` // the last time that it was started
	FinishedAt     *time.Time    `json:"finishedAt,omitempty"`
	Attempts       int           `json:"attempts"`                 // how often it was started
	WaitingFor     string        `json:"waitingFor,omitempty"`     // why a queued or waiting run does not go on
	Reply          *string       `json:"reply,omitempty"`          // the agent's answer, if the run is completed
	ErrorMessage   string        `json:"errorMessage,omitempty"`   // why the run ended in another way
	RepairAttempts int           `json:"repairAttempts,omitempty"` // how many repairs the answer needed to fit the schema
	SessionRenewed bool          `json:"sessionRenewed,omitempty"` // the agent had lost the conversation of the chat, and began another one
	FoldedInto     string        `json:"foldedInto,omitempty"`     // the run that led its turn, if that is another one
	Folded         int           `json:"folded,omitempty"`         // how many runs its turn had, if it led them
	Deliveries     []Delivery    `json:"deliveries,omitempty"`     // what was sent out
}

func NewRun(r *engine.Record) Run {
	shown := Run{
		Status: r.Status, RunID: r.Run.ID, ChatID: r.Run.ChatID, Hook: r.Run.Hook, Action: r.Run.Action, Runner: r.Run.Runner, Name: r.Run.Name,
		AcceptedAt: text.JSONTime(r.Run.AcceptedAt), StartedAt: text.JSONTime(r.StartedAt), FinishedAt: text.JSONTime(r.FinishedAt),
		Attempts: r.Attempts, WaitingFor: r.WaitingFor, RepairAttempts: r.Outcome.Repairs, SessionRenewed: r.Outcome.SessionRenewed,
		FoldedInto: r.FoldedInto,
	}
	if r.Folded > 1 {
		shown.Folded = r.Folded
	}
	switch {
	case r.Status == engine.Completed:
		reply := r.Outcome.Text
		if r.Outcome.JSON != nil {
			reply = string(r.Outcome.JSON)
		}
		shown.Reply = &reply
	case r.Status.Ended():
		shown.ErrorMessage = r.Outcome.Message
	}
	for _, d := range r.Deliveries {
		if d.Question == "" { // callers are not told who is asked
			shown.Deliveries = append(shown.Deliveries, NewDelivery(d))
		}
	}
	return shown
}

// RunSummary is a run as lists show it to operators, without its reply.
type RunSummary struct {
	Run
	Client      string   `json:"client,omitempty"` // the address of the caller
	CancelledBy string   `json:"cancelledBy,omitempty"`
	Reason      string   `json:"reason,omitempty"`  // why it failed, with what callers are not told
	AgainOf     string   `json:"againOf,omitempty"` // the run that it is started again of
	Preview     string   `json:"preview,omitempty"` // the first line of the message, as long as that is kept
	Tier        string   `json:"tier,omitempty"`    // the model tier
	Test        bool     `json:"test,omitempty"`    // an operator tried a hook out
	Sync        bool     `json:"sync,omitempty"`    // the caller waits for the answer
	SentOut     *SentOut `json:"sentOut,omitempty"`
	RequestID   string   `json:"requestId,omitempty"`  // by which the sender knows the request
	QueuedMs    *int64   `json:"queuedMs,omitempty"`   // from its acceptance until it was last started
	DurationMs  *int64   `json:"durationMs,omitempty"` // from then until its end

	Usage        []Use  `json:"usage,omitempty"`        // by model, as far as the agent told
	Used         Spent  `json:"-"`                      // all of it, for CSV
	UsageRefused string `json:"usageRefused,omitempty"` // why a report of the agent does not count
}

// SentOut is how many deliveries a run has, by their status.
type SentOut struct {
	Delivered int `json:"delivered"`
	Pending   int `json:"pending"`
	Dead      int `json:"dead"`
}

// RunsPage is a page of a list of runs.
type RunsPage struct {
	Runs       []RunSummary `json:"runs"`
	Cursor     string       `json:"cursor,omitempty"`     // of the next page, which there may be even if this one is short
	SearchedTo *time.Time   `json:"searchedTo,omitempty"` // how far back a search has looked
}

// Started is a run that was started.
type Started struct {
	RunID  string `json:"runId"`
	ChatID string `json:"chatId"`
}

// Tested names a run that tries a hook out, and where its answer would go. Nothing is sent there.
type Tested struct {
	Started
	Channel string `json:"channel,omitempty"`
	To      string `json:"to,omitempty"`
}

// NewRunSummary shows a run in a list. hideTexts is that of the caller.
func NewRunSummary(r *engine.Record, hideTexts bool) RunSummary {
	summary := RunSummary{
		Run: NewRun(r), Client: r.Run.Client, CancelledBy: r.Outcome.Account.CancelledBy,
		AgainOf: r.Run.AgainOf, Tier: r.Run.Tier, Test: r.Run.Test, Sync: r.Run.Sync, RequestID: r.Run.RequestID,
	}
	summary.QueuedMs, summary.DurationMs = millisBetween(r.Run.AcceptedAt, r.StartedAt), millisBetween(r.StartedAt, r.FinishedAt)
	summary.Usage, summary.Used = newUsage(r.Outcome.Usage), NewSpent(usage.Sum(r.Outcome.Usage))
	summary.Reply, summary.Deliveries = nil, nil
	summary.WaitingFor = cmp.Or(r.Paused, r.WaitingFor)
	if !hideTexts {
		summary.Preview = previewOf(r.Run.Message)
		summary.Reason, summary.UsageRefused = r.Outcome.Account.Reason, r.Outcome.Account.UsageRefused // which may quote what the agent answered
	}
	if len(r.Deliveries) > 0 {
		summary.SentOut = new(SentOut)
	}
	for _, d := range r.Deliveries {
		switch d.Status {
		case engine.Delivered:
			summary.SentOut.Delivered++
		case engine.Pending:
			summary.SentOut.Pending++
		case engine.Dead:
			summary.SentOut.Dead++
		}
	}
	return summary
}

// millisBetween is nil unless both times are known.
func millisBetween(from, to time.Time) *int64 {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	millis := max(to.Sub(from).Milliseconds(), 0)
	return &millis
}

func NewRunSummaries(records []*engine.Record, hideTexts bool) []RunSummary {
	return ShowAll(records, func(r *engine.Record) RunSummary { return NewRunSummary(r, hideTexts) })
}

// previewOf is the first line of a message, for lists, or its beginning if that line has no word. Markers of outside text are left
// out. Characters that change the direction of text stay, so that whoever shows the preview can show them as such.
func previewOf(message string) string {
	const most = 160 // characters
	message = untrusted.Unmarked(message)
	var line string
	for line = range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" {
			break
		}
	}
	if !strings.ContainsFunc(line, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }) {
		line = collapsed(message) // such as a payload that begins with a brace
	}
	var preview strings.Builder
	length := 0
	for _, c := range line { // a byte that is not UTF-8 becomes the replacement character
		if length == most-1 && utf8.RuneCountInString(line) > most {
			return preview.String() + "…"
		}
		if !unicode.IsPrint(c) && !unicode.Is(unicode.Bidi_Control, c) {
			c = ' '
		}
		preview.WriteRune(c)
		length++
	}
	return preview.String()
}

// collapsed is the beginning of a text, on one line and without indents.
func collapsed(text string) string {
	const looksAt = 4096 // bytes
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), looksAt)]), " "), "")
}

// RunDetails is a run as operators see it, with its input, where it came from and why it ended as it did.
type RunDetails struct {
	RunSummary
	KeyHeader        string          `json:"keyHeader,omitempty"`  // the header with the idempotency key
	LastAnswer       string          `json:"lastAnswer,omitempty"` // of the agent, if it did not fit the schema
	ValidationErrors []string        `json:"validationErrors,omitempty"`
	Permissions      []Permission    `json:"permissions,omitempty"`
	MorePermissions  int             `json:"morePermissions,omitempty"` // that the agent asked for, and that are not kept
	Message          *string         `json:"message,omitempty"`
	MessageCut       bool            `json:"messageCut,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
	Schema           json.RawMessage `json:"schema,omitempty"`
	// KeptUntil is when message, metadata and schema are forgotten. They go earlier if there is much.
	KeptUntil        *time.Time        `json:"keptUntil,omitempty"`
	AgainAs          string            `json:"againAs,omitempty"` // the run that was started in its place
	ValidationTier   string            `json:"validationTier,omitempty"`
	MemoryPreset     string            `json:"memoryPreset,omitempty"`
	TimeoutSeconds   float64           `json:"timeoutSeconds"`
	QueueTimeSeconds float64           `json:"queueTimeSeconds,omitempty"`
	TraceParent      string            `json:"traceParent,omitempty"`
	Steps            []Step            `json:"steps"`
	Questions        []Question        `json:"questions,omitempty"` // that the run had so far, in their order
	Deliveries       []DeliveryDetails `json:"deliveries,omitempty"`
}

// NewRunDetails shows a run, but for when its message is forgotten.
func NewRunDetails(r *engine.Record) RunDetails {
	account := &r.Outcome.Account
	details := RunDetails{
		RunSummary: NewRunSummary(r, true), // it has the whole message
		KeyHeader:  r.Run.KeyHeader, LastAnswer: account.LastAnswer, ValidationErrors: account.ValidationErrors, AgainAs: r.AgainAs,
		ValidationTier: r.Run.ValidationTier, MemoryPreset: r.Run.MemoryPreset,
		TimeoutSeconds: text.JSONSeconds(r.Run.Timeout), QueueTimeSeconds: text.JSONSeconds(r.Run.QueueTime),
		TraceParent: r.Run.TraceParent, Steps: ShowAll(r.Steps, NewStep), MorePermissions: account.MorePermissions,
	}
	for _, p := range account.Permissions {
		details.Permissions = append(details.Permissions, Permission(p))
	}
	details.Reply, details.Reason, details.UsageRefused = NewRun(r).Reply, account.Reason, account.UsageRefused
	for _, q := range r.Questions {
		shown := NewQuestion(q)
		shown.Hook, shown.ChatID = r.Run.Hook, r.Run.ChatID
		details.Questions = append(details.Questions, shown)
	}
	for _, d := range r.Deliveries {
		shown := NewDeliverySummary(d)
		shown.History = NewAttempts(d.History)
		details.Deliveries = append(details.Deliveries, shown)
	}
	if message, ok := MessageOf(r); ok {
		details.Message, details.Metadata, details.Schema = &message, r.Run.Metadata, r.Run.Schema
		details.MessageCut = r.Kept == engine.KeptCut
	}
	return details
}

// MessageOf is a run's input, if it has not ended yet or that is still kept.
func MessageOf(r *engine.Record) (message string, ok bool) {
	if r.Status.Ended() && r.Kept == engine.KeptNothing {
		return "", false
	}
	return r.Run.Message, true
}

// Permission is what an agent asked to be allowed, and the answer it got.
type Permission struct {
	Kind   string `json:"kind"`
	Title  string `json:"title"`
	Answer string `json:"answer"` // begins with "allowed" or "rejected"
}

// Step is a step of a run as operators see it.
type Step struct {
	Phase     engine.Phase `json:"phase"`
	StartedAt *time.Time   `json:"startedAt"`
	Seconds   float64      `json:"seconds"`
	Tier      string       `json:"tier,omitempty"`
	Bytes     int          `json:"bytes,omitempty"`
	Errors    []string     `json:"errors,omitempty"`
}

func NewStep(s engine.Step) Step {
	return Step{s.Phase, text.JSONTime(s.StartedAt), text.JSONSeconds(s.Took), s.Tier, s.Bytes, s.Errors}
}
