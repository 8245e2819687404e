package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// settings implements engine.Settings.
type settings struct {
	*store
	revisions *batcher[int64]
}

func newSettings(s *store) *settings {
	own := &settings{store: s}
	own.revisions = newBatcher(math.MaxInt, own.readRevision)
	return own
}

func (s *settings) Load(ctx context.Context) (saved []byte, revision int64, err error) {
	err = s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&saved, &revision) }, "SELECT body, revision FROM @.settings")
	return saved, revision, err
}

// Revision shares its question with others who ask at the same time. The question is put after the call: what was saved before it is
// seen.
func (s *settings) Revision(ctx context.Context) (int64, error) {
	revision := new(int64)
	if err := s.revisions.do(ctx, revision); err != nil {
		return 0, err
	}
	return *revision, nil
}

func (s *settings) readRevision(ctx context.Context, calls []*int64) error {
	var revision int64
	err := s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&revision) }, "SELECT revision FROM @.settings")
	if err != nil {
		return err
	}
	for _, call := range calls {
		*call = revision
	}
	return nil
}

func (s *settings) Save(ctx context.Context, settings, description []byte, from int64) (int64, error) {
	var revision *int64
	err := s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&revision) },
		"SELECT @.save_settings_1($1, $2, $3, $4)", settings, description, from, engine.KeptChanges)
	switch {
	case err != nil:
		return 0, err
	case revision == nil:
		return 0, engine.ErrSettingsChanged
	}
	s.watch.tellSettingsChanged()
	s.watch.tellOthers("s")
	return *revision, nil
}

func (s *settings) Changes(ctx context.Context, limit int, cursor string) (page []engine.SettingsChange, next string, err error) {
	before := uint64(math.MaxInt64)
	if cursor != "" {
		var ok bool
		if before, ok = local.ParseCursor(cursor); !ok {
			return nil, "", engine.ErrCursor
		}
	}
	last := true
	err = s.query(ctx, func(rows pgx.Rows) error {
		var change engine.SettingsChange
		err := rows.Scan(&change.Revision, &change.At, &change.Description, &last)
		page = append(page, change)
		return err
	}, "SELECT * FROM @.settings_changes_1($1, $2, $3)", int64(min(before, math.MaxInt64)), max(0, min(limit, engine.KeptChanges)),
		local.ChangesPage)
	if err != nil {
		return nil, "", err
	}
	if !last {
		next = local.Cursor(uint64(page[len(page)-1].Revision))
	}
	return page, next, nil
}

// documents implements engine.Documents.
type documents struct{ *store }

func (s documents) Load(ctx context.Context, kind string) (all []engine.Document, err error) {
	err = s.query(ctx, func(rows pgx.Rows) error {
		var d engine.Document
		err := rows.Scan(&d.Kind, &d.Name, &d.Revision, &d.Value)
		d.Kind, d.Name = codec.Unescape(d.Kind), codec.Unescape(d.Name)
		all = append(all, d)
		return err
	}, "SELECT kind, name, revision, value FROM @.document WHERE $1 = '' OR kind = $1 ORDER BY kind, name", codec.Escape(kind))
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (s documents) Save(ctx context.Context, changed ...engine.Document) error {
	var kinds, names []string
	var revisions []int64
	var values [][]byte
	for i := range changed {
		kinds, names = append(kinds, codec.Escape(changed[i].Kind)), append(names, codec.Escape(changed[i].Name))
		revisions, values = append(revisions, changed[i].Revision), append(values, changed[i].Value)
	}
	saved := false
	err := s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&saved) },
		"SELECT @.save_documents_1($1, $2, $3, $4)", kinds, names, revisions, values)
	if err == nil && !saved {
		return engine.ErrDocumentChanged
	}
	return err
}

// Interface guards
var (
	_ engine.Settings  = (*settings)(nil)
	_ engine.Documents = documents{}
)
