package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var settingsChecks = []check{
	{"settings made from another revision are not saved", staleSettings},
	{"a run that was checked against another revision is not stored", runUnderOtherSettings},
	{"a change is kept as it was described", describedChange},
	{"changes are listed in pages, the newest first", pagesOfChanges},
	{"a cursor that no page has is refused", badCursorOfChanges},
	{"the last ones are kept", lastChanges},
}

// loads expects settings and their revision.
func (s *store) loads(settings []byte, revision int64) {
	s.t.Helper()
	got, gotRevision, err := s.Settings().Load(s.t.Context())
	if err != nil || !bytes.Equal(got, settings) || (got == nil) != (settings == nil) || gotRevision != revision {
		s.t.Errorf("the settings are %.80q of revision %d, and %v; want %.80q of revision %d", got, gotRevision, err, settings, revision)
	}
	if got, err := s.Settings().Revision(s.t.Context()); got != revision || err != nil {
		s.t.Errorf("the revision is %d, and %v; want %d", got, err, revision)
	}
}

// save stores settings made from the revision in force.
func (s *store) save(settings string, from int64) (revision int64) {
	s.t.Helper()
	return s.saveChange(settings, nil, from)
}

// saveChange is save with a description of the change.
func (s *store) saveChange(settings string, description []byte, from int64) (revision int64) {
	s.t.Helper()
	revision, err := s.Settings().Save(s.t.Context(), []byte(settings), description, from)
	if err != nil {
		s.t.Fatalf("saving settings made from revision %d: %v", from, err)
	}
	if revision <= from {
		s.t.Fatalf("settings made from revision %d are revision %d", from, revision)
	}
	return revision
}

// isStale expects that settings made from a revision are not saved.
func (s *store) isStale(from int64) {
	s.t.Helper()
	if revision, err := s.Settings().Save(s.t.Context(), []byte("stale"), []byte("a stale change"), from); !errors.Is(err, engine.ErrSettingsChanged) {
		s.t.Errorf("saving settings made from revision %d: got %d and %v, want ErrSettingsChanged", from, revision, err)
	}
}

func staleSettings(_ *testing.T, s *store) {
	s.isStale(1)
	s.isStale(-1)
	s.loads(nil, 0)
	first := s.save("first", 0)
	s.isStale(0)
	s.isStale(first + 1)
	s.loads([]byte("first"), first)
	second := s.save("second", first)
	s.isStale(0)
	s.isStale(first)
	s.isStale(second + 1)
	s.loads([]byte("second"), second)
}

// saveAtOnce has many save settings at the same time, on two nodes or on one.
func saveAtOnce(s, other *store) {
	t := s.t
	revision := int64(0)
	var changes []engine.SettingsChange
	for range 10 {
		var mu sync.Mutex
		saved := map[string]int64{}
		var savers sync.WaitGroup
		for i, node := range []*store{s, other, s, other, s, other} {
			savers.Go(func() {
				settings := fmt.Sprintf("made from revision %d by %d", revision, i)
				got, err := node.Settings().Save(t.Context(), []byte(settings), []byte(settings), revision)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					saved[settings] = got
				} else if !errors.Is(err, engine.ErrSettingsChanged) {
					t.Error(err)
				}
			})
		}
		savers.Wait()
		if len(saved) != 1 {
			t.Fatalf("%d were saved from revision %d, want 1", len(saved), revision)
		}
		for settings, got := range saved {
			if got <= revision {
				t.Fatalf("revision %d follows %d", got, revision)
			}
			revision = got
			s.loads([]byte(settings), revision)
			other.loads([]byte(settings), revision)
			changes = append(changes, engine.SettingsChange{Revision: revision, Description: []byte(settings)})
			other.changesAre(changes...)
		}
	}
}

func runUnderOtherSettings(t *testing.T, s *store) {
	add := func(run *engine.Run, revision int64) error {
		return s.Runs().Add(t.Context(), run, engine.Terms{Settings: revision})
	}
	run := keyed("a", newKey())
	refused := func(revisions ...int64) {
		t.Helper()
		for _, revision := range revisions {
			if err := add(run, revision); !errors.Is(err, engine.ErrSettingsChanged) {
				t.Errorf("adding a run under revision %d: got %v, want ErrSettingsChanged", revision, err)
			}
		}
		s.lists(engine.Query{})
		s.claimAll()
	}
	refused(1, -1)
	first := s.save("first", 0)
	refused(0, first+1)
	second := s.save("second", first)
	refused(0, first, second+1)
	if err := add(run, second); err != nil { // not even its key has stayed
		t.Fatal(err)
	}
	s.lists(engine.Query{}, run)
	s.claimThrough(run)
}

