package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// ledger has the entries by account, and the accounts in their order.
type ledger struct {
	entries  map[string][]engine.LedgerEntry // of an account, by their start
	accounts []string
	ends     expirations[string] // the accounts, by when an entry of each is not kept any more
}

// add adds what was spent at a time.
func (l *ledger) add(spent []engine.LedgerEntry, now time.Time) {
	for _, entry := range spent {
		entry.Start = entry.StartOf(now)
		known := l.entries[entry.Account]
		byStart := func(e engine.LedgerEntry, start time.Time) int { return e.Start.Compare(start) }
		at, found := slices.BinarySearchFunc(known, entry.Start, byStart)
		if found {
			known[at].Add(&entry)
			continue
		}
		if known == nil {
			place, _ := slices.BinarySearch(l.accounts, entry.Account)
			l.accounts = slices.Insert(l.accounts, place, entry.Account)
		}
		l.entries[entry.Account] = slices.Insert(known, at, entry)
		l.ends.add(entry.KeptUntil(), entry.Account)
	}
}

// forgetOldest forgets an entry that is not kept any more, and reports whether there was one.
func (l *ledger) forgetOldest(now time.Time) bool {
	account, ok := l.ends.take(now)
	if !ok {
		return false
	}
	old := func(e engine.LedgerEntry) bool { return !e.KeptUntil().After(now) }
	if l.entries[account] = slices.DeleteFunc(l.entries[account], old); len(l.entries[account]) == 0 {
		delete(l.entries, account)
		if place, found := slices.BinarySearch(l.accounts, account); found {
			l.accounts = slices.Delete(l.accounts, place, place+1)
		}
	}
	return true
}

// Spent returns the entries of accounts whose names begin with a prefix.
func (s ledgers) Spent(_ context.Context, prefix string, within time.Duration) (entries []engine.LedgerEntry, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.clock.Now()
	first, _ := slices.BinarySearch(s.Data.ledger.accounts, prefix)
	for _, account := range s.Data.ledger.accounts[first:] {
		if !strings.HasPrefix(account, prefix) {
			break
		}
		for _, entry := range s.Data.ledger.entries[account] {
			if entry.End().After(now.Add(-within)) {
				entries = append(entries, entry)
			}
		}
	}
	return entries, now, nil
}
