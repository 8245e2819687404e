package bolt

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The fields of a run, with the numbers that the engine's table has, and some that stand for no field of it.
const (
	runChat protowire.Number = iota + 1
	runHook
	runAction
	runName
	runMessage
	runMetadata
	runTier
	runValidationTier
	runMemoryPreset
	runSchema
	runSync
	runCallback
	runChannel
	runTo
	runTimeout
	runAcceptedAt
	runTraceParent
	runKey
	runKeyBody
	runOwner

	// Those of one that has ended.
	endStatus
	endText
	endHasText
	endJSON
	endRepairs
	endFailure
	endMessage
	endRetryAfter
	endAttempts
	endStartedAt
	endFinishedAt
	endChecked

	// Added later.
	runRunner
	endToken
	runQueueTime
	runHistory
	runAgainOf
	runToldApart // what the run is told has a record of its own; comes before the chat
	runClient
	runKeyHeader
	endCancelledBy
	endReason
	endLastAnswer
	endValidationError // once for each
	runNewChat
	runTest
	endStep // once for each
	runFoldWindow
	runFoldMax
	runKeyAnyBody
	runReplay
	runReplayBody
	runReplayAnyBody
	runSibling    // once for each
	endFoldedInto // of a run whose answer is that of another one; comes instead of the texts of its end
	endFollower   // once for each run whose answer is this one's
	runFoldAlike
	endSessionRenewed
	endPermission // once for each
	endMorePermissions
)

// encodeRun writes down all that is needed to carry out a run. What it is told has a record of its own, told, unless it is so
// short that two records would cost more.
func encodeRun(run *engine.Run) (data, told []byte) {
	all := engine.Told{Message: run.Message, Metadata: run.Metadata, Schema: run.Schema}
	if all.Size() >= toldApartFrom {
		e := newScratchEncoder(256)
		e.flag(runToldApart, true)
		e.runBase(run)
		return e.data, encodeTold(all)
	}
	e := newScratchEncoder(256 + all.Size())
	e.runBase(run)
	e.text(runMessage, run.Message)
	e.bytes(runMetadata, run.Metadata)
	e.bytes(runSchema, run.Schema)
	return e.data, nil
}

// toldApartFrom is from how many bytes on what a run is told has a record of its own: as many as a page of the file has. With
// less, a second record makes it slower to accept a run than it is to write the bytes again when the run ends.
const toldApartFrom = 4096

// runBase writes what is kept of a run after its end.
func (e *encoder) runBase(run *engine.Run) {
	e.text(runChat, run.ChatID)
	e.text(runHook, run.Hook)
	e.text(runAction, string(run.Action))
	e.text(runName, run.Name)
	e.text(runTier, run.Tier)
	e.text(runValidationTier, run.ValidationTier)
	e.text(runMemoryPreset, run.MemoryPreset)
	e.flag(runSync, run.Sync)
	e.text(runCallback, run.CallbackURL)
	e.text(runChannel, run.Channel)
	e.text(runTo, run.To)
	e.number(runTimeout, int64(run.Timeout))
	e.time(runAcceptedAt, run.AcceptedAt)
	e.text(runTraceParent, run.TraceParent)
	if run.Key != nil {
		e.bytes(runKey, run.Key.ID[:])
		e.bytes(runKeyBody, run.Key.Body[:])
		e.flag(runKeyAnyBody, run.Key.AnyBody)
	}
	e.text(runOwner, run.Owner)
	e.text(runRunner, run.Runner)
	e.number(runQueueTime, int64(run.QueueTime))
	e.number(runHistory, int64(run.History))
	e.text(runAgainOf, run.AgainOf)
	e.text(runClient, run.Client)
	e.text(runKeyHeader, run.KeyHeader)
	e.flag(runNewChat, run.NewChat)
	e.flag(runTest, run.Test)
	e.number(runFoldWindow, int64(run.Fold.Window))
	e.number(runFoldMax, int64(run.Fold.Max))
	e.number(runFoldAlike, int64(run.Fold.Alike))
	if run.Replay != nil {
		e.bytes(runReplay, run.Replay.ID[:])
		e.bytes(runReplayBody, run.Replay.Body[:])
		e.flag(runReplayAnyBody, run.Replay.AnyBody)
	}
	e.siblings(run.Together)
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
	e.text(endText, outcome.Text)
	e.bytes(endJSON, outcome.JSON)
	e.text(endToken, token)
	e.text(endLastAnswer, account.LastAnswer)
	for _, text := range account.ValidationErrors {
		e.bytes(endValidationError, []byte(text))
	}
	for i := range account.Permissions {
		e.bytes(endPermission, encodePermission(&account.Permissions[i]))
	}
	e.number(endMorePermissions, int64(account.MorePermissions))
	for i := range record.Steps {
		e.bytes(endStep, encodeStep(&record.Steps[i], record.Run))
	}
	for _, follower := range followers {
		id, _ := local.ParseID(follower.ID)
		e.bytes(endFollower, id[:])
	}
	return e.data
}

