package bolt

import (
	"context"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func (s settings) Load(ctx context.Context) ([]byte, int64, error) {
	var settings []byte
	var revision int64
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		settings = slices.Clone(tx.Bucket(metaBucket).Get(settingsKey))
		revision = revisionOf(tx)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return settings, revision, nil
}

// revisionOf reads the revision of the settings. A file of before there were revisions has the first one.
func revisionOf(tx *bbolt.Tx) int64 {
	meta := tx.Bucket(metaBucket)
	if revision, n := binary.Uvarint(meta.Get(revisionKey)); n > 0 {
		return int64(revision)
	}
	if meta.Get(settingsKey) != nil {
		return 1
	}
	return 0
}

func (s settings) Revision(context.Context) (int64, error) { return s.savedRevision.Load(), nil }

func (s settings) Save(ctx context.Context, settings, description []byte, from int64) (int64, error) {
	var revision int64
	err := s.committer.do(ctx, &change{size: len(settings) + len(description), apply: func(t *transaction) error {
		if from != s.revision {
			return engine.ErrSettingsChanged
		}
		s.revision++
		revision = s.revision
		t.undo = append(t.undo, func() { s.revision-- })
		t.put(metaBucket, settingsKey, settings)
		t.put(metaBucket, revisionKey, binary.AppendUvarint(nil, uint64(revision)))
		if description != nil {
			addChange(t, engine.SettingsChange{Revision: revision, At: t.now, Description: description})
		}
		t.after = append(t.after, func() {
			s.savedRevision.Store(revision)
			s.nodes.TellSettingsChanged()
		})
		return nil
	}})
	if err != nil {
		return 0, err
	}
	return revision, nil
}
