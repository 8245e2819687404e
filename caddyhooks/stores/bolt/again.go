package bolt

import (
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
