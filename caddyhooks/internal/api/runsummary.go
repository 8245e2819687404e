package api

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// RunSummary is a run as lists show it to operators, without its reply.
type RunSummary struct {
	Run
	Client      string   `json:"client,omitempty"`
	CancelledBy string   `json:"cancelledBy,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	AgainOf     string   `json:"againOf,omitempty"`
	Preview     string   `json:"preview,omitempty"`
	Tier        string   `json:"tier,omitempty"`
	Test        bool     `json:"test,omitempty"`
	Sync        bool     `json:"sync,omitempty"`
	SentOut     *SentOut `json:"sentOut,omitempty"`
}

// SentOut is how many deliveries a run has, by their status.
type SentOut struct {
	Delivered int `json:"delivered"`
	Pending   int `json:"pending"`
	Dead      int `json:"dead"`
}

// NewRunSummary shows a run in a list. hideTexts is that of the caller.
func NewRunSummary(r *engine.Record, hideTexts bool) RunSummary {
	summary := RunSummary{
		Run: NewRun(r), Client: r.Run.Client, CancelledBy: r.Outcome.Account.CancelledBy,
		AgainOf: r.Run.AgainOf, Tier: r.Run.Tier, Test: r.Run.Test, Sync: r.Run.Sync,
	}
	summary.Reply, summary.Deliveries = nil, nil
	if !hideTexts {
		summary.Preview = previewOf(r.Run.Message)
		summary.Reason = r.Outcome.Account.Reason // which may quote what the agent answered
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

func NewRunSummaries(records []*engine.Record, hideTexts bool) []RunSummary {
	return ShowAll(records, func(r *engine.Record) RunSummary { return NewRunSummary(r, hideTexts) })
}

// previewOf is the first line of a message, for lists, or its beginning if that line has no word. Lines that mark the rest as
// data from outside tell nothing.
func previewOf(message string) string {
	const most = 160 // characters
	message = untrusted.Unwrapped(message)
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
		if !unicode.IsPrint(c) {
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

// RunDetails is a run as operators see it, with what it was told, where it came from and why it ended as it did.
type RunDetails struct {
	RunSummary
	KeyHeader        string            `json:"keyHeader,omitempty"`
	LastAnswer       string            `json:"lastAnswer,omitempty"`
	ValidationErrors []string          `json:"validationErrors,omitempty"`
	Permissions      []Permission      `json:"permissions,omitempty"`
	MorePermissions  int               `json:"morePermissions,omitempty"` // that the agent asked for, and that are not kept
	Message          *string           `json:"message,omitempty"`
	MessageCut       bool              `json:"messageCut,omitempty"`
	Metadata         json.RawMessage   `json:"metadata,omitempty"`
	Schema           json.RawMessage   `json:"schema,omitempty"`
	KeptUntil        *time.Time        `json:"keptUntil,omitempty"` // then message, metadata and schema are forgotten, or earlier if there is much
	AgainAs          string            `json:"againAs,omitempty"`
	ValidationTier   string            `json:"validationTier,omitempty"`
	MemoryPreset     string            `json:"memoryPreset,omitempty"`
	TimeoutSeconds   float64           `json:"timeoutSeconds"`
	QueueTimeSeconds float64           `json:"queueTimeSeconds,omitempty"`
	TraceParent      string            `json:"traceParent,omitempty"`
	Steps            []Step            `json:"steps"`
	Deliveries       []DeliveryDetails `json:"deliveries,omitempty"`
}

// Permission is what an agent asked to be allowed, and what it was told.
type Permission struct {
	Kind   string `json:"kind"`
	Title  string `json:"title"`
	Answer string `json:"answer"` // "allowed" or "rejected"
}
