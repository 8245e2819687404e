package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// claiming hands out runs, and ends them. Calls that come at the same time go to the database together.
type claiming struct {
	*runs
	batcher *batcher[turnover]

	// Of the batch that is under way.
	call int64   // the number of the last call
	lost []int64 // calls that may have claimed runs nobody heard of

	lostAdds lostCalls // those that accept runs
	behind   behind
}

// lostCalls are calls whose answer was lost.
type lostCalls struct {
	mu      sync.Mutex
	numbers []int64
}

func (l *lostCalls) add(number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers = append(l.numbers, number)
}

// take returns all of them, which somebody is about to undo.
func (l *lostCalls) take() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	numbers := l.numbers
	l.numbers = nil
	return numbers
}

// How much goes to the database at once. An end alone may have more.
const (
	mostEnds     = 128
	mostEndBytes = 4 << 20
)

func (c *claiming) init(r *runs) {
	c.runs = r
	c.batcher = newBatcher(mostEnds, c.carryOut)
}

func (r *runs) Claim(ctx context.Context, batch engine.Batch) ([]*engine.Claim, time.Duration, error) {
	t := &turnover{next: batch}
	err := r.claiming.do(ctx, t)
	return t.claims, t.wait, err
}

// turnover is one question for claims, possibly after an end.
type turnover struct {
	end  *ending // nil if there is none
	next engine.Batch

	claims []*engine.Claim
	wait   time.Duration
	err    error // of this one alone

	mu    sync.Mutex
	state turnoverState
}

type turnoverState int

const (
	turnoverWaits turnoverState = iota
	turnoverUnderWay
	turnoverAnswered
	turnoverAbandoned // nobody waits for it any more
)

// do has a call carried out. With an error, nobody may look at the answer.
func (c *claiming) do(ctx context.Context, t *turnover) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := c.batcher.do(ctx, t)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state == turnoverAnswered && t.err != nil:
		return t.err
	case t.state == turnoverAnswered && err != nil && ctx.Err() != nil: // it was answered at the same moment
		return nil
	case t.state == turnoverUnderWay && ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", errAnswerUnknown, ctx.Err())
	}
	if err != nil {
		t.state = turnoverAbandoned
		t.claims = nil
	}
	return err
}

// begin reports whether somebody still waits for the answer.
func (t *turnover) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == turnoverAbandoned {
		return false
	}
	t.state = turnoverUnderWay
	return true
}

// answer gives the answer, and reports whether anybody gets it.
func (t *turnover) answer(claims []*engine.Claim, wait time.Duration, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == turnoverAbandoned {
		return false
	}
	t.claims, t.wait, t.err, t.state = claims, wait, err, turnoverAnswered
	return true
}

// abandon says that nobody waits for the answer any more, and returns what was claimed before.
func (t *turnover) abandon() (claims []*engine.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	claims, t.claims, t.state = t.claims, nil, turnoverAbandoned
	return claims
}

func tokensOf(claims []*engine.Claim) (tokens []string) {
	for _, claim := range claims {
		tokens = append(tokens, claim.Token)
	}
	return tokens
}

// carryOut carries out a batch of calls, in as many steps as it takes.
func (c *claiming) carryOut(ctx context.Context, batch []*turnover) error {
	for len(batch) > 0 {
		var together []*turnover
		together, batch = takeEnds(batch)
		if err := c.carryOutTogether(ctx, together); err != nil {
			return err // those that were answered have their answer
		}
	}
	return nil
}

// takeEnds takes some calls that go to the database together, and leaves out those that nobody waits for.
func takeEnds(batch []*turnover) (together, rest []*turnover) {
	size := 0
	ids := make(map[string]struct{}, len(batch))
	for i, t := range batch {
		if t.end == nil {
			if t.begin() {
				together = append(together, t)
			}
			continue
		}
		_, twice := ids[t.end.id()]
		if twice || len(ids) > 0 && size+t.end.size > mostEndBytes {
			return together, batch[i:]
		}
		if t.begin() {
			ids[t.end.id()] = struct{}{}
			size += t.end.size
			together = append(together, t)
		}
	}
	return together, nil
}

// carryOutTogether carries out calls in one step.
func (c *claiming) carryOutTogether(ctx context.Context, together []*turnover) error {
	if len(together) == 0 {
		return nil
	}
	if err := c.undoLost(ctx); err != nil {
		return err
	}
	asks := newAsks(together)
	var answer *turnoverAnswer
	for care := careFor(together); ; care++ {
		var err error
		c.call++
		asked := time.Now()
		answer, err = c.ask(ctx, together, asks, care)
		if errors.Is(err, errAnswerUnknown) {
			c.lost = append(c.lost, c.call)
		}
		if err != nil {
			return err
		}
		c.commits.note(countEnds(together), asked)
		c.learnClock(asked, answer.at)
		if !answer.retry {
			break
		}
	}
	c.behind.note(asks, answer)
	c.give(ctx, together, asks, answer)
	return nil
}

