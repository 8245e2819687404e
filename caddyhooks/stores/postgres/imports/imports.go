// Package imports copies the data of another store into the tables of the PostgreSQL store.
package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// Counts are how much was imported.
type Counts struct {
	Queued, Ended int // runs; those that are put aside are among the queued ones
	History       int // runs whose message is kept
	Deliveries    int
	Questions     int
	Keys          int
	Sessions      int
	Revision      int64 // of the live settings
	Changes       int   // of the live settings
	Minutes       int   // that were counted
}

// Options say how to import.
type Options struct {
	Runner string                 // the name of the default runner, whose sessions runs without a runner have
	Note   func(runs int)         // is told now and then how many runs were read
	Check  func(all Counts) error // refuses what was read, before it is in effect
}

// keyStore is a store that lists idempotency keys: they may be there longer than their runs, or shorter.
type keyStore interface {
	EachKey(ctx context.Context, each func(key engine.Key, first *engine.Run)) error
}

// gateStore is a store that lists the states of gates.
type gateStore interface {
	EachGate(ctx context.Context, each func(id [32]byte, state gate.State)) error
}

// Into copies all that another store has into the tables of a schema, which has to be empty, within a transaction. Nobody may work with the
// other store meanwhile. Of runs that wait for a pause it copies no pause, and of hosts no throttle.
func Into(ctx context.Context, tx pgx.Tx, schema string, from engine.Store, how Options) (Counts, error) {
	i := importing{tx: tx, from: from, how: how, keys: make(map[[32]byte]keyRow), kinds: make(map[[2]string]int32),
		sessions: make(map[[2]string]struct{})}
	err := i.all(ctx, schema)
	return i.count, err
}

// importing is an import that is under way.
type importing struct {
	tx    pgx.Tx
	from  engine.Store
	how   Options
	count Counts

	seq, deliverySeq int64 // the last ones that were given out

	keys     map[[32]byte]keyRow    // the last use of each counts
	kinds    map[[2]string]int32    // by runner and hook
	sessions map[[2]string]struct{} // the runners and chats that may have one
	chats    []string               // that have queued runs, as columns have them
	dead     int64
	pending  int64
	input    int64
	waiting  int64 // runs that are put aside
	asking   int64 // open questions for people
}

type keyRow struct {
	body  [32]byte
	at    time.Time
	run   uuid.UUID
	first string
}

func (i *importing) all(ctx context.Context, schema string) error {
	if err := i.begin(ctx, schema); err != nil {
		return err
	}
	if err := i.runs(ctx); err != nil {
		return err
	}
	for chats := range slices.Chunk(i.chats, 128) {
		if _, err := i.tx.Exec(ctx, "SELECT offer_1($1)", chats); err != nil {
			return err
		}
	}
	if err := i.copyKeys(ctx); err != nil {
		return err
	}
	if err := i.copyGates(ctx); err != nil {
		return err
	}
	if err := i.copySessions(ctx); err != nil {
		return err
	}
	if err := i.copyMinutes(ctx); err != nil {
		return err
	}
	if err := i.copyLedger(ctx); err != nil {
		return err
	}
	if err := i.copySettings(ctx); err != nil {
		return err
	}
	if err := i.copyDocuments(ctx); err != nil {
		return err
	}
	if err := i.how.Check(i.count); err != nil {
		return err
	}
	if err := i.orderQuestions(ctx); err != nil {
		return err
	}
	_, err := i.tx.Exec(ctx, "SELECT bump_1('', 4, $1, 0, $2, $3, $4, $5), setval('run_seq', $6 + 1), setval('delivery_seq', $7 + 1)",
		int64(i.count.Queued)-i.waiting, i.pending, i.dead, len(i.keys), i.input, i.seq, i.deliverySeq)
	return err
}

