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

// A run's input has a record of its own from the beginning, in a bucket of its own, unless it is short. When the run ends,
// the record stays there if it is kept, and need not be written again. What is short is put there at the end. Lists need not
// read it.
//
// The input of ended runs is found by its age through another bucket: each transaction leaves the ids of the runs there that
// end in it, apart by how long they keep it. Those that keep it for the same time stand together, in the order in which they
// ended. So whatever the limits are, what is too old is at the beginning of such a group, and nothing else has to be looked at.
// What was forgotten for another reason may still be named there.

// inputMessage is the number of the message below.
const inputMessage protowire.Number = 1

func fieldsOfInput(input *engine.Input) []any {
	return []any{&input.Message, (*[]byte)(&input.Metadata), (*[]byte)(&input.Schema), &input.Cut}
}

// encodeInput writes down a run's input.
func encodeInput(input engine.Input) []byte {
	return encodeFields(newScratchEncoder(32+input.Size()), fieldsOfInput(&input))
}

func decodeInput(id uuid.UUID, data []byte) (input engine.Input, err error) {
	err = decodeFields(id[:], data, fieldsOfInput(&input))
	return input, err
}

// storedRun is a run that has not ended as it is in the file, and its input if that is apart.
type storedRun struct {
	data, input []byte
	run         *engine.Run // if it is in memory, and neither of those then
	questions   storedQuestions
}

