package bolt

import (
	"context"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) Chats(ctx context.Context, query engine.ChatQuery) (page []*engine.ChatSummary, next string, err error) {
	if _, ok := local.ParseID(query.Cursor); !ok && query.Cursor != "" {
		return nil, "", engine.ErrCursor
	}
	if query.Limit <= 0 {
		return nil, "", nil
	}
	var all []*engine.ChatSummary
	byID := make(map[string]*engine.ChatSummary)
	for runs := (engine.Query{Limit: 1000, Told: query.Told}); ; runs.Cursor = next {
		var records []*engine.Record
		if records, next, err = s.List(ctx, runs); err != nil {
			return nil, "", err
		}
		for _, record := range records {
			chat := byID[record.Run.ChatID]
			if chat == nil {
				chat = &engine.ChatSummary{ChatID: record.Run.ChatID, Last: record}
				byID[record.Run.ChatID] = chat
				all = append(all, chat)
			}
			chat.Runs++
		}
		if next == "" {
			break
		}
	}
	for _, chat := range all {
		if chat.Runs == 1 && chat.Last.Run.NewChat || query.Cursor != "" && chat.Last.Run.ID >= query.Cursor || !query.Selects(chat.Last) {
			continue
		}
		if len(page) == query.Limit {
			return page, page[len(page)-1].Last.Run.ID, nil
		}
		page = append(page, chat)
	}
	return page, "", nil
}
