package api

import (
	"net/http"
	"net/url"
	"time"
)

// PreviewRequest asks what a mapping would make of a request.
type PreviewRequest struct {
	Mapping []byte // as it was sent
	Header  http.Header
	Query   url.Values
	Payload []byte
	Example bool // there is no payload: that of an example is asked for
	Samples bool // what it would make of the last requests is asked for, too
}

// Sample is a request to a hook as operators see it.
type Sample struct {
	At          *time.Time  `json:"at"`
	Bytes       int         `json:"bytes"`
	ContentType string      `json:"contentType"`
	Headers     http.Header `json:"headers"` // those that carry no secret
	Query       string      `json:"query"`   // likewise
	Payload     string      `json:"payload"`
}

// Samples are the last requests to a hook, the newest first.
type Samples struct {
	Samples []Sample `json:"samples"`
}

// Preview is what a hook would make of a request.
type Preview struct {
	Message      []Segment         `json:"message"`           // of the first run, if there are several
	ChatID       string            `json:"chatId"`            // "" for a new chat
	Channel      string            `json:"channel,omitempty"` // that the answer goes to …
	To           string            `json:"to,omitempty"`      // … and the chat on it; "" if that is refused, which is among the problems
	Placeholders int               `json:"placeholders"`
	Missing      int               `json:"missing"`
	Runs         int               `json:"runs"`              // that the request would become
	Ignored      string            `json:"ignored,omitempty"` // the condition because of which it would become none
	Conditions   []Condition       `json:"conditions"`
	Folded       string            `json:"folded,omitempty"`  // the message of a turn for several such runs
	Request      *PreviewedRequest `json:"request,omitempty"` // that is shown, if it is an example
	Samples      []SampleOutcome   `json:"samples"`           // of the last requests to the hook, the newest first
	Problems     []Problem         `json:"problems"`
	Warnings     []string          `json:"warnings"` // as saving tells them
}

// PreviewedRequest is a request to a hook.
type PreviewedRequest struct {
	Headers http.Header `json:"headers"`
	Query   string      `json:"query"`
	Payload string      `json:"payload"`
}

// Condition is a line of only or skip.
type Condition struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
	Holds *bool  `json:"holds,omitempty"` // for the payload, if that can be told
}

// SampleOutcome is what a request would become.
type SampleOutcome struct {
	At      *time.Time `json:"at"`
	Runs    int        `json:"runs"`
	Ignored string     `json:"ignored,omitempty"` // the condition
	Problem string     `json:"problem,omitempty"` // why it would be refused
}

// Segment is a part of a message.
type Segment struct {
	Text        string `json:"text"`
	Placeholder string `json:"placeholder,omitempty"` // that the text stands for
	Missing     bool   `json:"missing,omitempty"`
}

// Problem says what is wrong with a field of the mapping, or with the payload.
type Problem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// NewPreview is a preview in which no list is null in JSON.
func NewPreview() *Preview {
	return &Preview{Message: []Segment{}, Conditions: []Condition{}, Samples: []SampleOutcome{}, Problems: []Problem{}, Warnings: []string{}}
}
