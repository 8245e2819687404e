package bolt

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func FuzzDecodeRecord(f *testing.F) {
	id := uuid.UUID{1}
	key := local.NewDeliveryKey(id, 1)
	run := &engine.Run{ChatID: "chat", Hook: "agent", Message: "hello", Sync: true, Timeout: time.Minute, AcceptedAt: time.Now(),
		Key: &engine.Key{ID: [32]byte{1}}, Client: "192.0.2.7", KeyHeader: "Webhook-Id", NewChat: true, Test: true}
	data, _ := encodeRun(run)
	f.Add(data)
	run.Fold, run.Replay = engine.Fold{Window: time.Minute, Max: 50}, &engine.Key{ID: [32]byte{2}, AnyBody: true}
	run.Together = []engine.Sibling{{ID: id.String(), ChatID: "chat"}, {ID: uuid.Max.String()}}
	data, _ = encodeRun(run)
	f.Add(data)
	ended := &engine.Record{Run: run, FinishedAt: time.Now(), Outcome: engine.Outcome{Status: engine.Completed, HasText: true}}
	f.Add(encodeEnded(ended, "token", run, run))
	ended.FoldedInto = uuid.Max.String()
	f.Add(encodeEnded(ended, "token"))
	run.Schema = bytes.Repeat([]byte(" "), inputApartFrom)
	data, input := encodeRun(run)
	f.Add(data)
	f.Add(input)
	f.Add(encodeEnded(&engine.Record{Run: run, Attempts: 2, StartedAt: time.Now(), FinishedAt: time.Now(),
		Outcome: engine.Outcome{Status: engine.Completed, JSON: []byte("{}"),
			Account: engine.Account{CancelledBy: "somebody", Reason: "why", LastAnswer: "no", ValidationErrors: []string{"a", ""},
				Permissions: []engine.Permission{{Kind: "edit", Title: "a file", Answer: "allowed"}, {}}, MorePermissions: 3}, SessionRenewed: true},
		Steps: []engine.Step{{Phase: engine.PhaseTurn, StartedAt: time.Now(), Took: time.Second, Tier: "smart", Bytes: 7, Errors: []string{"a", ""}}}}, "token"))
	f.Add(encodeDelivery(&engine.Delivery{ID: "msg_1", Body: "hello", Due: time.Now(),
		History: []engine.Attempt{{At: time.Now(), Took: time.Second, Status: 503, Error: "no"}, {}}}))
	f.Add(encodeInput(engine.Input{Message: "hello", Metadata: []byte("{}"), Cut: true}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// As it is, which the checksum refuses, and as a record that has a good one.
		e := newEncoder(len(data))
		e.data = append(e.data, data...)
		for _, data := range [][]byte{data, seal(id[:], e.data), seal(key[:], bytes.Clone(e.data))} {
			before := bytes.Clone(data)
			record, err := decodeRun(id, data)
			entry, _, entryErr := entryOf(id, data, new(local.Clock))
			if err == nil && (entryErr != nil || entry.Chat != record.Run.ChatID || entry.Runner != record.Run.Runner || entry.Hook != record.Run.Hook) {
				t.Errorf("the record can be read, but its entry is %+v, %v", entry, entryErr)
			}
			_, _ = decodeWait(id[:], data)
			if err == nil {
				// What was understood can be written and read again.
				data, _ := encodeRun(record.Run)
				again, err := decodeRun(id, seal(id[:], data))
				if err != nil || again.Run.ChatID != record.Run.ChatID || again.Run.Hook != record.Run.Hook ||
					again.Run.Fold != record.Run.Fold || !slices.Equal(again.Run.Together, record.Run.Together) {
					t.Errorf("got %+v, %v, want %+v", again.Run, err, record.Run)
				}
			}
			_, _ = decodeDelivery(key, data)
			_, _ = decodeInput(id, data)
			if !bytes.Equal(before, data) {
				t.Error("reading changed the record")
			}
		}
	})
}

func TestADamagedRecordIsRefused(t *testing.T) {
	id := uuid.New()
	data, _ := encodeRun(&engine.Run{ChatID: "chat", Message: "hello"})
	data = seal(id[:], data)
	if _, err := decodeRun(uuid.New(), data); err == nil {
		t.Error("it is found at another key, and nobody noticed")
	}
	for i := range data {
		for _, bit := range []byte{1, 0x80} {
			damaged := bytes.Clone(data)
			damaged[i] ^= bit
			if _, err := decodeRun(id, damaged); err == nil {
				t.Errorf("byte %d changed by %x, and nobody noticed", i, bit)
			}
		}
		if _, err := decodeRun(id, data[:i]); err == nil {
			t.Errorf("cut to %d bytes, and nobody noticed", i)
		}
	}
}

// There is a step for every turn of every run.
func TestAStepIsShort(t *testing.T) {
	t.Parallel()
	run := &engine.Run{AcceptedAt: time.Now()}
	step := engine.Step{Phase: engine.PhaseTurn, StartedAt: run.AcceptedAt.Add(12 * time.Millisecond), Took: 2500 * time.Millisecond, Bytes: 1800}
	if size := len(encodeStep(&step, run.AcceptedAt)); size > 20 {
		t.Errorf("it has %d bytes", size)
	}
}

// A later version may have written it, or damage.
func TestAStepOfAnUnknownPhaseHasNone(t *testing.T) {
	t.Parallel()
	for _, phase := range []int{-1, len(stepPhases), math.MaxInt32} {
		step, err := decodeStep(encodePart(stepFields(&engine.Step{Bytes: 7}, &phase, new(time.Duration))), time.Now())
		if err != nil || step.Phase != "" || step.Bytes != 7 {
			t.Errorf("phase %d: got %+v, %v", phase, step, err)
		}
	}
}

func TestNumbersOfFieldsAreNotThoseOfThisStore(t *testing.T) {
	own := []protowire.Number{runKeyBody, endToken, runInputApart, runKeyAnyBody, runReplayBody, runReplayAnyBody, endFoldedInto, endFollower}
	for _, n := range own {
		if runFieldsByNumber[n] != nil || endFieldsByNumber[n] != nil {
			t.Errorf("a field in engine/fields.go has the number %d, which this store uses for itself", n)
		}
	}
}
