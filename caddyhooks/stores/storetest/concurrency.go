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

var concurrencyChecks = []check{
	{"every run ends once and in order, whatever happens at the same time", everyRunEndsOnce},
	{"what callers are told is true although some go away", toldTheTruth},
}

// random is a source of chance that is the same in every run of the test.
func random(seed int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // nothing here is secret
}

// ledger is what those who work on a store at the same time have seen of it.
type ledger struct {
	t *testing.T

	mu      sync.Mutex
	known   []*engine.Run
	running map[string]string   // by chat, the run that is claimed
	last    map[string]string   // by chat, the run that was claimed last
	stale   map[string]int      // by run, claims that were left to run out
	ends    map[string][]string // by run, the texts with which it ended
	held    map[string]int      // by run, 1 if it was ended by a claim that was not left to run out
}

func (l *ledger) added(run *engine.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = append(l.known, run)
}

// some returns a run that was added, if there is one yet.
func (l *ledger) some(chance *rand.Rand) *engine.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return nil
	}
	return l.known[chance.IntN(len(l.known))]
}

// begin notes a claim that holds until over.
func (l *ledger) begin(claim *engine.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chat, id := claim.Run.ChatID, claim.Run.ID
	if other := l.running[chat]; other != "" {
		l.t.Errorf("%s was claimed while %s of the same chat was", id, other)
	}
	if id < l.last[chat] {
		l.t.Errorf("%s was claimed after %s", id, l.last[chat])
	}
	if len(l.ends[id]) > 0 {
		l.t.Errorf("%s was claimed after its end", id)
	}
	l.running[chat], l.last[chat] = id, id
}

// over is called before a claim is given up, since others can claim as soon as it is.
func (l *ledger) over(claim *engine.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[claim.Run.ChatID] = ""
}

func (l *ledger) leftToRunOut(claim *engine.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale[claim.Run.ID]++
}

func (l *ledger) ended(id, text string, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[id] = append(l.ends[id], text)
	l.held[id] += held
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ends)
}

