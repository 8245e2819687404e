//go:build !unix

package contract

import "time"

var began = time.Now()

// cpuTime is the time on the clock, which is more.
func cpuTime() time.Duration { return time.Since(began) }
