package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Changes of the settings are numbered, without gaps: so the number of a new one tells which one is too old. Nothing but a
// list of them reads what is in their records, so one that is damaged prevents nothing else.

// changeKey is the key of a change by its number.
func changeKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// changeNumber is the number in a key, 0 if it has none.
func changeNumber(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

func changeFields(change *engine.SettingsChange) []any {
	return []any{&change.Revision, &change.At, &change.Description}
}

func encodeChange(key []byte, change engine.SettingsChange) []byte {
	return seal(key, encodeFields(newEncoder(32+len(change.Description)), changeFields(&change)))
}

func decodeChange(key, data []byte) (change engine.SettingsChange, err error) {
	if err := decodeFields(key, data, changeFields(&change)); err != nil {
		return engine.SettingsChange{}, fmt.Errorf("change %x of the settings: %w", key, err)
	}
	return change, nil
}

// addChange writes down a change of the settings, and forgets those that are too many.
func addChange(t *transaction, change engine.SettingsChange) {
	changes := t.bucket(changesBucket)
	last, _ := changes.Cursor().Last()
	number := changeNumber(last) + 1
	key := changeKey(number)
	t.append(changesBucket, key, encodeChange(key, change))
	// There is one too many at most. If there seem to be more, then a number is damaged, which must not cost all others.
	if first, _ := changes.Cursor().First(); number-changeNumber(first) >= engine.KeptChanges {
		t.delete(changesBucket, slices.Clone(first))
	}
}

func (s settings) Changes(ctx context.Context, limit int, cursor string) ([]engine.SettingsChange, string, error) {
	var before []byte
	if cursor != "" {
		number, ok := local.ParseCursor(cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		before = changeKey(number)
	}
	var page []engine.SettingsChange
	var next string
	err := s.view(ctx, func(tx *bbolt.Tx) (err error) {
		page, next, err = listChanges(tx, max(0, limit), before)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// listChanges lists changes, the newest first, from the last one on that is before the given key; nil is no bound.
func listChanges(tx *bbolt.Tx, limit int, before []byte) (page []engine.SettingsChange, next string, err error) {
	cursor := tx.Bucket(changesBucket).Cursor()
	var key, data []byte
	if found, _ := cursor.Seek(before); before != nil && found != nil {
		key, data = cursor.Prev()
	} else {
		key, data = cursor.Last()
	}
	size := 0
	for ; key != nil && len(page) < limit && size < local.ChangesPage; key, data = cursor.Prev() {
		change, err := decodeChange(key, data)
		if err != nil {
			return nil, "", err
		}
		page = append(page, change)
		size += len(change.Description)
		next = local.Cursor(changeNumber(key))
	}
	if key == nil {
		next = ""
	}
	return page, next, nil
}
