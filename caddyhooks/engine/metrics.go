package engine

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
)

// Metrics counts what an engine does. Its methods must not block. The engine knows nothing of where the counts go.
type Metrics interface {
	// RunAccepted is called for each run that this engine has stored.
	RunAccepted(run *Run)

	// RunTakenOn is called for each run that a runner takes on for the first time: it did not say that it is busy or unreachable. waited is
	// how long that was after the run was accepted. It is called when the runner has answered.
	RunTakenOn(run *Run, waited time.Duration)

	// RunEnded is called for each run whose end this engine has stored. took is 0 for a run that was not started.
	RunEnded(run *Run, outcome Outcome, took time.Duration)

	// TurnEnded is called for each call of a runner, failures included. repair counts the repairs of a run from 1; 0 is the
	// turn itself. used is what the agent reported of it.
	TurnEnded(run *Run, runner string, repair int, took time.Duration, used []Use, err error)

	// DeliveryAttempted is called for each attempt at a delivery. Its status tells what comes of it: it is delivered, it is dead, or it is
	// pending and will be tried again. took is 0 if it was given up without another attempt.
	DeliveryAttempted(d *Delivery, took time.Duration, err error)

	// RequestIgnored is called for each request that the named hook leaves out.
	RequestIgnored(hook string)

	// ChallengeAnswered is called for each request with which a sender tried out whether the named hook is there.
	ChallengeAnswered(hook string)

	// StoreCommitted is called for each transaction of a store that tells of them. changes is how many calls share it.
	StoreCommitted(changes int, took time.Duration)
}

// NoMetrics counts nothing.
type NoMetrics struct{}

func (NoMetrics) RunAccepted(*Run)                                         {}
func (NoMetrics) RunTakenOn(*Run, time.Duration)                           {}
func (NoMetrics) RunEnded(*Run, Outcome, time.Duration)                    {}
func (NoMetrics) TurnEnded(*Run, string, int, time.Duration, []Use, error) {}
func (NoMetrics) DeliveryAttempted(*Delivery, time.Duration, error)        {}
func (NoMetrics) RequestIgnored(string)                                    {}
func (NoMetrics) ChallengeAnswered(string)                                 {}
func (NoMetrics) StoreCommitted(int, time.Duration)                        {}

// Announcer is told of what others may want to act on. Its methods must not block.
type Announcer interface {
	// RunEnded is called once for each run whose end this engine has stored. took is 0 for a run that was not started.
	RunEnded(run *Run, outcome Outcome, took time.Duration)

	// DeliveryDead is called once for each delivery that this engine has given up.
	DeliveryDead(d *Delivery)

	// BudgetReached is called when this engine sees that 80 or 100 percent of a budget are used, once for each.
	BudgetReached(s *budget.State)
}
