package postgres

import (
	"sync/atomic"
	"time"
)

// sharedClock is the clock of the database, as far as a node knows it. The zero value goes like the machine's.
//
// It goes by the monotonic clock, so that nothing changes when somebody sets that of the machine.
type sharedClock struct {
	ahead atomic.Int64 // of began, in nanoseconds
}

var clockStart = time.Now()

// now is the time by the database's clock, to about as much as a call takes.
func (d *database) now() time.Time { return d.clock.at(time.Since(clockStart)) }

// learnClock corrects what is known of the database's clock. t is the time that a call just returned, and asked is when the call was
// made, by time.Now: t was at some moment between that and now.
func (d *database) learnClock(asked, t time.Time) {
	d.clock.learn(t, time.Since(clockStart), asked.Sub(clockStart))
}

func (c *sharedClock) at(steady time.Duration) time.Time {
	return clockStart.Round(0).UTC().Add(steady + time.Duration(c.ahead.Load()))
}

// learn moves the clock no further than it has to: it was t at some moment between two others.
func (c *sharedClock) learn(t time.Time, answered, asked time.Duration) {
	least, most := t.Sub(clockStart.Round(0).Add(answered)), t.Sub(clockStart.Round(0).Add(asked))
	for {
		ahead := c.ahead.Load()
		better := min(max(time.Duration(ahead), least), most)
		if int64(better) == ahead || c.ahead.CompareAndSwap(ahead, int64(better)) {
			return
		}
	}
}
