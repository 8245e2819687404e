package refused

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
)

// Store is where the counts of all nodes are.
type Store struct {
	Documents engine.Documents
	Retention time.Duration // after which a kind is forgotten
	Log       *zap.Logger
}

// saver adds what a node has counted to what is in the store. A store that fails is tried again, and what it did not take is added later.
type saver struct {
	recorder *Recorder
	wake     chan struct{} // there is something to save
	stop     chan struct{}
	loop     sync.WaitGroup

	// Under the lock of the recorder.
	stores  []*Store // of the configurations in use, the newest last
	started bool
	dirty   bool // the loop knows that there is something to save

	// io is held by whoever talks to the store, and by nobody who notes a request. It guards what follows.
	io       sync.Mutex
	kinds    collection[Requests]
	requests collection[Kept]
	failing  bool // the last attempt to save failed
}

const (
	kindDocuments    = "refused"
	requestDocuments = "refused-request"

	// saveEvery is how long a count waits for others before it is saved.
	saveEvery = time.Second
	// longestSavePause is the longest time between attempts to save.
	longestSavePause = 30 * time.Second
	// savePatience bounds an attempt to save, and readPatience one to read.
	savePatience = 5 * time.Second
	readPatience = 2 * time.Second
	// saveTries is how often documents are saved at once that other nodes change.
	saveTries = 10
	// readAge is how old documents may be that are listed.
	readAge = time.Second
	// tidyEvery is how often documents are looked for that are too old.
	tidyEvery = time.Minute
)

// collection is what is known of the documents of a kind.
type collection[T any] struct {
	known map[string]stored[T] // by name; nil if it is not known
	at    time.Time            // when it was read
}

type stored[T any] struct {
	revision int64
	value    T
	size     int
}

// Use has counts saved in a store until the returned function is called, which saves the rest. During a reload there may be two stores:
// the newest counts.
func (r *Recorder) Use(store *Store) (leave func()) {
	if r == nil {
		return func() {}
	}
	s := &r.saver
	s.io.Lock()
	defer s.io.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.stores = append(s.stores, store)
	s.kinds, s.requests = collection[Requests]{}, collection[Kept]{} // which may be those of another store
	if !s.started && !r.closed {
		s.started = true
		s.loop.Go(s.run)
	}
	s.changed() // what is too old is removed at the start
	return sync.OnceFunc(func() { s.leave(store) })
}

// leave ends the use of a store. The rest is lost if it cannot be saved: nobody waits for a store at shutdown.
func (s *saver) leave(store *Store) {
	if s.current() == store {
		_ = s.save()
	}
	s.io.Lock()
	defer s.io.Unlock()
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.stores = slices.DeleteFunc(s.stores, func(other *Store) bool { return other == store })
	s.kinds, s.requests = collection[Requests]{}, collection[Kept]{}
}

func (s *saver) currentLocked() *Store {
	if len(s.stores) == 0 {
		return nil
	}
	return s.stores[len(s.stores)-1]
}

func (s *saver) current() *Store {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return s.currentLocked()
}

