package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/dsn"
)

// callKind is a kind of calls. Each has a number of connections of its own, so that no kind keeps another one waiting.
type callKind int

const (
	addCalls      callKind = iota // accepting runs
	claimCalls                    // claiming, renewing and ending runs
	deliveryCalls                 // claiming, renewing and settling deliveries
	watchCalls                    // what nodes hear of each other
	readCalls                     // all the rest
	callKinds
)

// placesOf are how many calls of a kind are under way at once. Batches of a kind come one at a time, those of runs with gates beside
// others.
var placesOf = [callKinds]int{addCalls: 2, claimCalls: 2, deliveryCalls: 2, watchCalls: 2, readCalls: 3}

// connections are those of a node. They are opened when they are needed, and few: PostgreSQL has a process for each.
type connections struct {
	dsn       dsn.DSN
	callKinds [callKinds]chan struct{} // a value for each call that is under way

	mu         sync.Mutex
	idle       []*connection // the one that was used last at the end
	open       int           // idle, lent and being opened
	generation int           // connections of earlier ones are closed when they come back
	fullUntil  time.Time     // the server has no room for another connection: it is not asked for one before
	released   chan struct{} // closed when a connection came back, or went
	listener   *pgx.Conn     // that only listens
	isClosed   bool
	closed     chan struct{}
	lent       sync.WaitGroup

	idleFor time.Duration // as the constant, but in tests
}

type connection struct {
	*pgx.Conn
	callKind   callKind
	generation int
	idleSince  time.Time
}

var (
	errDatabaseGone = errors.New("the database went away")
	errClosed       = errors.New("the store is closed")
)

// idleFor is for how long a connection is idle before it is tried out: the server, or something between, may have ended it since.
const idleFor = 5 * time.Second

// fullFor is for how long a server that had no room for another connection is not asked for one.
const fullFor = 5 * time.Second

func (c *connections) init(n dsn.DSN) {
	c.dsn, c.released, c.closed, c.idleFor = n, make(chan struct{}), make(chan struct{}), idleFor
	for l := range c.callKinds {
		c.callKinds[l] = make(chan struct{}, placesOf[l])
	}
}

// borrow lends a connection, which must be given back. It waits for a place for its kind until ctx is done or the database is unreachable.
func (c *connections) borrow(ctx context.Context, l callKind, outage <-chan struct{}) (*connection, error) {
	select {
	case c.callKinds[l] <- struct{}{}:
	case <-outage:
		return nil, errDatabaseGone
	case <-c.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := c.take(ctx, outage)
	if err != nil {
		<-c.callKinds[l]
		return nil, err
	}
	conn.callKind = l
	return conn, nil
}

// take returns a connection that is idle, or a new one. If the server has no room for a new one it waits for one of this node.
func (c *connections) take(ctx context.Context, outage <-chan struct{}) (*connection, error) {
	for {
		c.mu.Lock()
		if c.isClosed {
			c.mu.Unlock()
			return nil, errClosed
		}
		if n := len(c.idle); n > 0 {
			conn := c.idle[n-1]
			c.idle = c.idle[:n-1]
			c.lent.Add(1)
			c.mu.Unlock()
			if time.Since(conn.idleSince) < c.idleFor || conn.Ping(ctx) == nil {
				return conn, nil
			}
			c.drop(conn)
			continue
		}
		released := c.released
		mayDial := c.open == 0 || time.Now().After(c.fullUntil)
		if mayDial {
			c.open++
			c.lent.Add(1)
		}
		generation := c.generation
		c.mu.Unlock()
		if mayDial {
			conn, err := c.dsn.Dial(ctx)
			if err == nil {
				return &connection{Conn: conn, generation: generation}, nil
			}
			if !c.notDialled(err) {
				return nil, err
			}
			continue
		}
		select {
		case <-released:
		case <-outage:
			return nil, errDatabaseGone
		case <-c.closed:
			return nil, errClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// notDialled notes that no connection could be opened, and reports whether there are others to wait for.
func (c *connections) notDialled(err error) (others bool) {
	defer c.lent.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.release()
	var failed *dsn.DialError
	if !errors.As(err, &failed) || failed.Code != codeTooMany {
		return false
	}
	c.fullUntil = time.Now().Add(fullFor)
	if c.open == 0 && c.listener != nil { // a node can do without
		_ = c.listener.PgConn().Conn().Close()
		c.listener = nil
		return true
	}
	return c.open > 0
}

// release wakes up whoever waits for a connection. It is called under the lock.
func (c *connections) release() {
	close(c.released)
	c.released = make(chan struct{})
}

// drop ends a connection that was lent, and does not work any more.
func (c *connections) drop(conn *connection) {
	defer c.lent.Done()
	c.mu.Lock()
	c.open--
	c.release()
	c.mu.Unlock()
	closeConnection(conn)
}

// giveBack ends the use of a connection.
func (c *connections) giveBack(conn *connection) {
	defer c.lent.Done()
	<-c.callKinds[conn.callKind]
	c.keep(conn)
}

// keep makes a connection idle, or ends it.
func (c *connections) keep(conn *connection) {
	c.mu.Lock()
	keeps := !c.isClosed && conn.generation == c.generation && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I' &&
		!isNotReplicated(conn.Conn)
	if keeps {
		conn.idleSince = time.Now()
		c.idle = append(c.idle, conn)
	} else {
		c.open--
	}
	c.release()
	c.mu.Unlock()
	if !keeps {
		closeConnection(conn)
	}
}

// adopt takes over a connection that was opened elsewhere.
func (c *connections) adopt(conn *pgx.Conn) {
	c.mu.Lock()
	c.open++
	c.fullUntil = time.Time{}
	own := &connection{Conn: conn, generation: c.generation}
	c.mu.Unlock()
	c.keep(own)
}

// renew ends all connections. Those that are lent end when they come back.
func (c *connections) renew() {
	c.mu.Lock()
	c.generation++
	idle := c.idle
	c.idle = nil
	c.open -= len(idle)
	if c.listener != nil {
		_ = c.listener.PgConn().Conn().Close()
		c.listener = nil
	}
	c.mu.Unlock()
	for _, conn := range idle {
		closeConnection(conn)
	}
}

// listen opens a connection for whoever listens on it. It is ended when it is needed elsewhere, or the database goes away. The caller
// closes it.
func (c *connections) listen(ctx context.Context) (*pgx.Conn, error) {
	c.mu.Lock()
	isFull := time.Now().Before(c.fullUntil)
	c.mu.Unlock()
	if isFull {
		return nil, errors.New("the server has no room for a connection that listens")
	}
	conn, err := c.dsn.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		closeConnection(&connection{Conn: conn})
		return nil, errClosed
	}
	c.listener = conn
	return conn, nil
}

// close ends all connections, and waits for calls that are under way.
func (c *connections) close() {
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		close(c.closed)
	}
	c.mu.Unlock()
	c.lent.Wait()
	c.mu.Lock()
	idle := slices.Clone(c.idle)
	c.idle = nil
	c.mu.Unlock()
	for _, conn := range idle {
		closeConnection(conn)
	}
}

// closeConnection closes a connection, and tells the server if that takes no time.
func closeConnection(conn *connection) { dsn.Close(conn.Conn) }
