package memory

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// firstOf finds the run that another one is again, nil if there is none to mark.
func (d *Data) firstOf(added *engine.Run, terms engine.Terms) (*run, error) {
	if added.AgainOf == "" {
		return nil, nil
	}
	id, _ := local.ParseID(added.AgainOf)
	first := d.runs[id]
	if first == nil || !first.Status.Ended() {
		if terms.Once {
			return nil, engine.ErrNotFound
		}
		return nil, nil
	}
	if terms.Once && first.AgainAs != "" {
		return nil, engine.ErrRunAgain
	}
	return first, nil
}

// listOldestFirst is List from the oldest run on.
func (d *Data) listOldestFirst(query engine.Query) (page []*engine.Record, next string, err error) {
	begin, end := 0, len(d.order)
	if query.Cursor != "" {
		if begin, err = d.upTo(query.Cursor); err != nil {
			return nil, "", err
		}
	}
	if query.UpTo != "" {
		if end, err = d.upTo(query.UpTo); err != nil {
			return nil, "", err
		}
	}
	words := query.Words()
	for i, looked := begin, 0; i < end; i, looked = i+1, looked+1 {
		if len(page) == query.Limit || looked == local.ListLooksAt {
			return page, d.order[i-1].String(), nil
		}
		page = d.look(page, d.order[i], &query, words)
	}
	return page, "", nil
}

// upTo is how many of the runs in order are as old as the one given, or older.
func (d *Data) upTo(text string) (int, error) {
	id, ok := local.ParseID(text)
	if !ok {
		return 0, engine.ErrCursor
	}
	n := d.olderThan(id)
	if n < len(d.order) && d.order[n] == id {
		n++
	}
	return n, nil
}
