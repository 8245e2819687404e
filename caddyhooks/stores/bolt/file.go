package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/counts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/ledger"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/walks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The buckets of a database file.
var (
	metaBucket      = []byte("meta")       // the version of the layout, the settings and what else there is one of
	runsBucket      = []byte("runs")       // unfinished runs that were never put aside, by id
	startsBucket    = []byte("starts")     // how often unfinished runs have been started
	waitsBucket     = []byte("waits")      // of unfinished runs that wait for their runner, when they are due and why
	endedBucket     = []byte("ended")      // runs that have ended, by id
	inputBucket     = []byte("told")       // the message, metadata and schema of runs, by id
	inputAgesBucket = []byte("told_age")   // the ids of ended runs that keep theirs, by how long and since when
	againBucket     = []byte("again")      // of runs that were run again, the id of the run that did so
	outboxBucket    = []byte("outbox")     // pending deliveries, by the id of their run and their index
	settledBucket   = []byte("settled")    // deliveries that arrived, likewise
	deadBucket      = []byte("dead")       // deliveries that were given up, likewise
	keysBucket      = []byte("keys")       // idempotency keys, and the run that each was first sent with
	keyRunsBucket   = []byte("key_runs")   // the same by run, for the oldest go first
	changesBucket   = []byte("changes")    // of the settings, by their number
	notableBucket   = []byte("notable")    // runs that have ended and did not complete, by status and id
	byHookBucket    = []byte("by_hook")    // runs that have ended, by hook and id
	byRequestBucket = []byte("by_request") // all runs whose sender gave the request an id, by that and id
	byChatBucket    = []byte("by_chat")    // runs that have ended, by segment, chat and id, unless the chat's id leads to the run
	newRunsBucket   = []byte("new")        // runs that have ended and are in no index yet, by transaction
	chatsBucket     = []byte("chats")      // of named chats, the newest run that has ended and how many have
	minutesBucket   = []byte("minutes")    // what was counted in each minute, by that minute and who counted
	documentsBucket = []byte("documents")  // by kind and name
	questionsBucket = []byte("questions")  // by the id of their run and their number
	askedBucket     = []byte("asked")      // unfinished runs that have questions, why each is put aside, and its record if it ever was
	openBucket      = []byte("open")       // questions that people have to answer, by when they were asked, run and number
	allBuckets      = [][]byte{
		metaBucket, runsBucket, startsBucket, waitsBucket, endedBucket, inputBucket, inputAgesBucket, againBucket, outboxBucket, settledBucket,
		deadBucket,
		keysBucket, keyRunsBucket, changesBucket, notableBucket, byHookBucket, byChatBucket, newRunsBucket, chatsBucket, chatsByTimeBucket,
		minutesBucket, turnsBucket, sessionsBucket, sessionAgesBucket, documentsBucket, byRequestBucket,
		questionsBucket, askedBucket, openBucket, ledger.Bucket, ledger.EndsBucket, gates.Bucket,
		gates.AgesBucket,
	}
	turnsBucket       = []byte("turns")         // runs that later turns of their chat recall, by chat and id
	sessionsBucket    = []byte("sessions")      // of runners in chats, by a digest of both
	sessionAgesBucket = []byte("session_age")   // the keys of sessions, by when each was named or looked at
	chatsByTimeBucket = []byte("chats_by_time") // the newest runs of named chats that have ended, by id
	versionKey        = []byte("version")
	settingsKey       = []byte("settings")
	revisionKey       = []byte("settings_revision")
	keyCountKey       = []byte("key_count")
	inputBytesKey     = []byte("told_bytes")
	deadCountKey      = []byte("dead_count")
	freelistKey       = []byte("freelist_not_written")
	aheadKey          = []byte("ids_ahead") // by how much ids were ahead of the clock at most
	smallestFile      = int64(4 * 4096)
	errTruncated      = errors.New("the file is too short")
	errBusy           = errors.New("another process wrote to the file at the same time")
	errNoStoreFile    = errors.New("the file is not a store of hooks")
)

// migrations bring a file up to date: the first leads from firstLayout to the layout after it, and so on.
var migrations = []func(*bbolt.Tx) error{addBuckets, addBuckets, addBuckets}

