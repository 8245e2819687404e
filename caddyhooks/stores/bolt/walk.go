package bolt

import (
	"bytes"
	"slices"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// A walk goes over the ids of runs, in the order of a list.
//
// A list is allowed a certain effort. When that is spent, a walk stops wherever it is, and its head may be an id that does not
// belong to it: all that is known is that none was left out before.
type walk interface {
	// head is the id that the walk has come to, nil at its end.
	head() []byte
	// value is the record of the run, nil if the walk does not go over records.
	value() []byte
	// seek goes on to an id or, if that is not there, to the one after it.
	seek(id []byte)
	next()
}

// effort is how much a list may still look at.
type effort struct{ left int }

func (e *effort) spend() { e.left-- }

func (e *effort) spent() bool { return e.left <= 0 }

// bucketWalk goes over a bucket, or over the keys in it that have a prefix.
type bucketWalk struct {
	cursor    *bbolt.Cursor
	prefix    []byte
	order     *local.IDRange
	key, data []byte
}

func newWalk(tx *bbolt.Tx, bucket, prefix []byte, order *local.IDRange) *bucketWalk {
	return &bucketWalk{cursor: tx.Bucket(bucket).Cursor(), prefix: prefix, order: order}
}

func (w *bucketWalk) head() []byte  { return w.key }
func (w *bucketWalk) value() []byte { return w.data }

func (w *bucketWalk) seek(id []byte) {
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

func (w *bucketWalk) next() {
	if w.order.Descending {
		w.set(w.cursor.Prev())
	} else {
		w.set(w.cursor.Next())
	}
}

func (w *bucketWalk) set(key, data []byte) {
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

// testedWalk goes over the records of a bucket that pass a test, from one id to another.
type testedWalk struct {
	bucketWalk
	within local.IDRange
	test   func(data []byte) bool
	effort *effort
}

func (w *testedWalk) seek(id []byte) {
	if begin := w.within.Begin(); w.order.IsBefore(id, begin[:]) {
		id = begin[:]
	}
	w.bucketWalk.seek(id)
	w.settle()
}

func (w *testedWalk) next() {
	w.bucketWalk.next()
	w.settle()
}

func (w *testedWalk) settle() {
	for w.key != nil {
		if !w.within.Has(w.key) {
			w.key, w.data = nil, nil
			return
		}
		if w.effort.spent() || w.test(w.data) {
			return
		}
		w.effort.spend()
		w.bucketWalk.next()
	}
}

// listWalk goes over some ids, or over those of them that pass a test.
type listWalk struct {
	ids    []uuid.UUID // in the order of the list
	order  *local.IDRange
	test   func(id uuid.UUID) bool // nil if all do
	effort *effort
}

func newListWalk(ids []uuid.UUID, order *local.IDRange) *listWalk {
	local.SortIDs(ids)
	ids = slices.Compact(ids)
	if order.Descending {
		slices.Reverse(ids)
	}
	return &listWalk{ids: ids, order: order}
}

func (w *listWalk) head() []byte {
	if len(w.ids) == 0 {
		return nil
	}
	return w.ids[0][:]
}

func (w *listWalk) value() []byte { return nil }

func (w *listWalk) next() {
	w.ids = w.ids[1:]
	w.settle()
}

func (w *listWalk) seek(id []byte) {
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

func (w *listWalk) settle() {
	for len(w.ids) > 0 && w.test != nil && !w.effort.spent() && !w.test(w.ids[0]) {
		w.effort.spend()
		w.ids = w.ids[1:]
	}
}

// anyOf goes over the ids of several walks, over each once.
type anyOf struct {
	walks []walk // those that are not at their end, once it has begun
	order *local.IDRange
	first walk // the one that is at the head
}

func newAnyOf(order *local.IDRange, walks ...walk) *anyOf { return &anyOf{walks: walks, order: order} }

// add takes another walk on, unless that is at its end.
func (w *anyOf) add(another walk) {
	if another.head() != nil {
		w.walks = append(w.walks, another)
		w.choose()
	}
}

func (w *anyOf) choose() {
	w.first = nil
	w.walks = slices.DeleteFunc(w.walks, func(one walk) bool { return one.head() == nil })
	for _, one := range w.walks {
		if w.first == nil || w.order.IsBefore(one.head(), w.first.head()) {
			w.first = one
		}
	}
}

func (w *anyOf) head() []byte {
	if w.first == nil {
		return nil
	}
	return w.first.head()
}

func (w *anyOf) value() []byte {
	if w.first == nil {
		return nil
	}
	return w.first.value()
}

func (w *anyOf) seek(id []byte) {
	for _, one := range w.walks {
		one.seek(id)
	}
	w.choose()
}

func (w *anyOf) next() {
	id := uuid.UUID(w.head())
	for _, one := range w.walks {
		if bytes.Equal(one.head(), id[:]) {
			one.next()
		}
	}
	w.choose()
}

// allOf goes over the ids that several walks have in common. It leaps over what one of them does not have, so it costs no
// more than the shortest one.
type allOf struct {
	walks  []walk
	order  *local.IDRange
	effort *effort
}

func (w allOf) head() []byte  { return w.walks[0].head() }
func (w allOf) value() []byte { return nil }

func (w allOf) seek(id []byte) {
	w.walks[0].seek(id)
	w.settle()
}

func (w allOf) next() {
	w.walks[0].next()
	w.settle()
}

// settle goes on until all walks are at the same id. At the end of one of them, the first one is at its end as well.
func (w allOf) settle() {
	for head := w.walks[0].head(); head != nil && !w.effort.spent(); head = w.walks[0].head() {
		apart := false
		for _, other := range w.walks[1:] {
			id := uuid.UUID(head)
			other.seek(id[:])
			w.effort.spend()
			at := other.head()
			if at == nil {
				w.walks[0] = &listWalk{order: w.order}
				return
			}
			if !bytes.Equal(at, id[:]) {
				w.walks[0].seek(at)
				apart = true
				break
			}
		}
		if !apart {
			return
		}
	}
}
