// Package postgres is a store in a PostgreSQL database, which several nodes share.
//
// Whatever nodes may do at the same time is decided in functions of the database, by its clock. A node gathers the calls of many
// goroutines into one call of such a function, which is a transaction of its own: none is left open while a node stands still.
package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// store is one opening: a node.
type store struct {
	*database
	commits

	runs       *runs
	deliveries *deliveries
	sessions   *sessions
	settings   *settings
	minutes    *minutes
	watch      *watch
	streams    *streams
	news       news
	pruning    pruning
}

// newStore is the opening of a database as a node.
func newStore(d *database) *store {
	s := makeStore(d)
	s.watch.start()
	return s
}

// makeStore is a node that does not hear of others yet.
func makeStore(d *database) *store {
	s := &store{database: d}
	s.runs, s.deliveries, s.sessions = newRuns(s), newDeliveries(s), newSessions(s)
	s.settings, s.minutes, s.watch, s.streams = newSettings(s), newMinutes(s), newWatch(s), newStreams(s)
	d.outage.mu.Lock()
	d.outage.back = s.watch.tellAll
	d.outage.mu.Unlock()
	return s
}

func (s *store) Node() string                  { return s.database.node }
func (s *store) Runs() engine.Runs             { return s.runs }
func (s *store) Deliveries() engine.Deliveries { return s.deliveries }
func (s *store) Sessions() engine.Sessions     { return s.sessions }
func (s *store) Settings() engine.Settings     { return s.settings }
func (s *store) Documents() engine.Documents   { return documents{s} }
func (s *store) Minutes() engine.Minutes       { return s.minutes }
func (s *store) Ledger() engine.Ledger         { return ledger{s} }
func (s *store) Watch() engine.Watch           { return s.watch }
func (s *store) Streams() engine.Streams       { return s.streams }

// Size is that of the tables of the schema with all that belongs to them.
func (s *store) Size(ctx context.Context) (bytes int64, err error) {
	err = s.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&bytes) },
		"SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "+
			"n.nspname = $1 AND c.relkind = 'r'", s.schema)
	return bytes, err
}

// Close ends this opening.
func (s *store) Close() error {
	s.runs.leave()
	s.watch.close()
	s.database.close()
	return nil
}

var (
	_ engine.Store   = (*store)(nil)
	_ engine.Commits = (*store)(nil)
)

// runs implements engine.Runs.
type runs struct {
	*store
	adding   adding
	gated    adding // of requests that have gates
	claiming claiming
}

func newRuns(s *store) *runs {
	r := &runs{store: s}
	r.adding.init(r)
	r.gated.init(r)
	r.claiming.init(r)
	return r
}

// sessions implements engine.Sessions. Ends name them, by set_sessions_1.
type sessions struct{ *store }

func newSessions(s *store) *sessions { return &sessions{s} }

func (s *sessions) Get(ctx context.Context, runner, chat string) (string, error) {
	var id *string
	err := s.query(ctx, func(row pgx.Rows) error { return row.Scan(&id) },
		"SELECT @.get_session_1($1, $2)", codec.Escape(runner), codec.Escape(chat))
	if err != nil || id == nil {
		return "", err
	}
	return codec.Unescape(*id), nil
}

// commits tells of the transactions that accept runs, end them, and settle deliveries. Each is one call of a function of the database.
// Calls that only ask for work are not among them: most find nothing, and write nothing.
type commits struct {
	onCommit atomic.Pointer[func(changes int, took time.Duration)] // nil if nobody wants to know
}

// OnCommit registers callback, which is called after each transaction.
func (c *commits) OnCommit(callback func(changes int, took time.Duration)) {
	c.onCommit.Store(&callback)
}

// note tells of a transaction that has just ended.
func (c *commits) note(changes int, began time.Time) {
	if callback := c.onCommit.Load(); callback != nil && changes > 0 {
		(*callback)(changes, time.Since(began))
	}
}
