package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// ledger notes what goroutines that work on a store at the same time, on one node or on several, were told by it. It finds
// answers that cannot all be true.
type ledger struct {
	t *testing.T

	mu    sync.Mutex
	steps int // how many notes about additions there are
	runs  map[string]*entry
	chats map[string]*chat

	// The store's clock was advanced by no less than passed and no more than announced.
	passed, announced time.Duration
	tokens            tokens
}

// entry is what is known about a run.
type entry struct {
	run      *engine.Run
	begun    int // the step at which its Add began, 0 if that is not known yet
	added    int // the step at which its Add had returned
	attempts int // claims that were not taken back
	ending   int // calls under way that may end it, or have done so
	ends     []string
	overtook []*entry // runs of the chat that had not ended when it was claimed
}

type chat struct {
	entries []*entry
	holder  *lease // of the run that was claimed last, nil when it was given up
}

// lease is a claim as far as it is sure to hold.
type lease struct {
	claim *engine.Claim
	from  moment
	d     time.Duration
}

// moment is a time before a call was made.
type moment struct {
	passed time.Duration
	at     time.Time
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, runs: map[string]*entry{}, chats: map[string]*chat{}}
}

// advance lets the clock of a store go forward.
func (l *ledger) advance(s *store, d time.Duration) {
	l.mu.Lock()
	l.announced += d
	l.mu.Unlock()
	s.options.Advance(s.t, s.Store, d)
	l.mu.Lock()
	l.passed += d
	l.mu.Unlock()
}

// now is taken before a call.
func (l *ledger) now() moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return moment{l.passed, time.Now()}
}

// surelyOver reports whether a lease is over for sure.
func (l *ledger) surelyOver(from moment, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed >= from.passed+d+time.Minute
}

// mayBeOver reports whether a lease may be over by now. The lock is held.
func (l *ledger) mayBeOver(h *lease) bool {
	return l.announced+time.Since(h.from.at) >= h.from.passed+h.d
}

func (l *ledger) entry(run *engine.Run) *entry {
	e := l.runs[run.ID]
	if e == nil {
		e = &entry{run: run}
		l.runs[run.ID] = e
		c := l.chat(run)
		c.entries = append(c.entries, e)
	}
	return e
}

func (l *ledger) chat(run *engine.Run) *chat {
	c := l.chats[run.ChatID]
	if c == nil {
		c = new(chat)
		l.chats[run.ChatID] = c
	}
	return c
}

func (l *ledger) step() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps++
	return l.steps
}

// add stores a run under the settings that are in force.
func (l *ledger) add(ctx context.Context, s engine.Store, run *engine.Run) {
	for {
		begun := l.step()
		revision, err := s.Settings().Revision(ctx)
		if err == nil {
			err = s.Runs().Add(ctx, run, engine.Terms{Settings: revision})
		}
		if errors.Is(err, engine.ErrSettingsChanged) {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				l.t.Errorf("adding a run: %v", err)
			}
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.steps++
		e := l.entry(run)
		e.begun, e.added = begun, l.steps
		l.checkOrder(e)
		return
	}
}

// some returns a run that was added, if there is one yet.
func (l *ledger) some(chance *rand.Rand) *engine.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := chance.IntN(len(l.runs) + 1)
	for _, e := range l.runs {
		if n--; n <= 0 {
			return e.run
		}
	}
	return nil
}

// began notes a claim by a call that lasted since a moment.
func (l *ledger) began(claim *engine.Claim, from moment, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, c := l.entry(claim.Run), l.chat(claim.Run)
	if !l.tokens.isNew(claim.Token) {
		l.t.Errorf("run %s was claimed with token %q, which is none or was used before", e.run.ID, claim.Token)
	}
	e.attempts++
	held := &lease{claim, from, d}
	if l.mayBeOver(held) {
		return // somebody else may have claimed the run meanwhile, and even have ended it
	}
	if h := c.holder; h != nil && !l.mayBeOver(h) {
		l.t.Errorf("%s was claimed while %s of the same chat was", e.run.ID, h.claim.Run.ID)
	}
	c.holder = held
	if len(e.ends) > 0 {
		l.t.Errorf("%s was claimed after its end", e.run.ID)
	}
	for _, other := range c.entries {
		if other != e && other.added > 0 && other.ending == 0 {
			e.overtook = append(e.overtook, other)
		}
	}
	l.checkOrder(e)
}

// checkOrder expects that a run was claimed after all runs of its chat whose Add had returned before its own began. A run
// can be claimed before its Add returns; then this is checked later.
func (l *ledger) checkOrder(e *entry) {
	for _, other := range e.overtook {
		if other.added <= e.begun {
			l.t.Errorf("%s was claimed before %s, which was added first", e.run.ID, other.run.ID)
		}
	}
}