func everyRunEndsOnce(t *testing.T, s *store) {
	const adders, each, chats, workers = 4, 50, 9, 6
	l := &ledger{t: t, running: map[string]string{}, last: map[string]string{}, stale: map[string]int{},
		ends: map[string][]string{}, held: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var all, onlookers sync.WaitGroup
	for i := range adders {
		all.Go(func() {
			chance := random(i)
			for range each {
				run := newRun(fmt.Sprint("chat ", chance.IntN(chats)))
				if err := s.Add(ctx, run, engine.Limits{}); err != nil {
					t.Error(err)
					cancel()
					return
				}
				l.added(run)
			}
		})
	}
	for i := range workers {
		all.Go(func() {
			w := &worker{store: s.Store, ledger: l, chance: random(100 + i), name: fmt.Sprint("worker ", i)}
			for l.count() < adders*each && ctx.Err() == nil {
				if err := w.work(ctx); err != nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	over := make(chan struct{})
	for i := range 2 {
		onlookers.Go(func() {
			chance := random(200 + i)
			for ctx.Err() == nil {
				if err := l.meddle(ctx, s.Store, chance); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	all.Wait()
	close(over)
	onlookers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d of %d runs have ended, and it took too long or failed", l.count(), adders*each)
	}

	s.claimAll()
	if n := len(s.list(engine.Query{})); n != adders*each {
		t.Errorf("there are %d runs, want %d", n, adders*each)
	}
	delivered := map[string]int{}
	due, _ := s.due(time.Now(), 2*adders*each)
	for _, d := range due {
		delivered[d.RunID]++
	}
	for _, run := range l.known {
		ends := l.ends[run.ID]
		if len(ends) != 1 {
			t.Errorf("run %s ended %d times: %q", run.ID, len(ends), ends)
			continue
		}
		record := s.get(run.ID)
		if record.Status != engine.Completed || record.Outcome.Text != ends[0] {
			t.Errorf("run %s is %s with %q, want %q", run.ID, record.Status, record.Outcome.Text, ends[0])
		}
		if want := l.stale[run.ID] + l.held[run.ID]; record.Attempts != want { // a release takes back the attempt
			t.Errorf("run %s has %d attempts, want %d", run.ID, record.Attempts, want)
		}
		if delivered[run.ID] != 1 {
			t.Errorf("run %s has %d deliveries, want 1", run.ID, delivered[run.ID])
		}
	}
}

// worker claims runs, and ends, releases or forgets about them.
type worker struct {
	store  engine.Store
	ledger *ledger
	chance *rand.Rand
	name   string
	ends   int
}

func (w *worker) end(run *engine.Run) engine.End {
	w.ends++
	end := ended()
	end.Outcome.Text = fmt.Sprintf("%s, end %d", w.name, w.ends)
	end.Deliveries = []*engine.Delivery{newDelivery(run, 0, time.Now())}
	return end
}

func (w *worker) work(ctx context.Context) error {
	if w.chance.IntN(8) == 0 {
		return w.neglect(ctx)
	}
	claims, err := w.store.Claim(ctx, wanting(1+w.chance.IntN(3)))
	if err != nil {
		return err
	}
	for _, claim := range claims {
		w.ledger.begin(claim)
	}
	if len(claims) == 0 {
		select {
		case <-w.store.Claimable():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	for len(claims) > 0 {
		claim := claims[0]
		claims = claims[1:]
		if w.chance.IntN(5) == 0 {
			w.ledger.over(claim)
			if err := w.store.Release(ctx, claim); err != nil {
				return fmt.Errorf("releasing a run: %w", err)
			}
			continue
		}
		if lost, err := w.store.Renew(ctx, []*engine.Claim{claim}, time.Hour); err != nil || len(lost) > 0 {
			return errors.Join(errors.New("a claim that holds was not renewed"), err)
		}
		w.ledger.over(claim)
		end := w.end(claim.Run)
		next, err := w.store.Finish(ctx, claim, end, wanting(w.chance.IntN(2)))
		if err != nil {
			return fmt.Errorf("finishing a run: %w", err)
		}
		w.ledger.ended(claim.Run.ID, end.Outcome.Text, 1)
		for _, claim := range next {
			w.ledger.begin(claim)
		}
		claims = append(claims, next...)
	}
	return nil
}

// neglect claims a run and lets the claim run out. It may come back to it, perhaps too late.
func (w *worker) neglect(ctx context.Context) error {
	claims, err := w.store.Claim(ctx, engine.Want{Runs: 1, Lease: shortLease})
	if err != nil || len(claims) == 0 {
		return err
	}
	w.ledger.leftToRunOut(claims[0])
	if w.chance.IntN(2) == 0 {
		return nil
	}
	end := w.end(claims[0].Run)
	_, err = w.store.Finish(ctx, claims[0], end, engine.Want{})
	if errors.Is(err, engine.ErrClaimLost) {
		return nil
	}
	if err == nil {
		w.ledger.ended(claims[0].Run.ID, end.Outcome.Text, 0)
	}
	return err
}

// meddle does one of the things that happen while runs are carried out.
func (l *ledger) meddle(ctx context.Context, s engine.Store, chance *rand.Rand) error {
	run := l.some(chance)
	if run == nil {
		return nil
	}
	var err error
	switch chance.IntN(6) {
	case 0:
		w := &worker{chance: chance, name: "withdrawn " + run.ID}
		end := w.end(run)
		if err = s.Withdraw(ctx, run.ID, end); err == nil {
			l.ended(run.ID, end.Outcome.Text, 0)
		} else if errors.Is(err, engine.ErrNotFound) {
			err = nil
		}
	case 1:
		_, err = s.Get(ctx, run.ID)
	case 2:
		_, _, err = s.List(ctx, engine.Query{ChatID: run.ChatID, Status: engine.Running, Limit: 5})
	case 3:
		_, err = s.Prune(ctx, time.Now(), engine.Limits{Retention: time.Hour, KeyAge: time.Hour})
	case 4:
		err = s.SaveSettings(ctx, []byte(run.ID))
	case 5:
		_, err = s.Settings(ctx)
	}
	return err
}

// toldTheTruth adds runs for callers of whom many go away meanwhile. A run is there if its caller was told so, and only
// then.
func toldTheTruth(t *testing.T, s *store) {
	var mu sync.Mutex
	stored := map[string]bool{}
	var adders sync.WaitGroup
	for i := range 8 {
		adders.Go(func() {
			chance := random(i)
			for range 15 {
				ctx, cancel := context.WithCancel(t.Context())
				gone := time.AfterFunc(time.Duration(chance.IntN(3000))*time.Microsecond, cancel)
				run := newRun(fmt.Sprint("chat ", i))
				if err := s.Add(ctx, run, engine.Limits{}); err == nil {
					mu.Lock()
					stored[run.ID] = true
					mu.Unlock()
				} else if ctx.Err() == nil {
					t.Error(err)
				}
				gone.Stop()
				cancel()
			}
		})
	}
	adders.Wait()
	for _, record := range s.list(engine.Query{}) {
		if !stored[record.Run.ID] {
			t.Errorf("run %s is there, and its caller was told that it is not", record.Run.ID)
		}
		delete(stored, record.Run.ID)
	}
	for id := range stored {
		t.Errorf("run %s is not there, and its caller was told that it is", id)
	}
}
