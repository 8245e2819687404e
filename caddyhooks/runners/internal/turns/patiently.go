package turns

import (
	"context"
	"time"
)

// Patiently does something that an agent may take its time for. When ctx ends the agent gets a little longer, so that what it has
// started is not left half done. Then end is called, and the context of do ends.
func Patiently(ctx context.Context, patience time.Duration, do func(context.Context) error, end func()) error {
	within, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopWaiting := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(patience, func() {
			end()
			cancel(context.Cause(ctx))
		})
		context.AfterFunc(within, func() { timer.Stop() })
	})
	defer stopWaiting()
	return do(within)
}
