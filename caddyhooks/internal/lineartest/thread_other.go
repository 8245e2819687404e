//go:build !unix

package lineartest

import "time"

var began = time.Now()

// ofThread is the time on the clock.
func ofThread() time.Duration { return time.Since(began) }
