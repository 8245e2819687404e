// Package runnerstate knows how the runners of an engine fare: which of them do not take on turns, so that their runs are left alone for a
// while, and how their last calls went. It is a part of package engine, and knows neither runs nor stores.
package runnerstate

import "time"

// State is how a runner fares, as far as this node knows since it was started. Health, metrics, the overview, the page and the
// command line all tell this and nothing else.
type State struct {
	Name        string
	State       string    // one of the constants below
	Since       time.Time // when it did not take on the first turn, if it takes on none …
	Cause       string    // … and why it did not take on the last one, for operators
	InFlight    int       // calls of the runner that are under way
	LastError   string    // of the last call that failed, on one line, for operators
	LastErrorAt time.Time
	LastOK      time.Time // when a call was last answered
}

// The states of runners.
const (
	OK          = "ok"          // it answered the last turn that it took on
	Failing     = "failing"     // it took on the last turn, and did not answer it: LastError says why
	Unreachable = "unreachable" // it could not be reached for the last turn, and its runs wait
	Busy        = "busy"        // it was too busy for each of the last turns, and its runs wait
	Unknown     = "unknown"     // it had no turn so far, or has not taken on the last one, and no other turn was tried since
)

// IsUp reports whether the runner takes on turns, as far as is known.
func (s *State) IsUp() bool { return s.State != Unreachable && s.State != Busy }
