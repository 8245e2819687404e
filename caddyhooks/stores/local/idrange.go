package local

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// IDRange is where the runs of a query are, by their ids.
type IDRange struct {
	First, Last uuid.UUID
	Descending  bool // the list begins with the last one
}

// RangeOf is where the runs of a query can be. Ids tell when a run was accepted, but for those that were made while the clock
// was behind what it had been: they are ahead of it, by no more than given. It reports false if there can be none.
func RangeOf(query *engine.Query, ahead time.Duration) (r IDRange, ok bool, err error) {
	r = IDRange{Last: greatestID, Descending: !query.OldestFirst}
	if query.Prefix != "" {
		if r.First, r.Last, ok = withPrefix(query.Prefix); !ok {
			return r, false, checkCursors(query)
		}
	}
	if !query.Since.IsZero() {
		r.startAt(FirstID(query.Since))
	}
	if !query.Until.IsZero() {
		r.endAt(LastID(query.Until.Add(ahead)))
	}
	if err := checkCursors(query); err != nil {
		return r, false, err
	}
	if query.Cursor != "" {
		if cursor, _ := ParseID(query.Cursor); r.Descending {
			r.endAt(nextID(cursor, -1))
		} else {
			r.startAt(nextID(cursor, 1))
		}
	}
	if query.UpTo != "" && query.OldestFirst {
		upTo, _ := ParseID(query.UpTo)
		r.endAt(upTo)
	}
	return r, compareIDs(r.First, r.Last) <= 0, nil
}

// DeliveryRange is where the deliveries of a query can be: from first on, and before end.
func DeliveryRange(query *engine.DeliveryQuery) (first, end DeliveryKey, err error) {
	end = NewDeliveryKey(greatestID, math.MaxUint8)
	if !query.Since.IsZero() {
		first = NewDeliveryKey(FirstID(query.Since), 0)
	}
	if !query.Until.IsZero() {
		end = NewDeliveryKey(FirstID(query.Until), 0)
	}
	if query.Cursor != "" {
		cursor, err := ParseDeliveryID(query.Cursor)
		if err != nil {
			return first, end, engine.ErrCursor
		}
		if bytes.Compare(cursor[:], end[:]) < 0 {
			end = cursor
		}
	}
	return first, end, nil
}

func checkCursors(query *engine.Query) error {
	for _, text := range []string{query.Cursor, query.UpTo} {
		if _, ok := ParseID(text); !ok && text != "" {
			return engine.ErrCursor
		}
	}
	return nil
}

func (r *IDRange) startAt(id uuid.UUID) {
	if compareIDs(id, r.First) > 0 {
		r.First = id
	}
}

func (r *IDRange) endAt(id uuid.UUID) {
	if compareIDs(id, r.Last) < 0 {
		r.Last = id
	}
}

// EndBefore has the list end before an id.
func (r *IDRange) EndBefore(id uuid.UUID) {
	if r.Descending {
		r.startAt(nextID(id, 1))
	} else {
		r.endAt(nextID(id, -1))
	}
}

// Begin is the id at which the list begins.
func (r *IDRange) Begin() uuid.UUID {
	if r.Descending {
		return r.Last
	}
	return r.First
}

// Has reports whether an id is in the range.
func (r *IDRange) Has(id []byte) bool {
	return bytes.Compare(id, r.First[:]) >= 0 && bytes.Compare(id, r.Last[:]) <= 0
}

// IsBefore reports whether a comes before b in the list.
func (r *IDRange) IsBefore(a, b []byte) bool {
	if r.Descending {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// CursorAt is the cursor of a list that goes on with an id.
func (r *IDRange) CursorAt(id uuid.UUID) string {
	if r.Descending {
		return nextID(id, 1).String()
	}
	return nextID(id, -1).String()
}

var greatestID = uuid.UUID(bytes.Repeat([]byte{0xff}, 16))

// FirstID is the smallest id that can be made at a time.
func FirstID(at time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(millis(at))<<16)
	return id
}

// LastID is the greatest id that can be made at a time.
func LastID(at time.Time) uuid.UUID {
	id := greatestID
	binary.BigEndian.PutUint64(id[:8], uint64(millis(at))<<16|0xffff)
	return id
}

// millis is a time as an id has it.
func millis(at time.Time) int64 {
	switch year := at.Year(); {
	case year < 1970:
		return 0
	case year > 9999:
		return 1<<48 - 1
	}
	return min(max(at.UnixMilli(), 0), 1<<48-1)
}

// withPrefix is the range of the ids whose text has a beginning.
func withPrefix(prefix string) (first, last uuid.UUID, ok bool) {
	const lowest, highest = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	if len(prefix) > len(lowest) {
		return first, last, false
	}
	first, ok = ParseID(prefix + lowest[len(prefix):])
	if !ok {
		return first, last, false
	}
	last, ok = ParseID(prefix + highest[len(prefix):])
	return first, last, ok
}

// nextID is the id that is one greater or smaller, or the same one at the end.
func nextID(id uuid.UUID, by int64) uuid.UUID {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	if by > 0 && high&low == math.MaxUint64 || by < 0 && high|low == 0 {
		return id
	}
	next := low + uint64(by)
	switch {
	case by > 0 && next == 0:
		high++
	case by < 0 && low == 0:
		high--
	}
	binary.BigEndian.PutUint64(id[:8], high)
	binary.BigEndian.PutUint64(id[8:], next)
	return id
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// SortIDs sorts ids, the smallest first.
func SortIDs(ids []uuid.UUID) { slices.SortFunc(ids, compareIDs) }
