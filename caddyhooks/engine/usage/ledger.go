package usage

import (
	"context"
	"math"
	"strings"
	"time"
)

// Entry is a sum of what was spent on an account in a span of time.
type Entry struct {
	Account string // as NewAccount makes it

	// Spans of this length follow each other without a gap, and begin at a multiple of it since 1970. A store sums up what is spent in the
	// same one, by its clock, and keeps it for so long after its end. Start is set by the store.
	Span  time.Duration
	Keep  time.Duration
	Start time.Time

	Runs int64 // that it was spent on
	Use  Use   // without a model
}

// Ledger keeps entries.
type Ledger interface {
	// Spent returns the entries of all accounts whose names begin with a prefix, without those of spans that ended more than so long ago,
	// ordered by account and start. now is the time of the store. It takes no longer if there are other accounts.
	Spent(ctx context.Context, prefix string, within time.Duration) (entries []Entry, now time.Time, err error)
}

// NewAccount makes the name of an account of its parts. No account is a prefix of another one. Parts are cut.
func NewAccount(parts ...string) string {
	var name strings.Builder
	for _, part := range parts {
		part = strings.Map(func(c rune) rune { return max(c, ' ') }, part[:min(len(part), maxPart)]) // which also makes it valid UTF-8
		name.WriteString(part)
		name.WriteByte('\n')
	}
	return name.String()
}

const maxPart = 128 // bytes

// AccountParts is the reverse of NewAccount.
func AccountParts(account string) []string {
	return strings.Split(strings.TrimSuffix(account, "\n"), "\n")
}

// Add adds what was spent to the entry.
func (e *Entry) Add(other *Entry) {
	e.Runs += other.Runs
	e.Use.add(other.Use)
}

// StartOf is when the span of an entry begins that something is added to at a time.
func (e *Entry) StartOf(now time.Time) time.Time {
	span := int64(e.Span)
	at := now.UnixNano()
	return time.Unix(0, at-((at%span)+span)%span)
}

// End is when the span is over.
func (e *Entry) End() time.Time { return e.Start.Add(e.Span) }

// KeptUntil is from when on the entry is not kept any more.
func (e *Entry) KeptUntil() time.Time { return e.End().Add(e.Keep) }

// Price is what a model costs, in US dollars for a million tokens.
type Price struct{ Input, Output, Cached float64 }

// Cost is what a use costs, with billionths of a dollar rounded.
func (p *Price) Cost(use Use) int64 {
	const perToken = Dollar / 1e6
	sum := float64(use.Input-use.Cached)*p.Input + float64(use.Cached)*p.Cached + float64(use.Output)*p.Output
	return int64(math.Round(sum * perToken))
}
