package engine

import "time"

// Announcer is told of what others may want to act on. Its methods must not block.
type Announcer interface {
	// RunEnded is called once for each run whose end this engine has stored. took is 0 for a run that was not started.
	RunEnded(run *Run, outcome Outcome, took time.Duration)

	// DeliveryDead is called once for each delivery that this engine has given up.
	DeliveryDead(d *Delivery)
}

// announceEnd tells of a run that has ended.
func (e *Engine) announceEnd(run *Run, outcome Outcome, took time.Duration) {
	if c := e.config.Load(); c != nil && c.Announcer != nil {
		c.Announcer.RunEnded(run, outcome, took)
	}
}

// announceSettled tells of a delivery if it was given up.
func (e *Engine) announceSettled(d *Delivery) {
	if c := e.config.Load(); c != nil && c.Announcer != nil && d.Status == Dead {
		c.Announcer.DeliveryDead(d)
	}
}
