// Package nodescheck decides from a history whether several nodes on one store kept their promises: the answers of callers, what the
// runner saw, what the store says in the end, and what was done to the nodes meanwhile. It knows nothing of Caddy.
package nodescheck

import "time"

// History is what was seen. All times are those of one clock, since the history began.
type History struct {
	Lease    time.Duration // how long a node may fall silent before others take its runs
	Requests []Request
	Turns    []Turn
	Stored   []End // what the store says in the end
	Changes  []TokenChange
	Troubles []Trouble
}

// Request is one request that a caller sent.
type Request struct {
	Text  string // says which request it is: one that is repeated has the same, and so have the turns of its run
	Chat  string
	Node  string
	Key   string // that allows to repeat it, "" for none
	Token int    // the version of the token that it had

	Sent     time.Duration
	Answered time.Duration // 0 if no answer came
	Status   int           // of HTTP, 0 if no answer came
	Run      string        // the run that it was acknowledged as, "" if it was not
	Reply    string        // of a caller who waited for it: the answer
}

// Turn is one call of the runner.
type Turn struct {
	Run, Chat, Node string
	Text            string
	Reply           string // of this turn alone
	Began           time.Duration
	Ended           time.Duration // before the answer was sent, or once it was cut off; 0 if neither was seen
}

// End is how a run ended, as the store says.
type End struct {
	Run    string
	Status string
	Reply  string
}

// TokenChange is a change of the token that callers need. Versions only grow.
type TokenChange struct {
	Version  int
	Sent     time.Duration
	Answered time.Duration // 0 if it is not known whether it was made
}

// Trouble is something that was done to a node, for which its leases may end.
type Trouble struct {
	What  string
	Node  string // "" for all
	From  time.Duration
	Until time.Duration // 0 if it lasted until the end
}

// mayHaveEnded reports whether a lease that a node had for a turn may have ended before another turn began. A node renews its
// leases three times a lease, so that more than half of one is left when trouble begins.
func (h *History) mayHaveEnded(turn *Turn, before time.Duration) bool {
	for _, trouble := range h.Troubles {
		// A turn that was about to be started when the trouble began may be started right after it.
		if trouble.concerns(turn.Node) && trouble.From+h.Lease/2 <= before && (trouble.Until == 0 || turn.Began <= trouble.Until+h.Lease) {
			return true
		}
	}
	return false
}

// mayHaveBegunLate reports whether the turn may have been started by a node that did not have its lease any more.
func (h *History) mayHaveBegunLate(turn *Turn) bool { return h.mayHaveEnded(turn, turn.Began) }

func (t *Trouble) concerns(node string) bool { return t.Node == "" || t.Node == node }
