package bolt

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var (
	corruptions    = flag.Int("corruptions", 120, "how many damaged files the store is tried with")
	corruptionSeed = flag.Uint64("corruption-seed", 0, "where chance begins in the test with damaged files; 0: somewhere new")
	damagedFile    = flag.String("damaged-file", "", "a file that a failure of that test has left, to be tried again")
)

// TestDamagedFilesAreRefusedOrWork opens many files, each damaged in its own way, and works with those that are not refused.
// Nothing may hang or crash, and whatever was accepted must be there when the file is opened again. A failure names its seed
// and leaves its file, and both together repeat it: -corruption-seed <seed> -damaged-file <file>.
func TestDamagedFilesAreRefusedOrWork(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	seed := *corruptionSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-corruption-seed %d", seed)
	if *damagedFile != "" {
		c := &corruption{t: t, seed: seed, path: filepath.Join(t.TempDir(), "hooks.db"), results: new(tally)}
		c.try([]*specimenFile{{"that was left by a failure", contentsOf(t, *damagedFile), nil}})
		return
	}
	specimens := newSpecimens(t)
	var next atomic.Int64
	var results tally
	var workers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) { // they wait for the disk most of the time
		dir := t.TempDir()
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(*corruptions) && !t.Failed(); n = next.Add(1) - 1 {
				c := &corruption{t: t, seed: seed + uint64(n), path: filepath.Join(dir, fmt.Sprintf("%d.db", n)), results: &results}
				c.try(specimens)
				_ = os.Remove(c.path)
			}
		})
	}
	workers.Wait()
	t.Log(results.String())
	if results.refused.Load() == 0 || results.used.Load() == 0 || results.accepted.Load() == 0 {
		t.Error("that was not enough to tell")
	}
}

// tally counts what came of damaged files.
type tally struct{ refused, used, broke, accepted, damagedOpen, brokeOpen atomic.Int64 }

func (r *tally) String() string {
	return fmt.Sprintf("%d files were refused; %d were used, of which %d broke, and %d runs accepted; %d were damaged while they were open, of which %d broke",
		r.refused.Load(), r.used.Load(), r.broke.Load(), r.accepted.Load(), r.damagedOpen.Load(), r.brokeOpen.Load())
}

// specimenFile is a sound file with all there can be in it, and how it was some time before.
type specimenFile struct {
	name       string
	file, then []byte
}

func newSpecimens(t *testing.T) []*specimenFile {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "hooks.db")
	s := newBolt(t, path)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 150 {
		fillStore(t, s, random, i)
	}
	then := contentsOf(t, path)
	for i := range 150 {
		fillStore(t, s, random, 150+i)
	}
	if _, err := s.Settings().Save(t.Context(), []byte(`{"enabled":true}`), []byte("a change"), 0); err != nil {
		t.Fatal(err)
	}
	crashed := &specimenFile{"of a process that was killed", contentsOf(t, path), then}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed := &specimenFile{"that was closed", contentsOf(t, path), then}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(freelistKey, []byte{1}) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	unlisted := &specimenFile{"without a list of free pages", contentsOf(t, path), then}
	all := []*specimenFile{crashed, closed, unlisted}
	for _, specimen := range all { // the file is longer than what is in use, as it grows by more than it needs
		specimen.file = specimen.file[:min(len(specimen.file), usedBy(t, specimen.file, dir))]
	}
	return all
}

