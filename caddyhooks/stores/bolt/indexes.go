package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Runs that have ended are found by status, hook and chat through buckets whose keys are a digest of that and the id of the
// run. They have no values. Runs that completed are most of all, and are not found by status; nor is a run found by a chat
// that was made for it, if the time in the chat's id leads to it.
//
// Each named chat has a record with its newest run and the number of its runs, of those that have ended. The newest runs of
// all chats have a bucket of their own, in which the last active chat is the last one.
//
// All of it is written in the transaction in which a run ends, and deleted in that in which it is forgotten. A list looks at
// the runs themselves nevertheless: digests may be the same by chance, and damage could lead anywhere.

// digestSize is the size of a digest in the key of an index.
const digestSize = 8

func digest(value string) []byte {
	sum := sha256.Sum256([]byte(value))
	return sum[:digestSize]
}

func indexKey(value string, id uuid.UUID) []byte {
	return append(append(make([]byte, 0, digestSize+len(id)), digest(value)...), id[:]...)
}

// chatKey is the key of a chat's own record. Nobody finds two chats with the same one.
func chatKey(chat string) []byte {
	sum := sha256.Sum256([]byte(chat))
	return sum[:chatKeySize]
}

const chatKeySize = 16

// chatRecord is what is known of the runs of a chat that have ended.
type chatRecord struct {
	last uuid.UUID
	runs int
}

// The fields of a chat's record.
const (
	chatLast protowire.Number = iota + 1
	chatRuns
)

func (c chatRecord) encode(key []byte) []byte {
	e := newEncoder(32)
	e.bytes(chatLast, c.last[:])
	e.number(chatRuns, int64(c.runs))
	return seal(key, e.data)
}

// decodeChat reads the record of a chat. One that is damaged counts as missing: what is lost with it is in the runs.
func decodeChat(key, data []byte) (c chatRecord) {
	err := fieldsOf(key, data, func(n protowire.Number, f field) bool {
		switch n {
		case chatLast:
			if len(f.bytes) == len(c.last) {
				c.last = uuid.UUID(f.bytes)
			}
		case chatRuns:
			c.runs = f.int()
		}
		return true
	})
	if err != nil {
		return chatRecord{}
	}
	return c
}

// index lets a run be found that ends.
func (t *transaction) index(id uuid.UUID, run *engine.Run, status engine.Status) {
	t.append(byHookBucket, indexKey(run.Hook, id), nil)
	if status != engine.Completed {
		t.append(notableBucket, indexKey(string(status), id), nil)
	}
	if !local.IsFoundByTime(run, id) {
		t.put(byChatBucket, indexKey(run.ChatID, id), nil)
	}
	if !local.IsNamed(run) {
		return
	}
	key := chatKey(run.ChatID)
	chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
	chat.runs++
	if bytes.Compare(id[:], chat.last[:]) > 0 {
		if chat.last != uuid.Nil {
			t.delete(chatsByTimeBucket, chat.last[:])
		}
		chat.last = id
		t.append(chatsByTimeBucket, id[:], nil)
	}
	t.put(chatsBucket, key, chat.encode(key))
}

// unindex takes a run out of the indexes that is forgotten.
func (t *transaction) unindex(id uuid.UUID, run *engine.Run, status engine.Status) {
	t.delete(byHookBucket, indexKey(run.Hook, id))
	t.delete(notableBucket, indexKey(string(status), id))
	t.delete(byChatBucket, indexKey(run.ChatID, id))
	t.delete(chatsByTimeBucket, id[:])
	if !local.IsNamed(run) {
		return
	}
	key := chatKey(run.ChatID)
	chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
	chat.runs--
	if chat.last == id {
		chat.last = newestOf(t.tx, run.ChatID)
		if chat.last != uuid.Nil {
			t.put(chatsByTimeBucket, chat.last[:], nil)
		}
	}
	if chat.runs <= 0 || chat.last == uuid.Nil {
		if chat.last != uuid.Nil {
			t.delete(chatsByTimeBucket, chat.last[:])
		}
		t.delete(chatsBucket, key)
		return
	}
	t.put(chatsBucket, key, chat.encode(key))
}

