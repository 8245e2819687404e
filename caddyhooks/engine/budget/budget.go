// Package budget keeps runs from spending more than operators allow in a time. It is a part of package engine, and imports package usage of
// the project alone.
//
// What runs spend is summed up in the ledger of the store, on an account for each budget and, with By, for each value. The account has the
// time of the budget in its name and not the amount: a budget that is raised goes on counting.
package budget

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// Budget is what runs may spend.
type Budget struct {
	Hook  string // whose runs it is for, "" for those of all hooks together
	Limit Limit
	By    string // the template whose value tells apart who spends; "" for all together
	Else  Else   // what becomes of a request when the budget is used up
}

// Else is what becomes of a request when a budget is used up. Runs that were accepted before are held back in any case.
type Else string

const (
	Hold   Else = "hold"   // it is accepted, and its run waits
	Refuse Else = "refuse" // it is refused
	Ignore Else = "ignore" // it is ignored
)

// Elses are all of them.
var Elses = []Else{Hold, Refuse, Ignore}

// Limit is an amount of tokens or of money in a time. The time is the one before now, and moves on with it.
type Limit struct {
	Tokens int64
	Cost   int64 // in billionths of a US dollar, if it is not Tokens
	Window time.Duration
}

// What a limit may be.
const (
	minWindow = time.Second
	maxWindow = 31 * 24 * time.Hour
	maxTokens = 1_000_000_000_000
	maxCost   = 1_000_000 * usage.Dollar
)

// ParseLimit reads "$20/24h" and "2M tokens/24h". durations reads a time.
func ParseLimit(text string, durations func(string) (time.Duration, error)) (limit Limit, err error) {
	amount, window, _ := strings.Cut(text, "/")
	dollars, isMoney := strings.CutPrefix(amount, "$")
	count, isTokens := strings.CutSuffix(amount, " tokens")
	switch {
	case isMoney == isTokens:
		return Limit{}, errors.New("must be an amount and a time, as in $20/24h or 2M tokens/24h")
	case isMoney:
		var n float64
		if n, err = parseNumber(dollars); err != nil || n > maxCost/usage.Dollar {
			return Limit{}, fmt.Errorf("must be an amount of up to $%d, as in $20/24h or $0.50/1h", maxCost/usage.Dollar)
		}
		if limit.Cost = int64(math.Round(n * usage.Dollar)); limit.Cost == 0 {
			return Limit{}, errNothing
		}
	default:
		unit := 1.0
		for suffix, size := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
			if short, ok := strings.CutSuffix(count, suffix); ok {
				count, unit = short, size
				break
			}
		}
		var n float64
		if n, err = parseNumber(count); err != nil || n*unit > maxTokens {
			return Limit{}, errors.New("must be a number of tokens of up to 1000G, as in 2M tokens/24h or 500k tokens/1h")
		}
		if limit.Tokens = int64(math.Round(n * unit)); limit.Tokens == 0 {
			return Limit{}, errNothing
		}
	}
	if limit.Window, err = durations(window); err != nil {
		return Limit{}, errors.New("must have a time after its slash, as in $20/24h or 2M tokens/24h")
	}
	if limit.Window < minWindow || limit.Window > maxWindow {
		return Limit{}, errors.New("must be for a time from 1s to 31d")
	}
	return limit, nil
}

var errNothing = errors.New("must not be 0: no run would ever start. Switch the hook off, or pause it, if that is what you want")

// parseNumber reads a number without a sign and without an exponent.
func parseNumber(text string) (float64, error) {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(text, 64)
}

// most is the limit as a number.
func (l *Limit) most() int64 { return max(l.Cost, l.Tokens) }

// used is what counts of a use.
func (l *Limit) used(use usage.Use) int64 {
	if l.Cost > 0 {
		return use.Cost
	}
	return use.Tokens()
}

// Amount writes an amount as a limit has it: dollars or tokens.
func (l *Limit) Amount(n int64) string {
	if l.Cost == 0 {
		return strconv.FormatInt(n, 10) + " tokens"
	}
	digits := -1
	if n > usage.Dollar {
		digits = 2
	}
	return dollars(n, digits)
}

