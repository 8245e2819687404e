package retries

import (
	"math/rand/v2"
	"time"
)

// Delay says how long to wait after the given number of failed attempts, or that there have been enough. The delay is off by up to a fifth
// in either direction, so that callbacks that failed together do not come back together. A pause that the receiver asked for is to be
// waited for if it is longer.
func Delay(attempt int) (d time.Duration, ok bool) { return delay(attempt, rand.Float64) }

var retryDelays = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,
}

// delay is Delay with a source of numbers in [0, 1).
func delay(attempt int, rnd func() float64) (d time.Duration, ok bool) {
	if attempt <= 0 {
		return 0, true
	}
	if attempt > len(retryDelays) {
		return 0, false
	}
	return time.Duration(float64(retryDelays[attempt-1]) * (0.8 + 0.4*rnd())), true
}
