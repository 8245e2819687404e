package budget_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

func TestLimitsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]budget.Limit{
		"$20/24h":            {Cost: 20 * usage.Dollar, Window: 24 * time.Hour},
		"$0.50/1h":           {Cost: usage.Dollar / 2, Window: time.Hour},
		"$0.000001/1m":       {Cost: usage.Dollar / 1e6, Window: time.Minute},
		"$1.5/7d":            {Cost: usage.Dollar * 3 / 2, Window: 7 * 24 * time.Hour},
		"2M tokens/24h":      {Tokens: 2e6, Window: 24 * time.Hour},
		"1.5k tokens/90s":    {Tokens: 1500, Window: 90 * time.Second},
		"12345 tokens/1h":    {Tokens: 12345, Window: time.Hour},
		"1000G tokens/31d":   {Tokens: 1e12, Window: 31 * 24 * time.Hour},
		"$1000000/31d":       {Cost: 1_000_000 * usage.Dollar, Window: 31 * 24 * time.Hour},
		"1 tokens/1s":        {Tokens: 1, Window: time.Second},
		"$0.123456789/1h30m": {Cost: 123456789, Window: 90 * time.Minute},
	} {
		got, err := budget.ParseLimit(text, caddy.ParseDuration)
		if err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
			continue
		}
		if again, err := budget.ParseLimit(got.String(), caddy.ParseDuration); err != nil || again != got {
			t.Errorf("%s is written as %s, which is %+v, %v", text, got.String(), again, err)
		}
	}
	for text, words := range map[string]string{
		"": "$20/24h", "20/24h": "$20/24h", "$/24h": "amount", "$-1/24h": "amount", "$1e3/24h": "amount", "$NaN/24h": "amount",
		"$2000000/1h": "1000000", "$0/24h": "must not be 0", "$0.0000000001/1h": "must not be 0", "0 tokens/24h": "must not be 0",
		"2m tokens/24h": "2M tokens", "2Mtokens/24h": "$20/24h", "tokens/24h": "$20/24h", " tokens/24h": "number of tokens",
		"2000G tokens/24h": "1000G", "$20": "a time", "$20/": "a time", "$20/day": "a time", "$20/0s": "31d", "$20/32d": "31d",
		"$5 tokens/1h": "$20/24h", "$1.2.3/1h": "amount",
	} {
		if got, err := budget.ParseLimit(text, caddy.ParseDuration); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s is read as %+v, %v, want %q", text, got, err, words)
		}
	}
}

// Whatever is written in a configuration is read or refused, and is written as what it is read as.
func FuzzParseLimit(f *testing.F) {
	f.Add("$20/24h")
	f.Add("1.5M tokens/90m")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := budget.ParseLimit(text, caddy.ParseDuration)
		if err != nil {
			return
		}
		if again, err := budget.ParseLimit(got.String(), caddy.ParseDuration); err != nil || again != got {
			t.Errorf("%q is written as %q: %+v, %v", text, got.String(), again, err)
		}
	})
}

// book is a ledger with a clock of its own.
type book struct {
	entries []usage.Entry
	now     time.Time
	reads   int
	err     error
}

