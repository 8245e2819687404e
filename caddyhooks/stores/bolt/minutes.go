package bolt

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The fields of a minute. Nothing but a plot reads them, so a record that is damaged is passed over.
func minuteFields(m *engine.Minute, hooks *hookMinutes) []any {
	return []any{
		&m.Accepted, &m.Completed, &m.Failed, &m.TimedOut, &m.Cancelled, &m.Expired, &m.Answered2xx, &m.Answered4xx, &m.Answered5xx,
		&m.Delivered, &m.Dead, &m.Queued, &m.Oldest, m.Durations[:], &m.Longest, hooks, &m.Ignored, &m.Challenges,
	}
}

// hookMinutes are the records of the hooks in a minute. Each is a part, but has room for a checksum.
type hookMinutes [][]byte

func hookMinuteFields(name *string, h *engine.HookMinute, last *int64) []any {
	return []any{name, &h.Accepted, &h.Failed, last, h.Durations[:], &h.Longest, &h.Ended}
}

// minuteKey is the key of a minute. It begins with the number of the minute since 1970, so that minutes are in order.
func minuteKey(minute *engine.Minute, node string) []byte {
	return append(binary.BigEndian.AppendUint64(minutesFrom(minute.At), minute.Part), node...)
}

// minutesFrom is before the keys of all minutes that began at a time or later, and after all others.
func minutesFrom(at time.Time) []byte {
	number := at.Unix() / 60
	if at.Unix()%60 != 0 || at.Nanosecond() != 0 {
		number++
	}
	return binary.BigEndian.AppendUint64(nil, uint64(max(number, 0)))
}

func encodeMinute(key []byte, m *engine.Minute) []byte {
	var hooks hookMinutes
	for _, name := range slices.Sorted(maps.Keys(m.Hooks)) {
		hook, last := m.Hooks[name], int64(0)
		if !hook.Last.IsZero() {
			last = hook.Last.Unix()
		}
		hooks = append(hooks, encodeFields(newEncoder(64), hookMinuteFields(&name, &hook, &last)))
	}
	return seal(key, encodeFields(newEncoder(128+64*len(m.Hooks)), minuteFields(m, &hooks)))
}

// counts writes a histogram: each bucket that is not empty by its number and what is in it.
func (e *encoder) counts(n protowire.Number, buckets []int64) {
	var data []byte
	for i, count := range buckets {
		if count != 0 {
			data = binary.AppendUvarint(binary.AppendUvarint(data, uint64(i)), uint64(count))
		}
	}
	e.bytes(n, data)
}

// counts reads a histogram.
func (f field) counts(buckets []int64) {
	for rest := f.bytes; len(rest) > 0; {
		i, n := binary.Uvarint(rest)
		if n <= 0 {
			return
		}
		count, more := binary.Uvarint(rest[n:])
		if more <= 0 || i >= uint64(len(buckets)) {
			return
		}
		buckets[i], rest = int64(count), rest[n+more:]
	}
}

func decodeMinute(key, data []byte) (m engine.Minute, err error) {
	if len(key) < 16 {
		return m, errDamaged
	}
	m.At = time.Unix(int64(binary.BigEndian.Uint64(key))*60, 0)
	m.Part = binary.BigEndian.Uint64(key[8:])
	var hooks hookMinutes
	err = decodeFields(key, data, minuteFields(&m, &hooks))
	for _, data := range hooks {
		if m.Hooks == nil {
			m.Hooks = make(map[string]engine.HookMinute)
		}
		name, hook := decodeHookMinute(data)
		m.Hooks[name] = hook
	}
	return m, err
}

func decodeHookMinute(data []byte) (name string, hook engine.HookMinute) {
	var last int64
	if len(data) >= 4 { // the checksum is that of the minute
		_ = decodePart(data[4:], hookMinuteFields(&name, &hook, &last))
	}
	if last != 0 {
		hook.Last = time.Unix(last, 0)
	}
	return name, hook
}

// pruneMinutes is how many old minutes are forgotten when one is saved.
const pruneMinutes = 1000

func (s minutes) Save(ctx context.Context, saved ...engine.Minute) error {
	var keys, records [][]byte
	size := 0
	var newest time.Time
	for i := range saved {
		if saved[i].At.After(newest) {
			newest = saved[i].At
		}
		key := minuteKey(&saved[i], s.Node())
		keys, records = append(keys, key), append(records, encodeMinute(key, &saved[i]))
		size += len(records[i])
	}
	return s.committer.do(ctx, &change{size: size, apply: func(t *transaction) error {
		for i := range keys {
			t.append(minutesBucket, keys[i], records[i])
		}
		oldest := minutesFrom(newest.Add(-engine.KeptMinutes))
		for range pruneMinutes {
			first, _ := t.bucket(minutesBucket).Cursor().First()
			if first == nil || slices.Compare(first, oldest) >= 0 {
				break
			}
			t.delete(minutesBucket, slices.Clone(first))
		}
		return nil
	}})
}

func (s minutes) Load(ctx context.Context, since time.Time) (loaded []engine.Minute, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		loaded = nil
		cursor := tx.Bucket(minutesBucket).Cursor()
		for key, data := cursor.Seek(minutesFrom(since)); key != nil; key, data = cursor.Next() {
			if minute, err := decodeMinute(key, data); err == nil {
				loaded = append(loaded, minute)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return loaded, nil
}
