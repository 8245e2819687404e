package local

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// IDs makes the ids of runs: UUIDs of version 7, each greater than the one before, also when the clock is set back. It is
// not safe for concurrent use.
type IDs struct {
	last uint64 // the time in the id made last: milliseconds, then 12 bits of their fraction
}

// After makes all further ids greater than id.
func (g *IDs) After(id uuid.UUID) { g.last = max(g.last, idTime(id)) }

// Next makes an id.
func (g *IDs) Next(now time.Time) (uuid.UUID, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return id, err
	}
	nanos := uint64(now.UnixNano())
	millis, rest := nanos/1e6, nanos%1e6
	g.last = max(g.last+1, millis<<12|rest<<12/1e6)
	binary.BigEndian.PutUint64(id[:8], g.last>>12<<16|7<<12|g.last&0xfff)
	return id, nil
}

// IDTime is when an id was made, to the millisecond.
func IDTime(id uuid.UUID) time.Time { return time.UnixMilli(int64(idTime(id) >> 12)) }

func idTime(id uuid.UUID) uint64 {
	high := binary.BigEndian.Uint64(id[:8])
	return high>>16<<12 | high&0xfff
}
