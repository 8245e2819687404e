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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/walks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Runs that have ended are found by status, hook and chat through buckets whose keys end in a digest of that and the id of the
// run. They have no values. Runs that completed are most of all, and are not found by status; nor is a run found by a chat
// that was made for it, if the time in the chat's id leads to it.
//
// To write all that with each end of a run would take too long: every hook and every chat has a page of its own to be written.
// So it is put off. Each transaction leaves a list of the runs that end in it, and when there are enough of them, all get
// their entries at once. Statuses and hooks are few, so that means to append in few places. Chats may be many, so their
// entries are a segment of the index that is in order by itself. To find the runs of a chat means to look for it in each
// segment, and every list looks at the new runs besides.
//
// A run is found by its sender's id of the request from its acceptance on: each id is a key of its own, whose place nothing tells, so
// there would be little to share.
//
// Each named chat has a record with its newest run and the number of its runs, of those that are in a segment. The newest
// runs of all chats have a bucket of their own, in which the last active chat is the last one.
//
// What is written of a run is deleted in the transaction in which it is forgotten. A list looks at the runs themselves nevertheless:
// digests may be the same by chance, and damage could lead anywhere.

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

func (c *chatRecord) fields() []any { return []any{&c.last, &c.runs} }

func (c chatRecord) encode(key []byte) []byte {
	return seal(key, encodeFields(newEncoder(32), c.fields()))
}

// decodeChat reads the record of a chat. One that is damaged counts as missing: what is lost with it is in the runs.
func decodeChat(key, data []byte) (c chatRecord) {
	if decodeFields(key, data, c.fields()) != nil {
		return chatRecord{}
	}
	return c
}

// index lets a run be found that ends.
func (d *Database) index(t *transaction, id uuid.UUID) {
	if t.ended == nil {
		t.last = append(t.last, func() { d.noteNew(t) })
	}
	t.ended = append(t.ended, id)
}

// noteNew leaves a list of the runs that end in a transaction, or has all new runs get their entries. That takes more room on the
// disk than anything else does at once, so if it fails, it is put off until that many runs more have ended.
func (d *Database) noteNew(t *transaction) {
	before, afterFailure := d.newRuns, d.indexAt
	t.undo = append(t.undo, func() { d.newRuns, d.indexAt = before, afterFailure })
	if d.newRuns += len(t.ended); d.newRuns >= max(d.segmentSize, d.indexAt) {
		afterFailure = d.newRuns + d.segmentSize
		d.indexNew(t)
		return
	}
	key := binary.BigEndian.AppendUint64(nil, uint64(t.tx.ID()))
	list := bytes.Clone(t.bucket(newRunsBucket).Get(key)) // in a file that was compacted, transactions are counted anew
	for _, id := range t.ended {
		list = append(list, id[:]...)
	}
	t.append(newRunsBucket, key, list)
}

// segmentSize is after how many runs they get their entries. With more, each list would have more to look at; with less, it
// would cost more to write them.
const segmentSize = 2048

// newRunsOf are the runs that have ended and have no entries yet, and some that are forgotten.
func newRunsOf(tx *bbolt.Tx) (ids []uuid.UUID) {
	_ = tx.Bucket(newRunsBucket).ForEach(func(_, list []byte) error {
		for ; len(list) >= len(uuid.UUID{}); list = list[len(uuid.UUID{}):] {
			ids = append(ids, uuid.UUID(list[:len(uuid.UUID{})]))
		}
		return nil
	})
	return ids
}

// indexNew gives all new runs their entries.
func (d *Database) indexNew(t *transaction) {
	var runs []endedRun
	for _, id := range append(newRunsOf(t.tx), t.ended...) {
		if run, ok := readEnded(t.tx, id); ok {
			runs = append(runs, run)
		}
	}
	t.putEntries(runs)
	t.note(t.tx.DeleteBucket(newRunsBucket))
	_, err := t.tx.CreateBucket(newRunsBucket)
	t.note(err)
	d.newRuns, d.indexAt = 0, 0
}

// endedRun is what the indexes have to know of a run that has ended.
type endedRun struct {
	id         uuid.UUID
	hook, chat string
	request    string // the sender's id
	status     engine.Status
	byTime     bool // the id of its chat leads to it
	named      bool // somebody named the chat
	counted    bool // the record of the chat counts it
}

func newEndedRun(id uuid.UUID, run *engine.Run, status engine.Status) endedRun {
	byTime, named := local.IsFoundByTime(run, id), local.IsNamed(run)
	return endedRun{id, run.Hook, run.ChatID, run.RequestID, status, byTime, named, named || run.NewChat && !byTime}
}

