package api

import "time"

// Pause is a hook, a chat, a runner or everything whose runs are accepted and not started, or at a rate.
type Pause struct {
	What        string     `json:"what"`           // "hook", "chat", "runner" or "all"
	Name        string     `json:"name,omitempty"` // none of all
	Reason      string     `json:"reason,omitempty"`
	By          string     `json:"by,omitempty"` // who paused it, or resumed it at a rate
	At          *time.Time `json:"at"`
	Rate        string     `json:"rate,omitempty"`        // how many of its runs start all the same, on each node, as in 10/1s
	Waiting     int        `json:"waiting"`               // how many of its runs are queued
	WaitingMore bool       `json:"waitingMore,omitempty"` // there are more of them
}

// PauseList is what is paused.
type PauseList struct {
	Pauses []Pause `json:"pauses"`
}
