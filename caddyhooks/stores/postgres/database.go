package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
)

// database is what a node knows of the schema that it works on, and its connections.
type database struct {
	dsn        dsn.DSN
	schema     string // its name
	node       string // the name of this opening
	host       string
	release    *release
	checksOnly bool // the schema is not brought up to date here
	migration  waitingMigration
	isThere    atomic.Bool // the schema was there: if it is gone, it is not made again, for somebody may be about to bring it back
	listens    bool        // for word of other nodes

	connections connections
	outage      outage
	clock       sharedClock
}

// callTime is how long a call may take. Tests change it, since their machine may be busy.
var callTime = 5 * time.Second

func newDatabase(n dsn.DSN, schema string) *database {
	var name [9]byte
	_, _ = rand.Read(name[:]) // never fails
	host, _ := os.Hostname()
	d := &database{dsn: n, schema: schema, node: base64.RawURLEncoding.EncodeToString(name[:]), host: codec.Escape(host), release: thisRelease,
		listens: true}
	d.connections.init(n)
	d.outage.init()
	return d
}

// open opens the schema. With engine.ErrUnreachable the database cannot be reached, and is tried again until it is closed. Any other error
// is for good.
func (d *database) open(ctx context.Context) error {
	err := d.probe(ctx)
	var refused *refusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return err
	default:
		d.startOutage(err)
		return d.outage.error()
	}
}

// close ends all connections, and waits for what goes on in the background.
func (d *database) close() {
	d.outage.close()
	d.connections.close()
}

// sql puts the name of the schema where a statement has @. before the name of a table or a function.
func (d *database) sql(statement string) string {
	if d.release.renamed != nil {
		statement = d.release.renamed.Replace(statement)
	}
	return strings.ReplaceAll(statement, "@.", pgx.Identifier{d.schema}.Sanitize()+".")
}

// query asks a question outside of batches, and gives each row to each.
func (d *database) query(ctx context.Context, each func(pgx.Rows) error, statement string, arguments ...any) error {
	return d.on(readCalls).query(ctx, each, statement, arguments...)
}

// exec is query without an answer.
func (d *database) exec(ctx context.Context, statement string, arguments ...any) error {
	return d.on(readCalls).exec(ctx, statement, arguments...)
}

// on chooses the kind of calls: one that is full does not keep the calls of others waiting.
func (d *database) on(l callKind) calls { return calls{d, l} }

// calls are calls of the database of one kind.
type calls struct {
	*database
	callKind callKind
}

// query asks a question, and gives each row to each.
//
// engine.ErrUnreachable says that the database cannot be reached. With errAnswerUnknown besides, the call may have been carried out.
// A call that stood in the way of another one is repeated.
func (c calls) query(ctx context.Context, each func(pgx.Rows) error, statement string, arguments ...any) error {
	statement = c.sql(statement)
	const repeats = 3
	for n := 0; ; n++ {
		rows := 0
		err := c.callOnce(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return queryRows(ctx, conn, func(row pgx.Rows) error { rows++; return each(row) }, statement, arguments...)
		})
		if rows > 0 || n == repeats || !isConflict(err) {
			return err
		}
	}
}

// exec is query without an answer.
func (c calls) exec(ctx context.Context, statement string, arguments ...any) error {
	return c.query(ctx, func(pgx.Rows) error { return nil }, statement, arguments...)
}

func queryRows(ctx context.Context, conn *pgx.Conn, each func(pgx.Rows) error, statement string, arguments ...any) error {
	rows, err := conn.Query(ctx, statement, arguments...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return &ownError{err}
		}
	}
	return rows.Err()
}

// ownError is an error of whoever reads the answer, which says nothing about the database.
type ownError struct{ error }

// callOnce lends a connection to a call, and judges by its error whether the database is still there.
func (c calls) callOnce(caller context.Context, call func(context.Context, *pgx.Conn) error) error {
	if err := c.outage.error(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(caller, callTime)
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer c.outage.cutShort(cut)()
	began := time.Now()
	conn, err := c.connections.borrow(ctx, c.callKind, c.outage.begun())
	if err != nil {
		if errors.Is(context.Cause(ctx), errDatabaseGone) {
			err = errDatabaseGone
		}
		return c.notLent(caller, err, time.Since(began))
	}
	err = call(ctx, conn.Conn)
	inDoubt := err == nil && isNotReplicated(conn.Conn)
	lost := conn.IsClosed()
	c.connections.giveBack(conn)
	if inDoubt {
		c.startOutage(errNotReplicated)
		return fmt.Errorf("%w: %w", errAnswerUnknown, c.outage.errorNow())
	}
	var own *ownError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.error
	case errors.Is(context.Cause(ctx), errDatabaseGone):
		return fmt.Errorf("%w: %w", errAnswerUnknown, c.outage.errorNow())
	default:
		return c.judge(caller, err, lost, time.Since(began))
	}
}

// notLent is the error of a call that got no connection. Nothing was sent then.
func (c calls) notLent(caller context.Context, err error, took time.Duration) error {
	var failed *dsn.DialError
	switch {
	case caller.Err() != nil && took < patientEnough:
		return caller.Err()
	case errors.As(err, &failed):
		c.startOutage(err)
	case errors.Is(err, errDatabaseGone):
	case errors.Is(err, errClosed):
		return err
	default:
		c.startOutage(fmt.Errorf("no connection was free for %v", callTime))
	}
	return c.outage.errorNow()
}

// patientEnough is how long a caller must have waited, whose own time is up, for the database to be in doubt.
const patientEnough = 2 * time.Second

// judge is the error of a call that failed on its way.
func (c calls) judge(caller context.Context, err error, lost bool, took time.Duration) error {
	var answer *pgconn.PgError
	isAnswer := errors.As(err, &answer)
	switch {
	case isAnswer && answer.Code == codeReadOnly:
		// It is a standby now, or a failover is under way: the others of the DSN's hosts are to be tried.
		c.startOutage(errors.New("the server is read-only: " + answer.Message))
		return c.outage.errorNow()
	case isAnswer && answer.Code == codeNoFunction && answer.Where == "":
		// Not within a function: it is the one that was called. A newer release has removed it while this node was not seen, and refuses it.
		c.startOutage(errors.New("the schema is not as this program knows it: " + answer.Message))
		return c.outage.errorNow()
	case isAnswer && !lost:
		switch answer.Code {
		case codeNoRight, codeNoSchema, codeNoTable, codeNoFunction:
			c.doubt()
		}
		return err
	case caller.Err() != nil && took < patientEnough:
		return fmt.Errorf("%w: %w", errAnswerUnknown, caller.Err())
	default:
		c.startOutage(c.dsn.Plain(err))
		return fmt.Errorf("%w: %w", errAnswerUnknown, c.outage.errorNow())
	}
}

// Codes of PostgreSQL's errors.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeReadOnly      = "25006"
	codeNoFunction    = "42883"
	codeInUse         = "55006"
	codeNotLocked     = "55P03"
	codeTooMany       = "53300" // connections
	codeNoRight       = "42501"
	codeNoSchema      = "3F000"
	codeNoTable       = "42P01"
	codeProtocol      = "08P01" // as of a pgbouncer that does not take a setting
)

// isConflict reports whether a call failed because of another one at the same time, and did nothing.
func isConflict(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == codeSerialization || answer.Code == codeDeadlock)
}
