package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/walks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) List(ctx context.Context, query engine.Query) ([]*engine.Record, string, error) {
	plan, any, err := s.plan(&query)
	if err != nil || !any || query.Limit <= 0 {
		return nil, "", err
	}
	var page []*engine.Record
	var next string
	words := query.Words()
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		runs := plan.walk(tx)
		begin := plan.order.Begin()
		runs.Seek(begin[:])
		for size := 0; ; runs.Next() {
			if runs.Head() == nil || !plan.order.Has(runs.Head()) {
				next = plan.next
				return nil
			}
			id := uuid.UUID(runs.Head())
			if len(page) == query.Limit || plan.effort.Spent() || size > local.ListReads {
				next = plan.order.CursorAt(id)
				return nil
			}
			plan.effort.Spend()
			data := runs.Value()
			if data == nil {
				data = dataOf(tx, id)
			}
			if data == nil {
				continue // it was forgotten, or is not in the file yet
			}
			size += len(data)
			record, err := decodeRun(id, data)
			if err != nil {
				return fmt.Errorf("reading run %s: %w", id, err)
			}
			since := record.Status == "" && !s.describe(id, record)
			if !since && !query.Selects(record) {
				continue
			}
			more, err := complete(tx, id, record, data, &query)
			if err != nil {
				return err
			}
			size += more
			if since || words.In(record) {
				page = append(page, query.Listed(record))
			}
		}
	})
	if err != nil {
		return nil, "", err
	}
	page, err = s.current(ctx, page, &query, words)
	return page, next, err
}

// dataOf is a run as it is in the file, whether it has ended or not, nil if it is not there.
func dataOf(tx *bbolt.Tx, id uuid.UUID) []byte {
	if data := tx.Bucket(endedBucket).Get(id[:]); data != nil {
		return data
	}
	return unfinishedData(tx, id[:])
}

// listPlan is how a list finds its runs.
type listPlan struct {
	query  *engine.Query
	order  local.IDRange
	effort *walks.Effort

	ended, unfinished bool // whether the list may have such runs
	asked             bool // … and whether of unfinished ones only those that have questions

	// Those that have not ended, if memory knows them. Otherwise all have to be looked at.
	known bool
	ids   []uuid.UUID

	next string // the cursor behind the range, if the list goes on there
}

// plan decides where to look for the runs of a list, and reports false if it has none. What is in memory is read before the
// file: a run that ends in between is found among those that have ended.
func (s runs) plan(query *engine.Query) (*listPlan, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order, any, err := local.RangeOf(query, s.idsAhead)
	p := &listPlan{query: query, order: order, effort: &walks.Effort{Left: local.ListLooksAt}}
	if err != nil || !any {
		return p, false, err
	}
	all := len(query.Statuses) == 0
	queued, running, waiting := slices.Contains(query.Statuses, engine.Queued), slices.Contains(query.Statuses, engine.Running),
		slices.Contains(query.Statuses, engine.Waiting)
	p.ended = all || slices.ContainsFunc(query.Statuses, engine.Status.Ended)
	p.unfinished = all || queued || running || waiting
	p.asked = waiting && !queued && !running
	switch {
	case !p.unfinished, query.RequestID != "":
		return p, true, nil
	case query.ChatID != "":
		p.known, p.ids = true, s.queue.InChat(query.ChatID)
	case p.asked:
		return p, true, nil
	case running && !queued && !waiting:
		p.known, p.ids = true, s.queue.ClaimedIDs()
	case len(query.Hooks) > 0:
		p.known, p.ids = true, s.queue.OfHooks(query.Hooks, &order, p.unfinishedAtOnce()+1)
		p.endBefore(p.unfinishedAtOnce())
	default:
		return p, true, nil
	}
	for id := range s.ending { // they are no longer in the queue, and still in the file as if they were
		p.ids = append(p.ids, id)
	}
	return p, true, nil
}

// unfinishedAtOnce is how many unfinished runs of its hooks a page looks at. Most of them are listed, unless it is a search.
func (p *listPlan) unfinishedAtOnce() int {
	const others = 100 // that are just being written, or were claimed
	if p.query.Text != "" {
		return local.ListLooksAt
	}
	return min(p.query.Limit+others, local.ListLooksAt)
}

