package memory

import (
	"bytes"
	"context"
	"slices"
	"sort"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s settings) Load(context.Context) ([]byte, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.Data.settings), s.revision, nil
}

func (s settings) Revision(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

func (s settings) Save(_ context.Context, settings, description []byte, from int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != s.revision {
		return 0, engine.ErrSettingsChanged
	}
	s.Data.settings = bytes.Clone(settings)
	s.revision++
	if description != nil {
		s.changes = append(s.changes, engine.SettingsChange{Revision: s.revision, At: s.clock.Now(), Description: bytes.Clone(description)})
		s.changes = slices.Delete(s.changes, 0, max(0, len(s.changes)-engine.KeptChanges))
	}
	s.nodes.TellSettingsChanged()
	return s.revision, nil
}

func (s settings) Changes(_ context.Context, limit int, cursor string) (page []engine.SettingsChange, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.changes)
	if cursor != "" {
		before, ok := local.ParseCursor(cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		end = sort.Search(end, func(i int) bool { return uint64(s.changes[i].Revision) >= before })
	}
	begin := end
	for size := 0; begin > 0 && len(page) < limit && size < local.ChangesPage; begin-- {
		change := s.changes[begin-1]
		change.Description = bytes.Clone(change.Description)
		page = append(page, change)
		size += len(change.Description)
	}
	if begin > 0 && len(page) > 0 {
		next = local.Cursor(uint64(page[len(page)-1].Revision))
	}
	return page, next, nil
}