func contentsOf(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// usedBy is how many bytes of a file are in use.
func usedBy(t *testing.T, data []byte, dir string) (used int) {
	t.Helper()
	path := filepath.Join(dir, "copy.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readFile(path, func(tx *bbolt.Tx) error {
		used = int(tx.Size())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return used
}

// fillStore adds a run and brings it into some state.
func fillStore(t *testing.T, s *store, random *rand.Rand, i int) {
	t.Helper()
	run := someRun(random, i)
	if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	if i%4 == 0 {
		return // it is queued
	}
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Hour})
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	if i%4 == 1 && i%8 == 1 {
		return // it is started
	}
	if _, err := s.Runs().End(t.Context(), claims[0], someEnd(random, claims[0].Run), engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 1, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range due {
		d.Attempt++
		d.Status = []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Pending}[random.IntN(3)]
		if err := s.Deliveries().Settle(t.Context(), d, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}

func someRun(random *rand.Rand, i int) *engine.Run {
	run := testRun(fmt.Sprintf("chat %d", i%97), strings.Repeat("m", random.IntN(400)))
	if random.IntN(2) == 0 {
		run.History, run.MemoryPreset = time.Hour, "general_chat" // later turns are told about it
	}
	if random.IntN(30) == 0 {
		run.Message = strings.Repeat("long", 2000)
	}
	if random.IntN(3) == 0 {
		run.Key = new(engine.Key)
		for j := range run.Key.ID {
			run.Key.ID[j] = byte(random.Uint32())
		}
	}
	return run
}

func someEnd(random *rand.Rand, run *engine.Run) engine.End {
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, HasText: true, Text: strings.Repeat("t", random.IntN(300))}}
	if random.IntN(3) > 0 {
		end.Session = engine.Session{Runner: "a runner", ID: strings.Repeat("s", 1+random.IntN(60))}
	}
	for index := range random.IntN(3) {
		end.Deliveries = append(end.Deliveries, &engine.Delivery{
			ID: fmt.Sprintf("msg_%s_%d", run.ID, index), RunID: run.ID, Index: index, ChatID: run.ChatID, Status: engine.Pending,
			Callback: fmt.Sprintf("https://host-%d.example/", random.IntN(50)), Body: strings.Repeat("b", random.IntN(300)),
		})
	}
	return end
}

// corruption is one damaged file.
type corruption struct {
	t       *testing.T
	seed    uint64
	path    string
	results *tally
	random  *rand.Rand
	damages []string
	before  []byte // the file when it was opened
	left    string // where it was left

	accepted map[string]bool // runs that Add has reported as kept, or that were there at first
	added    int
	refusal  error // of the last time that the file was opened
	pruned   bool  // runs that have ended may be gone
	ended    map[string]bool
}

func (c *corruption) errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf(c.String()+": "+format, args...)
}

// String says how to repeat what was done.
func (c *corruption) String() string {
	if file, err := os.CreateTemp("", "damaged-*.db"); err == nil && c.left == "" {
		_, err = file.Write(c.before)
		if err == nil && file.Close() == nil {
			c.left = file.Name()
		}
	}
	return fmt.Sprintf("-corruption-seed %d -damaged-file %s (%s)", c.seed, c.left, strings.Join(c.damages, "; "))
}

// try damages a file and works with it.
func (c *corruption) try(specimens []*specimenFile) {
	c.random = rand.New(rand.NewPCG(c.seed, 0))
	c.accepted, c.ended = make(map[string]bool), make(map[string]bool)
	specimen := specimens[c.random.IntN(len(specimens))]
	whileOpen := c.random.IntN(6) == 0
	c.damages = append(c.damages, "a file "+specimen.name)
	data := bytes.Clone(specimen.file)
	if !whileOpen && *damagedFile == "" {
		for range 1 + c.random.IntN(2)*c.random.IntN(3) {
			c.damage(data, specimen)
		}
	}
	c.before = data
	if err := os.WriteFile(c.path, data, 0o600); err != nil {
		c.t.Error(err)
		return
	}
	var s *store
	c.within("opening", func() { s = c.open() })
	if s == nil {
		c.results.refused.Add(1)
		if after, err := os.ReadFile(c.path); err != nil || !bytes.Equal(after, data) {
			c.errorf("the file that was refused was changed, %v", err)
		}
		return
	}
	if whileOpen {
		c.results.damagedOpen.Add(1)
		c.within("working, with damage in between", func() {
			c.work(s, 5)
			c.damageOpenFile(specimen)
			c.work(s, 20)
		})
		c.close(s, &c.results.brokeOpen)
		c.within("opening again", func() {
			if s = c.open(); s != nil {
				c.close(s, nil)
			}
		})
		return
	}
	c.results.used.Add(1)
	c.within("looking", func() { c.look(s) })
	c.within("working", func() { c.work(s, 25) })
	c.close(s, &c.results.broke)
	c.results.accepted.Add(int64(c.added))
	c.within("opening again", func() { s = c.open() })
	if s == nil {
		c.errorf("the file was opened, %d runs were accepted, and now it is refused: %v", c.added, c.refusal)
		return
	}
	c.within("looking again", func() { c.check(s) })
	c.close(s, nil)
}