// addBuckets makes the buckets that a file of before lacks.
func addBuckets(tx *bbolt.Tx) error {
	for _, name := range allBuckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// firstLayout is the layout of the first release. Files of the layouts before it are refused.
const firstLayout = 6

// newestLayout is the layout that a list of migrations leads to.
func newestLayout(migrations []func(*bbolt.Tx) error) int { return firstLayout + len(migrations) }

// contents is what is read of a file before it is used.
type contents struct {
	clock    *local.Clock
	nodes    *local.Nodes
	ids      local.IDs
	queue    *local.Queue
	outbox   *local.Outbox
	revision int64
	keyCount int
	input    int64
	ahead    time.Duration
	newRuns  int
	open     int
	dead     counts.ByChannel
	txID     int
	file     *os.File // that the database writes to
}

// openFile opens a database file for a store, or makes a new one. A file that cannot be used is left as it is.
func openFile(path string, clock *local.Clock) (db *bbolt.DB, c *contents, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening store %s: %w", path, explain(err))
		}
	}()
	if err := createFile(path); err != nil {
		return nil, nil, err
	}
	if err := migrateFile(path, migrations); err != nil {
		return nil, nil, err
	}
	if c, err = inspectFile(path, clock); err != nil {
		return nil, nil, err
	}
	options := boltOptions(false)
	options.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		c.file, err = os.OpenFile(name, flag, mode)
		return c.file, err
	}
	err = guarded(func() error {
		db, err = openForWriting(path, options)
		return err
	})
	if err != nil {
		storefile.LetGo(c.file) // after a panic nobody else does
		return nil, nil, err
	}
	db.AllocSize = growBy
	err = checkInPlace(path, c.file)
	var txID int
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error {
			txID = tx.ID()
			return nil
		})
	}
	if err == nil && txID != c.txID {
		err = errBusy
	}
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return db, c, nil
}

// checkInPlace refuses a file that another one took the place of while this process waited for its lock, as restore and compact do.
func checkInPlace(path string, file *os.File) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(opened, named) {
		return errBusy
	}
	return nil
}

// growBy is how much longer a file is made when it is full.
const growBy = 4 << 20

// mapSize is how much of the addresses of the process a file gets, whatever its size. There are plenty where they have 64 bits: a file
// up to this size never waits for those who read, such as a backup.
var mapSize = 1 << (28 + 8*(strconv.IntSize/64))

// smallMapSize is the same for a process with few addresses.
const smallMapSize = 1 << 28

func boltOptions(readOnly bool) *bbolt.Options {
	options := &bbolt.Options{
		Timeout:      storefile.LockTimeout,
		ReadOnly:     readOnly,
		FreelistType: bbolt.FreelistMapType,
		// The committer decides when it is written.
		NoFreelistSync: true,
	}
	if !readOnly && runtime.GOOS != "windows" {
		// Growing the map means to wait for all readers. On Windows it would grow the file too.
		options.InitialMmapSize = mapSize
	}
	return options
}

// openForWriting opens a file with options of boltOptions.
func openForWriting(path string, options *bbolt.Options) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, options)
	if errors.Is(err, syscall.ENOMEM) { // the process may not have that many addresses
		options.InitialMmapSize = smallMapSize
		return bbolt.Open(path, 0o600, options)
	}
	return db, err
}

// explain says what an error of the database means for an operator.
func explain(err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return errors.New("the file is locked by another process. Another Caddy is probably running with the same data directory: stop it " +
			"first, or give this one a file of its own with 'store bolt <path>'")
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch),
		errors.Is(err, errTruncated), errors.Is(err, errDamaged), errors.Is(err, errNoStoreFile):
		return fmt.Errorf("%w. The file is damaged or not one of hooks; nothing in it was changed. Put a copy from a backup in its place, or "+
			"move it away to begin with an empty one", err)
	case errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w. The disk cannot be read; nothing in the file was changed. See to the disk, and put a copy of the file from a "+
			"backup in its place if it stays unreadable", err)
	default:
		return err
	}
}

// guarded calls f, and makes what a damaged file leads to in the database's code an error: panics, and faults on pages
// that are not there.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return f()
}

