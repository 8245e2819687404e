package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Runs that have ended are found by status, hook and chat through buckets whose keys end in a digest of that and the id of the
// run. They have no values. Runs that completed are most of all, and are not found by status; nor is a run found by a chat
// that was made for it, if the time in the chat's id leads to it.
//
// Statuses and hooks are few, so their entries are appended in few places. Chats may be many, and each would have a page of
// its own to be written. So what the chats have to know is put off: the runs are noted as new, and when there are enough of
// them, all get their entries at once, as a segment of the index that is in order by itself. To find a chat means to look for
// it in each segment, and among the new runs.
//
// Each named chat has a record with its newest run and the number of its runs, of those that are in a segment. The newest
// runs of all chats have a bucket of their own, in which the last active chat is the last one.
//
// All of it is written in the transaction in which a run ends, or in one after some more have, and deleted in that in which it
// is forgotten. A list looks at the runs themselves nevertheless: digests may be the same by chance, and damage could lead
// anywhere.

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
func (d *Database) index(t *transaction, id uuid.UUID, run *engine.Run, status engine.Status) {
	t.indexHook(id, run, status)
	if local.IsFoundByTime(run, id) {
		return
	}
	t.append(newInChatsBucket, id[:], nil)
	d.newInChats++
	t.undo = append(t.undo, func() { d.newInChats-- })
	if d.newInChats >= d.segmentSize && !t.addsSegment {
		t.addsSegment = true
		t.last = append(t.last, func() { d.addSegment(t) })
	}
}

// segmentSize is after how many runs the chats learn of them. More would have each list of chats look at more, less would cost
// more to write.
const segmentSize = 2048

// indexHook lets a run be found by its hook and status.
func (t *transaction) indexHook(id uuid.UUID, run *engine.Run, status engine.Status) {
	t.append(byHookBucket, indexKey(run.Hook, id), nil)
	if status != engine.Completed {
		t.append(notableBucket, indexKey(string(status), id), nil)
	}
}

// inChat is a run that a chat has to know.
type inChat struct {
	id    uuid.UUID
	chat  string
	named bool
}

// addSegment lets the chats know of the new runs.
func (d *Database) addSegment(t *transaction) {
	var runs []inChat
	t.note(t.bucket(newInChatsBucket).ForEach(func(key, _ []byte) error {
		if run, ok := readInChat(t.tx, key); ok {
			runs = append(runs, run)
		}
		return nil
	}))
	t.putSegment(runs)
	t.note(t.tx.DeleteBucket(newInChatsBucket))
	_, err := t.tx.CreateBucket(newInChatsBucket)
	t.note(err)
	before := d.newInChats
	d.newInChats = 0
	t.undo = append(t.undo, func() { d.newInChats = before })
}

// readInChat reads what a chat has to know of a run that has ended, and reports false if the run is gone.
func readInChat(tx *bbolt.Tx, id []byte) (in inChat, ok bool) {
	if len(id) != len(in.id) {
		return in, false
	}
	data := tx.Bucket(endedBucket).Get(id)
	var run engine.Run
	err := uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		switch n {
		case runChat:
			run.ChatID = f.text()
		case runNewChat:
			run.NewChat = f.flag()
		}
		return n != endStatus // nothing of this comes after it
	})
	return inChat{uuid.UUID(id), run.ChatID, local.IsNamed(&run)}, err == nil
}

