package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
)

// errAnswerUnknown says that nobody knows what became of a call, since its answer was lost.
var errAnswerUnknown = errors.New("the database did not answer")

// lastCalls is how long calls may take that are under way when the database goes away. It may be there for them.
const lastCalls = 50 * time.Millisecond

// probeEvery is how often a database that is unreachable is tried. It is to be used within a second of its return, and to open a connection
// takes a while.
const probeEvery = 250 * time.Millisecond

// outage is whether the database cannot be reached. Then every call fails at once, and one connection tries until it is back.
type outage struct {
	mu      sync.Mutex
	since   time.Time
	cause   error           // nil if the database is there
	began   chan struct{}   // closed while it is unreachable
	changed chan struct{}   // closed when it goes away, comes back, or the cause is another one
	back    func()          // is called when it is back
	here    context.Context // of calls, done soon after it went away
	leave   context.CancelFunc
	leaving *time.Timer // nil if it was never unreachable

	doubted time.Time // when it was last looked whether the schema can be used

	ctx    context.Context // of the background
	cancel context.CancelFunc
	prober sync.WaitGroup
}

func (a *outage) init() {
	a.began, a.changed = make(chan struct{}), make(chan struct{})
	a.here, a.leave = context.WithCancel(context.Background()) //nolint:gosec // by set, when it goes away
	a.ctx, a.cancel = context.WithCancel(context.Background())
}

// error is engine.ErrUnreachable with its cause, nil if the database is there.
func (a *outage) error() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", engine.ErrUnreachable, a.cause)
}

// errorNow is error for whoever knows that the database was unreachable just now.
func (a *outage) errorNow() error {
	if err := a.error(); err != nil {
		return err
	}
	return engine.ErrUnreachable
}

// begun is closed while the database is unreachable.
func (a *outage) begun() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began
}

// cutShort has a call end when the database went away: callers would otherwise wait for all of its time, and so would those whose calls are
// of the next batch. done is to be called when the call is over.
func (a *outage) cutShort(cancel context.CancelCauseFunc) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stop := context.AfterFunc(a.here, func() { cancel(errDatabaseGone) })
	return func() { stop() }
}

// set notes why the database is unreachable, nil if it is back, and reports whether that is news.
func (a *outage) set(cause error) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.cause
	news = (was == nil) != (cause == nil)
	if !news && (cause == nil || was.Error() == cause.Error()) {
		return false
	}
	a.cause = cause
	switch {
	case news && cause != nil:
		a.since = time.Now()
		close(a.began)
		a.leaving = time.AfterFunc(lastCalls, a.leave)
	case news:
		a.began = make(chan struct{})
		if !a.leaving.Stop() {
			a.here, a.leave = context.WithCancel(context.Background()) //nolint:gosec // likewise
		}
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return news
}

func (a *outage) close() {
	a.cancel()
	a.mu.Lock()
	if a.leaving != nil {
		a.leaving.Stop()
	}
	a.mu.Unlock()
	a.prober.Wait()
}

// Outage tells since when the database cannot be reached, and why; the error is nil if it can be. changed is closed when that is
// different.
func (s *store) Outage() (since time.Time, changed <-chan struct{}, cause error) {
	a := &s.database.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since, a.changed, a.cause
}

// startOutage notes that the database cannot be reached, ends all connections, and tries until it is back.
func (d *database) startOutage(cause error) {
	if d.outage.ctx.Err() != nil || !d.outage.set(cause) {
		return
	}
	d.connections.renew()
	d.outage.prober.Go(d.returnLater)
}

// returnLater tries to reach the database, at once and then again and again.
func (d *database) returnLater() {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for d.outage.ctx.Err() == nil {
		err := d.probe(d.outage.ctx)
		if err == nil {
			d.outage.set(nil)
			d.outage.mu.Lock()
			back := d.outage.back
			d.outage.mu.Unlock()
			if back != nil {
				back()
			}
			return
		}
		d.outage.set(err)
		select {
		case <-ticker.C:
		case <-d.outage.ctx.Done():
		}
	}
}

// doubt looks whether the schema can still be used, after a call that says it cannot. If so, whoever called has its error, and that is all.
func (d *database) doubt() {
	a := &d.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil || a.ctx.Err() != nil || time.Since(a.doubted) < probeEvery {
		return
	}
	a.doubted = time.Now()
	a.prober.Go(func() {
		conn, err := d.dialChecked(a.ctx)
		if err != nil {
			d.startOutage(err)
			return
		}
		closeConnection(&connection{Conn: conn})
	})
}

// probe opens a connection that is then used for calls.
func (d *database) probe(ctx context.Context) error {
	conn, err := d.dialChecked(ctx)
	if err != nil {
		return err
	}
	d.connections.adopt(conn)
	return nil
}

// dialChecked opens a connection, checks that nobody has locked the tables, checks the schema, or brings it up to date, and has something
// written: a standby that commits wait for must be there, too.
func (d *database) dialChecked(ctx context.Context) (*pgx.Conn, error) {
	conn, err := d.dsn.Dial(ctx)
	if err != nil {
		return nil, refusedFor(err)
	}
	for _, check := range []func(context.Context, *pgx.Conn) error{d.checkLocks, d.prepare, d.commitSomething} {
		if err := check(ctx, conn); err != nil {
			closeConnection(&connection{Conn: conn})
			return nil, err
		}
	}
	return conn, nil
}

// refusedError is why a database that answers cannot be used. To try again is of no use before somebody has changed something.
type refusedError struct{ problem string }

func (e *refusedError) Error() string { return e.problem }

// IsRefusal makes it an engine.Refusal.
func (e *refusedError) IsRefusal() {}

// refusedFor is the error of a connection that was not opened.
func refusedFor(err error) error {
	var failed *dsn.DialError
	if errors.As(err, &failed) && failed.Refused {
		return &refusedError{failed.Text}
	}
	return err
}

// dialListener opens a connection for whoever listens on it, and closes it.
func (d *database) dialListener(ctx context.Context) (*pgx.Conn, error) {
	if err := d.outage.error(); err != nil {
		return nil, err
	}
	return d.connections.listen(ctx)
}
