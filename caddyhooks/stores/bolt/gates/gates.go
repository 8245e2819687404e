// Package gates keeps the states of gates in a bolt file. It is a part of the store bolt, and knows of its file only the transactions.
package gates

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

var (
	// Bucket has the states, by the id of the gate. Its sequence is how many there are.
	Bucket = []byte("gates")
	// AgesBucket has the ids, each after the time at which its state was written, and until when that is kept.
	AgesBucket = []byte("gate_ages")
)

// Sizes of keys.
const (
	KeySize     = len(gate.Gate{}.ID)
	AgesKeySize = 8 + KeySize
)

// Get is the state of a gate, the zero value if there is none. One that is damaged begins anew.
func Get(tx *bbolt.Tx, id [32]byte) gate.State {
	state, err := decode(id[:], tx.Bucket(Bucket).Get(id[:]))
	if err != nil {
		return gate.State{}
	}
	return state
}

// Each lists all states but those that are damaged.
func Each(tx *bbolt.Tx, each func(id [32]byte, state gate.State)) error {
	return tx.Bucket(Bucket).ForEach(func(key, record []byte) error {
		if state, err := decode(key, record); err == nil {
			each([32]byte(key), state)
		}
		return nil
	})
}

// Put writes the state of a gate at a time. When there are more than most, those are forgotten that were written first.
func Put(tx *bbolt.Tx, id [32]byte, state gate.State, now time.Time, most int) error {
	states, ages := tx.Bucket(Bucket), tx.Bucket(AgesBucket)
	count := states.Sequence()
	if known := states.Get(id[:]); len(known) < 8 {
		count++
	} else if err := ages.Delete(slices.Concat(known[:8], id[:])); err != nil {
		return err
	}
	record := encode(id[:], &state, now)
	if err := errors.Join(states.Put(id[:], record), ages.Put(slices.Concat(record[:8], id[:]), timeKey(state.Until)),
		states.SetSequence(count)); err != nil {
		return err
	}
	if count <= uint64(most) {
		return nil
	}
	var old [][]byte
	cursor := ages.Cursor()
	for key, _ := cursor.First(); key != nil && len(old) < int(count)-most; key, _ = cursor.Next() {
		old = append(old, slices.Clone(key))
	}
	return forget(tx, old)
}

// Prune forgets states whose time is over. It looks at no more than most, and returns where it goes on, nil if that is the beginning.
func Prune(tx *bbolt.Tx, now time.Time, from []byte, most int) (next []byte, forgot int, err error) {
	end := timeKey(now)
	var old [][]byte
	cursor := tx.Bucket(AgesBucket).Cursor()
	key, until := cursor.Seek(from)
	for ; key != nil && most > 0; key, until = cursor.Next() {
		if bytes.Compare(until, end) <= 0 {
			old = append(old, slices.Clone(key))
		}
		most--
	}
	next = slices.Clone(key)
	return next, len(old), forget(tx, old)
}

// forget forgets states, by their keys in AgesBucket.
func forget(tx *bbolt.Tx, old [][]byte) error {
	states, ages := tx.Bucket(Bucket), tx.Bucket(AgesBucket)
	for _, key := range old {
		if err := errors.Join(ages.Delete(key), states.Delete(key[8:])); err != nil {
			return err
		}
	}
	if len(old) == 0 {
		return nil
	}
	return states.SetSequence(states.Sequence() - min(uint64(len(old)), states.Sequence()))
}

// Check reports an error for a state that is damaged.
func Check(key, value []byte) error {
	_, err := decode(key, value)
	return err
}

func timeKey(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(max(at.UnixNano(), 0)))
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errDamaged = errors.New("the state of a gate is damaged")
)

// encode writes a record: when it is written, its checksum, until when it is kept, and the state.
func encode(key []byte, state *gate.State, now time.Time) []byte {
	record := append(timeKey(now), 0, 0, 0, 0)
	record = append(append(record, timeKey(state.Until)...), state.Encode()...)
	binary.BigEndian.PutUint32(record[8:], checksum(key, record))
	return record
}

func checksum(key, record []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[:8])
	return crc32.Update(sum, castagnoli, record[12:])
}

// decode reads what encode wrote.
func decode(key, record []byte) (gate.State, error) {
	if len(record) < 20 || binary.BigEndian.Uint32(record[8:]) != checksum(key, record) {
		return gate.State{}, errDamaged
	}
	return gate.Decode(record[20:], time.Unix(0, int64(binary.BigEndian.Uint64(record[12:]))))
}
