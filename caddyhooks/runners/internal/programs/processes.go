package programs

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// StopGrace is how long a program has to end by itself once it is asked to. Tests shorten it.
var StopGrace = 2 * time.Second

// ExitText is how a program ended, for a sentence.
func ExitText(exit *supervise.Exit) string {
	if exit.Signal != 0 {
		return fmt.Sprintf("was ended by a signal (%v)", exit.Signal)
	}
	return fmt.Sprintf("ended with exit code %d", exit.Code)
}

// processWarnings are about processes that may be left of programs.
type processWarnings struct{ alone sync.Once }

// ProcessWarnings is one for all runners, since each of its warnings is the same for all of them.
var ProcessWarnings processWarnings

// Started is called when a program has been started. That nothing looks after what programs start is logged once.
func (w *processWarnings) Started(log *zap.Logger, process interface{ Alone() bool }) {
	if process.Alone() {
		w.alone.Do(func() {
			log.Warn("programs of runners run without a process that ends all that they start: on this machine only their process group is ended")
		})
	}
}

// Ended is called when a program has ended.
func (w *processWarnings) Ended(log *zap.Logger, process interface{ Left() []int }, about ...zap.Field) {
	if left := process.Left(); len(left) > 0 {
		log.Warn("processes of a turn could not be ended", append(about, zap.Ints("pids", left))...)
	}
}