// endBase writes what every run that has ended has, and lists show.
func (e *encoder) endBase(record *engine.Record) {
	outcome := &record.Outcome
	e.runBase(record.Run)
	e.text(endStatus, string(outcome.Status))
	e.flag(endHasText, outcome.HasText)
	e.number(endRepairs, int64(outcome.Repairs))
	e.flag(endChecked, outcome.Checked)
	e.flag(endSessionRenewed, outcome.SessionRenewed)
	e.text(endFailure, string(outcome.Failure))
	e.text(endMessage, outcome.Message)
	e.number(endRetryAfter, int64(outcome.RetryAfter))
	e.number(endAttempts, int64(record.Attempts))
	e.time(endStartedAt, record.StartedAt)
	e.time(endFinishedAt, record.FinishedAt)
	e.text(endCancelledBy, outcome.Account.CancelledBy)
	e.text(endReason, outcome.Account.Reason)
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
		partErr = f.into(n, record)
		return partErr == nil
	})
	record.Status = record.Outcome.Status
	return record, errors.Join(err, partErr)
}

// into puts a field into a record. One of an unknown number is passed over.
func (f field) into(n protowire.Number, record *engine.Record) error {
	run := record.Run
	switch n {
	case runKeyBody:
		copy(made(&run.Key).Body[:], f.bytes)
	case runKeyAnyBody:
		made(&run.Key).AnyBody = f.flag()
	case runReplayBody:
		copy(made(&run.Replay).Body[:], f.bytes)
	case runReplayAnyBody:
		made(&run.Replay).AnyBody = f.flag()
	case endFoldedInto:
		if len(f.bytes) == len(uuid.UUID{}) {
			record.FoldedInto = uuid.UUID(f.bytes).String()
		}
	case endFollower:
		record.Folded = max(record.Folded, 1) + 1
	}
	var value any
	switch {
	case int(n) >= len(runFieldsByNumber):
	case runFieldsByNumber[n] != nil:
		value = runFieldsByNumber[n](run)
	case endFieldsByNumber[n] != nil:
		value = endFieldsByNumber[n](record)
	}
	switch at := value.(type) {
	case *string:
		*at = f.text()
	case *[]byte:
		*at = f.copy()
	case *bool:
		*at = f.flag()
	case *int:
		*at = f.int()
	case *uint32:
		*at = uint32(f.number)
	case *time.Duration:
		*at = f.duration()
	case *time.Time:
		*at = f.time()
	case *[]string:
		*at = append(*at, f.text())
	case **engine.Key:
		copy(made(at).ID[:], f.bytes)
	case *[]engine.Sibling:
		if sibling, ok := siblingOf(f.bytes); ok {
			*at = append(*at, sibling)
		}
	case *[]engine.Permission:
		permission, err := decodePermission(f.bytes)
		*at = append(*at, permission)
		return err
	case *[]engine.Step: // comes after the time of acceptance
		step, err := decodeStep(f.bytes, run)
		*at = append(*at, step)
		return err
	}
	return nil
}

// The fields of the engine's table, by their numbers. They are written by hand above, since that takes two thirds of the time.
var (
	runFieldsByNumber = byNumber(engine.RunFields)
	endFieldsByNumber = byNumber(engine.EndFields)
)

func byNumber[T engine.Run | engine.Record](table []engine.Field[T]) (all [64]func(*T) any) {
	for _, f := range table {
		all[f.Number] = f.At
	}
	return all
}

// made is the key, which is made if there is none.
func made(key **engine.Key) *engine.Key {
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

// entryOf reads no more of a run than its place in the queue, after it has checked all of it, and whether what it is told
// is apart.
func entryOf(id uuid.UUID, data []byte, clock *local.Clock) (entry local.Entry, toldApart bool, err error) {
	var run engine.Run
	size := 0
	err = fieldsOf(id[:], data, func(n protowire.Number, f field) bool {
		switch n {
		case runToldApart:
			toldApart = f.flag()
		case runChat:
			run.ChatID = f.text()
		case runRunner:
			run.Runner = f.text()
		case runQueueTime:
			run.QueueTime = f.duration()
		case runAcceptedAt:
			run.AcceptedAt = f.time()
		case runHook:
			run.Hook = f.text()
		case runSync:
			run.Sync = f.flag()
		case runAgainOf:
			run.AgainOf = f.text()
		case runFoldWindow:
			run.Fold.Window = f.duration()
		case runFoldMax:
			run.Fold.Max = f.int()
		case runFoldAlike:
			run.Fold.Alike = uint32(f.number)
		case runMessage:
			size = len(f.bytes)
		}
		return true
	})
	entry = local.EntryOf(id, &run, clock.Past(run.AcceptedAt))
	entry.Size = size
	return entry, toldApart, err
}

// isToldApart reports whether what a run is told has a record of its own.
func isToldApart(data []byte) (apart bool) {
	_ = uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		apart = n == runToldApart && f.flag()
		return false
	})
	return apart
}
