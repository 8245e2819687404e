//go:build unix

package lineartest

import (
	"time"

	"golang.org/x/sys/unix"
)

func ofThread() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}
