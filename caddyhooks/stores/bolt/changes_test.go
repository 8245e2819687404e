package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// saveChanges saves settings a number of times, each with a description of its own.
func saveChanges(t *testing.T, s *store, n int) {
	t.Helper()
	for range n {
		revision := s.savedRevision.Load()
		if _, err := s.Settings().Save(t.Context(), []byte("{}"), fmt.Append(nil, "change ", revision+1), revision); err != nil {
			t.Fatal(err)
		}
	}
}

func descriptions(page []engine.SettingsChange) string {
	var all []string
	for _, change := range page {
		all = append(all, string(change.Description))
	}
	return strings.Join(all, ", ")
}

func TestSettingsOfAFileOfBeforeRevisionsHaveTheFirst(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	saveChanges(t, s, 1)
	err := s.committer.do(t.Context(), &change{apply: func(t *transaction) error {
		t.delete(metaBucket, revisionKey)
		return nil
	}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	if settings, revision, err := s.Settings().Load(t.Context()); err != nil || string(settings) != "{}" || revision != 1 {
		t.Errorf("the settings are %s of revision %d, %v", settings, revision, err)
	}
	saveChanges(t, s, 1)
}

// damageChanges opens a file behind the store's back, while nobody else has it open.
func damageChanges(t *testing.T, path string, damage func(changes *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return damage(tx.Bucket(changesBucket)) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedChangeOfTheSettingsPreventsNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	saveChanges(t, s, 3)
	s.Close()
	damageChanges(t, path, func(changes *bbolt.Bucket) error {
		record := append([]byte{}, changes.Get(changeKey(2))...)
		record[len(record)-1] ^= 1
		return changes.Put(changeKey(2), record)
	})
	s = newBolt(t, path)
	defer s.Close()
	if settings, revision, err := s.Settings().Load(t.Context()); err != nil || string(settings) != "{}" || revision != 3 {
		t.Errorf("the settings are %s of revision %d, %v", settings, revision, err)
	}
	saveChanges(t, s, 1)
	page, next, err := s.Settings().Changes(t.Context(), 2, "")
	if err != nil || descriptions(page) != "change 4, change 3" {
		t.Errorf("the changes before the one that is damaged are %s, %v", descriptions(page), err)
	}
	if page, _, err := s.Settings().Changes(t.Context(), 2, next); !errors.Is(err, errDamaged) || page != nil {
		t.Errorf("the one that is damaged is listed among %s, %v", descriptions(page), err)
	}
}

// A number that is far too high must not look as if all others were too old.
func TestADamagedNumberOfAChangeDoesNotCostTheOthers(t *testing.T) {
	t.Parallel()
	for name, key := range map[string][]byte{
		"a high number":    changeKey(1 << 50),
		"the highest":      changeKey(^uint64(0)),
		"too short a key":  {0xFF},
		"too long a key":   append(changeKey(1<<50), 1),
		"a number below 1": changeKey(0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hooks.db")
			s := newBolt(t, path)
			saveChanges(t, s, 20)
			s.Close()
			damageChanges(t, path, func(changes *bbolt.Bucket) error {
				return changes.Put(key, encodeChange(key, engine.SettingsChange{Description: []byte("damaged")}))
			})
			s = newBolt(t, path)
			defer s.Close()
			saveChanges(t, s, 5)
			page, _, err := s.Settings().Changes(t.Context(), 100, "")
			if err != nil || len(page) < 20 {
				t.Errorf("of 25 changes and one that is damaged %d are left: %s, %v", len(page), descriptions(page), err)
			}
		})
	}
}
