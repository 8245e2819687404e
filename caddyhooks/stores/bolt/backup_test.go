package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// startBackup begins a backup that ends with the test at the latest.
func startBackup(t *testing.T, s *store) *backup {
	t.Helper()
	started, err := s.StartBackup("default")
	if err != nil {
		t.Fatal(err)
	}
	b := started.(*backup)
	t.Cleanup(b.cancelForTests)
	return b
}

func (b *backup) cancelForTests() { b.cancel(context.Canceled) }

// filledStore is a store with something of everything in it.
func filledStore(t *testing.T, path string) *store {
	t.Helper()
	s := newBolt(t, path)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		fillStore(t, s, random, i)
	}
	return s
}

// backupFile makes a backup of a store with something of everything in it.
func backupFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := filledStore(t, filepath.Join(dir, "store.db"))
	defer s.Close()
	b := startBackup(t, s)
	path := filepath.Join(dir, "backup.db")
	file, err := storefile.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteTo(file); err != nil {
		t.Fatal(err)
	}
	if _, err := PlaceBackup(file, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// recordsIn is a digest of all records in a file.
func recordsIn(t *testing.T, path string) (records []byte) {
	t.Helper()
	err := readFile(path, func(tx *bbolt.Tx) error {
		records = recordsOf(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// wantOnly checks that a directory has these files and no others.
func wantOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

func TestABackupUnderLoadHasTheRecordsOfOneMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := filledStore(t, filepath.Join(dir, "store.db"))
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					addRuns(t, s, 8, 8)
					finishAll(t, s)
				}
			}
		})
	}
	for i := range 3 {
		b := startBackup(t, s)
		want := recordsOf(b.tx)
		addRuns(t, s, 20, 20) // which the backup must not have
		path := filepath.Join(dir, fmt.Sprint("backup", i))
		file, err := storefile.Create(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := b.WriteTo(file); err != nil || n != b.Size() {
			t.Fatalf("wrote %d of %d bytes: %v", n, b.Size(), err)
		}
		checked, err := PlaceBackup(file, false)
		if err != nil || checked.Path != path || checked.Manifest.Instance != "default" || checked.Summary.Damaged != 0 || checked.Summary.Ended == 0 {
			t.Fatalf("the backup is %+v: %v", checked, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(recordsIn(t, path), want) {
			t.Fatal("the backup has other records than the file had when it began")
		}
		restored := filepath.Join(dir, fmt.Sprint("restored", i))
		if kept, err := checked.Restore(restored, false); err != nil || kept != "" {
			t.Fatalf("kept %q: %v", kept, err)
		}
		if !bytes.Equal(recordsIn(t, restored), want) {
			t.Fatal("the restored file has other records than the backup")
		}
		other := newBolt(t, restored)
		finishAll(t, other)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	load.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// stalling is a client that reads nothing, until the backup ends.
type stalling struct{ ctx context.Context }

func (s stalling) Write([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, errors.New("the client is gone")
}

func TestABackupThatStallsDoesNotStopCommits(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "store.db"))
	defer s.Close()
	b := startBackup(t, s)
	written := make(chan error, 1)
	go func() {
		_, err := b.WriteTo(stalling{b.Context()})
		written <- err
	}()
	s.committer.maxWrite = time.Millisecond
	for range 20 {
		run := testRun("a", strings.Repeat("long ", 100_000))
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.StartBackup("default"); !errors.Is(err, engine.ErrBackupUnderWay) {
		t.Errorf("a second backup: %v", err)
	}
	select {
	case err := <-written:
		t.Errorf("the backup ended: %v", err)
	default:
	}
	b.cancelForTests()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("the backup ended with %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := startBackup(t, s).Close(); err != nil {
		t.Error(err)
	}
}

// Not parallel: it changes how files are opened.
func TestABackupGivesWayToCommitsThatNeedAnotherMap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("maps are as large as files there")
	}
	defer func(before int) { mapSize = before }(mapSize)
	mapSize = 1 << 20
	s := newBolt(t, filepath.Join(t.TempDir(), "store.db"))
	defer s.Close()
	s.giveWayAfter = 100 * time.Millisecond
	b := startBackup(t, s)
	written := make(chan error, 1)
	go func() {
		_, err := b.WriteTo(stalling{b.Context()})
		written <- errors.Join(err, b.Close())
	}()
	for range 20 {
		if err := s.Runs().Add(t.Context(), testRun("a", strings.Repeat("long ", 100_000)), engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-written; !errors.Is(err, errGaveWay) {
		t.Errorf("the backup ended with %v", err)
	}
}

func TestAStoreThatClosesEndsItsBackup(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "store.db"))
	b := startBackup(t, s)
	written := make(chan error, 1)
	go func() {
		_, err := b.WriteTo(stalling{b.Context()})
		written <- errors.Join(err, b.Close())
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-written; !errors.Is(err, errStoreClosing) {
		t.Errorf("the backup ended with %v", err)
	}
	if _, err := s.StartBackup("default"); err == nil {
		t.Error("a backup of a closed store began")
	}
}

func TestDamagedBackupsAreRefused(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := storefile.ReadManifest(bytes.NewReader(good), int64(len(good)))
	if err != nil || manifest == nil {
		t.Fatalf("the manifest is %+v, %v", manifest, err)
	}
	path := filepath.Join(t.TempDir(), "backup.db")
	check := func(data []byte) error {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Check(path)
		return err
	}
	if err := check(good); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*storefile.Manifest)) []byte {
		changed := *manifest
		change(&changed)
		return append(slices.Clone(good[:manifest.Bytes]), changed.Encode()...)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":           {nil, "too short"},
		"cut in its pages":  {good[:manifest.Bytes-1], "the end of the file is missing"},
		"cut to one page":   {good[:4096], "too short"},
		"no bolt file":      {bytes.Repeat([]byte("text\n"), 10_000), "neither a backup nor the file of a store"},
		"a newer format":    {with(func(m *storefile.Manifest) { m.Format++ }), "newer version of caddyhooks"},
		"another size":      {with(func(m *storefile.Manifest) { m.Bytes-- }), "damaged"},
		"another digest":    {with(func(m *storefile.Manifest) { m.SHA256 = make([]byte, 32) }), "its checksum is wrong"},
		"a short digest":    {with(func(m *storefile.Manifest) { m.SHA256 = nil }), "damaged"},
		"a page less":       {append(slices.Clone(good[:manifest.Bytes-4096]), good[manifest.Bytes:]...), "damaged"},
		"a manifest of {}":  {slices.Concat(good[:manifest.Bytes], []byte("{}"), []byte{0, 0, 0, 0, 0, 0, 0, 2}, []byte(storefile.ManifestMagic)), "damaged"},
		"a manifest that …": {slices.Concat(good, bytes.Repeat([]byte{255}, 8), []byte(storefile.ManifestMagic)), "damaged"},
	} {
		if err := check(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		data := slices.Clone(good)
		at := random.IntN(len(data) - storefile.ManifestTail)
		data[at] ^= 1 << random.IntN(8)
		if err := check(data); err == nil {
			// A letter of the manifest that says nothing about the pages may be another one.
			if int64(at) < manifest.Bytes {
				t.Errorf("a bit of byte %d of %d is another one, and nobody noticed", at, len(data))
			}
		}
	}
	if _, err := Check(t.TempDir()); !errors.Is(err, storefile.ErrNotRegular) {
		t.Errorf("a directory: %v", err)
	}
}

// To read a terabyte takes an hour, though next to nothing of it is there.
func TestSparseFilesAreNotReadToTheirEnd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files there have no holes unless they are made so")
	}
	const terabyte = 1 << 40
	dir := t.TempDir()
	extend := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Truncate(path, terabyte); err != nil {
			t.Skipf("the file system has no files of a terabyte: %v", err)
		}
	}
	store := filepath.Join(dir, "store.db")
	if err := filledStore(t, store).Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := Check(store)
	if err != nil {
		t.Fatal(err)
	}

	// What is behind the pages belongs to nobody.
	extend(t, store)
	checked, err := Check(store)
	if err != nil || checked.Bytes != whole.Bytes || !reflect.DeepEqual(checked.Summary, whole.Summary) {
		t.Fatalf("checked %+v, want %+v: %v", checked, whole, err)
	}
	restored := filepath.Join(dir, "restored.db")
	if _, err := checked.Restore(restored, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(restored); err != nil || info.Size() != whole.Bytes {
		t.Errorf("restored %v, want %d bytes: %v", info, whole.Bytes, err)
	}

	nothing := filepath.Join(dir, "nothing.db")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	extend(t, nothing)
	if _, err := Check(nothing); err == nil || !strings.Contains(err.Error(), "neither a backup nor the file of a store") {
		t.Errorf("a file of nothing: %v", err)
	}

	// The pages claim all of the file.
	claims := filepath.Join(dir, "claims.db")
	if err := os.Rename(restored, claims); err != nil {
		t.Fatal(err)
	}
	extend(t, claims)
	claimPages(t, claims, terabyte)
	if _, err := Check(claims); err == nil || !strings.Contains(err.Error(), "it is a sparse file") {
		t.Errorf("a file that claims a terabyte: %v", err)
	}
}

