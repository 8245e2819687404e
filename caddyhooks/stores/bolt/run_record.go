package bolt

import (
	"errors"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Numbers of the engine's table that are looked for, and some that stand for no field of it.
const (
	runChat             protowire.Number = 1
	runHook             protowire.Number = 2
	runAction           protowire.Number = 3
	runMessage          protowire.Number = 5
	runMetadata         protowire.Number = 6
	runSchema           protowire.Number = 10
	runSync             protowire.Number = 11
	runAcceptedAt       protowire.Number = 16
	runKey              protowire.Number = 18
	runKeyBody          protowire.Number = 19
	endStatus           protowire.Number = 21
	endText             protowire.Number = 22
	endJSON             protowire.Number = 24
	endFinishedAt       protowire.Number = 31
	runRunner           protowire.Number = 33
	endToken            protowire.Number = 34
	runQueueTime        protowire.Number = 35
	runAgainOf          protowire.Number = 37
	runInputApart       protowire.Number = 38 // the run's input has a record of its own; comes before the chat
	endLastAnswer       protowire.Number = 43
	endValidationErrors protowire.Number = 44
	runNewChat          protowire.Number = 45
	endSteps            protowire.Number = 47
	runFoldWindow       protowire.Number = 48
	runFoldMax          protowire.Number = 49
	runKeyAnyBody       protowire.Number = 50
	runReplayBody       protowire.Number = 52
	runReplayAnyBody    protowire.Number = 53
	runSibling          protowire.Number = 54
	endFoldedInto       protowire.Number = 55 // of a run whose answer is that of another one; comes instead of its long fields
	endFollower         protowire.Number = 56 // once for each run whose answer is this one's
	runFoldAlike        protowire.Number = 57
	endPermissions      protowire.Number = 59
	endMorePermissions  protowire.Number = 60
	runRequestID        protowire.Number = 61
)

// Fields that may be long: a run's input, and what came of it. They are not written for every run.
var (
	inputNumbers = []protowire.Number{runMessage, runMetadata, runSchema}
	longNumbers  = []protowire.Number{endText, endJSON, endLastAnswer, endValidationErrors, endSteps, endPermissions, endMorePermissions}

	inputFields, runFields = splitFields(engine.RunFields, inputNumbers)
	longFields, endFields  = splitFields(engine.EndFields, longNumbers)

	runFieldsByNumber = byNumber(engine.RunFields)
	endFieldsByNumber = byNumber(engine.EndFields)
)

// splitFields takes the fields of some numbers out of a table.
func splitFields[T any](table []engine.Field[T], numbers []protowire.Number) (out, rest []engine.Field[T]) {
	for _, f := range table {
		if slices.Contains(numbers, protowire.Number(f.Number)) {
			out = append(out, f)
		} else {
			rest = append(rest, f)
		}
	}
	return out, rest
}

func byNumber[T any](table []engine.Field[T]) (all [engine.MaxFields]func(*T) any) {
	for _, f := range table {
		all[f.Number] = f.At
	}
	return all
}

// putFields writes fields of a run, or of its end.
func putFields[T any](e *encoder, table []engine.Field[T], of *T) {
	for i := range table {
		e.put(protowire.Number(table[i].Number), table[i].At(of))
	}
}

// encodeRun writes down all that is needed to carry out a run. Its input has a record of its own unless it is so
// short that two records would cost more.
func encodeRun(run *engine.Run) (data, input []byte) {
	all := engine.Input{Message: run.Message, Metadata: run.Metadata, Schema: run.Schema}
	if all.Size() >= inputApartFrom {
		e := newScratchEncoder(256)
		e.flag(runInputApart, true)
		e.runBase(run)
		return e.data, encodeInput(all)
	}
	e := newScratchEncoder(256 + all.Size())
	e.runBase(run)
	putFields(e, inputFields, run)
	return e.data, nil
}

// inputApartFrom is from how many bytes on a run's input has a record of its own: as many as a page of the file has. With
// less, a second record makes it slower to accept a run than it is to write the bytes again when the run ends.
const inputApartFrom = 4096

// runBase writes what is kept of a run after its end.
func (e *encoder) runBase(run *engine.Run) {
	e.accepted = run.AcceptedAt
	putFields(e, runFields, run)
}

// key writes a key of a run, whose id has the number n.
func (e *encoder) key(n protowire.Number, key *engine.Key) {
	if key == nil {
		return
	}
	body, anyBody := runKeyBody, runKeyAnyBody
	if n != runKey {
		body, anyBody = runReplayBody, runReplayAnyBody
	}
	e.bytes(n, key.ID[:])
	e.bytes(body, key.Body[:])
	e.flag(anyBody, key.AnyBody)
}

// siblings writes the runs of a request that became several: the id of each, and then its chat.
func (e *encoder) siblings(together []engine.Sibling) {
	for _, sibling := range together {
		id, _ := local.ParseID(sibling.ID)
		e.bytes(runSibling, append(id[:], sibling.ChatID...))
	}
}

// encodeEnded writes down a run that has ended, the token of the claim under which it did, and which other runs ended with it. A
// run that ended with another one has no texts of its own: they are read from the record of that one, so that they are written
// once however many runs were folded.
func encodeEnded(record *engine.Record, token string, followers ...*engine.Run) []byte {
	if record.FoldedInto != "" {
		return encodeFolded(record)
	}
	outcome := &record.Outcome
	account := &outcome.Account
	e := newScratchEncoder(256 + len(outcome.Text) + len(outcome.JSON) + len(outcome.Message) + account.Size())
	e.endBase(record)
	putFields(e, longFields, record)
	e.text(endToken, token)
	for _, follower := range followers {
		id, _ := local.ParseID(follower.ID)
		e.bytes(endFollower, id[:])
	}
	return e.data
}

// endBase writes what every run that has ended has, and lists show.
func (e *encoder) endBase(record *engine.Record) {
	e.runBase(record.Run)
	putFields(e, endFields, record)
}

// encodeFolded writes down a run that has ended with another one.
func encodeFolded(record *engine.Record) []byte {
	outcome := &record.Outcome
	e := newScratchEncoder(256 + len(outcome.Message) + len(outcome.Account.Reason))
	e.endBase(record)
	id, _ := local.ParseID(record.FoldedInto)
	e.bytes(endFoldedInto, id[:])
	return e.data
}

// decodeRun reads the record of a run from where its id is the key.
func decodeRun(id uuid.UUID, data []byte) (*engine.Record, error) {
	return decodeRecord(id[:], id.String(), data)
}

// decodeRecord reads what encodeRun or encodeEnded wrote. The status is "" for a run that has not ended.
func decodeRecord(key []byte, id string, data []byte) (*engine.Record, error) {
	record := &engine.Record{Run: &engine.Run{ID: id}}
	var partErr error
	err := fieldsOf(key, data, func(n protowire.Number, f field) bool {
		partErr = f.intoRecord(n, record)
		return partErr == nil
	})
	record.Status = record.Outcome.Status
	return record, errors.Join(err, partErr)
}

// intoRecord puts a field into a record. One of an unknown number is passed over.
func (f field) intoRecord(n protowire.Number, record *engine.Record) error {
	run := record.Run
	switch n {
	case runKeyBody:
		copy(keyOf(&run.Key).Body[:], f.bytes)
	case runKeyAnyBody:
		keyOf(&run.Key).AnyBody = f.flag()
	case runReplayBody:
		copy(keyOf(&run.Replay).Body[:], f.bytes)
	case runReplayAnyBody:
		keyOf(&run.Replay).AnyBody = f.flag()
	case endFoldedInto:
		if len(f.bytes) == len(uuid.UUID{}) {
			record.FoldedInto = uuid.UUID(f.bytes).String()
		}
	case endFollower:
		record.Folded = max(record.Folded, 1) + 1
	}
	switch {
	case int(n) >= len(runFieldsByNumber):
		return nil
	case runFieldsByNumber[n] != nil:
		return f.into(runFieldsByNumber[n](run), run)
	case endFieldsByNumber[n] != nil:
		return f.into(endFieldsByNumber[n](record), run)
	}
	return nil
}

// keyOf is the key, which is made if there is none.
func keyOf(key **engine.Key) *engine.Key {
	if *key == nil {
		*key = new(engine.Key)
	}
	return *key
}

// siblingOf reads what encoder.siblings wrote of a run.
func siblingOf(data []byte) (sibling engine.Sibling, ok bool) {
	size := len(uuid.UUID{})
	if len(data) < size {
		return sibling, false
	}
	return engine.Sibling{ID: uuid.UUID(data[:size]).String(), ChatID: string(data[size:])}, true
}

// entryNumbers are those of the fields that tell a run's place in the queue.
var entryNumbers = []protowire.Number{runChat, runHook, runSync, runAcceptedAt, runRunner, runQueueTime, runAgainOf,
	runFoldWindow, runFoldMax, runFoldAlike}

// entryOf reads no more of a run than its place in the queue, after it has checked all of it, and whether its input
// is apart.
func entryOf(id uuid.UUID, data []byte, clock *local.Clock) (entry local.Entry, inputApart bool, err error) {
	var run engine.Run
	size := 0
	err = fieldsOf(id[:], data, func(n protowire.Number, f field) bool {
		switch {
		case n == runInputApart:
			inputApart = f.flag()
		case n == runMessage:
			size = len(f.bytes)
		case slices.Contains(entryNumbers, n):
			_ = f.into(runFieldsByNumber[n](&run), &run) // a plain value, which is read without an error
		}
		return true
	})
	entry = local.EntryOf(id, &run, clock.Past(run.AcceptedAt))
	entry.Size = size
	return entry, inputApart, err
}

// hasInputApart reports whether a run's input has a record of its own.
func hasInputApart(data []byte) (apart bool) {
	_ = uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		apart = n == runInputApart && f.flag()
		return false
	})
	return apart
}