// dollars writes an amount with so many digits after its point, with all of them if that is negative.
func dollars(n int64, digits int) string {
	return "$" + strconv.FormatFloat(float64(n)/usage.Dollar, 'f', digits, 64)
}

// String is the limit as it is written, such as $20/24h.
func (l *Limit) String() string {
	amount := dollars(l.Cost, -1)
	if l.Cost == 0 {
		amount = l.Amount(l.Tokens)
		for _, unit := range []struct {
			size int64
			name string
		}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if l.Tokens%unit.size == 0 {
				amount = strconv.FormatInt(l.Tokens/unit.size, 10) + unit.name + " tokens"
				break
			}
		}
	}
	window := l.Window.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(window, zero) {
			window = window[:len(window)-2]
		}
	}
	return amount + "/" + window
}

// spans is how many parts the time of a budget has. What was spent in a part counts until all of it is older than the time.
const spans = 48

// span is the length of a part.
func (l *Limit) span() time.Duration {
	return max((l.Window / spans).Truncate(time.Millisecond), time.Millisecond)
}

// The accounts of budgets without By have a prefix of their own, so that all of them are read at once.
const (
	plainAccount = "budget"
	byAccount    = "budget by"
)

// plainPrefix is that of the accounts of all budgets without By.
var plainPrefix = usage.NewAccount(plainAccount)

// Account is the account that runs are summed up on. value is that of By.
func (b *Budget) Account(value string) string {
	if b.By == "" {
		return usage.NewAccount(plainAccount, b.Hook, b.Limit.Window.String())
	}
	return b.byPrefix() + usage.NewAccount(short(value))
}

// byPrefix is what the accounts of all values of By begin with.
func (b *Budget) byPrefix() string {
	return usage.NewAccount(byAccount, b.Hook, b.Limit.Window.String(), short(b.By))
}

// valueOf is the value of By that an account is for.
func valueOf(account string) string {
	parts := usage.AccountParts(account)
	return parts[len(parts)-1]
}

// short is a text as a part of an account. Long ones end with a digest of the whole: senders choose values.
func short(text string) string {
	const most = 100 // bytes
	if len(text) <= most && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
		return text
	}
	digest := sha256.Sum256([]byte(text))
	return text[:min(len(text), most/2)] + "…" + hex.EncodeToString(digest[:8])
}

// State is how far a budget is used up.
type State struct {
	Budget
	Value string // of By
	Used  int64  // tokens, or billionths of a US dollar
	Runs  int64  // that it was used for

	Wait time.Duration // until something of it is left, 0 if there is now
}

// Most is how much the budget allows, in the unit of Used.
func (s *State) Most() int64 { return s.Limit.most() }

// IsUsedUp reports whether no run may start.
func (s *State) IsUsedUp() bool { return s.Used >= s.Most() }

// Percent is how much of the budget is used, without a fraction.
func (s *State) Percent() int64 {
	used, most := float64(s.Used), float64(s.Most()) // whose product with 100 may be too large
	if percent := int64(used / most * 100); percent < 100 || s.IsUsedUp() {
		return percent
	}
	return 99
}

// level is how much of the budget is used, of those parts that are told.
func (s *State) level() int {
	switch {
	case s.IsUsedUp():
		return 100
	case s.Percent() >= NearlyUsed:
		return NearlyUsed
	default:
		return 0
	}
}

// NearlyUsed is how many percent of a budget are nearly all of it.
const NearlyUsed = 80

// state sums up entries of one account, ordered by their start.
func (b *Budget) state(account string, entries []usage.Entry, now time.Time) State {
	s := State{Budget: *b}
	if b.By != "" {
		s.Value = valueOf(account)
	}
	var counted []usage.Entry
	for _, entry := range entries {
		if entry.End().After(now.Add(-b.Limit.Window)) {
			counted = append(counted, entry)
			s.Used += b.Limit.used(entry.Use)
			s.Runs += entry.Runs
		}
	}
	if !s.IsUsedUp() {
		return s
	}
	over := s.Used - s.Most()
	for i := range counted {
		s.Wait = max(counted[i].End().Add(b.Limit.Window).Sub(now), time.Millisecond)
		if over -= b.Limit.used(counted[i].Use); over < 0 {
			break
		}
	}
	return s
}