// changed says that there is something to save. It is called under the lock of the recorder.
func (s *saver) changed() {
	if s.dirty {
		return
	}
	s.dirty = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end ends the loop.
func (s *saver) end() {
	close(s.stop)
	s.loop.Wait()
}

// run saves what is new, until the end. Without anything new it looks once a minute whether something is too old.
func (s *saver) run() {
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	pause := saveEvery
	for {
		select {
		case <-s.stop:
			return
		case <-tidy.C:
			if !s.hasExpired(time.Now()) {
				continue
			}
		case <-s.wake:
		}
		timer := time.NewTimer(pause)
		select {
		case <-s.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := s.save(); err != nil {
			pause = min(2*pause, longestSavePause)
		} else {
			pause = saveEvery
		}
	}
}

// save adds what is not saved yet to the documents of the store.
func (s *saver) save() error {
	s.io.Lock()
	defer s.io.Unlock()
	store := s.current()
	if store == nil {
		return nil
	}
	counts, requests := s.take()
	ctx, stop := context.WithTimeout(context.Background(), savePatience)
	defer stop()
	err := s.write(ctx, store, counts, requests)
	s.noteOutcome(store, err)
	s.giveBack(counts, requests, err == nil)
	return err
}

// take takes what is not saved yet.
func (s *saver) take() (counts map[Kind]Requests, requests []Kept) {
	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	s.dirty = false
	counts = make(map[Kind]Requests)
	for e := r.Recent.Front(); e != nil; e = e.Next() {
		if notes := e.Value.(*kindNotes); notes.unsaved.Count > 0 {
			counts[notes.kind] = notes.unsaved
			notes.unsaved = Requests{}
		}
	}
	requests, r.kept.pending = r.kept.pending, nil
	return counts, requests
}

// giveBack notes whether what was taken is saved. If it is not, it is saved the next time.
func (s *saver) giveBack(counts map[Kind]Requests, requests []Kept, saved bool) {
	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, taken := range counts {
		known := r.Kinds[kind]
		if known == nil {
			continue // it was forgotten meanwhile
		}
		notes := known.Value.(*kindNotes)
		if saved {
			notes.saved = notes.saved.plus(&taken)
		} else {
			notes.unsaved = taken.plus(&notes.unsaved)
		}
	}
	if saved {
		return
	}
	r.kept.pending = append(requests, r.kept.pending...)
	r.kept.pending = r.kept.pending[:min(len(r.kept.pending), maxPending)]
	s.changed()
}

// noteOutcome logs the first failure in a row. That a store is unreachable is logged already.
func (s *saver) noteOutcome(store *Store, err error) {
	failing := err != nil && !errors.Is(err, engine.ErrUnreachable)
	if failing && !s.failing {
		store.Log.Warn("counts of refused requests could not be stored; trying again", panics.Field(err))
	}
	s.failing = failing
}

// write stores counts and requests, with those of other nodes, and removes what is too old or too much.
func (s *saver) write(ctx context.Context, store *Store, counts map[Kind]Requests, requests []Kept) (err error) {
	for range saveTries {
		if err = s.read(ctx, store, counts, len(requests) > 0); err != nil {
			return err
		}
		now := time.Now()
		kinds := s.mergedKinds(counts)
		changes := append(s.kindChanges(store, kinds, counts, now), s.requestChanges(requests, now)...)
		if len(changes) == 0 {
			return nil
		}
		if err = store.Documents.Save(ctx, changes...); err == nil {
			s.noteSaved(changes)
			return nil
		}
		if !errors.Is(err, engine.ErrDocumentChanged) {
			return err
		}
		s.kinds.at, s.requests.at = time.Time{}, time.Time{}
	}
	return err
}

// read reads the documents that are not known, or not known any more. Those of other nodes count when there are more than before.
func (s *saver) read(ctx context.Context, store *Store, counts map[Kind]Requests, withRequests bool) error {
	isNew := func(kind Kind) bool { return s.kinds.known[kind.name()].revision == 0 }
	withKinds := time.Since(s.kinds.at) >= readAge && slices.ContainsFunc(slices.Collect(maps.Keys(counts)), isNew)
	if s.kinds.at.IsZero() || withKinds {
		if err := s.readKinds(ctx, store); err != nil {
			return err
		}
	}
	if s.requests.at.IsZero() || withRequests && time.Since(s.requests.at) >= readAge {
		return s.readRequests(ctx, store)
	}
	return nil
}

// readKinds reads the kinds in the store. What other nodes have changed has a new number for event streams.
func (s *saver) readKinds(ctx context.Context, store *Store) error {
	documents, err := store.Documents.Load(ctx, kindDocuments)
	if err != nil {
		return err
	}
	before, known := s.kinds.known, make(map[string]stored[Requests], len(documents))
	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	numbers := make(map[string]uint64)
	for _, document := range documents {
		value, ok := decode(document.Value)
		if !ok {
			value = Requests{} // it is replaced, or removed
		}
		known[document.Name] = stored[Requests]{document.Revision, value, len(document.Value)}
		if before != nil && before[document.Name].revision != document.Revision {
			r.number++
			numbers[document.Name] = r.number
		} else if number := r.remote[document.Name]; number > 0 {
			numbers[document.Name] = number
		}
	}
	s.kinds, r.remote = collection[Requests]{known, time.Now()}, numbers
	return nil
}

// mergedKinds are the kinds in the store with counts that are not there yet, by the name of their document.
func (s *saver) mergedKinds(counts map[Kind]Requests) map[string]Requests {
	merged := make(map[string]Requests, len(s.kinds.known)+len(counts))
	for name, kind := range s.kinds.known {
		merged[name] = kind.value
	}
	for kind, more := range counts {
		before := merged[kind.name()]
		merged[kind.name()] = before.plus(&more)
	}
	return merged
}

// kindChanges are the documents to change: those with new counts, and those that are too old or too many.
func (s *saver) kindChanges(store *Store, kinds map[string]Requests, counts map[Kind]Requests, now time.Time) (changes []engine.Document) {
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(kinds[b].LastAt.Compare(kinds[a].LastAt), cmp.Compare(a, b))
	})
	counted := make(map[string]bool, len(counts))
	for kind := range counts {
		counted[kind.name()] = true
	}
	for i, name := range names {
		kind := kinds[name]
		change := engine.Document{Kind: kindDocuments, Name: name, Revision: s.kinds.known[name].revision}
		switch isGone := i >= MaxKinds || now.Sub(kind.LastAt) > store.Retention; {
		case isGone && change.Revision == 0:
		case isGone:
			changes = append(changes, change)
		case counted[name]:
			change.Value = kind.encode()
			changes = append(changes, change)
		}
	}
	return changes
}

