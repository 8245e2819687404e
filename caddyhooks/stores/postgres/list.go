package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

const (
	// idsOff is by how much the time in the id of a run may differ from the time of its acceptance: nodes make ids by what they know of the
	// database's clock.
	idsOff = time.Second
	// searchedAtOnce is how many runs a search reads at once. Most of them are not what it looks for.
	searchedAtOnce = 200
	// listedBytes is after how many bytes of texts the database gives out no more at once, as far as it knows without reading them.
	listedBytes = 4 << 20
)

func (r *runs) List(ctx context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	order, any, err := idRange(&query)
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	l := &listing{query: &query, words: query.Words(), order: order, looks: local.ListLooksAt}
	for {
		goesOn, err := l.read(ctx, r)
		if err != nil {
			return nil, "", err
		}
		if !goesOn {
			return l.page, "", nil
		}
		if len(l.page) == query.Limit || l.looks <= 0 || l.size > local.ListReads {
			return l.page, l.next, nil
		}
	}
}

// idRange is local.RangeOf, with room for ids whose time is not quite that of the acceptance.
func idRange(query *engine.Query) (order local.IDRange, any bool, err error) {
	wide := *query
	if !wide.Since.IsZero() {
		wide.Since = wide.Since.Add(-idsOff)
	}
	return local.RangeOf(&wide, idsOff)
}

// listing is a page of runs while it is made.
type listing struct {
	query *engine.Query
	words engine.Words
	order local.IDRange
	looks int // entries of indexes that may still be looked at
	size  int // bytes that were read

	page []*engine.Record
	next string // where the list goes on
}

// read adds runs to the page, and reports whether the list goes on after them.
func (l *listing) read(ctx context.Context, r *runs) (goesOn bool, err error) {
	most, texts := l.query.Limit-len(l.page), l.query.Text != ""
	if texts {
		most = searchedAtOnce
	}
	looked := int64(0)
	err = r.query(ctx, func(row pgx.Rows) error {
		var shown shownRun
		if err := row.Scan(append(shown.columns(), &looked)...); err != nil {
			return err
		}
		if goesOn {
			return nil
		}
		switch {
		case shown.place < 0:
			goesOn, l.next = true, shown.id
			return nil
		case shown.run == nil || len(l.page) == l.query.Limit:
			id, err := uuid.Parse(shown.id)
			goesOn, l.next = true, l.order.CursorAt(id)
			return err
		}
		l.size += shown.size()
		record, err := shown.record()
		if err != nil {
			return err
		}
		if l.query.Selects(record) && l.words.In(record) {
			l.page = append(l.page, l.query.Listed(record))
		}
		return nil
	}, "SELECT "+shownColumns+", looked FROM @.list_runs_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		l.order.First.String(), l.order.Last.String(), l.order.Descending, codec.EscapeOrNull(l.query.ChatID),
		textsOrNull(codec.EscapeAll(l.query.Hooks)), textsOrNull(statusTexts(l.query.Statuses)), textsOrNull(codec.EscapeAll(l.query.Runners)),
		codec.EscapeOrNull(l.query.RequestID), most, l.looks,
		l.query.Input || texts, l.query.Replies || texts, l.query.Deliveries,
		listedBytes)
	if err != nil {
		return false, err
	}
	l.looks -= max(int(looked), 1)
	if goesOn {
		at := engine.Query{Cursor: l.next, OldestFirst: l.query.OldestFirst}
		after, any, err := local.RangeOf(&at, 0)
		if err != nil || !any {
			return false, err
		}
		if l.order.Descending {
			l.order.Last = after.Last
		} else {
			l.order.First = after.First
		}
	}
	return goesOn, nil
}

func statusTexts(statuses []engine.Status) (texts []string) {
	for _, status := range statuses {
		texts = append(texts, codec.Escape(string(status)))
	}
	return texts
}

// textsOrNull is nil for none.
func textsOrNull(texts []string) any {
	if len(texts) == 0 {
		return nil
	}
	return texts
}
