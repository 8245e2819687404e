package postgres

import (
	"testing"
	"time"
)

func TestClockIsLearnedFromAnswers(t *testing.T) {
	t.Parallel()
	var c sharedClock
	start := clockStart.Round(0)
	at := func(steady time.Duration, want time.Time) {
		t.Helper()
		if got := c.at(steady); !got.Equal(want) {
			t.Errorf("it is %v after %v, want %v", got.Sub(start), steady, want.Sub(start))
		}
	}
	const hour, ms = time.Hour, time.Millisecond
	at(hour, start.Add(hour)) // like the machine's
	// The database is two hours ahead: it was 2:00 at some time in the first 10 ms.
	c.learn(start.Add(2*hour), 10*ms, 0)
	at(10*ms, start.Add(2*hour))
	// The next answer was quicker.
	c.learn(start.Add(2*hour+17*ms), 20*ms, 19*ms)
	at(20*ms, start.Add(2*hour+17*ms))
	// A slow one says nothing new.
	c.learn(start.Add(2*hour+30*ms), 900*ms, 21*ms)
	at(1000*ms, start.Add(2*hour+997*ms))
	// Another server has another clock.
	c.learn(start, 1000*ms, 990*ms)
	at(1000*ms, start.Add(10*ms))
	c.learn(start.Add(hour), 1010*ms, 1000*ms)
	at(1010*ms, start.Add(hour))
}