// noteSaved notes the documents as they are in the store now.
func (s *saver) noteSaved(changes []engine.Document) {
	for _, d := range changes {
		switch d.Kind {
		case kindDocuments:
			value, _ := decode(d.Value)
			noteDocument(s.kinds.known, d, value)
		case requestDocuments:
			value := decodeKept(d.Value)
			value.ID = d.Name
			noteDocument(s.requests.known, d, value)
		}
	}
}

func noteDocument[T any](known map[string]stored[T], d engine.Document, value T) {
	if d.Value == nil {
		delete(known, d.Name)
	} else {
		known[d.Name] = stored[T]{d.Revision + 1, value, len(d.Value)}
	}
}

// hasExpired reports whether a document is known that is too old.
func (s *saver) hasExpired(now time.Time) bool {
	s.io.Lock()
	defer s.io.Unlock()
	store := s.current()
	if store == nil {
		return false
	}
	for _, kind := range s.kinds.known {
		if now.Sub(kind.value.LastAt) > store.Retention {
			return true
		}
	}
	keep := s.recorder.Keeps()
	for _, kept := range s.requests.known {
		if now.Sub(kept.value.At) > keep {
			return true
		}
	}
	return false
}

// refresh reads what is older than readAge. If the store does not answer, what was known before counts.
func (s *saver) refresh(ctx context.Context, withRequests bool) {
	store := s.current()
	if store == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, readPatience)
	defer stop()
	if time.Since(s.kinds.at) >= readAge && !withRequests {
		_ = s.readKinds(ctx, store)
	}
	if time.Since(s.requests.at) >= readAge && withRequests {
		_ = s.readRequests(ctx, store)
	}
}

// List returns the kinds that match, the last seen first: those in the store, with what this node has not saved yet.
func (r *Recorder) List(ctx context.Context, match func(*Requests) bool, limit int) []Requests {
	all := slices.SortedFunc(maps.Values(r.all(ctx)), latestFirst)
	all = slices.DeleteFunc(all, func(kind Requests) bool { return !match(&kind) })
	return all[:min(len(all), limit, MaxKinds)]
}

// all returns all kinds by the names of their documents.
func (r *Recorder) all(ctx context.Context) map[string]Requests {
	if r == nil {
		return nil
	}
	s := &r.saver
	s.io.Lock()
	defer s.io.Unlock()
	s.refresh(ctx, false)
	store := s.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[Kind]Requests)
	for e := r.Recent.Front(); e != nil; e = e.Next() {
		notes := e.Value.(*kindNotes)
		switch {
		case s.kinds.known == nil:
			counts[notes.kind] = notes.requests()
		case notes.unsaved.Count > 0:
			counts[notes.kind] = notes.unsaved
		}
	}
	kinds := s.mergedKinds(counts)
	maps.DeleteFunc(kinds, func(_ string, kind Requests) bool {
		return kind.Count == 0 || store != nil && time.Since(kind.LastAt) > store.Retention
	})
	return kinds
}
