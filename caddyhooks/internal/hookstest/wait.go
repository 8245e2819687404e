package hookstest

import (
	"testing"
	"time"
)

// Eventually polls until ok reports true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, 10*time.Second, what, ok)
}

// Within is Eventually with a time of its own.
func Within(t testing.TB, patience time.Duration, what string, ok func() bool) {
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
	case <-time.After(10 * time.Second):
		t.Fatalf("did not happen in time: %s", what)
	}
	return value
}
