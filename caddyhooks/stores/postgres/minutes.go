package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// minutes implements engine.Minutes.
type minutes struct{ *store }

func newMinutes(s *store) *minutes { return &minutes{s} }

func (m *minutes) Save(ctx context.Context, saved ...engine.Minute) error {
	if len(saved) == 0 {
		return nil
	}
	var at []time.Time
	var parts []int64
	var counted []string
	newest := saved[0].At
	for i := range saved {
		minute := &saved[i]
		text, err := codec.EncodeMinute(minute)
		if err != nil {
			return err
		}
		at, parts, counted = append(at, minute.At), append(parts, int64(minute.Part)), append(counted, text)
		if minute.At.After(newest) {
			newest = minute.At
		}
	}
	return m.exec(ctx, "SELECT @.save_minutes_1($1, $2, $3, $4, $5)", m.node, at, parts, counted, newest.Add(-engine.KeptMinutes))
}

func (m *minutes) Load(ctx context.Context, since time.Time) (loaded []engine.Minute, err error) {
	if whole := since.Truncate(time.Microsecond); whole.Before(since) { // the database knows microseconds
		since = whole.Add(time.Microsecond)
	}
	var minute engine.Minute
	var part int64
	var counted []byte
	err = m.query(ctx, func(row pgx.Rows) error {
		minute = engine.Minute{}
		if err := row.Scan(&minute.At, &part, &counted); err != nil {
			return err
		}
		minute.Part = uint64(part)
		if codec.DecodeMinute(counted, &minute) == nil { // nothing but a plot reads it
			loaded = append(loaded, minute)
		}
		return nil
	}, "SELECT at, part, counted FROM @.load_minutes_1($1)", since)
	if err != nil {
		return nil, err
	}
	return loaded, nil
}
