// Package ledger keeps what runs cost in a bolt file: a sum for each account and span of time. It is a part of the store bolt, and knows of
// its file only the transactions.
package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

var (
	// Bucket has the sums, by account and the start of the span.
	Bucket = []byte("ledger")
	// EndsBucket has the keys of Bucket, each after the time from which on it is not kept.
	EndsBucket = []byte("ledger_ends")
)

// Add adds what was spent at a time.
func Add(tx *bbolt.Tx, spent []usage.Entry, now time.Time) error {
	sums := tx.Bucket(Bucket)
	for _, entry := range spent {
		entry.Start = entry.StartOf(now)
		key := keyOf(&entry)
		if known, err := decode(key, sums.Get(key)); err == nil { // a sum that is damaged begins anew
			entry.Add(&known)
		} else if err := tx.Bucket(EndsBucket).Put(append(timeKey(entry.KeptUntil()), key...), nil); err != nil {
			return err
		}
		if err := sums.Put(key, encode(key, &entry)); err != nil {
			return err
		}
	}
	return nil
}

// Spent is as the store's Ledger has it. Sums that are damaged are left out.
func Spent(tx *bbolt.Tx, prefix string, after time.Time) (entries []usage.Entry) {
	cursor := tx.Bucket(Bucket).Cursor()
	for key, value := cursor.Seek([]byte(prefix)); key != nil && bytes.HasPrefix(key, []byte(prefix)); key, value = cursor.Next() {
		if entry, err := decode(key, value); err == nil && entry.End().After(after) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// Prune forgets up to so many sums that are not kept any more, and reports whether there may be others.
func Prune(tx *bbolt.Tx, now time.Time, most int) (forgot int, err error) {
	var old [][]byte
	end := timeKey(now)
	cursor := tx.Bucket(EndsBucket).Cursor()
	for key, _ := cursor.First(); key != nil && bytes.Compare(key[:8], end) <= 0 && len(old) < most; key, _ = cursor.Next() {
		old = append(old, slices.Clone(key))
	}
	for _, key := range old {
		if err := errors.Join(tx.Bucket(EndsBucket).Delete(key), tx.Bucket(Bucket).Delete(key[8:])); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

// Check reports an error for a sum that is damaged.
func Check(key, value []byte) error {
	_, err := decode(key, value)
	return err
}

// keyOf is the key of an entry: no account is a prefix of another one.
func keyOf(e *usage.Entry) []byte { return append([]byte(e.Account), timeKey(e.Start)...) }

func timeKey(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(max(at.UnixNano(), 0)))
}

// numbers are those of a record, in their order. One that is added is the last, and is 0 in records that were written before.
func numbers(e *usage.Entry) []*int64 {
	return []*int64{(*int64)(&e.Span), (*int64)(&e.Keep), &e.Runs, &e.Use.Input, &e.Use.Output, &e.Use.Cached, &e.Use.Reasoning, &e.Use.Cost}
}

const (
	hasTokens = 1
	hasCost   = 2
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errDamaged = errors.New("an entry of the ledger is damaged")
)

// encode writes a record: its checksum, what is known, and the numbers.
func encode(key []byte, e *usage.Entry) []byte {
	record := make([]byte, 5, 64)
	if e.Use.HasTokens {
		record[4] |= hasTokens
	}
	if e.Use.HasCost {
		record[4] |= hasCost
	}
	for _, n := range numbers(e) {
		record = binary.AppendVarint(record, *n)
	}
	binary.BigEndian.PutUint32(record, crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[4:]))
	return record
}

// decode reads what encode wrote.
func decode(key, record []byte) (e usage.Entry, err error) {
	at := len(key) - 8
	if at <= 0 || len(record) < 5 ||
		binary.BigEndian.Uint32(record) != crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[4:]) {
		return e, errDamaged
	}
	e.Account = string(key[:at])
	e.Start = time.Unix(0, int64(binary.BigEndian.Uint64(key[at:])))
	e.Use.HasTokens, e.Use.HasCost = record[4]&hasTokens != 0, record[4]&hasCost != 0
	rest := record[5:]
	for _, to := range numbers(&e) {
		n, size := binary.Varint(rest)
		if size <= 0 {
			break
		}
		*to, rest = n, rest[size:]
	}
	return e, nil
}
