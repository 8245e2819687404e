package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) List(_ context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order, any, err := local.RangeOf(&query, s.indexes.ahead)
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	words := query.Words()
	ids := &merge{lists: s.narrowest(&query), order: &order}
	ids.start()
	looked, size := 0, 0
	for id, ok := ids.next(); ok; id, ok = ids.next() {
		if len(page) == query.Limit || looked == local.ListLooksAt || size > local.ListReads {
			return page, order.CursorAt(id), nil
		}
		looked++
		if !query.Selects(s.show(id)) {
			continue
		}
		record := s.whole(id)
		if query.Text != "" || query.Input {
			size += len(record.Run.Message) + len(record.Run.Metadata) + len(record.Run.Schema)
		}
		if query.Text != "" || query.Replies {
			size += len(record.Outcome.Text) + len(record.Outcome.JSON)
		}
		if words.In(record) {
			page = append(page, query.Listed(record))
		}
	}
	return page, "", nil
}

// narrowest are the lists that have all runs of a query, and the fewest others.
func (d *Data) narrowest(query *engine.Query) []idList {
	best, fewest := []idList{d.order}, len(d.order)
	offer := func(lists []idList) {
		n := 0
		for _, l := range lists {
			n += len(l)
		}
		if n < fewest {
			best, fewest = lists, n
		}
	}
	if len(query.Hooks) > 0 {
		offer(pick(d.indexes.hooks, query.Hooks))
	}
	if len(query.Statuses) > 0 && !slices.ContainsFunc(query.Statuses,
		func(s engine.Status) bool { return !s.Ended() || s == engine.Completed }) {
		offer(pick(d.indexes.notable, query.Statuses))
	}
	if query.RequestID != "" {
		offer(pick(d.indexes.requests, []string{query.RequestID}))
	}
	if query.ChatID != "" {
		if c := d.indexes.chats[query.ChatID]; c != nil {
			offer([]idList{c.runs})
		} else {
			offer(nil)
		}
	}
	return best
}

func pick[K comparable](lists map[K]*idList, keys []K) (picked []idList) {
	for i, key := range keys {
		if l := lists[key]; l != nil && !slices.Contains(keys[:i], key) {
			picked = append(picked, *l)
		}
	}
	return picked
}

// merge goes over the ids of several lists that are in a range, in its order. No id is in two lists.
type merge struct {
	lists []idList
	order *local.IDRange
}

// start cuts the lists to the range.
func (m *merge) start() {
	for i, l := range m.lists {
		from, _ := l.find(m.order.First)
		to, there := l.find(m.order.Last)
		if there {
			to++
		}
		m.lists[i] = l[from:max(from, to)]
	}
}

func (m *merge) next() (id uuid.UUID, ok bool) {
	best := -1
	for i, l := range m.lists {
		if len(l) > 0 && (best < 0 || m.order.IsBefore(m.head(i)[:], m.head(best)[:])) {
			best = i
		}
	}
	if best < 0 {
		return id, false
	}
	id = *m.head(best)
	if l := m.lists[best]; m.order.Descending {
		m.lists[best] = l[:len(l)-1]
	} else {
		m.lists[best] = l[1:]
	}
	return id, true
}

func (m *merge) head(i int) *uuid.UUID {
	if l := m.lists[i]; m.order.Descending {
		return &l[len(l)-1]
	}
	return &m.lists[i][0]
}

func (s runs) Chats(_ context.Context, query engine.ChatQuery) (page []*engine.ChatSummary, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order, any, err := local.RangeOf(&engine.Query{Since: query.Since, Cursor: query.Cursor}, 0)
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	for place := s.indexes.active.Front(); place != nil; place = place.Next() {
		c := place.Value.(*chat)
		last := *c.last()
		if bytes.Compare(last[:], order.Last[:]) > 0 {
			continue // on an earlier page
		}
		if !order.Has(last[:]) {
			break
		}
		if !query.SelectsID(c.id) || !query.Selects(s.show(last)) {
			continue
		}
		if len(page) == query.Limit {
			return page, order.CursorAt(last), nil
		}
		page = append(page, &engine.ChatSummary{ChatID: c.id, Runs: len(c.runs), Last: query.Listed(s.whole(last))})
	}
	return page, "", nil
}
