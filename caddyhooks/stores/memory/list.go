package memory

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) List(_ context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if query.Limit <= 0 {
		return nil, "", nil
	}
	if query.OldestFirst {
		return s.listOldestFirst(query)
	}
	end := len(s.order)
	if query.Cursor != "" {
		cursor, ok := local.ParseID(query.Cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		end = s.olderThan(cursor)
	}
	words := query.Words()
	for i, looked := end-1, 0; i >= 0; i, looked = i-1, looked+1 {
		if len(page) == query.Limit || looked == local.ListLooksAt {
			return page, s.order[i+1].String(), nil
		}
		page = s.look(page, s.order[i], &query, words)
	}
	return page, "", nil
}

// look adds a run to a page if it is there and the query is about it.
func (d *Data) look(page []*engine.Record, id uuid.UUID, query *engine.Query, words engine.Words) []*engine.Record {
	if d.runs[id] == nil || !query.Selects(d.show(id)) {
		return page
	}
	record := d.whole(id)
	if !words.In(record) {
		return page
	}
	return append(page, query.Listed(record))
}

func (s runs) Chats(_ context.Context, query engine.ChatQuery) (page []*engine.ChatSummary, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := local.ParseID(query.Cursor); !ok && query.Cursor != "" {
		return nil, "", engine.ErrCursor
	}
	if query.Limit <= 0 {
		return nil, "", nil
	}
	var all []*engine.ChatSummary
	byID := make(map[string]*engine.ChatSummary)
	for _, id := range slices.Backward(s.order) {
		if s.runs[id] == nil {
			continue
		}
		record := s.show(id)
		chat := byID[record.Run.ChatID]
		if chat == nil {
			chat = &engine.ChatSummary{ChatID: record.Run.ChatID, Last: record}
			byID[record.Run.ChatID] = chat
			all = append(all, chat)
		}
		chat.Runs++
	}
	for _, chat := range all {
		if chat.Runs == 1 && chat.Last.Run.NewChat || query.Cursor != "" && chat.Last.Run.ID >= query.Cursor || !query.Selects(chat.Last) {
			continue
		}
		if len(page) == query.Limit {
			return page, page[len(page)-1].Last.Run.ID, nil
		}
		id, _ := local.ParseID(chat.Last.Run.ID)
		chat.Last = query.Listed(s.whole(id))
		page = append(page, chat)
	}
	return page, "", nil
}
