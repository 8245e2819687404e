package bolt

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The field of the mark of a run that was run again.
const againRun protowire.Number = 1

// encodeAgain writes down which run was last started as another one again.
func encodeAgain(first []byte, again uuid.UUID) []byte {
	e := newEncoder(20)
	e.bytes(againRun, again[:])
	return seal(first, e.data)
}

// againAs reads the mark of a run, "" if it has none.
func againAs(tx *bbolt.Tx, first uuid.UUID) (id string, err error) {
	data := tx.Bucket(againBucket).Get(first[:])
	if data == nil {
		return "", nil
	}
	err = fieldsOf(first[:], data, func(n protowire.Number, f field) bool {
		if n == againRun && len(f.bytes) == len(uuid.UUID{}) {
			id = uuid.UUID(f.bytes).String()
		}
		return true
	})
	if err != nil {
		return "", fmt.Errorf("reading how run %s was run again: %w", first, err)
	}
	return id, nil
}

// firstOf finds the run that another one is again, and returns its key, nil if there is none to mark.
func (d *Database) firstOf(t *transaction, run *engine.Run, terms engine.Terms) ([]byte, error) {
	if run.AgainOf == "" {
		return nil, nil
	}
	id, ok := local.ParseID(run.AgainOf)
	if !ok || t.bucket(endedBucket).Get(id[:]) == nil {
		if terms.Once {
			return nil, engine.ErrNotFound
		}
		return nil, nil
	}
	if terms.Once && t.bucket(againBucket).Get(id[:]) != nil {
		return nil, engine.ErrRunAgain
	}
	return id[:], nil
}

// lastKey is the greatest key of a list that begins with the smallest one, nil if it has no end.
type lastKey []byte

func lastOf(query engine.Query) (lastKey, error) {
	if query.UpTo == "" {
		return nil, nil
	}
	id, ok := local.ParseID(query.UpTo)
	if !ok {
		return nil, engine.ErrCursor
	}
	return id[:], nil
}

// oldestFirst walks over what is in some buckets, from the smallest key that is greater than cursor, if there is one.
func (last lastKey) oldestFirst(tx *bbolt.Tx, cursor []byte, buckets ...[]byte) func() (key, value []byte) {
	type walk struct {
		*bbolt.Cursor
		key, value []byte
	}
	var walks []*walk
	for _, bucket := range buckets {
		w := &walk{Cursor: tx.Bucket(bucket).Cursor()}
		walks = append(walks, w)
		w.key, w.value = w.Seek(cursor)
		if w.key != nil && bytes.Equal(w.key, cursor) {
			w.key, w.value = w.Next()
		}
	}
	return func() (key, value []byte) {
		var oldest *walk
		for _, w := range walks {
			if w.key != nil && (oldest == nil || bytes.Compare(w.key, oldest.key) < 0) {
				oldest = w
			}
		}
		if oldest == nil || last != nil && bytes.Compare(oldest.key, last) > 0 {
			return nil, nil
		}
		key, value = oldest.key, oldest.value
		oldest.key, oldest.value = oldest.Next()
		return key, value
	}
}
