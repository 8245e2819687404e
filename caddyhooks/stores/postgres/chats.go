package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

const (
	chatLooks   = 2_000  // runs that are looked at for a step of a page of chats
	chatSteps   = 5      // of which a page has so many at most
	fewChats    = 2_000  // so many chats can be looked at one by one
	chatsAtOnce = 500    // chats whose ids are looked at for a text in one step
	countedRuns = 10_000 // more runs of a chat are not counted
)

func (r *runs) Chats(ctx context.Context, query engine.ChatQuery) (page []*engine.ChatSummary, next string, err error) {
	order, any, err := idRange(&engine.Query{Since: query.Since, Cursor: query.Cursor})
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	l := &chatListing{runs: r, query: &query, order: order}
	for step := range chatSteps {
		few := 0
		if step == 0 {
			few = fewChats
		}
		newest, err := l.find(ctx, few)
		if err == nil {
			err = l.show(ctx, newest)
		}
		if err != nil {
			return nil, "", err
		}
		if l.next == "" || len(l.page) == query.Limit || l.size > local.ListReads {
			break
		}
		if l.order, any, err = idRange(&engine.Query{Since: query.Since, Cursor: l.next}); err != nil || !any {
			return l.page, "", err
		}
	}
	return l.page, l.next, nil
}

// chatListing is a page of chats while it is made.
type chatListing struct {
	*runs
	query *engine.ChatQuery
	order local.IDRange
	size  int

	page []*engine.ChatSummary
	next string // where the list goes on
}

// find looks for chats that belong on the page, and returns the ids of their newest runs. It may look at each chat if they are so few.
func (l *chatListing) find(ctx context.Context, few int) (newest []string, err error) {
	room := l.query.Limit - len(l.page)
	most := room
	if l.query.Text != "" {
		most = chatsAtOnce
	}
	l.next = ""
	var place int64
	var id string
	var chat *string
	err = l.runs.query(ctx, func(row pgx.Rows) error {
		if err := row.Scan(&place, &id, &chat); err != nil || l.next != "" {
			return err
		}
		switch {
		case place < 0:
			l.next = id
		case place == 0 || len(newest) == room:
			return l.goOnWith(id)
		case l.query.SelectsID(codec.Unescape(textOrEmpty(chat))):
			newest = append(newest, id)
		}
		return nil
	}, "SELECT place, id, chat FROM @.list_chats_1($1, $2, $3, $4, $5)", l.order.First.String(), l.order.Last.String(), most, chatLooks, few)
	return newest, err
}

// goOnWith has the list go on with the chat that has a run.
func (l *chatListing) goOnWith(id string) error {
	parsed, err := uuid.Parse(id)
	l.next = l.order.CursorAt(parsed)
	return err
}

// show adds chats to the page.
func (l *chatListing) show(ctx context.Context, newest []string) error {
	if len(newest) == 0 {
		return nil
	}
	full := false
	return l.runs.query(ctx, func(row pgx.Rows) error {
		var shown shownRun
		runs := 0
		if err := row.Scan(append(shown.columns(), &runs)...); err != nil || full {
			return err
		}
		if full = shown.run == nil; full {
			return l.goOnWith(shown.id)
		}
		l.size += shown.size()
		last, err := shown.record()
		if err == nil && l.query.Selects(last) {
			l.page = append(l.page, &engine.ChatSummary{ChatID: last.Run.ChatID, Runs: runs, Last: l.query.Listed(last)})
		}
		return err
	}, "SELECT "+shownColumns+", runs FROM @.show_chats_1($1, $2, $3, $4)", newest, l.query.Input, listedBytes, countedRuns)
}
