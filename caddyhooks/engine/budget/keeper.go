package budget

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// Keeper has the budgets of an engine. All methods may be called by many goroutines. The zero value has none.
type Keeper struct {
	budgets atomic.Pointer[budgets] // nil if there are none
	changes atomic.Int64            // how often they were changed
	resumes atomic.Bool             // runs that are held back have to be looked at again

	mu    sync.Mutex
	told  map[charge]int   // how many percent were told of, for budgets without By and for values that have reached some
	held  map[string]held  // by account
	blind map[Budget]bool  // that runs were completed under whose agent did not tell what counts
	fresh map[string]fresh // by account: what was read lately, for requests
}

// budgets are those that are in force.
type budgets struct {
	all    []Budget
	byHook map[string][]Budget
}

// charge is a budget that a run spends on, and the account of it.
type charge struct {
	Budget
	account string
}

// held are the runs that this node holds back until something leaves the window of an account.
type held struct {
	leaves time.Time
	runs   int
}

type fresh struct {
	entries []usage.Entry
	now     time.Time // of the store …
	read    time.Time // … when it was read, by the steady clock
}

const (
	// maxNoted bounds the values of By that something is remembered of.
	maxNoted = 1000
	// freshFor is how long what was read is good enough for requests. Runs are checked once more before they start.
	freshFor = time.Second
	// heldApart is by how much later each run is looked at that is held back until the same time. So a hundred thousand of them do not keep
	// workers from other runs.
	heldApart = 2 * time.Millisecond
	// maxShown bounds the values of By that are shown of all budgets together. At least one is shown of each, if there is one.
	maxShown = 20
)

// Set replaces the budgets, and reports whether they are others than before.
func (k *Keeper) Set(all []Budget) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.budgets.Load()
	if before == nil && len(all) == 0 || before != nil && slices.Equal(before.all, all) {
		return false
	}
	var next *budgets
	if len(all) > 0 {
		next = &budgets{all: slices.Clone(all), byHook: make(map[string][]Budget)}
	}
	for _, b := range all {
		next.byHook[b.Hook] = append(next.byHook[b.Hook], b)
	}
	k.budgets.Store(next)
	k.changes.Add(1)
	k.resumes.Store(true)
	k.held, k.fresh, k.blind = nil, nil, nil
	for c := range k.told {
		if !slices.Contains(all, c.Budget) {
			delete(k.told, c)
		}
	}
	return true
}

// Changes is how often the budgets were changed.
func (k *Keeper) Changes() int64 { return k.changes.Load() }

// TakeResume reports whether runs that are held back have to be looked at again since the last call: the budgets are others.
func (k *Keeper) TakeResume() bool { return k.resumes.Swap(false) }

// ResumeLater has the next TakeResume report true, if there were so many changes when a run was held back and there are more now.
func (k *Keeper) ResumeLater(changes int64) (later bool) {
	if later = changes != k.Changes(); later {
		k.resumes.Store(true)
	}
	return later
}

// IsEmpty reports whether there are no budgets.
func (k *Keeper) IsEmpty() bool { return k.budgets.Load() == nil }

// charges are the budgets that a run spends on. accounts are those of the values of By, as they were when the run was accepted; a budget
// that was added later does not count for it.
func (k *Keeper) charges(hook string, accounts []string) (found []charge) {
	known := k.budgets.Load()
	if known == nil {
		return nil
	}
	for _, of := range [...]string{"", hook} {
		for _, b := range known.byHook[of] {
			if b.By == "" {
				found = append(found, charge{b, b.Account("")})
				continue
			}
			prefix := b.byPrefix()
			if at := slices.IndexFunc(accounts, func(a string) bool { return strings.HasPrefix(a, prefix) }); at >= 0 {
				found = append(found, charge{b, accounts[at]})
			}
		}
	}
	return found
}

