package storage

import "time"

// Limits bound what a store holds; 0 is no limit.
type Limits struct {
	Queue     int           // queued runs of all chats
	Chat      int           // queued runs of one chat
	Retention time.Duration // how long ended runs are kept
	Keys      int           // how many idempotency keys are kept …
	KeyAge    time.Duration // … and for how long

	History      time.Duration // how long ended runs keep their input, at most; NoHistory is not at all
	HistoryBytes int64         // how many bytes of it all ended runs keep together
}

// NoHistory is a History that keeps nothing.
const NoHistory time.Duration = -1

// HistoryOf is how long after its end a run keeps its input. If it is not limited, the answer is that of the run.
func (l *Limits) HistoryOf(own time.Duration) time.Duration {
	if l.History == 0 {
		return own
	}
	return min(own, l.History)
}

// KeyExpired reports whether the key of a run that was accepted at a time need not be known any more. If that time is still
// to come, then the clock has been set back since; it must not lie ahead by more than the age of a key, or the key could
// stay for years.
func (l *Limits) KeyExpired(acceptedAt, now time.Time) bool {
	return l.KeyAge > 0 && now.Sub(acceptedAt).Abs() > l.KeyAge
}
