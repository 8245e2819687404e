package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var settingsChecks = []check{
	{"the settings that were saved last are there", lastSettings},
	{"settings made from another revision are not saved", staleSettings},
	{"of settings that are saved at once exactly one is made from each revision, and one change is listed", savedAtOnce},
	{"a run that was checked against another revision is not stored", runUnderOtherSettings},
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

func lastSettings(t *testing.T, s *store) {
	revision := int64(0)
	for _, settings := range [][]byte{
		[]byte(`{"enabled": true}`), []byte("not JSON, \x00 and \xff"), bytes.Repeat([]byte("long "), 50_000), []byte(`{}`),
	} {
		mine := bytes.Clone(settings)
		var err error
		if revision, err = s.Settings().Save(t.Context(), mine, nil, revision); err != nil {
			t.Fatal(err)
		}
		clear(mine) // it is the caller's, to use for something else
		for range 2 {
			s.loads(settings, revision)
			got, _, err := s.Settings().Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			clear(got)
		}
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

func savedAtOnce(_ *testing.T, s *store) { saveAtOnce(s, s) }

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