// begin keeps nodes that are running out until the import is over, and refuses a schema that is in use.
func (i *importing) begin(ctx context.Context, schema string) error {
	if _, err := i.tx.Exec(ctx, "SET LOCAL search_path = "+pgx.Identifier{schema}.Sanitize()); err != nil {
		return err
	}
	if _, err := i.tx.Exec(ctx, "LOCK TABLE settings, queue, done, key, delivery, question IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	inUse := false
	err := i.tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM queue) OR EXISTS (SELECT FROM done) OR EXISTS (SELECT FROM key)
		OR (SELECT revision FROM settings) > 0`).Scan(&inUse)
	if err == nil && inUse {
		return fmt.Errorf("the schema %s has runs or live settings already: give the instance another schema, or drop this one", schema)
	}
	return err
}

// runs copies runs, the oldest first, which is their order in chats.
func (i *importing) runs(ctx context.Context) error {
	const page = 500
	query := engine.Query{OldestFirst: true, Limit: page}
	for {
		listed, next, err := i.from.Runs().List(ctx, query)
		if err != nil {
			return fmt.Errorf("reading the runs: %w", err)
		}
		rows := new(importedRows)
		for _, one := range listed {
			record, err := i.from.Runs().Get(ctx, one.Run.ID)
			if errors.Is(err, engine.ErrNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("reading run %s: %w", one.Run.ID, err)
			}
			if err := i.add(ctx, rows, record); err != nil {
				return fmt.Errorf("run %s: %w", one.Run.ID, err)
			}
		}
		if err := rows.write(ctx, i.tx); err != nil {
			return err
		}
		i.how.Note(i.count.Queued + i.count.Ended)
		if next == "" {
			return nil
		}
		query.Cursor = next
	}
}

// add makes rows of a run.
func (i *importing) add(ctx context.Context, rows *importedRows, record *engine.Record) error {
	run := record.Run
	id, err := uuid.Parse(run.ID)
	if err != nil {
		return err
	}
	i.seq++
	i.sessions[[2]string{cmp.Or(run.Runner, i.how.Runner), run.ChatID}] = struct{}{}
	if !record.Status.Ended() || !record.Outcome.ForgetsKey() {
		first := codec.EncodeFirst(run)
		for _, key := range []*engine.Key{run.Key, run.Replay} {
			if key != nil {
				i.keys[key.ID] = keyRow{key.Body, run.AcceptedAt, id, first}
			}
		}
	}
	if record.Status.Ended() {
		err = i.addEnded(rows, id, record)
	} else {
		err = i.addQueued(ctx, rows, id, record)
	}
	if err != nil {
		return err
	}
	for _, question := range record.Questions {
		if err := i.addQuestion(rows, id, question); err != nil {
			return err
		}
	}
	for _, listed := range record.Deliveries {
		d, err := i.from.Deliveries().Get(ctx, listed.ID)
		if err != nil {
			return fmt.Errorf("delivery %s: %w", listed.ID, err)
		}
		if err := i.addDelivery(rows, id, d); err != nil {
			return err
		}
	}
	return nil
}

func (i *importing) addQueued(ctx context.Context, rows *importedRows, id uuid.UUID, record *engine.Record) error {
	run := record.Run
	encoded, err := codec.EncodeRun(run)
	if err != nil {
		return err
	}
	kind, err := i.kindOf(ctx, run)
	if err != nil {
		return err
	}
	var expires, window, owner any
	if run.QueueTime > 0 && record.Attempts == 0 && len(record.Questions) == 0 {
		expires = run.AcceptedAt.Add(run.QueueTime)
	}
	foldMax, alike := 0, int64(0)
	if run.Fold.IsSet() && !run.Sync && run.AgainOf == "" {
		window, foldMax, alike = run.Fold.Window, run.Fold.Max, int64(run.Fold.Alike)
	}
	if run.Owner != "" {
		owner = codec.Escape(run.Owner)
	}
	chat := codec.Escape(run.ChatID)
	i.chats = append(i.chats, chat)
	i.count.Queued++
	aside := i.asideOf(record)
	rows.queue = append(rows.queue, []any{[16]byte(id), i.seq, chat, aside.isAside, kind, codec.Escape(run.Hook), codec.Escape(run.Runner),
		run.AcceptedAt, expires,
		int32(record.Attempts), window, int32(foldMax), alike, int32(len(run.Message)), !run.NewChat, owner, codec.EscapeOrNull(run.RequestID),
		encoded, aside.question, aside.asked, aside.due, aside.reason})
	return nil
}

// kindOf is the number of the kind of a run.
func (i *importing) kindOf(ctx context.Context, run *engine.Run) (int32, error) {
	key := [2]string{codec.Escape(run.Runner), codec.Escape(run.Hook)}
	kind, known := i.kinds[key]
	if !known {
		err := i.tx.QueryRow(ctx, "SELECT o_kind FROM kinds_1($1, $2)", []string{key[0]}, []string{key[1]}).Scan(&kind)
		if err != nil {
			return 0, err
		}
		i.kinds[key] = kind
	}
	return kind, nil
}

func (i *importing) addEnded(rows *importedRows, id uuid.UUID, record *engine.Record) error {
	run := record.Run
	encoded, err := codec.EncodeRun(run.Kept())
	if err != nil {
		return err
	}
	var started, foldedInto, againAs, ending any
	if !record.StartedAt.IsZero() {
		started = record.StartedAt
	}
	if record.FoldedInto == "" {
		if ending, err = codec.EncodeEnding(&record.Outcome, record.Steps); err != nil {
			return err
		}
	} else if foldedInto, err = uuidOf(record.FoldedInto); err != nil {
		return err
	}
	if record.AgainAs != "" {
		if againAs, err = uuidOf(record.AgainAs); err != nil {
			return err
		}
	}
	i.count.Ended++
	rows.done = append(rows.done, []any{[16]byte(id), i.seq, codec.Escape(run.ChatID), codec.Escape(run.Hook), codec.Escape(run.Runner),
		string(record.Status),
		run.AcceptedAt, started, record.FinishedAt, int32(record.Attempts), !run.NewChat, record.IsPastTurn(), foldedInto, int32(record.Folded),
		againAs, codec.EscapeOrNull(run.RequestID), encoded, ending})
	if record.Kept == engine.KeptNothing {
		return nil
	}
	input := engine.Input{Message: run.Message, Metadata: run.Metadata, Schema: run.Schema, Cut: record.Kept == engine.KeptCut}
	text, err := codec.EncodeInput(input)
	if err != nil {
		return err
	}
	i.input += int64(input.Size())
	i.count.History++
	rows.input = append(rows.input, []any{[16]byte(id), record.FinishedAt, record.FinishedAt.Add(run.History), int32(input.Size()), text})
	return nil
}

func uuidOf(id string) ([16]byte, error) {
	parsed, err := uuid.Parse(id)
	return parsed, err
}