// copyRun copies a run, so that it can be read when the transaction is over. The committer has more to do than to read it.
func copyRun(t *transaction, id uuid.UUID) (run storedRun) {
	run.data = bytes.Clone(unfinishedData(t.tx, id[:]))
	if hasInputApart(run.data) {
		run.input = bytes.Clone(t.bucket(inputBucket).Get(id[:]))
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
	if err != nil || !hasInputApart(r.data) {
		return record, err
	}
	input, err := decodeInput(id, r.input)
	record.Run.Message, record.Run.Metadata, record.Run.Schema = input.Message, input.Metadata, input.Schema
	return record, err
}

// readRun reads a run that has not ended, with its input.
func readRun(tx *bbolt.Tx, id uuid.UUID, data []byte) (*engine.Record, error) {
	run := storedRun{data: data}
	if hasInputApart(data) {
		run.input = tx.Bucket(inputBucket).Get(id[:])
	}
	return run.decode(id)
}

// readInput completes the record of a run that has ended with its input.
func readInput(tx *bbolt.Tx, id uuid.UUID, record *engine.Record) error {
	data := tx.Bucket(inputBucket).Get(id[:])
	if data == nil {
		return nil
	}
	input, err := decodeInput(id, data)
	if err != nil {
		return fmt.Errorf("reading the input of run %s: %w", id, err)
	}
	record.SetInput(&input)
	return nil
}

// keepInput keeps the input of a run that ends, for as long as the run asks.
func (d *Database) keepInput(t *transaction, id uuid.UUID, run *engine.Run) {
	if run.History <= 0 {
		t.delete(inputBucket, id[:])
		return
	}
	data := t.bucket(inputBucket).Get(id[:])
	if input := run.Input(); input.Cut || data == nil {
		data = encodeInput(input)
		t.append(inputBucket, id[:], seal(id[:], data))
		t.scratch = append(t.scratch, data)
	}
	d.countInput(t, inputSize(data))
	if t.input.added == nil {
		t.input.added = make(map[time.Duration][]byte)
	}
	t.input.added[run.History] = append(t.input.added[run.History], id[:]...)
}

// forgetInput forgets the input of an ended run, if it is there.
func (d *Database) forgetInput(t *transaction, id uuid.UUID) {
	if data := t.bucket(inputBucket).Get(id[:]); data != nil {
		d.countInput(t, -inputSize(data))
		t.delete(inputBucket, id[:])
	}
}

// inputSize is what counts for the limit.
func inputSize(data []byte) int64 { return int64(len(uuid.UUID{}) + len(data)) }

// inputChanges is what a transaction has changed of the input of runs. What its runs have in common is written once.
type inputChanges struct {
	added map[time.Duration][]byte // the ids of runs, by how long they keep their input
}

func (d *Database) countInput(t *transaction, n int64) {
	if t.input == nil {
		t.input = new(inputChanges)
		before := d.inputBytes
		t.undo = append(t.undo, func() { d.inputBytes = before })
		t.last = append(t.last, func() { d.writeInputChanges(t) })
	}
	d.inputBytes += n
}

func (d *Database) writeInputChanges(t *transaction) {
	t.put(metaBucket, inputBytesKey, binary.AppendVarint(nil, d.inputBytes))
	for history, ids := range t.input.added {
		age := newInputAge(history, t.now, uuid.UUID(ids[:len(uuid.UUID{})]))
		t.append(inputAgesBucket, age[:], ids)
	}
}

func inputBytesOf(tx *bbolt.Tx) int64 {
	n, _ := binary.Varint(tx.Bucket(metaBucket).Get(inputBytesKey))
	return n
}

// inputAge is how long some runs keep their input, when they ended, and the id of the first of them.
type inputAge [8 + 8 + 16]byte

func newInputAge(history time.Duration, endedAt time.Time, first uuid.UUID) (age inputAge) {
	binary.BigEndian.PutUint64(age[:8], uint64(history))
	binary.BigEndian.PutUint64(age[8:16], uint64(endedAt.UnixNano()))
	copy(age[16:], first[:])
	return age
}

func (a *inputAge) history() time.Duration { return time.Duration(binary.BigEndian.Uint64(a[:8])) }
func (a *inputAge) endedAt() time.Time     { return time.Unix(0, int64(binary.BigEndian.Uint64(a[8:16]))) }

// isOld reports whether the runs' input is to be forgotten.
func (a *inputAge) isOld(now time.Time, limits engine.Limits) bool {
	history := limits.HistoryOf(a.history())
	return history <= 0 || !a.endedAt().Add(history).After(now)
}

// oldInputs is what a step of pruning is to forget of the input of runs.
type oldInputs struct {
	input *bbolt.Bucket
	ages  []inputAge
	ids   []uuid.UUID
	size  int64
}

// How much of the input of runs a step of pruning forgets, about.
const (
	inputStep      = 10 * local.PruneStep
	inputStepBytes = 4 << 20
)

func (o *oldInputs) full() bool { return len(o.ids) >= inputStep || o.size >= inputStepBytes }

// add has something forgotten.
func (o *oldInputs) add(age inputAge, ids []byte) {
	o.ages = append(o.ages, age)
	for ; len(ids) >= len(uuid.UUID{}); ids = ids[len(uuid.UUID{}):] {
		id := uuid.UUID(ids[:len(uuid.UUID{})])
		if data := o.input.Get(id[:]); data != nil {
			o.ids = append(o.ids, id)
			o.size += inputSize(data)
		}
	}
}

// findOldInputs finds the input of runs that is too old and, if there is too much, what is the oldest. It looks at nothing else,
// whatever there is.
func findOldInputs(tx *bbolt.Tx, now time.Time, limits engine.Limits) (old *oldInputs, more bool) {
	old = &oldInputs{input: tx.Bucket(inputBucket)}
	groups := old.findAged(tx, now, limits)
	if limits.HistoryBytes > 0 {
		old.findExcess(groups, inputBytesOf(tx)-limits.HistoryBytes)
	}
	return old, old.full()
}

// inputGroup is a place among those that are kept for the same time.
type inputGroup struct {
	cursor *bbolt.Cursor
	age    inputAge
	ids    []byte
}

// take has what is at the place forgotten, and goes on to the next. It reports whether there is one.
func (g *inputGroup) take(old *oldInputs) bool {
	old.add(g.age, g.ids)
	history := g.age.history()
	key, ids := g.cursor.Next()
	if len(key) != len(g.age) {
		return false
	}
	g.age, g.ids = inputAge(key), ids
	return g.age.history() == history
}

// findAged goes through the beginning of each group, and returns where what is young begins.
func (o *oldInputs) findAged(tx *bbolt.Tx, now time.Time, limits engine.Limits) (groups []*inputGroup) {
	for from := []byte{}; !o.full(); {
		g := &inputGroup{cursor: tx.Bucket(inputAgesBucket).Cursor()}
		key, ids := g.cursor.Seek(from)
		if len(key) != len(g.age) {
			return groups
		}
		g.age, g.ids = inputAge(key), ids
		next := newInputAge(g.age.history()+1, time.Unix(0, 0), uuid.Nil)
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
func (o *oldInputs) findExcess(groups []*inputGroup, excess int64) {
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
func (o *oldInputs) forget(d *Database, t *transaction) {
	for _, id := range o.ids {
		d.forgetInput(t, id)
	}
	for _, age := range o.ages {
		t.delete(inputAgesBucket, age[:])
	}
}
