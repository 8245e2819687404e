package api

import (
	"net/http"
	"time"
)

// Refused is a kind of refused or ignored requests as the admin API shows it. Message, error, chat, client, request id and size are those
// of the last request.
type Refused struct {
	Hook      string     `json:"hook"` // empty for names that no hook has
	Status    int        `json:"status"`
	Ignored   bool       `json:"ignored,omitempty"` // it was not refused; the condition of the hook tells why it became no run
	Reason    string     `json:"reason"`
	Message   string     `json:"message"` // to the caller
	Count     int64      `json:"count"`
	FirstAt   *time.Time `json:"firstAt"`
	LastAt    *time.Time `json:"lastAt"`
	Error     string     `json:"error,omitempty"`
	Chat      string     `json:"chat,omitempty"`
	Client    string     `json:"client"`
	RequestID string     `json:"requestId,omitempty"` // that the sender gave
	Size      int64      `json:"size"`

	Condition string `json:"condition,omitempty"` // of an ignored request

	Clients []RefusedClient `json:"clients"`         // the last ones, the latest first
	Asked   []string        `json:"asked,omitempty"` // names that no hook has, likewise
}

// RefusedList has the kinds of refused or ignored requests, the latest first.
type RefusedList struct {
	Refused []Refused `json:"refused"`
}

// RefusedClient is one of the last clients of a kind.
type RefusedClient struct {
	Client string     `json:"client"`
	Count  int64      `json:"count"` // since it is among the last ones
	LastAt *time.Time `json:"lastAt"`
}

// RefusedRequest is a request that became no run and is kept.
type RefusedRequest struct {
	ID          string     `json:"id"`
	At          *time.Time `json:"at"`
	Hook        string     `json:"hook"` // empty for names that no hook has
	Status      int        `json:"status"`
	Ignored     bool       `json:"ignored,omitempty"`
	Reason      string     `json:"reason"` // of an ignored request its condition
	Message     string     `json:"message"`
	Method      string     `json:"method"`
	Path        string     `json:"path"`
	Client      string     `json:"client"`
	Size        int64      `json:"size"`
	ContentType string     `json:"contentType"`
}

// RefusedRequestDetails is one with its headers and its body, without secrets.
type RefusedRequestDetails struct {
	RefusedRequest
	Headers http.Header `json:"headers"`
	Query   string      `json:"query"`
	Payload string      `json:"payload"`          // the beginning of the body
	Cut     bool        `json:"cut,omitempty"`    // there is more of it
	Unread  bool        `json:"unread,omitempty"` // the body was not read, or the hook keeps none
}

// RefusedRequestList has the requests that are kept, the latest first.
type RefusedRequestList struct {
	Requests    []RefusedRequest `json:"requests"`
	KeptSeconds int              `json:"keptSeconds"` // how long each of them is kept; 0 if none are
}