// renewed notes that a claim was renewed, or lost.
func (l *ledger) renewed(claim *engine.Claim, from moment, d time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chat(claim.Run)
	h := c.holder
	mine := h != nil && h.claim.Token == claim.Token
	renewed := &lease{claim, from, d}
	switch {
	case lost && mine && !l.mayBeOver(h):
		l.t.Errorf("a claim of %s was lost within its lease", claim.Run.ID)
	case lost || l.mayBeOver(renewed):
	case !mine && h != nil && !l.mayBeOver(h):
		l.t.Errorf("a claim of %s was renewed while somebody else had the chat", claim.Run.ID)
	default:
		c.holder = renewed
	}
}

// letGo is called before a claim is given up, since others can claim as soon as it is. It returns the lease, nil if somebody
// else has got the chat.
func (l *ledger) letGo(claim *engine.Claim) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chat(claim.Run)
	h := c.holder
	if h == nil || h.claim.Token != claim.Token {
		return nil
	}
	c.holder = nil
	return h
}

// mayBeLost reports whether a claim that was let go may have been lost.
func (l *ledger) mayBeLost(h *lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h == nil || l.mayBeOver(h)
}

// ending is called before a run is ended.
func (l *ledger) ending(run *engine.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(run).ending++
}

// notEnded is called when the end of a run was refused.
func (l *ledger) notEnded(run *engine.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(run).ending--
}

// ended is called when the end of a run was stored.
func (l *ledger) ended(run *engine.Run, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(run)
	e.ends = append(e.ends, text)
}

// requeued is called when a start was taken back.
func (l *ledger) requeued(run *engine.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(run).attempts--
}

// count is how many runs have ended.
func (l *ledger) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.runs {
		if len(e.ends) > 0 {
			n++
		}
	}
	return n
}

// check compares a store with the ledger when all runs have ended.
func (l *ledger) check(s *store) {
	s.t.Helper()
	s.claimAll()
	if n := len(s.list(engine.Query{})); n != len(l.runs) {
		s.t.Errorf("there are %d runs, want %d", n, len(l.runs))
	}
	delivered := map[string]int{}
	due, _ := s.due(2 * len(l.runs))
	for _, d := range due {
		delivered[d.RunID]++
	}
	for id, e := range l.runs {
		l.checkRun(s, e)
		if delivered[id] != 1 {
			s.t.Errorf("run %s has %d deliveries, want 1", id, delivered[id])
		}
	}
}

func (l *ledger) checkRun(s *store, e *entry) {
	s.t.Helper()
	if len(e.ends) != 1 {
		s.t.Errorf("run %s ended %d times: %q", e.run.ID, len(e.ends), e.ends)
		return
	}
	record := s.get(e.run.ID)
	if record.Status != engine.Completed || record.Outcome.Text != e.ends[0] {
		s.t.Errorf("run %s is %s with %q, want %q", e.run.ID, record.Status, record.Outcome.Text, e.ends[0])
	}
	if record.Attempts != e.attempts {
		s.t.Errorf("run %s has %d attempts, want %d", e.run.ID, record.Attempts, e.attempts)
	}
}

// worker claims runs on one node, and ends, requeues or forgets about them.
type worker struct {
	node   engine.Store
	ledger *ledger
	chance *rand.Rand
	name   string
	lease  time.Duration // of claims that are renewed in time, as a rule
	ends   int
}

func (w *worker) end(run *engine.Run) engine.End {
	w.ends++
	end := endedWith(newDelivery(run, 0))
	end.Outcome.Text = fmt.Sprintf("%s, end %d", w.name, w.ends)
	return end
}

