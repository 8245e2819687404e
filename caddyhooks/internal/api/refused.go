package api

import (
	"time"
)

// Refused is a kind of refused or ignored requests as the admin API shows it. Message, error, chat, client and size are those of the
// last request.
type Refused struct {
	Hook    string     `json:"hook"` // empty for names that no hook has
	Status  int        `json:"status"`
	Ignored bool       `json:"ignored,omitempty"` // it was not refused; the condition of the hook tells why it became no run
	Reason  string     `json:"reason"`
	Message string     `json:"message"` // to the caller
	Count   int64      `json:"count"`
	FirstAt *time.Time `json:"firstAt"`
	LastAt  *time.Time `json:"lastAt"`
	Error   string     `json:"error,omitempty"`
	Chat    string     `json:"chat,omitempty"`
	Client  string     `json:"client"`
	Size    int64      `json:"size"`

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