// createFile makes an empty database unless there is a file already. It comes into being as a whole, so one that is cut
// short is known to be damaged, whatever its length.
func createFile(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return errors.New("it is a directory")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := temp.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(temp.Name(), 0o600, &bbolt.Options{Timeout: storefile.LockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return putVersion(tx, newestLayout(migrations))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link leaves a file alone that another process has made meanwhile.
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(path); statErr == nil {
			return nil
		}
		if err := os.Rename(temp.Name(), path); err != nil { // a file system without links
			return err
		}
	}
	return errors.Join(storefile.SyncDir(dir), storefile.SyncDir(filepath.Dir(dir)))
}

// migrateFile checks the pages of a file, and brings its layout up to date, a step a transaction.
func migrateFile(path string, migrations []func(*bbolt.Tx) error) error {
	layout, newest := 0, newestLayout(migrations)
	err := readFile(path, func(tx *bbolt.Tx) (err error) {
		if err := checkPages(tx); err != nil { // before the database looks at anything but the meta pages
			return err
		}
		if layout, err = versionOf(tx); err != nil {
			return err
		}
		return checkLayout(layout, newest)
	})
	if err != nil || layout == newest {
		return err
	}
	return guarded(func() error {
		options := boltOptions(false)
		options.NoFreelistSync = false
		db, err := openForWriting(path, options)
		if err != nil {
			return err
		}
		defer db.Close()
		for ; err == nil && layout < newest; layout++ {
			err = db.Update(func(tx *bbolt.Tx) error {
				if err := migrations[layout-firstLayout](tx); err != nil {
					return fmt.Errorf("bringing layout %d up to date: %w", layout, err)
				}
				return errors.Join(tx.Bucket(metaBucket).Delete(freelistKey), putVersion(tx, layout+1))
			})
		}
		return err
	})
}

// checkLayout refuses a layout that this version cannot read.
func checkLayout(layout, newest int) error {
	switch {
	case layout > newest:
		return fmt.Errorf("the file was written by a newer version of caddyhooks (layout %d, and this one knows up to %d)", layout, newest)
	case layout < firstLayout:
		return fmt.Errorf("the file was written before the first release of caddyhooks (layout %d, and this version reads from %d on). "+
			"Nothing in it was changed. Move it to another place, and Caddy begins with an empty file", layout, firstLayout)
	}
	return nil
}

func putVersion(tx *bbolt.Tx, version int) error {
	return tx.Bucket(metaBucket).Put(versionKey, binary.AppendUvarint(nil, uint64(version)))
}

func versionOf(tx *bbolt.Tx) (int, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return 0, errNoStoreFile
	}
	version, _ := binary.Uvarint(meta.Get(versionKey))
	if version == 0 {
		return 0, errNoStoreFile
	}
	return int(version), nil
}

// readFile reads from a file without any risk for it, and for the process if the file is damaged.
func readFile(path string, read func(*bbolt.Tx) error) error {
	return guarded(func() (err error) {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < smallestFile {
			return errTruncated
		}
		var file *os.File
		options := boltOptions(true)
		options.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		}
		db, err := bbolt.Open(path, 0o600, options)
		if err != nil {
			return err
		}
		defer db.Close()
		defer func() {
			if err != nil && checkInPlace(path, file) != nil {
				err = errBusy // another file took its place, so what was found says nothing
			}
		}()
		return db.View(func(tx *bbolt.Tx) error {
			if info, err = os.Stat(path); err != nil {
				return err
			}
			if info.Size() < tx.Size() {
				return errTruncated
			}
			return read(tx)
		})
	})
}

// inspectFile reads what is unfinished. It takes as long as there is of that, whatever else is in the file.
func inspectFile(path string, clock *local.Clock) (*contents, error) {
	nodes := new(local.Nodes)
	c := &contents{clock: clock, nodes: nodes, queue: local.NewQueue(nodes), outbox: local.NewOutbox()}
	err := readFile(path, c.begin)
	for from := []byte{}; err == nil && from != nil; {
		// Each part is read through a map of its own, or the whole file would count as memory of this process.
		err = readFile(path, func(tx *bbolt.Tx) (err error) {
			if tx.ID() != c.txID {
				return errBusy
			}
			from, err = c.readRuns(tx, from)
			return err
		})
	}
	if err == nil {
		err = readFile(path, c.readRest)
	}
	return c, err
}