// readEnded reads no more of a run than the indexes have to know, and reports false if it has not ended or is gone.
func readEnded(tx *bbolt.Tx, id uuid.UUID) (ended endedRun, ok bool) {
	var run engine.Run
	var status engine.Status
	err := uncheckedFieldsOf(tx.Bucket(endedBucket).Get(id[:]), func(n protowire.Number, f field) bool {
		switch n {
		case runChat:
			run.ChatID = f.text()
		case runHook:
			run.Hook = f.text()
		case runNewChat:
			run.NewChat = f.flag()
		case runRequestID:
			run.RequestID = f.text()
		case endStatus:
			status = engine.Status(f.text())
		}
		return n != endStatus // the others come before it
	})
	return newEndedRun(id, &run, status), err == nil
}

// mayBeIn reports whether a run that has ended, as it is in the file, can be in a list. It is quicker than to read the run.
func mayBeIn(data []byte, query *engine.Query) bool {
	is := true
	err := uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		switch n {
		case runChat:
			is = query.ChatID == "" || query.ChatID == string(f.bytes)
		case runHook:
			is = len(query.Hooks) == 0 || slices.ContainsFunc(query.Hooks, func(hook string) bool { return hook == string(f.bytes) })
		case runRunner:
			is = len(query.Runners) == 0 || slices.ContainsFunc(query.Runners, func(runner string) bool { return runner == string(f.bytes) })
		case endStatus:
			is = len(query.Statuses) == 0 || slices.ContainsFunc(query.Statuses,
				func(status engine.Status) bool { return string(status) == string(f.bytes) })
		}
		return is && n != endStatus // the others come before it
	})
	return is && err == nil
}

// putEntries writes the entries of runs.
func (t *transaction) putEntries(runs []endedRun) {
	var hooks, notable [][]byte
	var chats []endedRun
	for _, run := range runs {
		hooks = append(hooks, indexKey(run.hook, run.id))
		if run.status != engine.Completed {
			notable = append(notable, indexKey(string(run.status), run.id))
		}
		if !run.byTime {
			chats = append(chats, run)
		}
	}
	t.putKeys(byHookBucket, hooks)
	t.putKeys(notableBucket, notable)
	t.putSegment(chats)
}

// putKeys appends keys to a bucket, or nearly so.
func (t *transaction) putKeys(bucket []byte, keys [][]byte) {
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		t.append(bucket, key, nil)
	}
}

// putSegment writes a segment of the index by chat, and the records of the chats.
func (t *transaction) putSegment(runs []endedRun) {
	if len(runs) == 0 {
		return
	}
	newest := runs[0].id
	for _, run := range runs {
		if bytes.Compare(run.id[:], newest[:]) > 0 {
			newest = run.id
		}
	}
	segment := newest[:segmentPrefixSize]
	keys := make([][]byte, 0, len(runs))
	chats := make(map[string]chatRecord)
	for _, run := range runs {
		keys = append(keys, slices.Concat(segment, digest(run.chat), run.id[:]))
		if run.counted {
			chat := chats[run.chat]
			chat.add(&run)
			chats[run.chat] = chat
		}
	}
	t.putKeys(byChatBucket, keys)
	var active []uuid.UUID
	for name, added := range chats {
		key := chatKey(name)
		chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
		before := chat.last
		chat.join(added)
		t.put(chatsBucket, key, chat.encode(key))
		if chat.last != before {
			if before != uuid.Nil {
				t.delete(chatsByTimeBucket, before[:])
			}
			active = append(active, chat.last)
		}
	}
	local.SortIDs(active)
	for _, id := range active {
		t.append(chatsByTimeBucket, id[:], nil)
	}
}

// add counts a run. Only one that named the chat can be its newest.
func (c *chatRecord) add(run *endedRun) {
	if run.named {
		c.join(chatRecord{run.id, 1})
	} else {
		c.runs++
	}
}

// join adds the runs of another record of the same chat.
func (c *chatRecord) join(other chatRecord) {
	c.runs += other.runs
	if bytes.Compare(other.last[:], c.last[:]) > 0 {
		c.last = other.last
	}
}

// A segment goes by the time in the id of its newest run, which no other run has.
const segmentPrefixSize = 8

// eachSegment calls f with the prefix of each segment of the index by chat that may have a run or newer ones, until that reports
// false. It goes forward: in a transaction that has emptied pages, the database may go round in circles on its way back.
func eachSegment(tx *bbolt.Tx, from uuid.UUID, f func(prefix []byte) bool) {
	cursor := tx.Bucket(byChatBucket).Cursor()
	for key, _ := cursor.Seek(from[:segmentPrefixSize]); len(key) > segmentPrefixSize; {
		prefix := bytes.Clone(key[:segmentPrefixSize])
		number := binary.BigEndian.Uint64(prefix)
		if !f(prefix) || number == math.MaxUint64 {
			return
		}
		key, _ = cursor.Seek(binary.BigEndian.AppendUint64(nil, number+1))
	}
}