// change saves settings with a description of the change.
func (s *store) change(description string, from int64) engine.SettingsChange {
	s.t.Helper()
	revision := s.saveChange("settings of "+description, []byte(description), from)
	return engine.SettingsChange{Revision: revision, Description: []byte(description)}
}

// listChanges lists all changes, in pages of a size.
func (s *store) listChanges(size int) []engine.SettingsChange {
	s.t.Helper()
	return allPages(s.t, size, func(cursor string) ([]engine.SettingsChange, string, error) {
		return s.Settings().Changes(s.t.Context(), size, cursor)
	})
}

// changesAre expects changes, the newest last, but for their times.
func (s *store) changesAre(want ...engine.SettingsChange) {
	s.t.Helper()
	s.wantChanges(s.listChanges(100), want)
}

func (s *store) wantChanges(got, want []engine.SettingsChange) {
	s.t.Helper()
	slices.Reverse(got)
	same := func(a, b engine.SettingsChange) bool {
		return a.Revision == b.Revision && bytes.Equal(a.Description, b.Description) && !a.At.IsZero()
	}
	if !slices.EqualFunc(got, want, same) {
		s.t.Errorf("the changes are %.2000q\nwant %.2000q", fmt.Sprint(got), fmt.Sprint(want))
	}
}

func describedChange(t *testing.T, s *store) {
	var want []engine.SettingsChange
	revision := int64(0)
	for _, description := range [][]byte{
		[]byte(`{"what": "token"}`), []byte("not JSON, \x00 and \xff"), bytes.Repeat([]byte("long "), 15_000), {},
	} {
		mine := bytes.Clone(description)
		var err error
		if revision, err = s.Settings().Save(t.Context(), []byte("settings"), mine, revision); err != nil {
			t.Fatal(err)
		}
		clear(mine) // it is the caller's, to use for something else
		want = append(want, engine.SettingsChange{Revision: revision, Description: description})
		for range 2 {
			got := s.listChanges(100)
			s.isNow("the time of the change", got[0].At)
			s.wantChanges(slices.Clone(got), want)
			for _, change := range got {
				clear(change.Description)
			}
		}
		s.advance(time.Hour)
	}
	s.loads([]byte("settings"), revision)
}

func pagesOfChanges(t *testing.T, s *store) {
	var want []engine.SettingsChange
	revision := int64(0)
	for i := range 10 {
		if i%3 == 0 { // not every revision has a description
			revision = s.save("no change", revision)
		}
		want = append(want, s.change(fmt.Sprint("change ", i), revision))
		revision = want[i].Revision
	}
	for _, size := range []int{1, 2, 3, 5, 9, 10, 11, 1000} {
		s.wantChanges(s.listChanges(size), want)
	}
	for _, none := range []int{0, -1} {
		if page, _, err := s.Settings().Changes(t.Context(), none, ""); len(page) != 0 || err != nil {
			t.Errorf("a page of %d has %d changes, %v", none, len(page), err)
		}
	}
	if _, next, err := s.Settings().Changes(t.Context(), 10, ""); next != "" || err != nil {
		t.Errorf("after all of them the next page begins at %q, %v", next, err)
	}
}

func badCursorOfChanges(t *testing.T, s *store) {
	s.change("first", 0)
	for _, cursor := range []string{"x", "-1", "+1", "01", "1.0", " 1", "99999999999999999999", "1\x00"} {
		if page, next, err := s.Settings().Changes(t.Context(), 10, cursor); !errors.Is(err, engine.ErrCursor) {
			t.Errorf("the cursor %q: got %d changes, %q and %v; want ErrCursor", cursor, len(page), next, err)
		}
	}
}

func lastChanges(_ *testing.T, s *store) {
	var all []engine.SettingsChange
	revision := int64(0)
	for i := range engine.KeptChanges + 5 {
		if i%100 == 0 {
			revision = s.save("no change", revision)
		}
		all = append(all, s.change(fmt.Sprint("change ", i), revision))
		revision = all[i].Revision
		if i == engine.KeptChanges-1 || i == engine.KeptChanges {
			s.changesAre(all[max(0, len(all)-engine.KeptChanges):]...)
		}
	}
	s.changesAre(all[5:]...)
}