// damage does to data what a bad disk might do.
func (c *corruption) damage(data []byte, specimen *specimenFile) {
	const size = 4096
	pages := len(data) / size
	page := c.random.IntN(pages)
	here := data[page*size : (page+1)*size]
	switch c.random.IntN(6) {
	case 0, 1: // most bytes of a page are contents; what is at its beginning matters more
		at := c.random.IntN(size)
		if c.random.IntN(2) == 0 {
			at = c.random.IntN(128)
		}
		here[at] ^= byte(1 + c.random.IntN(255))
		c.damages = append(c.damages, fmt.Sprintf("byte %d of page %d", at, page))
	case 2:
		other := c.random.IntN(pages)
		there := data[other*size : (other+1)*size]
		kept := bytes.Clone(here)
		copy(here, there)
		copy(there, kept)
		c.damages = append(c.damages, fmt.Sprintf("pages %d and %d are swapped", page, other))
	case 3:
		clear(here)
		c.damages = append(c.damages, fmt.Sprintf("page %d is zeros", page))
	case 4, 5: // a write of which half or all was lost
		if (page+1)*size > len(specimen.then) {
			clear(here[size/2:])
			c.damages = append(c.damages, fmt.Sprintf("half of page %d is zeros", page))
			return
		}
		from, to := 0, size
		switch c.random.IntN(3) {
		case 0:
			to = size / 2
		case 1:
			from = size / 2
		}
		copy(here[from:to], specimen.then[page*size+from:])
		c.damages = append(c.damages, fmt.Sprintf("bytes %d to %d of page %d are old", from, to, page))
	}
}

// damageOpenFile overwrites pages of the file that the store has open.
func (c *corruption) damageOpenFile(specimen *specimenFile) {
	file, err := os.OpenFile(c.path, os.O_RDWR, 0)
	if err != nil {
		c.errorf("%v", err)
		return
	}
	defer file.Close()
	pages := len(specimen.file) / 4096
	for range 1 + c.random.IntN(pages/2) {
		page := make([]byte, 4096)
		kind, at := c.random.IntN(3), c.random.IntN(pages)
		switch kind {
		case 1:
			for i := range page {
				page[i] = byte(c.random.Uint32())
			}
		case 2:
			_, _ = file.ReadAt(page, int64(c.random.IntN(pages))*4096)
		}
		if _, err := file.WriteAt(page, int64(at)*4096); err != nil {
			c.errorf("%v", err)
		}
	}
	c.damages = append(c.damages, "pages overwritten while it is open")
}

// within fails the whole test if f does not return: there is nothing to go on with.
func (c *corruption) within(what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute): // for machines that are very busy
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		panic(fmt.Sprintf("%s: %s takes for ever\n%s", c, what, stacks))
	}
}

// open returns nil if the file is refused.
func (c *corruption) open() *store {
	database, err := Open(c.path)
	c.refusal = err
	if err == nil {
		return database.Store().(*store)
	}
	if !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), "nothing in it was changed") {
		c.errorf("the error does not say what to do: %v", err)
	}
	return nil
}