// claimPages has both meta pages say that the database is so large.
func claimPages(t *testing.T, path string, size int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pageSize := int64(os.Getpagesize())
	for n := range int64(2) {
		meta := make([]byte, 64)
		if _, err := file.ReadAt(meta, n*pageSize+pageHeader); err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint64(meta[40:], uint64(size/pageSize))
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
		if _, err := file.WriteAt(meta, n*pageSize+pageHeader); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABackupOfANewerLayoutIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := newBolt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return putVersion(tx, newestLayout(migrations)+1) }), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(path); err == nil || !strings.Contains(err.Error(), "newer version of caddyhooks") {
		t.Errorf("got %v", err)
	}
}

func TestABackupIsTheOperatorsAloneAndNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	source := backupFile(t)
	data, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "backup.db")
	write := func(data []byte, overwrite bool) error {
		file, err := storefile.Create(path, overwrite)
		if err != nil {
			return err
		}
		defer file.Discard()
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		_, err = PlaceBackup(file, overwrite)
		return err
	}
	if err := write(data[:len(data)-1], false); err == nil {
		t.Error("a backup that broke off was taken for one")
	}
	wantOnly(t, dir)
	if err := write(data, false); err != nil {
		t.Fatal(err)
	}
	wantOnly(t, dir, "backup.db")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v", info.Mode(), err)
	}
	var exists *storefile.ExistsError
	if err := write(data, false); !errors.As(err, &exists) {
		t.Errorf("a second backup: %v", err)
	}
	if err := write(data, true); err != nil {
		t.Error(err)
	}
	if err := write(nil, true); err == nil {
		t.Error("nothing was taken for a backup")
	}
	wantOnly(t, dir, "backup.db")
	if _, err := Check(path); err != nil {
		t.Error(err)
	}
	// A file that comes into being meanwhile stays.
	file, err := storefile.Create(filepath.Join(dir, "late.db"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Discard()
	if _, err := file.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "late.db"), []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PlaceBackup(file, false); !errors.As(err, &exists) {
		t.Errorf("a late file: %v", err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "link.db")); err != nil {
		t.Fatal(err)
	}
	for _, overwrite := range []bool{false, true} {
		if _, err := storefile.Create(filepath.Join(dir, "link.db"), overwrite); err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("a link: %v", err)
		}
		if _, err := storefile.Create(dir, overwrite); err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("a directory: %v", err)
		}
	}
	if _, err := storefile.Create(filepath.Join(dir, "none", "backup.db"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestRestoreKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	checked, err := Check(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := newBolt(t, path)
	addRuns(t, s, 3, 3)
	var inUse *storefile.InUseError
	for _, overwrite := range []bool{false, true} {
		if _, err := checked.Restore(path, overwrite); !errors.As(err, &inUse) {
			t.Errorf("while it is open: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := recordsIn(t, path)
	var exists *storefile.ExistsError
	if _, err := checked.Restore(path, false); !errors.As(err, &exists) {
		t.Errorf("a file that is there: %v", err)
	}
	wantOnly(t, dir, "store.db")
	kept, err := checked.Restore(path, true)
	if err != nil {
		t.Fatal(err)
	}
	wantOnly(t, dir, "store.db", filepath.Base(kept))
	if !bytes.Equal(recordsIn(t, kept), before) || !bytes.Equal(recordsIn(t, path), recordsIn(t, checked.Path)) {
		t.Error("the files have other records than they should have")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != checked.Bytes {
		t.Errorf("the file is %v, %v", info, err)
	}
	// The file behind a link is replaced, not the link.
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if kept, err := checked.Restore(link, true); err != nil || filepath.Dir(kept) != dir {
		t.Errorf("kept %s: %v", kept, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	dangling := filepath.Join(t.TempDir(), "dangling.db")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	if _, err := checked.Restore(dangling, true); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to nowhere: %v", err)
	}
	// A damaged file can be replaced.
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checked.Restore(path, true); err != nil {
		t.Error(err)
	}
	// A backup that is changed after its check is not put in place.
	data, err := os.ReadFile(checked.Path)
	if err != nil {
		t.Fatal(err)
	}
	data[5000] ^= 1
	if err := os.WriteFile(checked.Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.db")
	if _, err := checked.Restore(other, false); err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Errorf("got %v", err)
	}
	wantOnly(t, filepath.Dir(other))
}

// A process that waits for the lock of a file gets it when the file has lost its name, and would write where nobody finds it.
func TestAFileThatWasReplacedIsNotOpened(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps its name there")
	}
	path := filepath.Join(t.TempDir(), "store.db")
	if err := newBolt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := checkInPlace(path, file); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := checkInPlace(path, file); !errors.Is(err, errBusy) {
		t.Errorf("the file is gone: %v", err)
	}
	if err := newBolt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkInPlace(path, file); !errors.Is(err, errBusy) {
		t.Errorf("another one took its place: %v", err)
	}
}

// Whoever opens a file while it is replaced has the new one, or is told to try again.
func TestAFileThatIsReplacedIsOpenedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	checked, err := Check(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := checked.Restore(path, false); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		opened := make(chan error, 1)
		go func() {
			database, err := Open(path)
			if err == nil {
				err = errors.Join(checkInPlace(path, database.file), database.Store().Close())
			}
			opened <- err
		}()
		var inUse *storefile.InUseError
		if _, err := checked.Restore(path, true); err != nil && !errors.As(err, &inUse) {
			t.Error(err)
		}
		if err := <-opened; err != nil && !errors.Is(err, errBusy) {
			t.Error(err)
		}
	}
}

func TestCompactGivesSpaceBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := filledStore(t, path)
	for i := range 40 {
		run := testRun(fmt.Sprint("large", i), strings.Repeat("long ", 50_000))
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	finishAll(t, s)
	if _, err := Compact(path, func(int64) {}); err == nil || !strings.Contains(err.Error(), "is in use: stop Caddy first") {
		t.Errorf("while it is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := recordsIn(t, path)
	done, err := Compact(path, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != done.After || done.After > done.Before/4 || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v after %+v, %v", info, done, err)
	}
	if !bytes.Equal(recordsIn(t, path), before) {
		t.Error("the records are others")
	}
	wantOnly(t, dir, "store.db")
	s = newBolt(t, path)
	addRuns(t, s, 10, 2)
	finishAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"damaged": bytes.Repeat([]byte("no"), 20_000), "empty": nil} {
		other := filepath.Join(dir, name)
		if err := os.WriteFile(other, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Compact(other, func(int64) {}); err == nil {
			t.Errorf("a file that is %s was compacted", name)
		}
	}
	if _, err := Compact(backupFile(t), func(int64) {}); err == nil || !strings.Contains(err.Error(), "it is a backup") {
		t.Errorf("a backup: %v", err)
	}
	if _, err := Compact(filepath.Join(dir, "none"), func(int64) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	wantOnly(t, dir, "store.db", "damaged", "empty")
}
