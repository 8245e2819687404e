// Package lineartest checks that work on hostile input grows with the size of the input and no faster. It compares
// the processor time of one thread for two sizes, so a busy machine does not decide.
package lineartest

import (
	"runtime"
	"testing"
	"time"
)

const (
	times    = 8
	tooMuch  = times * times / 2 // halfway to the square
	attempts = 5
)

// Check fails the test unless eight times the size takes far less than sixty-four times the work in each of a few
// attempts. prepare makes the work for a size; only the work is measured.
func Check(t testing.TB, size int, prepare func(size int) (work func())) {
	t.Helper()
	var ratio float64
	for range attempts {
		small, large := processorTime(prepare(size/times)), processorTime(prepare(size))
		if ratio = float64(large) / float64(max(small, 50*time.Microsecond)); ratio < tooMuch {
			return
		}
	}
	t.Errorf("%d times the size takes %.0f times the work", times, ratio)
}

// processorTime is what work costs the thread that does it.
func processorTime(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ofThread()
	work()
	return ofThread() - before
}
