package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var settingsChangeChecks = []check{
	{"a change is kept as it was described", describedChange},
	{"changes are listed in pages, the newest first", pagesOfChanges},
	{"a page begins where the one before it ended, although there are new changes", pagesWhileChangesAreMade},
	{"a cursor that no page has is refused", badCursorOfChanges},
	{"the last ones are kept", lastChanges},
}

var durableSettingsChangeChecks = []check{}

var nodeSettingsChangeChecks = []check{}

// change saves settings with a description of the change.
func (s *store) change(description string, from int64) engine.SettingsChange {
	s.t.Helper()
	revision := s.saveChange("settings of "+description, []byte(description), from)
	return engine.SettingsChange{Revision: revision, Description: []byte(description)}
}

// listChanges lists all changes, in pages of a size, and checks their times.
func (s *store) listChanges(size int) (all []engine.SettingsChange) {
	s.t.Helper()
	for cursor := ""; ; {
		page, next, err := s.Settings().Changes(s.t.Context(), size, cursor)
		if err != nil {
			s.t.Fatalf("listing changes after %q: %v", cursor, err)
		}
		if len(page) > size || next == cursor && next != "" {
			s.t.Fatalf("a page of %d after %q has %d changes, and the next one begins at %q", size, cursor, len(page), next)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		cursor = next
	}
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

func pagesWhileChangesAreMade(t *testing.T, s *store) {
	first := s.change("first", 0)
	second := s.change("second", first.Revision)
	page, next, err := s.Settings().Changes(t.Context(), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	s.wantChanges(page, []engine.SettingsChange{second})
	s.change("third", second.Revision)
	page, next, err = s.Settings().Changes(t.Context(), 10, next)
	if err != nil || next != "" {
		t.Fatalf("the next page begins at %q, %v", next, err)
	}
	s.wantChanges(page, []engine.SettingsChange{first})
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
