package imports

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// importedRows are rows that are copied into the tables together.
type importedRows struct{ queue, done, input, delivery, news, question [][]any }

// importedColumns are the columns that such rows fill in, in their order.
var importedColumns = map[string][]string{
	"queue": strings.Fields(`id seq chat head kind hook runner accepted_at expires_at starts fold_window fold_max alike size named
		owner request run question asked due_at waiting_for`),
	"done": strings.Fields(`id seq chat hook runner status accepted_at started_at finished_at attempts named past folded_into folded
		again_as request run ending`),
	"told":          strings.Fields(`id at until bytes told`),
	"delivery":      strings.Fields(`run index seq host chat status created_at due ready_at tried_at record body`),
	"delivery_news": strings.Fields(`seq host chat`),
	"question":      strings.Fields(`run number people asked_at answered_at record answer state`),
	"key":           strings.Fields(`id body at run first`),
	"gate":          strings.Fields(`id until run state`),
	"ledger":        strings.Fields(`account start_at part span keep until runs has_tokens has_cost input output cached reasoning cost`),
}

func (r *importedRows) write(ctx context.Context, tx pgx.Tx) error {
	for _, part := range []struct {
		table string
		rows  [][]any
	}{{"queue", r.queue}, {"done", r.done}, {"told", r.input}, {"delivery", r.delivery}, {"delivery_news", r.news}, {"question", r.question}} {
		if err := copyRows(ctx, tx, part.table, part.rows); err != nil {
			return err
		}
	}
	return nil
}

func copyRows(ctx context.Context, tx pgx.Tx, table string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, importedColumns[table], pgx.CopyFromRows(rows))
	if err != nil {
		return fmt.Errorf("writing to %s: %w", table, err)
	}
	return nil
}

// addDelivery makes rows of a delivery. One that was under way is due again.
func (i *importing) addDelivery(rows *importedRows, run uuid.UUID, d *engine.Delivery) error {
	record, err := codec.EncodeDelivery(d)
	if err != nil {
		return err
	}
	to := d.Destination()
	host := codec.Escape(to.Host)
	var chat, tried, ready, body any
	if to.Chat != "" {
		chat = codec.Escape(to.Chat)
	}
	if !d.TriedAt.IsZero() {
		tried = d.TriedAt
	}
	if d.Status != engine.Delivered {
		body = []byte(d.Body)
	}
	due := d.Due
	if due.IsZero() {
		due = d.CreatedAt
	}
	i.count.Deliveries++
	switch d.Status {
	case engine.Pending:
		if chat == nil {
			ready = due
		}
		i.pending++
		rows.news = append(rows.news, []any{i.nextDelivery(), host, chat})
	case engine.Dead:
		i.dead++
	}
	rows.delivery = append(rows.delivery, []any{[16]byte(run), int32(d.Index), i.nextDelivery(), host, chat, string(d.Status), d.CreatedAt,
		due, ready, tried,
		record, body})
	return nil
}

func (i *importing) nextDelivery() int64 {
	i.deliverySeq++
	return i.deliverySeq
}

func (i *importing) copyKeys(ctx context.Context) error {
	if from, ok := i.from.(keyStore); ok {
		clear(i.keys)
		err := from.EachKey(ctx, func(key engine.Key, first *engine.Run) {
			id, _ := uuid.Parse(first.ID) // which the store made
			i.keys[key.ID] = keyRow{key.Body, first.AcceptedAt, id, codec.EncodeFirst(first)}
		})
		if err != nil {
			return fmt.Errorf("reading the keys: %w", err)
		}
	}
	i.count.Keys = len(i.keys)
	var rows [][]any
	for id, key := range i.keys {
		rows = append(rows, []any{id[:], key.body[:], key.at, [16]byte(key.run), key.first})
	}
	return copyRows(ctx, i.tx, "key", rows)
}