// newestOf is the newest run of a named chat that has ended and is there, uuid.Nil if there is none. It goes forward: in a
// transaction that has emptied pages, the database may go round in circles on its way back.
func newestOf(tx *bbolt.Tx, chat string) uuid.UUID {
	var ids []uuid.UUID
	runs := newWalk(tx, byChatBucket, digest(chat), &local.IDRange{})
	for runs.seek(uuid.Nil[:]); runs.head() != nil; runs.next() {
		ids = append(ids, uuid.UUID(runs.head()))
	}
	for _, id := range slices.Backward(ids) {
		record, err := decodeRun(id, tx.Bucket(endedBucket).Get(id[:]))
		if err == nil && record.Run.ChatID == chat && local.IsNamed(record.Run) {
			return id
		}
	}
	return uuid.Nil
}

// noteAhead writes down by how much the id of a run is ahead of its acceptance, if that is more than ever. That happens when a
// disk is slow, and when somebody has set the clock back.
func (d *Database) noteAhead(t *transaction, id uuid.UUID, acceptedAt time.Time) {
	ahead := local.IDTime(id).Sub(acceptedAt)
	if ahead <= d.idsAhead {
		return
	}
	before := d.idsAhead
	t.undo = append(t.undo, func() { d.idsAhead = before })
	d.idsAhead = 2 * ahead // so that it is not written again and again
	t.put(metaBucket, aheadKey, binary.AppendVarint(nil, int64(d.idsAhead)))
}

// usuallyAhead is by how much ids may be ahead without being written down: as long as a run waits for its transaction. A list
// that ends at a time begins so much later.
const usuallyAhead = 100 * time.Millisecond

func aheadOf(tx *bbolt.Tx) time.Duration {
	ahead, _ := binary.Varint(tx.Bucket(metaBucket).Get(aheadKey))
	return max(time.Duration(ahead), usuallyAhead)
}

// indexStep is how many runs are put into the indexes in one transaction when a file gets them.
const indexStep = 50_000

// addIndexes lets runs be found that ended before there were indexes, and makes room for the minutes of the overview. It is
// called until it has done so, and keeps in the file how far it has got.
func addIndexes(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	from := meta.Get(progressKey)
	if from == nil {
		for _, name := range [][]byte{notableBucket, byHookBucket, byChatBucket, chatsBucket, chatsByTimeBucket, minutesBucket} {
			if tx.Bucket(name) != nil { // an earlier attempt was interrupted, and the runs may have changed since
				if err := tx.DeleteBucket(name); err != nil {
					return err
				}
			}
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
	}
	t := &transaction{tx: tx}
	ahead := aheadOf(tx)
	note := func(id uuid.UUID, run *engine.Run) {
		if by := local.IDTime(id).Sub(run.AcceptedAt); by > ahead {
			ahead = by
		}
	}
	cursor := tx.Bucket(endedBucket).Cursor()
	key, data := cursor.Seek(from)
	for n := 0; key != nil && n < indexStep; n++ {
		// What is damaged is found by no index. Nothing else depends on it.
		if id := uuid.UUID(key); len(key) == len(id) {
			if record, err := decodeRun(id, data); err == nil {
				t.index(id, record.Run, record.Status)
				note(id, record.Run)
			}
		}
		key, data = cursor.Next()
	}
	if key == nil {
		_ = tx.Bucket(runsBucket).ForEach(func(key, data []byte) error {
			if id := uuid.UUID(key); len(key) == len(id) {
				if record, err := decodeRun(id, data); err == nil {
					note(id, record.Run)
				}
			}
			return nil
		})
		t.delete(metaBucket, progressKey)
	} else {
		t.put(metaBucket, progressKey, bytes.Clone(key))
	}
	if ahead > aheadOf(tx) {
		t.put(metaBucket, aheadKey, binary.AppendVarint(nil, int64(ahead)))
	}
	return t.failure
}
