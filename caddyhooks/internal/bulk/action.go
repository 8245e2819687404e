// Package bulk acts on many runs or deliveries at once: on all that a filter selects. An [Action] is kept in the store while it goes on
// and for a while after, so that it survives the end of the process, is carried out by one node at a time, and can be seen and stopped on
// any of them. It imports engine, and is the part of a service.
package bulk

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Action is one thing that is done with all runs or deliveries of a filter.
type Action struct {
	ID     string            `json:"id"`
	Do     Verb              `json:"do"`
	Filter map[string]string `json:"filter"` // as operators read it
	By     string            `json:"by"`     // who wants it
	How    engine.Again      `json:"how"`    // of Again

	Runs       *engine.Query         `json:"runs,omitempty"`       // which runs it is about, or
	Deliveries *engine.DeliveryQuery `json:"deliveries,omitempty"` // which deliveries

	State     State        `json:"state"`
	Matching  int          `json:"matching"` // how many there were when it began
	Counted   bool         `json:"counted"`  // Matching is known
	Done      int          `json:"done"`
	Skipped   map[Skip]int `json:"skipped,omitempty"`
	StartedAt time.Time    `json:"startedAt"`
	EndedAt   time.Time    `json:"endedAt,omitzero"`
	StoppedBy string       `json:"stoppedBy,omitempty"`
	Waiting   string       `json:"waiting,omitempty"` // what it waits for now
	Error     string       `json:"error,omitempty"`   // why it failed

	// Where it is.
	Node  string   `json:"node,omitempty"`  // that carries it out
	Beat  int      `json:"beat,omitempty"`  // counts the signs of life of that node
	Page  []string `json:"page,omitempty"`  // the ids it is at
	Tried bool     `json:"tried,omitempty"` // some of them may be done already
	Last  bool     `json:"last,omitempty"`  // there is none after them
	// The newest run when it began: runs that were accepted later are not meant.
	Newest string `json:"newest,omitempty"`

	revision int64
}

// Verb is what is done.
type Verb string

const (
	Again  Verb = "again"  // runs
	Cancel Verb = "cancel" // runs
	Retry  Verb = "retry"  // deliveries
	Drop   Verb = "drop"   // deliveries
)

// Verbs are all of them.
var Verbs = []Verb{Again, Cancel, Retry, Drop}

// State is where an action is.
type State string

const (
	Running State = "running"
	Stopped State = "stopped" // by an operator, and can go on
	Done    State = "done"
	Failed  State = "failed"
)

// Skip is why nothing was done with a run or a delivery.
type Skip string

const (
	notSkipped    Skip = ""
	SkipRepeated  Skip = "again"     // the run was run again before
	SkipGone      Skip = "gone"      // the input of the run is not kept any more
	SkipCut       Skip = "cut"       // only a part of it is kept
	SkipEnded     Skip = "ended"     // the run had ended before it could be cancelled
	SkipOpen      Skip = "open"      // the run has not ended
	SkipUnderWay  Skip = "underWay"  // the delivery is being sent
	SkipDelivered Skip = "delivered" // the delivery has arrived
	SkipForgotten Skip = "forgotten" // it is not there any more
)

// IsAboutRuns reports whether the verb is one for runs.
func (v Verb) IsAboutRuns() bool { return v == Again || v == Cancel }

// cancelledBy is what a run that the action cancels keeps of that.
func (a *Action) cancelledBy() string { return fmt.Sprintf("%s (bulk %s)", a.By, a.ID) }

// client is what a run that the action starts has in place of a caller's address.
func (a *Action) client() string { return "bulk " + a.ID }

// count counts what became of items.
func (a *Action) count(skips ...Skip) {
	for _, skip := range skips {
		if skip == notSkipped {
			a.Done++
			continue
		}
		if a.Skipped == nil {
			a.Skipped = make(map[Skip]int)
		}
		a.Skipped[skip]++
	}
}

const documentKind = "bulk"

// document is the action as it is kept.
func (a *Action) document() engine.Document {
	value, _ := json.Marshal(a) // all of it can be
	return engine.Document{Kind: documentKind, Name: a.ID, Revision: a.revision, Value: value}
}

func actionOf(d engine.Document) (*Action, error) {
	a := new(Action)
	if err := json.Unmarshal(d.Value, a); err != nil {
		return nil, fmt.Errorf("bulk action %s: %w", d.Name, err)
	}
	a.revision = d.Revision
	return a, nil
}
