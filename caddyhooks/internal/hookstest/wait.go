package hookstest

import (
	"testing"
	"time"
)

// patience is how long tests wait for what should come at once. A machine that is busy with other tests, which start many programs, takes
// its time. Only tests that fail wait for so long.
const patience = 2 * time.Minute

// Eventually polls until ok reports true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	poll(t, patience, what, ok)
}

// Within is Eventually for what takes a known time on a machine that is not busy.
func Within(t testing.TB, idle time.Duration, what string, ok func() bool) {
	t.Helper()
	const busy = 3
	poll(t, busy*idle, what, ok)
}

func poll(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ReceiveWithin waits for something to come from a channel.
func ReceiveWithin[T any](t testing.TB, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(patience):
		t.Fatalf("did not happen in time: %s", what)
	}
	return value
}