// endBefore has the page end before the unfinished run after so many, if there is one, and the list go on with it.
func (p *listPlan) endBefore(most int) {
	if len(p.ids) <= most {
		return
	}
	p.next = p.order.CursorAt(p.ids[most])
	p.order.EndBefore(p.ids[most])
	p.ids = p.ids[:most]
}

// walk goes over all runs that the list can have, and over few others.
func (p *listPlan) walk(tx *bbolt.Tx) walks.Walk {
	if request := p.query.RequestID; request != "" {
		return walks.Over(tx, byRequestBucket, digest(request), &p.order)
	}
	runs := walks.NewAny(&p.order)
	if p.ended {
		runs.Walks = append(runs.Walks, p.endedWalk(tx))
	}
	switch {
	case p.known:
		runs.Walks = append(runs.Walks, walks.NewList(p.ids, &p.order))
	case p.asked:
		runs.Walks = append(runs.Walks, walks.Keys{Bucket: walks.Over(tx, askedBucket, nil, &p.order)})
	case p.unfinished:
		runs.Walks = append(runs.Walks, walks.Over(tx, runsBucket, nil, &p.order),
			walks.Keys{Bucket: walks.Over(tx, askedBucket, nil, &p.order)})
	}
	if len(runs.Walks) == 1 {
		return runs.Walks[0]
	}
	return runs
}

// endedWalk goes over runs that have ended, by as many indexes as there are for the query.
func (p *listPlan) endedWalk(tx *bbolt.Tx) walks.Walk {
	index := func(bucket []byte, values ...string) walks.Walk {
		all := walks.NewAny(&p.order)
		for _, value := range values {
			all.Walks = append(all.Walks, walks.Over(tx, bucket, digest(value), &p.order))
		}
		if len(all.Walks) == 1 {
			return all.Walks[0]
		}
		return all
	}
	var found []walks.Walk
	if chat := p.query.ChatID; chat != "" {
		found = append(found, p.chatWalk(tx))
	}
	if len(p.query.Statuses) > 0 && !slices.Contains(p.query.Statuses, engine.Completed) {
		var statuses []string
		for _, status := range p.query.Statuses {
			statuses = append(statuses, string(status))
		}
		found = append(found, index(notableBucket, statuses...))
	}
	if len(p.query.Hooks) > 0 {
		found = append(found, index(byHookBucket, p.query.Hooks...))
	}
	var old walks.Walk
	switch len(found) {
	case 0:
		return walks.Over(tx, endedBucket, nil, &p.order)
	case 1:
		old = found[0]
	default:
		old = walks.All{Walks: found, Order: &p.order, Effort: p.effort}
	}
	return walks.NewAny(&p.order, old, newRunsWalk(tx, p.query, &p.order, p.effort))
}

// newRunsWalk goes over the runs that have ended, are in no index yet, and can be in a list.
func newRunsWalk(tx *bbolt.Tx, query *engine.Query, order *local.IDRange, e *walks.Effort) walks.Walk {
	w := walks.NewList(newRunsOf(tx), order)
	w.Effort = e
	ended := tx.Bucket(endedBucket)
	w.Test = func(id uuid.UUID) bool { return mayBeIn(ended.Get(id[:]), query) }
	return w
}

// chatWalk goes over the runs of a chat that have ended.
func (p *listPlan) chatWalk(tx *bbolt.Tx) walks.Walk {
	named := newSegmentsWalk(tx, p.query.ChatID, &p.order)
	first, last, ok := local.FreshRange(p.query.ChatID)
	if !ok {
		return named
	}
	within := local.IDRange{First: first, Last: last, Descending: p.order.Descending}
	return walks.NewAny(&p.order, named, freshWalk(tx, p.query.ChatID, within, p.effort))
}

// freshWalk looks for the run for which a chat was made.
func freshWalk(tx *bbolt.Tx, chat string, within local.IDRange, e *walks.Effort) *walks.Tested {
	w := &walks.Tested{Within: within, Effort: e, Test: func(data []byte) bool { return textOf(data, runChat) == chat }}
	w.Bucket = *walks.Over(tx, endedBucket, nil, &w.Within)
	return w
}