// work claims a few runs and carries them out.
func (w *worker) work(ctx context.Context) error {
	if w.chance.IntN(8) == 0 {
		return w.neglect(ctx)
	}
	from := w.ledger.now()
	claims, _, err := w.node.Runs().Claim(ctx, engine.Batch{Max: 1 + w.chance.IntN(3), Lease: w.lease})
	if err != nil {
		return fmt.Errorf("claiming: %w", err)
	}
	for _, claim := range claims {
		w.ledger.began(claim, from, w.lease)
	}
	if len(claims) == 0 {
		select {
		case <-w.node.Watch().Claimable():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	for len(claims) > 0 {
		next, err := w.carryOut(ctx, claims[0])
		if err != nil {
			return err
		}
		claims = append(claims[1:], next...)
	}
	return nil
}

// carryOut ends a run, or requeues it, and claims others if it likes.
func (w *worker) carryOut(ctx context.Context, claim *engine.Claim) (next []*engine.Claim, err error) {
	if w.chance.IntN(5) == 0 {
		return nil, w.requeue(ctx, claim)
	}
	from := w.ledger.now()
	lost, _, err := w.node.Runs().Renew(ctx, []*engine.Claim{claim}, w.lease)
	if err != nil {
		return nil, fmt.Errorf("renewing a claim: %w", err)
	}
	w.ledger.renewed(claim, from, w.lease, len(lost) > 0)
	return w.finish(ctx, claim, engine.Batch{Max: w.chance.IntN(2), Lease: w.lease})
}

func (w *worker) requeue(ctx context.Context, claim *engine.Claim) error {
	held := w.ledger.letGo(claim)
	_, err := w.node.Runs().End(ctx, claim, engine.End{Requeue: true}, engine.Batch{})
	if isClaimLost(err) && w.ledger.mayBeLost(held) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("requeueing a run: %w", err)
	}
	w.ledger.requeued(claim.Run)
	return nil
}

// finish ends a run. Sometimes the answer is lost, so it ends the run again.
func (w *worker) finish(ctx context.Context, claim *engine.Claim, batch engine.Batch) (next []*engine.Claim, err error) {
	held := w.ledger.letGo(claim)
	end := w.end(claim.Run)
	w.ledger.ending(claim.Run)
	from := w.ledger.now()
	next, err = w.node.Runs().End(ctx, claim, end, batch)
	if err != nil {
		w.ledger.notEnded(claim.Run)
		if isClaimLost(err) && w.ledger.mayBeLost(held) {
			return nil, nil
		}
		return nil, fmt.Errorf("ending a run: %w", err)
	}
	w.ledger.ended(claim.Run, end.Outcome.Text)
	for _, claim := range next {
		w.ledger.began(claim, from, batch.Lease)
	}
	if w.chance.IntN(6) == 0 {
		again := w.end(claim.Run)
		if claims, err := w.node.Runs().End(ctx, claim, again, engine.Batch{}); err != nil || len(claims) > 0 {
			return nil, fmt.Errorf("ending a run again: got %d claims and %w", len(claims), err)
		}
	}
	return next, nil
}

// neglect claims a run and lets the lease pass. It may come back to the run, perhaps too late.
func (w *worker) neglect(ctx context.Context) error {
	from := w.ledger.now()
	claims, _, err := w.node.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: shortLease})
	if err != nil || len(claims) == 0 {
		return err
	}
	claim := claims[0]
	w.ledger.began(claim, from, shortLease)
	if w.chance.IntN(2) == 0 {
		return nil
	}
	for w.chance.IntN(3) > 0 && !w.ledger.surelyOver(from, shortLease) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if w.chance.IntN(4) == 0 {
		return w.requeue(ctx, claim)
	}
	_, err = w.finish(ctx, claim, engine.Batch{})
	return err
}

// meddle does one of the things that happen while runs are carried out.
func (l *ledger) meddle(ctx context.Context, s engine.Store, chance *rand.Rand) error {
	run := l.some(chance)
	if run == nil {
		return nil
	}
	var err error
	switch chance.IntN(8) {
	case 0:
		w := &worker{chance: chance, name: "queued " + run.ID}
		end := w.end(run)
		l.ending(run)
		if _, err = s.Runs().End(ctx, queued(run), end, engine.Batch{}); err == nil {
			l.ended(run, end.Outcome.Text)
			return nil
		}
		l.notEnded(run)
		if errors.Is(err, engine.ErrClaimLost) {
			return nil
		}
	case 1:
		_, err = s.Runs().Get(ctx, run.ID)
	case 2:
		_, _, err = s.Runs().List(ctx, engine.Query{ChatID: run.ChatID, Statuses: []engine.Status{engine.Running}, Limit: 5})
	case 3:
		_, err = s.Prune(ctx, engine.Limits{Retention: longLease, KeyAge: longLease})
	case 4:
		revision, loadErr := s.Settings().Revision(ctx)
		if loadErr != nil {
			return loadErr
		}
		if _, err = s.Settings().Save(ctx, []byte(run.ID), []byte("by a run"), revision); errors.Is(err, engine.ErrSettingsChanged) {
			return nil
		}
	case 5:
		_, _, err = s.Settings().Load(ctx)
	case 6:
		if err = s.Runs().Cancel(ctx, run.ID, "somebody"); errors.Is(err, engine.ErrNotFound) {
			return nil
		}
	case 7:
		_, _, err = s.Runs().Renew(ctx, nil, longLease)
	}
	return err
}
