package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// What a run is told has a record of its own from the beginning, in a bucket of its own, unless it is short. When the run ends,
// the record stays there if it is kept, and need not be written again. What is short is put there at the end. Lists need not
// read it.
//
// What ended runs were told is found by its age through another bucket: each transaction leaves the ids of the runs there that
// end in it, apart by how long they keep it. Those that keep it for the same time stand together, in the order in which they
// ended. So whatever the limits are, what is too old is at the beginning of such a group, and nothing else has to be looked at.
// What was forgotten for another reason may still be named there.

// toldMessage is the number of the message below.
const toldMessage protowire.Number = 1

func fieldsOfTold(told *engine.Told) []any {
	return []any{&told.Message, (*[]byte)(&told.Metadata), (*[]byte)(&told.Schema), &told.Cut}
}

// encodeTold writes down what a run is told.
func encodeTold(told engine.Told) []byte {
	return encodeFields(newScratchEncoder(32+told.Size()), fieldsOfTold(&told))
}

func decodeTold(id uuid.UUID, data []byte) (told engine.Told, err error) {
	err = decodeFields(id[:], data, fieldsOfTold(&told))
	return told, err
}

// storedRun is a run that has not ended as it is in the file, and what it is told if that is apart.
type storedRun struct {
	data, told []byte
	run        *engine.Run // if it is in memory, and nothing else then
}

// copyRun copies a run, so that it can be read when the transaction is over. The committer has more to do than to read it.
func copyRun(t *transaction, id uuid.UUID) (run storedRun) {
	run.data = bytes.Clone(t.bucket(runsBucket).Get(id[:]))
	if isToldApart(run.data) {
		run.told = bytes.Clone(t.bucket(toldBucket).Get(id[:]))
	}
	return run
}

func (r storedRun) read(id uuid.UUID) (*engine.Run, error) {
	if r.run != nil {
		return r.run, nil
	}
	record, err := r.decode(id)
	if err != nil {
		return nil, err
	}
	return record.Run, nil
}

func (r storedRun) decode(id uuid.UUID) (*engine.Record, error) {
	record, err := decodeRun(id, r.data)
	if err != nil || !isToldApart(r.data) {
		return record, err
	}
	told, err := decodeTold(id, r.told)
	record.Run.Message, record.Run.Metadata, record.Run.Schema = told.Message, told.Metadata, told.Schema
	return record, err
}

// readRun reads a run that has not ended, with what it is told.
func readRun(tx *bbolt.Tx, id uuid.UUID, data []byte) (*engine.Record, error) {
	run := storedRun{data: data}
	if isToldApart(data) {
		run.told = tx.Bucket(toldBucket).Get(id[:])
	}
	return run.decode(id)
}

// readTold completes the record of a run that has ended with what it was told.
func readTold(tx *bbolt.Tx, id uuid.UUID, record *engine.Record) error {
	data := tx.Bucket(toldBucket).Get(id[:])
	if data == nil {
		return nil
	}
	told, err := decodeTold(id, data)
	if err != nil {
		return fmt.Errorf("reading what run %s was told: %w", id, err)
	}
	told.Complete(record)
	return nil
}

// keepTold keeps what a run was told that ends, as long as it wants.
func (d *Database) keepTold(t *transaction, id uuid.UUID, run *engine.Run) {
	if run.History <= 0 {
		t.delete(toldBucket, id[:])
		return
	}
	data := t.bucket(toldBucket).Get(id[:])
	if told := run.Told(); told.Cut || data == nil {
		data = encodeTold(told)
		t.append(toldBucket, id[:], seal(id[:], data))
		t.scratch = append(t.scratch, data)
	}
	d.countTold(t, toldSize(data))
	if t.told.added == nil {
		t.told.added = make(map[time.Duration][]byte)
	}
	t.told.added[run.History] = append(t.told.added[run.History], id[:]...)
}

// forgetTold forgets what a run was told that has ended, if it is there.
func (d *Database) forgetTold(t *transaction, id uuid.UUID) {
	if data := t.bucket(toldBucket).Get(id[:]); data != nil {
		d.countTold(t, -toldSize(data))
		t.delete(toldBucket, id[:])
	}
}

// toldSize is what counts for the limit.
func toldSize(data []byte) int64 { return int64(len(uuid.UUID{}) + len(data)) }

// toldChanges is what a transaction has changed of what runs were told. What its runs have in common is written once.
type toldChanges struct {
	added map[time.Duration][]byte // the ids of runs, by how long they keep what they were told
}

func (d *Database) countTold(t *transaction, n int64) {
	if t.told == nil {
		t.told = new(toldChanges)
		before := d.toldBytes
		t.undo = append(t.undo, func() { d.toldBytes = before })
		t.last = append(t.last, func() { d.writeToldChanges(t) })
	}
	d.toldBytes += n
}

