// Package starts decides which queued runs of an engine may be started: how many turns of a hook go at once, and what an operator has
// paused. It is a part of package engine, and knows neither runs nor stores.
package starts

// What is a kind of thing that can be limited.
type What string

const (
	All    What = "all" // it has no name
	Hook   What = "hook"
	Chat   What = "chat"
	Runner What = "runner"
)

// Kinds are all that can be paused.
var Kinds = []What{Hook, Chat, Runner, All}

// Limit is how many runs of something a claim may have.
type Limit struct {
	What   What
	Name   string
	AtMost int
}
