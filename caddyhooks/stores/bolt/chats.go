package bolt

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/walks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Chats goes over the newest runs of chats that have ended and over all runs that have not, the newest first, and takes each
// chat where it comes first. A chat that has a run before the cursor belongs on an earlier page.
func (s runs) Chats(ctx context.Context, query engine.ChatQuery) ([]*engine.ChatSummary, string, error) {
	order, any, err := local.RangeOf(&engine.Query{Since: query.Since, Cursor: query.Cursor}, 0)
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	list := &chatList{store: s.store, query: &query, order: order, effort: walks.Effort{Left: local.ListLooksAt}, seen: make(map[string]bool)}
	err = s.view(ctx, list.read)
	if err == nil && query.Cursor != "" {
		// What memory says is newer than what was read of the file, so runs can have ended unseen.
		err = s.view(ctx, list.leaveOutMoved)
	}
	if err != nil {
		return nil, "", err
	}
	page, err := s.currentChats(ctx, list.page, &query)
	return page, list.next, err
}

// chatList is a page of the list of chats while it is made.
type chatList struct {
	*store
	query  *engine.ChatQuery
	order  local.IDRange
	effort walks.Effort
	seen   map[string]bool
	size   int
	page   []*engine.ChatSummary
	next   string

	added map[string]chatRecord // of runs that have ended and that the records of their chats do not count yet
}

func (l *chatList) read(tx *bbolt.Tx) error {
	tested := func(bucket []byte, test func(data []byte) bool) walks.Walk {
		return &walks.Tested{Bucket: *walks.Over(tx, bucket, nil, &l.order), Within: l.order, Effort: &l.effort, Test: test}
	}
	l.added = addedToChats(tx)
	var newest []uuid.UUID
	for _, chat := range l.added {
		if chat.last != uuid.Nil {
			newest = append(newest, chat.last)
		}
	}
	chats := walks.NewAny(&l.order, walks.Over(tx, chatsByTimeBucket, nil, &l.order), walks.NewList(newest, &l.order),
		tested(runsBucket, mayBeNamed),
		tested(askedBucket, func(asked []byte) bool { return mayBeNamed(asideRunOf(asked)) }))
	begin := l.order.Begin()
	for chats.Seek(begin[:]); chats.Head() != nil && l.order.Has(chats.Head()); chats.Next() {
		id := uuid.UUID(chats.Head())
		if len(l.page) == l.query.Limit || l.effort.Spent() || l.size > local.ListReads {
			l.next = l.order.CursorAt(id)
			return nil
		}
		l.effort.Spend()
		if err := l.look(tx, id); err != nil {
			return err
		}
	}
	return nil
}

// addedToChats are the runs that the records of their chats do not count yet.
func addedToChats(tx *bbolt.Tx) map[string]chatRecord {
	added := make(map[string]chatRecord)
	for _, id := range newRunsOf(tx) {
		if run, ok := readEnded(tx, id); ok && run.counted {
			chat := added[run.chat]
			chat.add(&run)
			added[run.chat] = chat
		}
	}
	return added
}

// mayBeNamed reports whether the chat of a run was not made for it.
func mayBeNamed(data []byte) bool {
	fresh := false
	_ = uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		fresh = n == runNewChat && f.flag()
		return !fresh
	})
	return !fresh
}

// look adds the chat of a run to the page if the run is its newest one.
func (l *chatList) look(tx *bbolt.Tx, id uuid.UUID) error {
	data := dataOf(tx, id)
	name := textOf(data, runChat)
	if l.seen[name] || !l.query.SelectsID(name) {
		return nil
	}
	if data == nil {
		return nil // it was forgotten
	}
	record, err := decodeRun(id, data)
	if err != nil {
		return fmt.Errorf("reading run %s: %w", id, err)
	}
	key := chatKey(name)
	chat := decodeChat(key, tx.Bucket(chatsBucket).Get(key))
	chat.join(l.added[name])
	ended := record.Status != ""
	if !local.IsNamed(record.Run) || ended && chat.last != id || bytes.Compare(chat.last[:], id[:]) > 0 {
		return nil
	}
	newest, unfinished := l.unfinishedOf(tx, name)
	if l.query.Cursor != "" && unfinished > 0 && bytes.Compare(newest[:], l.order.Last[:]) > 0 {
		return nil
	}
	l.seen[name] = true
	if !ended {
		l.describe(id, record)
	}
	if record.Status != "" && !l.query.Selects(record) {
		return nil
	}
	l.size += len(data)
	if l.query.Input {
		size, err := complete(tx, id, record, data, &engine.Query{Input: true})
		if err != nil {
			return err
		}
		l.size += size
	}
	runs := chat.runs + unfinished + freshRuns(tx, name, &l.effort)
	l.page = append(l.page, &engine.ChatSummary{ChatID: name, Runs: max(runs, 1), Last: l.query.Listed(record)})
	return nil
}

// unfinishedOf is the newest run of a chat that memory has, and how many it has. An end that is in the file may still be under way there.
func (l *chatList) unfinishedOf(tx *bbolt.Tx, chat string) (newest uuid.UUID, runs int) {
	l.mu.Lock()
	newest, runs = l.queue.NewestIn(chat)
	var ending []uuid.UUID
	for id, place := range l.ending {
		if place.Run.ChatID == chat {
			ending = append(ending, id)
		}
	}
	l.mu.Unlock()
	for _, id := range ending {
		if _, ended := readEnded(tx, id); ended {
			continue
		}
		runs++
		if bytes.Compare(id[:], newest[:]) > 0 {
			newest = id
		}
	}
	return newest, runs
}

// freshRuns is 1 if the id of a chat leads to a run that has ended, and 0 otherwise. The record of the chat does not count it.
func freshRuns(tx *bbolt.Tx, chat string, e *walks.Effort) int {
	first, last, ok := local.FreshRange(chat)
	if !ok {
		return 0
	}
	runs := freshWalk(tx, chat, local.IDRange{First: first, Last: last}, e)
	for runs.Seek(first[:]); runs.Head() != nil && !e.Spent(); runs.Next() {
		if run, ok := readEnded(tx, uuid.UUID(runs.Head())); ok && run.byTime && run.chat == chat {
			return 1
		}
	}
	return 0
}

// leaveOutMoved takes chats off the page that are on an earlier one now.
func (l *chatList) leaveOutMoved(tx *bbolt.Tx) error {
	added := addedToChats(tx)
	stayed := l.page[:0]
	for _, summary := range l.page {
		key := chatKey(summary.ChatID)
		chat := decodeChat(key, tx.Bucket(chatsBucket).Get(key))
		chat.join(added[summary.ChatID])
		if bytes.Compare(chat.last[:], l.order.Last[:]) <= 0 {
			stayed = append(stayed, summary)
		}
	}
	l.page = stayed
	return nil
}

// currentChats looks again at runs that have ended since, as a list of runs does.
func (s runs) currentChats(ctx context.Context, page []*engine.ChatSummary, query *engine.ChatQuery) (current []*engine.ChatSummary,
	err error) {
	for _, chat := range page {
		last, err := s.current(ctx, []*engine.Record{chat.Last}, &engine.Query{Input: query.Input}, nil)
		if err != nil {
			return nil, err
		}
		if len(last) == 1 && query.Selects(last[0]) {
			chat.Last = last[0]
			current = append(current, chat)
		}
	}
	return current, nil
}
