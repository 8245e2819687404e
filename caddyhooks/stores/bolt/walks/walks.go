// Package walks goes over the ids of runs in buckets and lists, in the order of a list, and over those that several have in common.
package walks

import (
	"bytes"
	"slices"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Walk goes over the ids of runs, in the order of a list.
//
// A list is allowed a certain effort. When that is spent, a walk stops wherever it is, and its head may be an id that does not
// belong to it: all that is known is that none was left out before.
type Walk interface {
	// Head is the id that the walk has come to, nil at its end.
	Head() []byte
	// Value is the record of the run, nil if the walk does not go over records.
	Value() []byte
	// Seek goes on to an id or, if that is not there, to the one after it.
	Seek(id []byte)
	Next()
}

// Effort is how much a list may still look at.
type Effort struct{ Left int }

// Spend notes that another record was looked at.
func (e *Effort) Spend() { e.Left-- }

// Spent reports whether no more may be looked at.
func (e *Effort) Spent() bool { return e.Left <= 0 }

// Bucket goes over a bucket, or over the keys in it that have a prefix.
type Bucket struct {
	cursor    *bbolt.Cursor
	prefix    []byte
	order     *local.IDRange
	key, data []byte
}

// Over goes over the keys of a bucket that have a prefix.
func Over(tx *bbolt.Tx, bucket, prefix []byte, order *local.IDRange) *Bucket {
	return &Bucket{cursor: tx.Bucket(bucket).Cursor(), prefix: prefix, order: order}
}

func (w *Bucket) Head() []byte  { return w.key }
func (w *Bucket) Value() []byte { return w.data }

func (w *Bucket) Seek(id []byte) {
	wanted := id
	if len(w.prefix) > 0 {
		wanted = slices.Concat(w.prefix, id)
	}
	key, data := w.cursor.Seek(wanted)
	if w.order.Descending {
		if key == nil {
			key, data = w.cursor.Last()
		} else if !bytes.Equal(key, wanted) {
			key, data = w.cursor.Prev()
		}
	}
	w.set(key, data)
}

func (w *Bucket) Next() {
	if w.order.Descending {
		w.set(w.cursor.Prev())
	} else {
		w.set(w.cursor.Next())
	}
}

func (w *Bucket) set(key, data []byte) {
	id, ok := bytes.CutPrefix(key, w.prefix)
	if !ok || len(id) != len(uuid.UUID{}) {
		w.key, w.data = nil, nil
		return
	}
	w.key, w.data = id, data
	if len(data) == 0 {
		w.data = nil // an index has no records
	}
}

// Keys goes over a bucket that has something else than the records of runs.
type Keys struct{ *Bucket }

func (Keys) Value() []byte { return nil }

// Tested goes over the records of a bucket that pass a test, from one id to another.
type Tested struct {
	Bucket
	Within local.IDRange
	Test   func(data []byte) bool
	Effort *Effort
}

func (w *Tested) Seek(id []byte) {
	if begin := w.Within.Begin(); w.order.IsBefore(id, begin[:]) {
		id = begin[:]
	}
	w.Bucket.Seek(id)
	w.settle()
}

func (w *Tested) Next() {
	w.Bucket.Next()
	w.settle()
}

func (w *Tested) settle() {
	for w.key != nil {
		if !w.Within.Has(w.key) {
			w.key, w.data = nil, nil
			return
		}
		if w.Effort.Spent() || w.Test(w.data) {
			return
		}
		w.Effort.Spend()
		w.Bucket.Next()
	}
}

// List goes over some ids, or over those of them that pass a test.
type List struct {
	ids    []uuid.UUID // in the order of the list
	order  *local.IDRange
	Test   func(id uuid.UUID) bool // nil if all do
	Effort *Effort
}

// NewList goes over ids that are given in any order.
func NewList(ids []uuid.UUID, order *local.IDRange) *List {
	local.SortIDs(ids)
	ids = slices.Compact(ids)
	if order.Descending {
		slices.Reverse(ids)
	}
	return &List{ids: ids, order: order}
}

func (w *List) Head() []byte {
	if len(w.ids) == 0 {
		return nil
	}
	return w.ids[0][:]
}

func (w *List) Value() []byte { return nil }

func (w *List) Next() {
	w.ids = w.ids[1:]
	w.settle()
}

func (w *List) Seek(id []byte) {
	n, _ := slices.BinarySearchFunc(w.ids, id, func(a uuid.UUID, id []byte) int {
		switch {
		case bytes.Equal(a[:], id):
			return 0
		case w.order.IsBefore(a[:], id):
			return -1
		default:
			return 1
		}
	})
	w.ids = w.ids[n:]
	w.settle()
}

func (w *List) settle() {
	for len(w.ids) > 0 && w.Test != nil && !w.Effort.Spent() && !w.Test(w.ids[0]) {
		w.Effort.Spend()
		w.ids = w.ids[1:]
	}
}

// Any goes over the ids of several walks, over each once.
type Any struct {
	Walks []Walk // those that are not at their end, once it has begun
	order *local.IDRange
	first Walk // the one that is at the head
}

// NewAny goes over the ids of all of some walks.
func NewAny(order *local.IDRange, walks ...Walk) *Any { return &Any{Walks: walks, order: order} }

// Add takes another walk on, unless that is at its end.
func (w *Any) Add(another Walk) {
	if another.Head() != nil {
		w.Walks = append(w.Walks, another)
		w.choose()
	}
}

func (w *Any) choose() {
	w.first = nil
	w.Walks = slices.DeleteFunc(w.Walks, func(one Walk) bool { return one.Head() == nil })
	for _, one := range w.Walks {
		if w.first == nil || w.order.IsBefore(one.Head(), w.first.Head()) {
			w.first = one
		}
	}
}

func (w *Any) Head() []byte {
	if w.first == nil {
		return nil
	}
	return w.first.Head()
}

func (w *Any) Value() []byte {
	if w.first == nil {
		return nil
	}
	return w.first.Value()
}

func (w *Any) Seek(id []byte) {
	for _, one := range w.Walks {
		one.Seek(id)
	}
	w.choose()
}

func (w *Any) Next() {
	id := uuid.UUID(w.Head())
	for _, one := range w.Walks {
		if bytes.Equal(one.Head(), id[:]) {
			one.Next()
		}
	}
	w.choose()
}

// All goes over the ids that several walks have in common. It leaps over what one of them does not have, so it costs no
// more than the shortest one.
type All struct {
	Walks  []Walk
	Order  *local.IDRange
	Effort *Effort
}

func (w All) Head() []byte  { return w.Walks[0].Head() }
func (w All) Value() []byte { return nil }

func (w All) Seek(id []byte) {
	w.Walks[0].Seek(id)
	w.settle()
}

func (w All) Next() {
	w.Walks[0].Next()
	w.settle()
}

// settle goes on until all walks are at the same id. At the end of one of them, the first one is at its end as well.
func (w All) settle() {
	for head := w.Walks[0].Head(); head != nil && !w.Effort.Spent(); head = w.Walks[0].Head() {
		apart := false
		for _, other := range w.Walks[1:] {
			id := uuid.UUID(head)
			other.Seek(id[:])
			w.Effort.Spend()
			at := other.Head()
			if at == nil {
				w.Walks[0] = &List{order: w.Order}
				return
			}
			if !bytes.Equal(at, id[:]) {
				w.Walks[0].Seek(at)
				apart = true
				break
			}
		}
		if !apart {
			return
		}
	}
}