// textOf reads a single text of a record, without a look at the others.
func textOf(data []byte, of protowire.Number) (text string) {
	_ = uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		if n == of {
			text = f.text()
		}
		return n != of
	})
	return text
}

// current looks again at listed runs that have ended since. What is said about them must not be older than what was said before.
func (s runs) current(ctx context.Context, page []*engine.Record, query *engine.Query, words engine.Words) (current []*engine.Record,
	err error) {
	for _, record := range page {
		if record.Status == "" {
			if record, err = s.Get(ctx, record.Run.ID); errors.Is(err, engine.ErrNotFound) {
				continue
			} else if err != nil {
				return nil, err
			}
			if !query.Selects(record) || !words.In(record) {
				continue
			}
			record = query.Listed(record)
		}
		current = append(current, record)
	}
	return current, nil
}

// wholeRecords is a query for records as a whole.
var wholeRecords = &engine.Query{Input: true, Replies: true, Deliveries: true}

// complete adds to a record what a query wants and what is not in the data of the run itself, and returns how many bytes it
// read for that.
func complete(tx *bbolt.Tx, id uuid.UUID, record *engine.Record, data []byte, query *engine.Query) (size int, err error) {
	ended := record.Outcome.Status != ""
	if query.Input || query.Text != "" {
		if ended {
			err = readInput(tx, id, record)
		} else if hasInputApart(data) {
			var input engine.Input
			if input, err = decodeInput(id, tx.Bucket(inputBucket).Get(id[:])); err != nil {
				err = fmt.Errorf("reading the input of run %s: %w", id, err)
			}
			record.Run.Message, record.Run.Metadata, record.Run.Schema = input.Message, input.Metadata, input.Schema
		}
		size = len(record.Run.Message) + len(record.Run.Metadata) + len(record.Run.Schema)
	}
	if record.FoldedInto != "" && (query.Replies || query.Text != "") {
		size += readAnswer(tx, record)
	}
	if query.Replies && ended && err == nil {
		record.AgainAs, err = againAs(tx, id)
	}
	if query.Deliveries && err == nil && (ended || tx.Bucket(askedBucket).Get(id[:]) != nil) {
		record.Deliveries, err = deliveriesOf(tx, id)
	}
	return size, err
}

// readAnswer completes the record of a run that was folded into another one with the texts of that one's end, and returns how many
// bytes these have. When that one is forgotten or damaged, there is no answer any more.
func readAnswer(tx *bbolt.Tx, record *engine.Record) (size int) {
	first, _ := local.ParseID(record.FoldedInto)
	data := tx.Bucket(endedBucket).Get(first[:])
	leader, err := decodeRun(first, data)
	if err != nil {
		record.Outcome.HasText = false
		return 0
	}
	outcome, account := &record.Outcome, &leader.Outcome.Account
	outcome.Text, outcome.JSON, record.Steps = leader.Outcome.Text, leader.Outcome.JSON, leader.Steps
	outcome.Account.LastAnswer, outcome.Account.ValidationErrors = account.LastAnswer, account.ValidationErrors
	outcome.Account.Permissions, outcome.Account.MorePermissions = account.Permissions, account.MorePermissions
	return len(data)
}

// newestFirst walks over what is in some buckets, from the greatest key that is less than cursor, if there is one.
func newestFirst(tx *bbolt.Tx, cursor []byte, buckets ...[]byte) func() (key, value []byte) {
	type walk struct {
		*bbolt.Cursor
		key, value []byte
	}
	var walks []*walk
	for _, bucket := range buckets {
		w := &walk{Cursor: tx.Bucket(bucket).Cursor()}
		walks = append(walks, w)
		if cursor != nil {
			if key, _ := w.Seek(cursor); key != nil {
				w.key, w.value = w.Prev()
				continue
			}
		}
		w.key, w.value = w.Last()
	}
	return func() (key, value []byte) {
		newest := walks[0]
		for _, w := range walks[1:] {
			if bytes.Compare(w.key, newest.key) > 0 {
				newest = w
			}
		}
		key, value = newest.key, newest.value
		if key != nil {
			newest.key, newest.value = newest.Prev()
		}
		return key, value
	}
}