// close closes the store, and counts it if it is broken.
func (c *corruption) close(s *store, broke *atomic.Int64) {
	c.within("closing", func() {
		var broken *engine.StoreBrokenError
		err := s.Close()
		if err != nil && !errors.As(err, &broken) {
			c.errorf("closing failed: %v", err)
		}
		if broke != nil && s.whenBroken() != nil {
			broke.Add(1)
		}
	})
}

// look notes down which unfinished runs are there.
func (c *corruption) look(s *store) {
	for cursor := ""; ; {
		page, next, err := s.Runs().List(context.Background(), engine.Query{Limit: 50, Cursor: cursor})
		if err != nil {
			return // some record is damaged, and says so
		}
		for _, record := range page {
			c.accepted[record.Run.ID] = true
			c.ended[record.Run.ID] = record.Status.Ended()
		}
		if next == "" {
			return
		}
		cursor = next
	}
}

// work does a number of things that are done with a store. What fails was not done.
func (c *corruption) work(s *store, steps int) {
	ctx := context.Background()
	var claims []*engine.Claim
	end := func() {
		if len(claims) == 0 {
			return
		}
		claim := claims[0]
		claims = claims[1:]
		c.ended[claim.Run.ID] = true // in any case it may have
		next, err := s.Runs().End(ctx, claim, someEnd(c.random, claim.Run), engine.Batch{Max: c.random.IntN(2), Lease: time.Hour})
		if err == nil {
			claims = append(claims, next...)
		}
	}
	for i := range steps {
		switch c.random.IntN(10) {
		case 0, 1, 2, 3:
			run := someRun(c.random, i)
			if err := s.Runs().Add(ctx, run, engine.Terms{Settings: s.savedRevision.Load(), Limits: engine.Limits{Keys: 60}}); err == nil {
				c.accepted[run.ID] = true
				c.added++
			}
		case 4:
			more, _, _ := s.Runs().Claim(ctx, engine.Batch{Max: 3, Lease: time.Hour})
			claims = append(claims, more...)
		case 5, 6:
			end()
		case 7:
			due, _, _ := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 3, Lease: time.Hour})
			for _, d := range due {
				d.Status = []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Pending}[c.random.IntN(3)]
				_ = s.Deliveries().Settle(ctx, d, time.Hour)
			}
		case 8:
			c.pruned = true
			_, _ = s.Prune(ctx, engine.Limits{Retention: time.Duration(1+c.random.IntN(1000)) * time.Millisecond})
		case 9:
			_, _, _ = s.Runs().List(ctx, engine.Query{Limit: 100})
			_, _ = s.Runs().Past(ctx, "chat 1", 20, 1<<20)
			_, _ = s.Sessions().Get(ctx, "a runner", "chat 1")
			_, _, _ = s.Deliveries().List(ctx, engine.DeliveryQuery{Limit: 100})
			_, _, _ = s.Settings().Load(ctx)
			_, _, _ = s.Settings().Changes(ctx, 100, "")
			_, _ = s.Settings().Save(ctx, []byte("{}"), []byte("another change"), s.savedRevision.Load())
		}
	}
}

// check checks that what was accepted is there.
func (c *corruption) check(s *store) {
	for id := range c.accepted {
		record, err := s.Runs().Get(context.Background(), id)
		switch {
		case err == nil && (c.ended[id] || !record.Status.Ended()):
		case errors.Is(err, errDamaged) && c.ended[id]: // by the damage that was done, and it says so
		case errors.Is(err, engine.ErrNotFound) && c.ended[id] && c.pruned:
		default:
			c.errorf("run %s was accepted, and now is %+v, %v", id, record, err)
		}
	}
	err := s.view(context.Background(), func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			if !strings.Contains(err.Error(), "unreachable unfreed") { // a page that is lost does no harm
				c.errorf("the file: %v", err)
			}
		}
		return nil
	})
	if err != nil {
		c.errorf("%v", err)
	}
}