// begin looks at the file as a whole.
func (c *contents) begin(tx *bbolt.Tx) error {
	c.txID = tx.ID()
	for _, name := range allBuckets {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: it has no %s", errDamaged, name)
		}
	}
	meta := tx.Bucket(metaBucket)
	count, _ := binary.Uvarint(meta.Get(keyCountKey))
	c.keyCount = int(count)
	c.input = inputBytesOf(tx)
	c.ahead = aheadOf(tx)
	c.newRuns = len(newRunsOf(tx))
	c.revision = revisionOf(tx)
	c.dead = deadCountsOf(tx)
	_ = tx.Bucket(openBucket).ForEach(func(_, _ []byte) error {
		c.open++
		return nil
	})
	if id, _ := tx.Bucket(endedBucket).Cursor().Last(); id != nil {
		c.ids.After(uuid.UUID(id))
	}
	return nil
}

// partSize is how much of the runs is read through one map.
const partSize = 64 << 20

// readRuns reads a part of the unfinished runs, and returns where the next one begins, nil if there is none.
func (c *contents) readRuns(tx *bbolt.Tx, from []byte) (next []byte, err error) {
	size := 0
	order := new(local.IDRange)
	asked := walks.Over(tx, askedBucket, nil, order)
	runs := walks.NewAny(order, walks.Over(tx, runsBucket, nil, order), walks.Keys{Bucket: asked})
	for runs.Seek(from); runs.Head() != nil; runs.Next() {
		id := uuid.UUID(runs.Head())
		if size > partSize {
			return id[:], nil
		}
		data, hasAsked := runs.Value(), bytes.Equal(asked.Head(), id[:])
		if data == nil {
			data = asideRunOf(asked.Value())
		}
		if data != nil {
			n, err := c.restoreRun(tx, id, data)
			if err != nil {
				return nil, err
			}
			size += n
		}
		if hasAsked {
			if err := c.restoreAsked(id, asked.Value()); err != nil {
				return nil, fmt.Errorf("questions of run %s: %w", id, err)
			}
		}
	}
	return nil, nil
}

// restoreRun puts an unfinished run in the queue, and returns how many bytes it read.
func (c *contents) restoreRun(tx *bbolt.Tx, id uuid.UUID, data []byte) (size int, err error) {
	entry, inputApart, err := entryOf(id, data, c.clock)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", id, errDamaged)
	}
	size = len(id) + len(data)
	if inputApart {
		input := tx.Bucket(inputBucket).Get(id[:])
		size += len(input)
		err := fieldsOf(id[:], input, func(n protowire.Number, f field) bool {
			if n == inputMessage {
				entry.Size = len(f.bytes)
			}
			return false // the message is the first, if there is one
		})
		if err != nil {
			return 0, fmt.Errorf("the input of run %s: %w", id, errDamaged)
		}
	}
	c.queue.Push(entry)
	c.ids.After(id)
	return size, nil
}

// readRest reads what goes with unfinished runs, and the deliveries.
func (c *contents) readRest(tx *bbolt.Tx) error {
	err := tx.Bucket(startsBucket).ForEach(func(key, value []byte) error {
		starts, _ := binary.Uvarint(value)
		if len(key) != len(uuid.UUID{}) {
			return fmt.Errorf("start of run %x: %w", key, errDamaged)
		}
		if id := uuid.UUID(key); c.queue.Has(id) {
			c.queue.SetStarts(id, int(starts))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket(waitsBucket).ForEach(func(key, value []byte) error {
		wait, err := decodeWait(key, value)
		if err != nil || len(key) != len(uuid.UUID{}) {
			return fmt.Errorf("wait of run %x: %w", key, errDamaged)
		}
		wait.Due = c.clock.Due(wait.Due, engine.LongestRunPause)
		if id := uuid.UUID(key); c.queue.Has(id) {
			c.queue.SetWait(id, wait)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Bucket(outboxBucket).ForEach(func(key, value []byte) error {
		if len(key) != len(local.DeliveryKey{}) {
			return fmt.Errorf("delivery %x: %w", key, errDamaged)
		}
		d, err := decodeDelivery(local.DeliveryKey(key), value)
		if err != nil {
			return fmt.Errorf("delivery %x: %w", key, err)
		}
		c.outbox.Add(d.Destination(), local.DeliveryKey(key), c.clock.Due(d.Due, engine.LongestDeliveryPause))
		return nil
	})
}
