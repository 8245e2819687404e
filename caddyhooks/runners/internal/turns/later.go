package turns

import (
	"context"
	"time"
)

// The pauses before an agent that has taken a turn on is asked again grow from the first to the longest.
const (
	FirstPause   = 2 * time.Second
	LongestPause = time.Minute
)

// LaterTime is how long an agent usually has to answer later.
const LaterTime = 24 * time.Hour

// NextPause is the pause after the last one. first is that after none.
func NextPause(last, first time.Duration) time.Duration {
	if last <= 0 {
		return first
	}
	return min(2*last, LongestPause)
}

// Wait waits for a while. The error is that of ctx.
func Wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