func (b *book) Spent(_ context.Context, prefix string, within time.Duration) (found []usage.Entry, now time.Time, err error) {
	b.reads++
	for _, e := range b.entries {
		if strings.HasPrefix(e.Account, prefix) && e.End().After(b.now.Add(-within)) {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(x, y usage.Entry) int {
		if c := strings.Compare(x.Account, y.Account); c != 0 {
			return c
		}
		return x.Start.Compare(y.Start)
	})
	return found, b.now, b.err
}

func (b *book) add(entries []usage.Entry) {
	for _, e := range entries {
		e.Start = e.StartOf(b.now)
		at := slices.IndexFunc(b.entries, func(other usage.Entry) bool { return other.Account == e.Account && other.Start.Equal(e.Start) })
		if at < 0 {
			b.entries = append(b.entries, e)
		} else {
			b.entries[at].Add(&e)
		}
	}
}

func newBook() *book { return &book{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func spent(cents, tokens int64) []usage.Entry {
	return []usage.Entry{
		{Account: "x", Runs: 1, Use: usage.Use{HasCost: true, HasTokens: true, Cost: cents * usage.Dollar / 200, Input: tokens / 2}},
		{Account: "y", Use: usage.Use{HasCost: true, HasTokens: true, Cost: cents * usage.Dollar / 200, Output: tokens / 2}},
	}
}

func limit(t *testing.T, text string) budget.Limit {
	t.Helper()
	l, err := budget.ParseLimit(text, caddy.ParseDuration)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A budget that is used up is so until what was spent first is older than its time. Each budget that a run spends on counts.
func TestRunsWaitUntilTheWindowMovesOn(t *testing.T) {
	t.Parallel()
	var k budget.Keeper
	b := newBook()
	k.Set([]budget.Budget{{Limit: limit(t, "$1/24h"), Else: budget.Hold}, {Hook: "github", Limit: limit(t, "1000 tokens/1h"), Else: budget.Hold}})
	check := func(hook string) *budget.State {
		t.Helper()
		usedUp, _, err := k.Check(t.Context(), b, hook, nil)
		if err != nil {
			t.Fatal(err)
		}
		return usedUp
	}
	if s := check("github"); s != nil {
		t.Fatalf("nothing was spent, and a run is held back by %+v", s)
	}
	first := b.now
	b.add(k.Entries("github", nil, spent(20, 1000)))
	if s := check("github"); s == nil || s.Limit.Tokens != 1000 || s.Used != 1000 || s.Runs != 1 || s.Percent() != 100 {
		t.Fatalf("the tokens are used up: %+v", s)
	} else if most := time.Hour + time.Hour/48; s.Wait > most || s.Wait < time.Hour {
		t.Errorf("a run waits for %v, want an hour and at most a part of it", s.Wait)
	} else {
		b.now = b.now.Add(s.Wait)
	}
	if s := check("github"); s != nil {
		t.Errorf("after its wait a run is held back by %+v", s)
	}
	if s := check("other"); s != nil {
		t.Errorf("another hook is held back by %+v", s)
	}
	b.add(k.Entries("other", nil, spent(90, 10)))
	for _, hook := range []string{"github", "other"} {
		if s := check(hook); s == nil || s.Hook != "" || s.Used != 110*usage.Dollar/100 || s.Percent() != 110 {
			t.Errorf("%s is not held back by the budget over all: %+v", hook, s)
		} else if left := b.now.Add(s.Wait); left.Before(first.Add(24*time.Hour)) || left.After(first.Add(24*time.Hour+31*time.Minute)) {
			t.Errorf("something is left at %v, and the first run spent at %v", left, first)
		}
	}
	for i, want := range []int{2, 0} { // budgets that count in no way what nobody told
		if blind := k.Uncounted("github", nil, nil); len(blind) != want {
			t.Errorf("look %d finds %+v", i, blind)
		}
	}
	if k.Entries("other", nil, nil) != nil {
		t.Error("a run that told no usage is in the ledger")
	}
}

// Who spends is told apart by a value, whatever it is. A run that was accepted before there was the budget does not count.
func TestEachValueHasTheWholeBudget(t *testing.T) {
	t.Parallel()
	var k budget.Keeper
	b := newBook()
	by := budget.Budget{Hook: "alerts", Limit: limit(t, "$1/24h"), By: "{labels.team}", Else: budget.Hold}
	k.Set([]budget.Budget{by})
	long := strings.Repeat("x", 200)
	values := []string{"a", "b", "", "a\n", "a b", long, long + "y", "\xff"}
	for i, value := range values {
		account := by.Account(value)
		for _, other := range values[:i] {
			if strings.HasPrefix(account, by.Account(other)) {
				t.Errorf("%q and %q share an account", other, value)
			}
		}
		if s, _, _ := k.Check(t.Context(), b, "alerts", []string{account}); s != nil {
			t.Errorf("%q is held back by what others spent: %+v", value, s)
		}
		b.add(k.Entries("alerts", []string{account}, spent(150, 0)))
		s, _, _ := k.Check(t.Context(), b, "alerts", []string{account})
		if s == nil {
			t.Errorf("%q is not held back", value)
		} else if slices.Contains([]string{"a", "b", "", "a b"}, value) && s.Value != value {
			t.Errorf("%q is shown as %q", value, s.Value)
		}
	}
	if s, _, _ := k.Check(t.Context(), b, "alerts", nil); s != nil {
		t.Errorf("a run without a value is held back by %+v", s)
	}
	states, err := k.States(t.Context(), b)
	if err != nil || len(states) != len(values) {
		t.Errorf("%d values are shown, want %d: %v", len(states), len(values), err)
	}
}

// Of many values those that have used up their budget come first, those of one budget do not hide another, and those of earlier are gone.
func TestValuesThatHaveUsedMostAreShown(t *testing.T) {
	t.Parallel()
	var k budget.Keeper
	b := newBook()
	all := []budget.Budget{
		{Hook: "a", Limit: limit(t, "$1/1h"), By: "{x}", Else: budget.Hold},
		{Hook: "b", Limit: limit(t, "$1/1h"), By: "{x}", Else: budget.Hold},
	}
	k.Set(all)
	spend := func(of *budget.Budget, value string, cents int64) {
		t.Helper()
		accounts := []string{of.Account(value)}
		entries := k.Entries(of.Hook, accounts, spent(cents, 0))
		b.add(entries)
		if _, err := k.Spent(t.Context(), b, of.Hook, accounts, entries); err != nil {
			t.Fatal(err)
		}
	}
	shown := func() (values []string) {
		t.Helper()
		states, err := k.States(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range states {
			values = append(values, fmt.Sprint(states[i].Hook, states[i].Value, " ", states[i].Percent()))
		}
		return values
	}
	for i := range 30 {
		spend(&all[0], fmt.Sprintf("%02d", i), 80)
	}
	spend(&all[0], "99", 100)
	spend(&all[1], "z", 90)
	if got := shown(); len(got) != 21 || got[0] != "a99 100" || got[1] != "a00 80" || got[20] != "bz 90" {
		t.Errorf("shown are %q", got)
	}
	b.now = b.now.Add(2 * time.Hour)
	spend(&all[0], "zz", 80)
	for range 2 {
		if got := shown(); !slices.Equal(got, []string{"azz 80", "b 0"}) {
			t.Errorf("later these are shown: %q", got)
		}
	}
	before := b.reads
	if shown(); b.reads != before+2 {
		t.Errorf("the ledger was read %d times for one value", b.reads-before)
	}
}

// 80 and 100 percent are told once, also if several nodes spend at once, and not again after a restart.
func TestBudgetsTellWhatTheyHaveReached(t *testing.T) {
	t.Parallel()
	b := newBook()
	all := []budget.Budget{{Limit: limit(t, "$1/1h"), Else: budget.Hold}, {Hook: "a", Limit: limit(t, "$10/1h"), By: "{x}", Else: budget.Hold}}
	accounts := []string{all[1].Account("v")}
	one, other := new(budget.Keeper), new(budget.Keeper)
	one.Set(all)
	other.Set(all)
	var told []int64
	spend := func(k *budget.Keeper, cents int64) {
		t.Helper()
		entries := k.Entries("a", accounts, spent(cents, 0))
		b.add(entries)
		reached, err := k.Spent(t.Context(), b, "a", accounts, entries)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reached {
			told = append(told, reached[i].Percent())
		}
	}
	want := func(percents ...int64) {
		t.Helper()
		if !slices.Equal(told, percents) {
			t.Errorf("told of %v percent, want %v", told, percents)
		}
		told = nil
	}
	spend(one, 79)
	want()
	spend(one, 1)
	want(80)
	spend(one, 19)
	want()
	spend(one, 1)
	want(100)
	spend(one, 50)
	want()
	if _, reached, _ := other.Check(t.Context(), b, "a", accounts); reached != nil {
		t.Errorf("after a restart it is told again: %+v", reached)
	}
	b.now = b.now.Add(2 * time.Hour)
	if s, _, _ := other.Check(t.Context(), b, "a", accounts); s != nil {
		t.Fatalf("the window has moved on: %+v", s)
	}
	spend(one, 40) // which the other node does not see
	b.add(other.Entries("a", accounts, spent(45, 0)))
	if _, reached, _ := other.Check(t.Context(), b, "a", accounts); len(reached) != 1 || reached[0].Percent() != 85 {
		t.Errorf("what another node has spent is not told: %+v", reached)
	}
	spend(one, 900) // more than both budgets have left
	want(985, 98)
}

// Requests are refused or ignored as the budget says. One that somebody waits for is refused by all.
func TestBudgetsRefuseRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		budgets []budget.Else
		awaited bool
		want    budget.Else
	}{
		{[]budget.Else{budget.Hold}, false, ""},
		{[]budget.Else{budget.Hold}, true, budget.Hold},
		{[]budget.Else{budget.Ignore}, false, budget.Ignore},
		{[]budget.Else{budget.Ignore, budget.Refuse}, false, budget.Refuse},
		{[]budget.Else{budget.Refuse, budget.Ignore}, false, budget.Refuse},
	} {
		var k budget.Keeper
		b := newBook()
		var all []budget.Budget
		for i, els := range tc.budgets {
			all = append(all, budget.Budget{Limit: budget.Limit{Cost: usage.Dollar, Window: time.Hour * time.Duration(i+1)}, Else: els})
		}
		k.Set(all)
		b.add(k.Entries("a", nil, spent(100, 0)))
		for range 50 {
			s, err := k.Refuses(t.Context(), b, "a", nil, tc.awaited)
			if err != nil || (s == nil) != (tc.want == "") || s != nil && (s.Else != tc.want || s.Wait <= 0) {
				t.Fatalf("%+v is refused by %+v, %v", tc, s, err)
			}
		}
		if most := len(tc.budgets); b.reads > most {
			t.Errorf("%+v: the ledger was read %d times for 50 requests", tc, b.reads)
		}
	}
}

// Runs that wait for the same are not all looked at in the same moment.
func TestHeldRunsAreLookedAtOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var k budget.Keeper
	b := newBook()
	k.Set([]budget.Budget{{Limit: limit(t, "$1/24h"), Else: budget.Hold}})
	b.add(k.Entries("a", nil, spent(100, 0)))
	var before time.Duration
	for i := range 1000 {
		s, _, err := k.Check(t.Context(), b, "a", nil)
		if err != nil || s == nil || s.Wait <= before && i > 0 {
			t.Fatalf("run %d waits for %+v, and the one before for %v: %v", i, s, before, err)
		}
		before = s.Wait
	}
	if spread := before - 24*time.Hour; spread > 35*time.Minute {
		t.Errorf("the last of 1000 runs waits for %v", before)
	}
	b.err = errors.New("gone")
	if _, _, err := k.Check(t.Context(), b, "a", nil); !errors.Is(err, b.err) {
		t.Errorf("a ledger that fails: %v", err)
	}
	if !k.Set(nil) || k.Set(nil) || !k.IsEmpty() {
		t.Error("budgets that are gone")
	}
}
