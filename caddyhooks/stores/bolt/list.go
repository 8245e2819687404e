package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) List(ctx context.Context, query engine.Query) ([]*engine.Record, string, error) {
	var page []*engine.Record
	var next string
	var cursor []byte
	if query.Cursor != "" {
		id, ok := local.ParseID(query.Cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		cursor = id[:]
	}
	walk := newestFirst
	if query.OldestFirst {
		upTo, err := lastOf(query)
		if err != nil {
			return nil, "", err
		}
		walk = upTo.oldestFirst
	}
	words := query.Words()
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		following := walk(tx, cursor, runsBucket, endedBucket)
		size := 0
		for looked := 0; ; looked++ {
			id, data := following()
			if id == nil {
				next = ""
				return nil
			}
			if len(page) == query.Limit || looked == local.ListLooksAt || size > listReads {
				return nil
			}
			size += len(data)
			next = uuid.UUID(id).String()
			record, err := decodeRun(uuid.UUID(id), data)
			if err != nil {
				return fmt.Errorf("reading run %s: %w", next, err)
			}
			since := record.Status == "" && !s.describe(uuid.UUID(id), record)
			if !since && !query.Selects(record) {
				continue
			}
			more, err := complete(tx, uuid.UUID(id), record, data, &query)
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

// current looks again at listed runs that have ended since. What is said about them must not be older than what was said before.
func (s runs) current(ctx context.Context, page []*engine.Record, query *engine.Query, words engine.Words) (current []*engine.Record, err error) {
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

// everything is a query for records as a whole.
var everything = &engine.Query{Told: true, Replies: true, Deliveries: true}

// complete adds to a record what a query wants and what is not in the data of the run itself, and returns how many bytes it
// read for that.
func complete(tx *bbolt.Tx, id uuid.UUID, record *engine.Record, data []byte, query *engine.Query) (size int, err error) {
	ended := record.Outcome.Status != ""
	if query.Told || query.Text != "" {
		if ended {
			err = readTold(tx, id, record)
		} else if isToldApart(data) {
			var told engine.Told
			if told, err = decodeTold(id, tx.Bucket(toldBucket).Get(id[:])); err != nil {
				err = fmt.Errorf("reading what run %s is told: %w", id, err)
			}
			record.Run.Message, record.Run.Metadata, record.Run.Schema = told.Message, told.Metadata, told.Schema
		}
		size = len(record.Run.Message) + len(record.Run.Metadata) + len(record.Run.Schema)
	}
	if query.Replies && ended && err == nil {
		record.AgainAs, err = againAs(tx, id)
	}
	if query.Deliveries && ended && err == nil {
		record.Deliveries, err = deliveriesOf(tx, id)
	}
	return size, err
}

// listReads is how many bytes of runs a query reads before it leaves the rest to the next one.
const listReads = 32 << 20

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
