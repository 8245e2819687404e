package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

var ledgerChecks = []check{
	{"what runs spend is summed up by account and span", spentBySpan},
	{"an end that is repeated, or has no right to be, spends nothing", spentOnce},
	{"a run that goes back has spent what it has", spentByRequeued},
	{"the ledger is read by prefix and time", spentWithin},
	{"entries are forgotten when their time is over", oldEntries},
	{"many ends at once lose nothing", spentAtOnce},
}

var durableLedgerChecks = []check{
	{"what was spent survives", spentSurvives},
}

var ledgerNodeChecks = []check{
	{"nodes share a ledger", spentOnTwoNodes},
}

// anEntry is something that is spent on an account, in spans of an hour.
func anEntry(parts ...string) engine.LedgerEntry {
	return engine.LedgerEntry{Account: usage.NewAccount(parts...), Span: time.Hour, Keep: 24 * time.Hour, Runs: 1,
		Use: engine.Use{HasTokens: true, Input: 1000, Output: 20, Cached: 300, Reasoning: 4, HasCost: true, Cost: 5e9}}
}

// spend ends a run that has spent something.
func (s *store) spend(spent ...engine.LedgerEntry) *engine.Claim {
	s.t.Helper()
	run := newRun("spender")
	s.add(run)
	claim := s.claimFirst(run)
	end := ended()
	end.Spent = spent
	s.end(claim, end)
	return claim
}

// spentIs expects what was spent on the accounts of a prefix, without looking at when a span starts.
func (s *store) spentIs(prefix string, within time.Duration, want ...engine.LedgerEntry) {
	s.t.Helper()
	entries, now, err := s.Ledger().Spent(s.t.Context(), prefix, within)
	if err != nil {
		s.t.Fatalf("reading the ledger: %v", err)
	}
	s.isNow("the time of the ledger", now)
	for i := range entries {
		if e := &entries[i]; e.Start.UnixNano()%int64(e.Span) != 0 || e.Start.After(now) || !e.End().After(now.Add(-within)) {
			s.t.Errorf("a span of %v starts at %v, and was asked for at %v", e.Span, e.Start, now)
		}
		entries[i].Start = time.Time{}
	}
	same(s.t, "what was spent", entries, want)
}

// times is an entry to which the same was added several times.
func times(n int64, e engine.LedgerEntry) engine.LedgerEntry {
	e.Runs *= n
	for _, number := range []*int64{&e.Use.Input, &e.Use.Output, &e.Use.Cached, &e.Use.Reasoning, &e.Use.Cost} {
		*number *= n
	}
	return e
}

// wholeHour lets the time go on until an hour has just begun, so that what follows is in the same span.
func (s *store) wholeHour() {
	s.t.Helper()
	_, now, err := s.Ledger().Spent(s.t.Context(), "", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.advance(now.Truncate(time.Hour).Add(time.Hour + time.Minute).Sub(now))
}

func spentBySpan(_ *testing.T, s *store) {
	s.wholeHour()
	a, b, minutes := anEntry("a", "x"), anEntry("a", "ü y"), anEntry("a", "x 1")
	minutes.Span, minutes.Keep = time.Minute, time.Hour
	minutes.Use = engine.Use{HasTokens: true}
	s.spend(a, b)
	s.spend(a, minutes)
	s.spend()
	s.spentIs("", 0, times(2, a), minutes, b)
	s.advance(time.Hour)
	s.spend(a)
	s.spentIs("a\nx\n", 24*time.Hour, times(2, a), a)
	tokens, cost := anEntry("b"), anEntry("b")
	tokens.Use.HasCost, tokens.Use.Cost = false, 0
	cost.Use = engine.Use{HasCost: true, Cost: 7}
	s.spend(tokens)
	s.spentIs("b", 0, tokens)
	s.spend(cost)
	tokens.Runs, tokens.Use.HasCost, tokens.Use.Cost = 2, true, 7
	s.spentIs("b", 0, tokens)
}

func spentOnce(_ *testing.T, s *store) {
	s.wholeHour()
	a := anEntry("a")
	claim := s.spend(a)
	end := ended()
	end.Spent = []engine.LedgerEntry{a}
	s.endsNothingMore(claim, end)
	lost := *claim
	lost.Token = "another"
	s.endsNothingMore(&lost, end)
	s.spentIs("", 0, a)
}

func spentByRequeued(_ *testing.T, s *store) {
	s.wholeHour()
	a := anEntry("a")
	run := newRun("spender")
	s.add(run)
	for _, back := range []engine.End{{Requeue: true}, {Requeue: true, Interrupted: true}, aside(fullQuestion(0), time.Minute)} {
		claim := s.claimFirst(run)
		back.Spent = []engine.LedgerEntry{a}
		s.end(claim, back)
		s.endsNothingMore(claim, back)
	}
	s.spentIs("", 0, times(3, a))
}

func spentWithin(_ *testing.T, s *store) {
	s.wholeHour()
	a, b, other := anEntry("a"), anEntry("a b"), anEntry("b")
	s.spend(a, b, other)
	s.advance(2 * time.Hour)
	s.spend(b)
	s.spentIs("a", 0, b)
	s.spentIs("a\n", 0)
	s.spentIs("a\n", time.Hour)
	s.spentIs("a\n", time.Hour+time.Minute+slack, a)
	s.spentIs("a", 24*time.Hour, a, b, b)
	s.spentIs("c", 24*time.Hour)
	s.spentIs("", 24*time.Hour, a, b, b, other)
}

func oldEntries(_ *testing.T, s *store) {
	s.wholeHour()
	short, long := anEntry("a"), anEntry("b")
	short.Keep = time.Hour
	s.spend(short, long)
	s.prune(engine.Limits{})
	s.spentIs("", 100*time.Hour, short, long)
	s.advance(2*time.Hour - 2*time.Minute)
	s.spend(short)
	s.prune(engine.Limits{})
	s.spentIs("", 100*time.Hour, short, short, long)
	s.advance(2 * time.Minute)
	s.prune(engine.Limits{})
	s.spentIs("", 100*time.Hour, short, long)
	s.advance(24 * time.Hour)
	s.prune(engine.Limits{})
	s.spentIs("", 100*time.Hour)
	s.spend(short)
	s.spentIs("", 100*time.Hour, short)
}

func spentAtOnce(_ *testing.T, s *store) {
	s.wholeHour()
	const spenders = 40
	a, b := anEntry("a"), anEntry("b")
	var claims []*engine.Claim
	for i := range spenders {
		run := newRun(string(rune('a' + i)))
		s.add(run)
		claims = append(claims, s.claimFirst(run))
	}
	var wg sync.WaitGroup
	for i, claim := range claims {
		wg.Go(func() {
			end := ended()
			if end.Spent = []engine.LedgerEntry{a, b}; i%2 > 0 {
				end.Spent = []engine.LedgerEntry{b, a}
			}
			s.end(claim, end)
		})
	}
	wg.Wait()
	s.spentIs("", 0, times(spenders, a), times(spenders, b))
}

func spentSurvives(_ *testing.T, s *store) {
	s.wholeHour()
	a := anEntry("a")
	s.spend(a)
	s.spend(a)
	s.reopen()
	s.spend(a)
	s.spentIs("", 0, times(3, a))
}

func spentOnTwoNodes(_ *testing.T, a *store) {
	a.wholeHour()
	b := a.join()
	spent := anEntry("a")
	for range 3 {
		a.spend(spent)
		b.spend(spent)
	}
	for _, s := range []*store{a, b} {
		s.spentIs("", 0, times(6, spent))
	}
}