func (i *importing) copyGates(ctx context.Context) error {
	from, ok := i.from.(gateStore)
	if !ok {
		return nil
	}
	var rows [][]any
	err := from.EachGate(ctx, func(id [32]byte, state gate.State) {
		var run any
		if first, err := uuidOf(state.First.RunID); err == nil {
			run = first
		}
		rows = append(rows, []any{id[:], state.Until, run, state.Encode()})
	})
	if err != nil {
		return fmt.Errorf("reading the gates: %w", err)
	}
	return copyRows(ctx, i.tx, "gate", rows)
}

// copySessions asks for the sessions that runs may have. The other store has no list of them.
func (i *importing) copySessions(ctx context.Context) error {
	var runners, chats, ids []string
	for pair := range i.sessions {
		runner, chat := pair[0], pair[1]
		id, err := i.from.Sessions().Get(ctx, runner, chat)
		if err != nil {
			return fmt.Errorf("reading the session of a chat: %w", err)
		}
		if id != "" {
			runners, chats, ids = append(runners, codec.Escape(runner)), append(chats, codec.Escape(chat)), append(ids, codec.Escape(id))
		}
	}
	i.count.Sessions = len(ids)
	_, err := i.tx.Exec(ctx, "SELECT set_sessions_1($1, $2, $3)", runners, chats, ids)
	return err
}

func (i *importing) copyMinutes(ctx context.Context) error {
	minutes, err := i.from.Minutes().Load(ctx, time.Time{})
	if err != nil {
		return fmt.Errorf("reading the minutes: %w", err)
	}
	i.count.Minutes = len(minutes)
	for n := range minutes {
		counted, err := codec.EncodeMinute(&minutes[n])
		if err != nil {
			return err
		}
		// Minutes of the same time may be of several nodes, whose names are not known any more.
		if _, err := i.tx.Exec(ctx, "INSERT INTO minute (at, node, part, counted) VALUES ($1, $2, $3, $4)",
			minutes[n].At, fmt.Sprint("imported ", n), int64(minutes[n].Part), counted); err != nil {
			return err
		}
	}
	return nil
}

// copyLedger copies what runs cost.
func (i *importing) copyLedger(ctx context.Context) error {
	entries, _, err := i.from.Ledger().Spent(ctx, "", 10*365*24*time.Hour)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	var rows [][]any
	for n := range entries {
		e := &entries[n]
		use := &e.Use
		rows = append(rows, []any{e.Account, e.Start, 0, e.Span.Microseconds(), e.Keep.Microseconds(), e.KeptUntil(), e.Runs, use.HasTokens,
			use.HasCost, use.Input, use.Output, use.Cached, use.Reasoning, use.Cost})
	}
	return copyRows(ctx, i.tx, "ledger", rows)
}

// copySettings copies the live settings, with the changes that led to them.
func (i *importing) copySettings(ctx context.Context) error {
	settings, revision, err := i.from.Settings().Load(ctx)
	if err != nil {
		return fmt.Errorf("reading the live settings: %w", err)
	}
	if revision == 0 {
		return nil
	}
	i.count.Revision = revision
	if _, err := i.tx.Exec(ctx, "UPDATE settings SET revision = $1, body = $2", revision, settings); err != nil {
		return err
	}
	for cursor := ""; ; {
		changes, next, err := i.from.Settings().Changes(ctx, 100, cursor)
		if err != nil {
			return fmt.Errorf("reading the changes of the live settings: %w", err)
		}
		i.count.Changes += len(changes)
		for _, change := range changes {
			if _, err := i.tx.Exec(ctx, "INSERT INTO settings_change (revision, at, description) VALUES ($1, $2, $3)",
				change.Revision, change.At, change.Description); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		cursor = next
	}
}

// copyDocuments copies documents, whose revisions begin anew.
func (i *importing) copyDocuments(ctx context.Context) error {
	documents, err := i.from.Documents().Load(ctx, "")
	if err != nil {
		return fmt.Errorf("reading the documents: %w", err)
	}
	for _, d := range documents {
		if _, err := i.tx.Exec(ctx, "INSERT INTO document (kind, name, revision, value) VALUES ($1, $2, 1, $3)",
			codec.Escape(d.Kind), codec.Escape(d.Name), d.Value); err != nil {
			return err
		}
	}
	return nil
}