// segmentsWalk goes over the entries of a chat in all segments. If it goes back in time, it opens a segment when it gets to
// its newest run. To open segments is no effort that counts: it has to be made again for every page, so a list that ended with
// it would never get any further.
type segmentsWalk struct {
	tx     *bbolt.Tx
	digest []byte
	order  *local.IDRange
	open   *walks.Any
	cursor *bbolt.Cursor
	older  []byte // the prefix of the segment to be opened next, nil if there is none
	at     uuid.UUID
}

func newSegmentsWalk(tx *bbolt.Tx, chat string, order *local.IDRange) *segmentsWalk {
	return &segmentsWalk{tx: tx, digest: digest(chat), order: order, open: walks.NewAny(order)}
}

func (w *segmentsWalk) Head() []byte  { return w.open.Head() }
func (w *segmentsWalk) Value() []byte { return nil }

func (w *segmentsWalk) Next() {
	w.open.Next()
	w.openNext()
}

func (w *segmentsWalk) Seek(id []byte) {
	w.at = uuid.UUID(id)
	if w.cursor == nil {
		w.cursor = w.tx.Bucket(byChatBucket).Cursor()
		if w.order.Descending {
			w.setNext(w.cursor.Last())
		} else {
			eachSegment(w.tx, w.at, func(prefix []byte) bool {
				w.openSegment(prefix)
				return true
			})
		}
	} else {
		w.open.Seek(id)
	}
	w.openNext()
}

// openNext opens all segments that may have an id that comes before the head.
func (w *segmentsWalk) openNext() {
	for w.older != nil && (w.open.Head() == nil || bytes.Compare(w.older, w.open.Head()[:segmentPrefixSize]) >= 0) {
		w.openSegment(w.older)
		w.cursor.Seek(w.older)
		w.setNext(w.cursor.Prev())
	}
}

func (w *segmentsWalk) openSegment(prefix []byte) {
	segment := walks.Over(w.tx, byChatBucket, slices.Concat(prefix, w.digest), w.order)
	segment.Seek(w.at[:])
	w.open.Add(segment)
}

func (w *segmentsWalk) setNext(key, _ []byte) {
	w.older = nil
	if len(key) > segmentPrefixSize {
		w.older = key[:segmentPrefixSize]
	}
}

// unindex takes a run out of the indexes that is forgotten. If it is new, it has no entries, and will get none.
func (t *transaction) unindex(run *endedRun) {
	t.delete(byHookBucket, indexKey(run.hook, run.id))
	if run.request != "" {
		t.delete(byRequestBucket, indexKey(run.request, run.id))
	}
	if run.status != engine.Completed {
		t.delete(notableBucket, indexKey(string(run.status), run.id))
	}
	t.delete(chatsByTimeBucket, run.id[:])
	if run.byTime || !t.leaveSegment(run) || !run.counted {
		return
	}
	key := chatKey(run.chat)
	chat := decodeChat(key, t.bucket(chatsBucket).Get(key))
	if chat.runs--; chat.runs <= 0 { // as it mostly is, so there is no need to look for another run in all segments
		t.delete(chatsByTimeBucket, chat.last[:])
		t.delete(chatsBucket, key)
		return
	}
	if chat.last == run.id {
		if chat.last = newestOf(t.tx, run.chat); chat.last != uuid.Nil {
			t.put(chatsByTimeBucket, chat.last[:], nil)
		}
	}
	t.put(chatsBucket, key, chat.encode(key))
}

// leaveSegment takes a run out of the segment in which it is, most likely the first that may have it, and reports whether it was
// in any.
func (t *transaction) leaveSegment(run *endedRun) (left bool) {
	var key []byte
	eachSegment(t.tx, run.id, func(segment []byte) bool {
		key = slices.Concat(segment, digest(run.chat), run.id[:])
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
	eachSegment(tx, uuid.Nil, func(segment []byte) bool {
		runs := walks.Over(tx, byChatBucket, slices.Concat(segment, sum), &local.IDRange{})
		for runs.Seek(uuid.Nil[:]); runs.Head() != nil; runs.Next() {
			ids = append(ids, uuid.UUID(runs.Head()))
		}
		return true
	})
	local.SortIDs(ids)
	for _, id := range slices.Backward(ids) {
		if run, ok := readEnded(tx, id); ok && run.named && run.chat == chat {
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