// putSegment writes a segment of the index by chat, and the records of the chats.
func (t *transaction) putSegment(runs []inChat) {
	if len(runs) == 0 {
		return
	}
	number, _ := binary.Uvarint(t.bucket(metaBucket).Get(segmentKey))
	number++
	t.put(metaBucket, segmentKey, binary.AppendUvarint(nil, number))
	segment := segmentPrefix(uint32(number))
	keys := make([][]byte, 0, len(runs))
	named := make(map[string]chatRecord)
	for _, run := range runs {
		keys = append(keys, slices.Concat(segment, digest(run.chat), run.id[:]))
		if run.named {
			chat := named[run.chat]
			chat.add(run.id, 1)
			named[run.chat] = chat
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		t.append(byChatBucket, key, nil)
	}
	var newest []uuid.UUID
	for name, added := range named {
		key := chatKey(name)
		chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
		before := chat.last
		chat.add(added.last, added.runs)
		t.put(chatsBucket, key, chat.encode(key))
		if chat.last != before {
			if before != uuid.Nil {
				t.delete(chatsByTimeBucket, before[:])
			}
			newest = append(newest, chat.last)
		}
	}
	local.SortIDs(newest)
	for _, id := range newest {
		t.append(chatsByTimeBucket, id[:], nil)
	}
}

// add counts runs, of which this is the newest.
func (c *chatRecord) add(newest uuid.UUID, runs int) {
	c.runs += runs
	if bytes.Compare(newest[:], c.last[:]) > 0 {
		c.last = newest
	}
}

const segmentPrefixSize = 4

func segmentPrefix(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

// eachSegment calls f with the prefix of each segment of the index by chat until that reports false. It goes forward: in a
// transaction that has emptied pages, the database may go round in circles on its way back.
func eachSegment(tx *bbolt.Tx, f func(prefix []byte) bool) {
	cursor := tx.Bucket(byChatBucket).Cursor()
	for key, _ := cursor.First(); len(key) > segmentPrefixSize; {
		prefix := bytes.Clone(key[:segmentPrefixSize])
		number := binary.BigEndian.Uint32(prefix)
		if !f(prefix) || number == math.MaxUint32 {
			return
		}
		key, _ = cursor.Seek(segmentPrefix(number + 1))
	}
}

// chatWalks go over the runs of a chat that have ended, but for the one that the chat's id leads to.
func chatWalks(tx *bbolt.Tx, chat string, order *local.IDRange, e *effort) (walks []walk) {
	sum := digest(chat)
	eachSegment(tx, func(segment []byte) bool {
		walks = append(walks, newWalk(tx, byChatBucket, slices.Concat(segment, sum), order))
		return true
	})
	return append(walks, &testedWalk{bucketWalk: *newWalk(tx, newInChatsBucket, nil, order), within: local.IDRange{Last: lastID, Descending: order.Descending},
		effort: e, test: func(id, _ []byte) bool { return textOf(tx.Bucket(endedBucket).Get(id), runChat) == chat }})
}

var lastID = uuid.UUID(bytes.Repeat([]byte{0xff}, 16))

// unindex takes a run out of the indexes that is forgotten.
func (d *Database) unindex(t *transaction, id uuid.UUID, run *engine.Run, status engine.Status) {
	t.delete(byHookBucket, indexKey(run.Hook, id))
	t.delete(notableBucket, indexKey(string(status), id))
	t.delete(chatsByTimeBucket, id[:])
	if found, _ := t.bucket(newInChatsBucket).Cursor().Seek(id[:]); bytes.Equal(found, id[:]) {
		t.delete(newInChatsBucket, id[:])
		d.newInChats--
		t.undo = append(t.undo, func() { d.newInChats++ })
		return
	}
	if local.IsFoundByTime(run, id) || !t.leaveSegment(id, run.ChatID) || !local.IsNamed(run) {
		return
	}
	key := chatKey(run.ChatID)
	chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
	chat.runs--
	if chat.last == id {
		if chat.last = newestOf(t.tx, run.ChatID); chat.last != uuid.Nil {
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

// leaveSegment takes a run out of the segment in which it is, most likely the oldest one, and reports whether it was in any.
func (t *transaction) leaveSegment(id uuid.UUID, chat string) (left bool) {
	var key []byte
	eachSegment(t.tx, func(segment []byte) bool {
		key = slices.Concat(segment, digest(chat), id[:])
		found, _ := t.bucket(byChatBucket).Cursor().Seek(key)
		left = bytes.Equal(found, key)
		return !left
	})
	if left {
		t.delete(byChatBucket, key)
	}
	return left
}

// newestOf is the newest run of a named chat that has ended, is there and is in a segment, uuid.Nil if there is none.
func newestOf(tx *bbolt.Tx, chat string) uuid.UUID {
	var ids []uuid.UUID
	sum := digest(chat)
	eachSegment(tx, func(segment []byte) bool {
		runs := newWalk(tx, byChatBucket, slices.Concat(segment, sum), &local.IDRange{})
		for runs.seek(uuid.Nil[:]); runs.head() != nil; runs.next() {
			ids = append(ids, uuid.UUID(runs.head()))
		}
		return true
	})
	local.SortIDs(ids)
	for _, id := range slices.Backward(ids) {
		if run, ok := readInChat(tx, id[:]); ok && run.named && run.chat == chat {
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
		for _, name := range [][]byte{notableBucket, byHookBucket, byChatBucket, newInChatsBucket, chatsBucket, chatsByTimeBucket, minutesBucket} {
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
	var inChats []inChat
	cursor := tx.Bucket(endedBucket).Cursor()
	key, data := cursor.Seek(from)
	for n := 0; key != nil && n < indexStep; n++ {
		// What is damaged is found by no index. Nothing else depends on it.
		if id := uuid.UUID(key); len(key) == len(id) {
			if record, err := decodeRun(id, data); err == nil {
				t.indexHook(id, record.Run, record.Status)
				if !local.IsFoundByTime(record.Run, id) {
					inChats = append(inChats, inChat{id, record.Run.ChatID, local.IsNamed(record.Run)})
				}
				note(id, record.Run)
			}
		}
		key, data = cursor.Next()
	}
	t.putSegment(inChats)
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