// Entries are what a run has spent, for the ledger. spent are its entries by model; there are none if that is empty.
func (k *Keeper) Entries(hook string, accounts []string, spent []usage.Entry) (entries []usage.Entry) {
	if len(spent) == 0 {
		return nil
	}
	var total usage.Entry
	for i := range spent {
		total.Add(&spent[i])
	}
	for _, c := range k.charges(hook, accounts) {
		if !slices.ContainsFunc(entries, func(e usage.Entry) bool { return e.Account == c.account }) {
			total.Account, total.Span, total.Keep = c.account, c.Limit.span(), c.Limit.Window
			entries = append(entries, total)
		}
	}
	return entries
}

// Check returns the budget of a run that is used up, and that is so for longest, nil if the run may start. reached are those that have
// reached 80 or 100 percent since they were last looked at.
func (k *Keeper) Check(ctx context.Context, ledger usage.Ledger, hook string, accounts []string) (usedUp *State, reached []State,
	err error) {
	for _, c := range k.charges(hook, accounts) {
		entries, now, err := ledger.Spent(ctx, c.account, c.Limit.Window)
		if err != nil {
			return nil, nil, err
		}
		s := c.state(c.account, entries, now)
		if k.note(c, &s, 0) {
			reached = append(reached, s)
		}
		if !s.IsUsedUp() {
			continue
		}
		s.Wait += k.hold(c.account, now.Add(s.Wait))
		if usedUp == nil || s.Wait > usedUp.Wait {
			usedUp = &s
		}
	}
	return usedUp, reached, nil
}

// hold counts a run that is held back, and returns how much later it is looked at than the first one that is held until the same time.
func (k *Keeper) hold(account string, leaves time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil || len(k.held) > maxNoted {
		k.held = make(map[string]held)
	}
	h := k.held[account]
	if !h.leaves.Equal(leaves) {
		h = held{leaves: leaves}
	}
	before := h.runs
	h.runs++
	k.held[account] = h
	return time.Duration(before) * heldApart
}

// Holding is the limit of a budget that holds runs like this one back, as far as this node knows, "" if there is none.
func (k *Keeper) Holding(hook string, accounts []string) string {
	charges := k.charges(hook, accounts)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range charges {
		if k.held[c.account].leaves.After(time.Now()) {
			return c.Limit.String()
		}
	}
	return ""
}

// Uncounted returns the budgets of a completed run whose agent has not told what counts for them, each once. entries are what it has spent.
func (k *Keeper) Uncounted(hook string, accounts []string, entries []usage.Entry) (blind []Budget) {
	charges := k.charges(hook, accounts)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range charges {
		counts := slices.ContainsFunc(entries, func(e usage.Entry) bool {
			return e.Account == c.account && (c.Limit.Cost > 0 && e.Use.HasCost || c.Limit.Tokens > 0 && e.Use.HasTokens)
		})
		if counts || k.blind[c.Budget] {
			continue
		}
		if k.blind == nil {
			k.blind = make(map[Budget]bool)
		}
		k.blind[c.Budget] = true
		blind = append(blind, c.Budget)
	}
	return blind
}

// Changed forgets what was read of accounts, since something was spent on them.
func (k *Keeper) Changed(entries []usage.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range entries {
		delete(k.fresh, entries[i].Account)
	}
}

// Spent returns the budgets that have reached 80 or 100 percent by what a run has spent.
func (k *Keeper) Spent(ctx context.Context, ledger usage.Ledger, hook string, accounts []string, entries []usage.Entry) (reached []State,
	err error) {
	for _, c := range k.charges(hook, accounts) {
		at := slices.IndexFunc(entries, func(e usage.Entry) bool { return e.Account == c.account })
		if at < 0 {
			continue
		}
		all, now, err := ledger.Spent(ctx, c.account, c.Limit.Window)
		if err != nil {
			return reached, err
		}
		s := c.state(c.account, all, now)
		if k.note(c, &s, c.Limit.used(entries[at].Use)) {
			reached = append(reached, s)
		}
	}
	return reached, nil
}