func (d *Database) writeToldChanges(t *transaction) {
	t.put(metaBucket, toldBytesKey, binary.AppendVarint(nil, d.toldBytes))
	for history, ids := range t.told.added {
		age := newToldAge(history, t.now, uuid.UUID(ids[:len(uuid.UUID{})]))
		t.append(toldAgesBucket, age[:], ids)
	}
}

func toldBytesOf(tx *bbolt.Tx) int64 {
	n, _ := binary.Varint(tx.Bucket(metaBucket).Get(toldBytesKey))
	return n
}

// toldAge is how long some runs keep what they were told, when they ended, and the id of the first of them.
type toldAge [8 + 8 + 16]byte

func newToldAge(history time.Duration, endedAt time.Time, first uuid.UUID) (age toldAge) {
	binary.BigEndian.PutUint64(age[:8], uint64(history))
	binary.BigEndian.PutUint64(age[8:16], uint64(endedAt.UnixNano()))
	copy(age[16:], first[:])
	return age
}

func (a *toldAge) history() time.Duration { return time.Duration(binary.BigEndian.Uint64(a[:8])) }
func (a *toldAge) endedAt() time.Time     { return time.Unix(0, int64(binary.BigEndian.Uint64(a[8:16]))) }

// isOld reports whether what the runs were told is to be forgotten.
func (a *toldAge) isOld(now time.Time, limits engine.Limits) bool {
	history := limits.HistoryOf(a.history())
	return history <= 0 || !a.endedAt().Add(history).After(now)
}

// oldTold is what a step of pruning is to forget of what runs were told.
type oldTold struct {
	told *bbolt.Bucket
	ages []toldAge
	ids  []uuid.UUID
	size int64
}

// How much of what runs were told a step of pruning forgets, about.
const (
	toldStep      = 10 * local.PruneStep
	toldStepBytes = 4 << 20
)

func (o *oldTold) full() bool { return len(o.ids) >= toldStep || o.size >= toldStepBytes }

// add has something forgotten.
func (o *oldTold) add(age toldAge, ids []byte) {
	o.ages = append(o.ages, age)
	for ; len(ids) >= len(uuid.UUID{}); ids = ids[len(uuid.UUID{}):] {
		id := uuid.UUID(ids[:len(uuid.UUID{})])
		if data := o.told.Get(id[:]); data != nil {
			o.ids = append(o.ids, id)
			o.size += toldSize(data)
		}
	}
}

// findOldTold finds what runs were told that is too old and, if there is too much, what is the oldest. It looks at nothing else,
// whatever there is.
func findOldTold(tx *bbolt.Tx, now time.Time, limits engine.Limits) (old *oldTold, more bool) {
	old = &oldTold{told: tx.Bucket(toldBucket)}
	groups := old.findAged(tx, now, limits)
	if limits.HistoryBytes > 0 {
		old.findExcess(groups, toldBytesOf(tx)-limits.HistoryBytes)
	}
	return old, old.full()
}

// toldGroup is a place among those that are kept for the same time.
type toldGroup struct {
	cursor *bbolt.Cursor
	age    toldAge
	ids    []byte
}

// take has what is at the place forgotten, and goes on to the next. It reports whether there is one.
func (g *toldGroup) take(old *oldTold) bool {
	old.add(g.age, g.ids)
	history := g.age.history()
	key, ids := g.cursor.Next()
	if len(key) != len(g.age) {
		return false
	}
	g.age, g.ids = toldAge(key), ids
	return g.age.history() == history
}

// findAged goes through the beginning of each group, and returns where what is young begins.
func (o *oldTold) findAged(tx *bbolt.Tx, now time.Time, limits engine.Limits) (groups []*toldGroup) {
	for from := []byte{}; !o.full(); {
		g := &toldGroup{cursor: tx.Bucket(toldAgesBucket).Cursor()}
		key, ids := g.cursor.Seek(from)
		if len(key) != len(g.age) {
			return groups
		}
		g.age, g.ids = toldAge(key), ids
		next := newToldAge(g.age.history()+1, time.Unix(0, 0), uuid.Nil)
		from = next[:]
		there := true
		for there && !o.full() && g.age.isOld(now, limits) {
			there = g.take(o)
		}
		if there {
			groups = append(groups, g)
		}
	}
	return groups
}

// findExcess finds the oldest of all groups until as many bytes were found, with those that were found before.
func (o *oldTold) findExcess(groups []*toldGroup, excess int64) {
	for len(groups) > 0 && o.size < excess && !o.full() {
		oldest := 0
		for i, g := range groups {
			if g.age.endedAt().Before(groups[oldest].age.endedAt()) {
				oldest = i
			}
		}
		if !groups[oldest].take(o) {
			groups = append(groups[:oldest], groups[oldest+1:]...)
		}
	}
}

// forget forgets what was found.
func (o *oldTold) forget(d *Database, t *transaction) {
	for _, id := range o.ids {
		d.forgetTold(t, id)
	}
	for _, age := range o.ages {
		t.delete(toldAgesBucket, age[:])
	}
}
