package postgres

import (
	"context"
	"time"
)

// leaveTime is how long a node that is closed tries to tell the others.
const leaveTime = 2 * time.Second

// leave takes this node out, so that the others need not wait until it seems to be gone.
func (w *watch) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := w.on(laneWatch).exec(ctx, "SELECT @.leave_1($1)", w.node); err == nil && !w.isLone.Load() {
		_ = w.tell(ctx, word{kinds: "n"})
	}
}