func countEnds(calls []*turnover) (ends int) {
	for _, t := range calls {
		if t.end != nil {
			ends++
		}
	}
	return ends
}

// undoLost gives back what was claimed by calls whose answer was lost.
func (c *claiming) undoLost(ctx context.Context) error {
	if adds := c.lostAdds.take(); len(adds) > 0 {
		if err := c.undo(ctx, "SELECT @.undo_added_2($1, $2)", adds); err != nil {
			for _, number := range adds {
				c.lostAdds.add(number)
			}
			return err
		}
	}
	if len(c.lost) == 0 {
		return nil
	}
	if err := c.undo(ctx, "SELECT @.undo_claims_1($1, $2, '{}')", c.lost); err != nil {
		return err
	}
	c.lost = nil
	return nil
}

// undoUnwanted gives back claims whose callers are gone. If that fails their lease will be over.
func (c *claiming) undoUnwanted(ctx context.Context, tokens []string) {
	if len(tokens) > 0 {
		_ = c.undo(ctx, "SELECT @.undo_claims_1($1, '{}', $2)", tokens)
	}
}

func (c *claiming) undo(ctx context.Context, statement string, what any) error {
	undone := 0
	err := c.on(claimCalls).query(ctx, func(row pgx.Rows) error { return row.Scan(&undone) }, statement, c.node, what)
	if undone > 0 {
		c.watch.tellClaimable()
		c.watch.tellOthers("r")
	}
	return err
}

// give gives each call its answer.
func (c *claiming) give(ctx context.Context, together []*turnover, asks *asks, answer *turnoverAnswer) {
	var unwanted []string
	var ended []string
	kinds := ""
	requeued, deliveries := false, false
	claimed := len(answer.claims)
	number := 0
	for _, t := range together {
		var err error
		if t.end != nil {
			switch answer.ends[number] {
			case "ended", "queued":
				ended = append(ended, t.end.ids()...)
				deliveries = deliveries || t.end.hasDeliveries()
			case "repeated":
				ended = append(ended, t.end.ids()...) // the answer was lost, and those who wait have heard nothing
			case "requeued":
				requeued = true
				deliveries = deliveries || t.end.isPutAside() && t.end.hasDeliveries()
			case "gap":
				err = gapError(t.end.claim.Run, t.end.end.Question)
			case "put_back":
			default:
				err = engine.ErrClaimLost
			}
			number++
		}
		var claims []*engine.Claim
		if err == nil {
			claims = asks.take(t, answer.byAsk)
		}
		if !t.answer(claims, answer.wait, err) {
			unwanted = append(unwanted, tokensOf(claims)...)
		}
	}
	if len(ended) > 0 {
		c.watch.tellEnded(ended...)
	}
	if deliveries {
		c.watch.tellDue()
		kinds += "d"
	}
	if answer.ready > claimed || answer.opened > 0 || requeued {
		c.watch.tellClaimable()
		kinds += "r"
	}
	if kinds != "" {
		c.watch.tellOthers(kinds)
	}
	c.undoUnwanted(ctx, unwanted) // all that wait have their answers
}

// behind is what claims need not look at again: turns that were claimed and leases that were over long since, by all one knows. While a
// transaction is held open elsewhere they stay in the indexes, and to pass over them takes longer and longer.
//
// A run that becomes ready has the next turn, but may be seen late, when its transaction is over. So this lags, and once in a while all are
// looked at.
type behind struct {
	mu      sync.Mutex
	full    time.Time // the last look at all
	noted   time.Time // when earlier was known
	known   int64     // the last turn that was claimed
	earlier int64     // the same some time ago
	safe    int64     // the same, longer ago
}

const (
	fullLook = time.Second
	lookLag  = 500 * time.Millisecond
	// mostRipened is how many claims ripen_1 puts back at once.
	mostRipened = 100
)

// from is the first turn to look at, and since when leases to look at are over, in seconds, -1 for any.
func (b *behind) from() (turn int64, lapsed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.noted) >= lookLag {
		b.noted, b.safe, b.earlier = now, b.earlier, b.known
	}
	if now.Sub(b.full) >= fullLook {
		b.full = now
		return 0, -1
	}
	return b.safe, (now.Sub(b.full) + fullLook).Seconds()
}

// fromLately is from for those who never look at all.
func (b *behind) fromLately() (turn int64, lapsed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.safe, (2 * fullLook).Seconds()
}

// note notes what was claimed.
func (b *behind) note(asks *asks, answer *turnoverAnswer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer.ready >= mostRipened { // there may be more of them
		b.full = time.Time{}
	}
	if asks.bounded { // something may have been left behind
		b.known, b.earlier, b.safe = 0, 0, 0
		return
	}
	b.known = max(b.known, answer.lastTurn)
}