// note remembers how far a budget is used up, and reports whether that is news. own is how much of it was spent just now.
func (k *Keeper) note(c charge, s *State, own int64) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.told[c]
	if !known { // it may have been told before the process was started
		earlier := *s
		earlier.Used -= own
		before = earlier.level()
	}
	now := s.level()
	switch {
	case c.By != "" && now == 0:
		delete(k.told, c)
	case known || len(k.told) < maxNoted:
		if k.told == nil {
			k.told = make(map[charge]int)
		}
		k.told[c] = now
	}
	return now > before
}

// Refuses returns the budget of a run that is used up, and because of which its request is not accepted; nil if there is none. If a caller
// waits, a budget that holds runs back refuses too.
func (k *Keeper) Refuses(ctx context.Context, ledger usage.Ledger, hook string, accounts []string, awaited bool) (usedUp *State,
	err error) {
	for _, c := range k.charges(hook, accounts) {
		if c.Else == Hold && !awaited {
			continue
		}
		read, err := k.lately(ctx, ledger, &c)
		if err != nil {
			return nil, err
		}
		s := c.state(c.account, read.entries, read.now.Add(time.Since(read.read)))
		if s.IsUsedUp() && (usedUp == nil || usedUp.Else == Ignore) {
			usedUp = &s // a request that is refused by one is not ignored by another
		}
	}
	return usedUp, nil
}

// lately reads an account, unless that was done just now.
func (k *Keeper) lately(ctx context.Context, ledger usage.Ledger, c *charge) (fresh, error) {
	k.mu.Lock()
	known, ok := k.fresh[c.account]
	k.mu.Unlock()
	if ok && time.Since(known.read) < freshFor {
		return known, nil
	}
	entries, now, err := ledger.Spent(ctx, c.account, c.Limit.Window)
	if err != nil {
		return fresh{}, err
	}
	known = fresh{entries, now, time.Now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fresh == nil || len(k.fresh) > maxNoted {
		k.fresh = make(map[string]fresh)
	}
	k.fresh[c.account] = known
	return known, nil
}

// noted is a value of By that has reached some percent.
type noted struct {
	account string
	percent int
}

// forget forgets a value of By that is below 80 percent again. Otherwise it would stay until its next run, which may never come.
func (k *Keeper) forget(c charge) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.told, c)
}

// States tells of all budgets, in their order, how far they are used up. With By it tells of values that have reached 80 percent, as far as
// this node knows; what they stand for comes from outside.
func (k *Keeper) States(ctx context.Context, ledger usage.Ledger) (states []State, err error) {
	known := k.budgets.Load()
	if known == nil {
		return nil, nil
	}
	k.mu.Lock()
	near := make(map[Budget][]noted)
	for c, percent := range k.told {
		if c.By != "" && percent > 0 {
			near[c.Budget] = append(near[c.Budget], noted{c.account, percent})
		}
	}
	k.mu.Unlock()
	longest, shown := time.Duration(0), 0
	for i := range known.all {
		longest = max(longest, known.all[i].Limit.Window)
	}
	entries, now, err := ledger.Spent(ctx, plainPrefix, longest)
	if err != nil {
		return nil, err
	}
	plain := make(map[string][]usage.Entry)
	for _, entry := range entries {
		plain[entry.Account] = append(plain[entry.Account], entry)
	}
	for i := range known.all {
		b := &known.all[i]
		if b.By == "" {
			account := b.Account("")
			states = append(states, b.state(account, plain[account], now))
			continue
		}
		slices.SortFunc(near[*b], func(x, y noted) int {
			return cmp.Or(y.percent-x.percent, strings.Compare(x.account, y.account))
		})
		var values []State
		for _, value := range near[*b] {
			if shown >= maxShown && len(values) > 0 {
				break
			}
			entries, now, err := ledger.Spent(ctx, value.account, b.Limit.Window)
			if err != nil {
				return nil, err
			}
			s := b.state(value.account, entries, now)
			if s.level() == 0 {
				k.forget(charge{*b, value.account})
				continue
			}
			values = append(values, s)
			shown++
		}
		if len(values) == 0 { // none has
			values = []State{{Budget: *b}}
		}
		states = append(states, values...)
	}
	return states, nil
}
