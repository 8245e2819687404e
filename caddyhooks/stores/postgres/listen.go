package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// word is what a node tells the others: that they should look, and at what. Anybody who can reach the database could say it, so it is
// never taken for true.
type word struct {
	node  string   // whose word it is
	kinds string   // a letter for each thing that changed, see hear
	runs  []string // that have ended
	nodes []string // for which there are frames
}

const (
	// mostHints is how many runs and nodes are named. A notification has less than 8,000 bytes.
	mostHints = 150
	// wordGap is the time between two words of a node at least.
	wordGap = 10 * time.Millisecond
)

// String is the word as it is sent: the node, the kinds, and then runs and nodes, each behind a letter.
func (w word) String() string {
	if len(w.runs) > mostHints {
		w.runs, w.kinds = nil, w.kinds+"e"
	}
	if len(w.nodes) > mostHints/2 {
		w.nodes, w.kinds = nil, w.kinds+"f"
	}
	var b strings.Builder
	b.WriteString(w.node + " " + w.kinds)
	for _, id := range w.runs {
		b.WriteString(" r" + id)
	}
	for _, name := range w.nodes {
		b.WriteString(" n" + name)
	}
	return b.String()
}

// parseWord reads a word. What is unknown is passed over: a newer version may say more.
func parseWord(text string) (w word, ok bool) {
	fields := strings.Split(text, " ")
	if len(fields) < 2 || fields[0] == "" {
		return word{}, false
	}
	w.node, w.kinds = fields[0], fields[1]
	for _, field := range fields[2:] {
		switch {
		case len(w.runs)+len(w.nodes) > 2*mostHints:
			return word{}, false
		case strings.HasPrefix(field, "r"):
			if _, ok := local.ParseID(field[1:]); ok {
				w.runs = append(w.runs, field[1:])
			}
		case strings.HasPrefix(field, "n") && len(field) > 1:
			w.nodes = append(w.nodes, field[1:])
		}
	}
	return w, true
}

// hear looks at what another node says has changed. Where the engine looks itself it is notified at once.
func (w *watch) hear(said word) {
	if said.node == w.node {
		return
	}
	var asked request
	look := false
	for _, kind := range said.kinds {
		switch kind {
		case 'r': // runs that can be claimed
			signal(w.claimable)
		case 'd': // deliveries
			signal(w.due)
		case 's':
			signal(w.settingsChanged)
		case 'c', 'f': // runs to be cancelled; what is followed, or frames
			look = true
		case 'e': // very many ends
			asked.full, look = true, true
		case 'n': // a node came or went
			asked.full, look = true, true
		}
	}
	if asked.runs = w.watched(false, said.runs); len(asked.runs) > 0 {
		look = true
	}
	if slices.Contains(said.nodes, w.node) {
		look = true
	}
	if look {
		w.pulse.ask(asked)
	}
}

// teller gathers what other nodes are to be told.
type teller struct {
	mu   sync.Mutex
	next word
	wake chan struct{}
}

func (t *teller) init() { t.wake = make(chan struct{}, 1) }

// tellOthers says that other nodes should look: kinds has a letter for each thing that changed. It does not wait.
func (w *watch) tellOthers(kinds string) { w.tellLater(word{kinds: kinds}) }

func (w *watch) tellOthersEnded(ids []string) { w.tellLater(word{runs: ids}) }

func (w *watch) tellLater(more word) {
	if w.isLone.Load() {
		return
	}
	t := &w.teller
	t.mu.Lock()
	for _, kind := range more.kinds {
		if !strings.ContainsRune(t.next.kinds, kind) {
			t.next.kinds += string(kind)
		}
	}
	if len(t.next.runs) <= mostHints {
		t.next.runs = append(t.next.runs, more.runs...)
	}
	for _, name := range more.nodes {
		if !slices.Contains(t.next.nodes, name) {
			t.next.nodes = append(t.next.nodes, name)
		}
	}
	t.mu.Unlock()
	signal(t.wake)
}

// keepTelling sends what was gathered, at most once in a while.
func (w *watch) keepTelling(ctx context.Context) {
	t := &w.teller
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		t.mu.Lock()
		next := t.next
		t.next = word{}
		t.mu.Unlock()
		_ = w.tell(ctx, next) // a pulse does not need it
		if !sleepUnlessDone(ctx, wordGap) {
			return
		}
	}
}

func (w *watch) tell(ctx context.Context, next word) error {
	next.node = w.node
	return w.on(watchCalls).exec(ctx, "SELECT pg_notify($1, $2)", w.channel(), next.String())
}

// channel is where the nodes of a schema talk. It is called like the schema, as PostgreSQL cuts that name.
func (w *watch) channel() string {
	const longest = 63
	name := w.schema
	if len(name) > longest {
		name = name[:longest]
		for !utf8.ValidString(name) {
			name = name[:len(name)-1]
		}
	}
	return name
}

const (
	// listenAgain is after how long a connection for listening is opened again that was lost.
	listenAgain = time.Second
	// listenPooled is the same if a pooler was in between.
	listenPooled = time.Minute
	// listenCheck is how long it may be silent before it is looked at.
	listenCheck = 30 * time.Second
)

// keepListening hears what other nodes say. Without it everything works, up to a second later: so its failures are told to nobody.
func (w *watch) keepListening(ctx context.Context) {
	for {
		if !sleepUnlessDone(ctx, w.listenOnce(ctx)) {
			return
		}
	}
}

// listenOnce listens until the connection is lost, and returns when to try again. A pooler such as pgbouncer may give the next transaction
// another connection of the server: word would go to one that nobody reads, and one version of pgbouncer crashes from it.
func (w *watch) listenOnce(ctx context.Context) (again time.Duration) {
	again = listenAgain
	conn, err := w.dialListener(ctx)
	if err != nil {
		return again
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	pooled, err := isPooled(ctx, conn)
	if pooled {
		return listenPooled
	}
	if err != nil || execSoon(ctx, conn, "LISTEN "+pgx.Identifier{w.channel()}.Sanitize()) != nil {
		return again
	}
	w.pulse.ask(request{full: true}) // what was said before was not heard
	for ctx.Err() == nil {
		silence, stop := context.WithTimeout(ctx, listenCheck)
		notification, err := conn.WaitForNotification(silence)
		stop()
		switch {
		case err == nil:
			if said, ok := parseWord(notification.Payload); ok {
				w.hear(said)
			}
		case ctx.Err() != nil || conn.IsClosed() || execSoon(ctx, conn, "SELECT 1") != nil:
			return again
		}
	}
	return again
}

// isPooled reports whether a pooler is between this and the server. It names processes of its own.
func isPooled(ctx context.Context, conn *pgx.Conn) (pooled bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var process uint32
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&process)
	return err == nil && process != conn.PgConn().PID(), err
}

// execSoon carries out a statement that takes no time.
func execSoon(ctx context.Context, conn *pgx.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := conn.Exec(ctx, statement)
	return err
}
