package engine

// ProgressTeller says in chats that runs are being carried out. Its methods do not block: nothing waits for a chat.
type ProgressTeller interface {
	// Begin is called when runs are started in one turn. The result is nil if nobody is to know.
	Begin(runs []*Run) TurnProgress
	// Ended is called after a run has ended without a turn: what was posted in an earlier one is removed.
	Ended(run *Run)
}

// TurnProgress is what was posted about one turn. If the turn ends otherwise than with Done, it stays for the next one of its runs.
type TurnProgress interface {
	// Fill notes in deliveries what they are to replace.
	Fill(deliveries []*Delivery)
	// Done is called when the runs have ended, and these deliveries are stored. What none of them replaces is removed.
	Done()
}

// beginProgress is nil if nobody is to know of the turn.
func (c *Config) beginProgress(claim *Claim) TurnProgress {
	if c.Progress == nil {
		return nil
	}
	return c.Progress.Begin(claim.runs())
}

// endProgress says that a run has ended without a turn.
func (c *configs) endProgress(run *Run) {
	if config := c.config(); config != nil && config.Progress != nil && run.Channel != "" {
		config.Progress.Ended(run)
	}
}
