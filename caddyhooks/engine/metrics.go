package engine

import "time"

// Metrics counts what an engine does. Its methods must not block. The engine knows nothing of where the counts go.
type Metrics interface {
	// RunAccepted is called for each run that this engine has stored.
	RunAccepted(run *Run)

	// RunEnded is called for each run whose end this engine has stored. took is 0 for a run that was not started.
	RunEnded(run *Run, outcome Outcome, took time.Duration)

	// TurnEnded is called for each call of a runner, failures included. repair counts the repairs of a run from 1; 0 is the
	// turn itself.
	TurnEnded(run *Run, runner string, repair int, took time.Duration, err error)

	// DeliveryAttempted is called for each attempt at a delivery.
	DeliveryAttempted(d *Delivery, took time.Duration, err error)

	// RequestIgnored is called for each request that the named hook leaves out.
	RequestIgnored(hook string)

	// ChallengeAnswered is called for each request with which a sender tried out whether the named hook is there.
	ChallengeAnswered(hook string)
}

// NoMetrics counts nothing.
type NoMetrics struct{}

// RunAccepted does nothing.
func (NoMetrics) RunAccepted(*Run) {}

// RunEnded does nothing.
func (NoMetrics) RunEnded(*Run, Outcome, time.Duration) {}

// TurnEnded does nothing.
func (NoMetrics) TurnEnded(*Run, string, int, time.Duration, error) {}

// DeliveryAttempted does nothing.
func (NoMetrics) DeliveryAttempted(*Delivery, time.Duration, error) {}

// RequestIgnored does nothing.
func (NoMetrics) RequestIgnored(string) {}

// ChallengeAnswered does nothing.
func (NoMetrics) ChallengeAnswered(string) {}
