// Package account keeps what operators are told about a run: its steps, what its agent asked to be allowed, and why it ended as it did. All
// of it is bounded, and without the secrets of its runner. It is a part of package engine, and knows neither runs nor stores.
package account

import (
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Account is what operators are told about the end of a run. Callers, callbacks and channels are not: it may show the inside
// of a runner. All of it is at most 4.25 KiB, without the permissions.
type Account struct {
	CancelledBy      string   // who or what cancelled the run
	Reason           string   // why it did not complete, in a sentence, unless it was cancelled
	LastAnswer       string   // the beginning of the last answer, if it could not be used and Reason does not show all of it
	ValidationErrors []string // why it did not match the schema

	// What the agent asked to be allowed in the turns of the last attempt, the first 32 of them, and how many there were besides.
	Permissions     []Permission
	MorePermissions int

	UsageRefused string // why a report of what the run used does not count, of the last one
}

// How many bytes of an Account there can be, 4.25 KiB in all.
const (
	MaxReason           = 512
	MaxLastAnswer       = 1792
	maxCancelledBy      = 256
	maxUsageRefused     = 256
	maxValidationErrors = 1536
	maxValidationError  = 256 // of one of them
)

// A Redact takes the secrets of a runner out of a text. It is nil if the runner has none.
type Redact func(text string) string

// Line is as much of a text as is kept, on one line and without secrets.
func (r Redact) Line(text string, most int) string {
	if r != nil {
		text = r(text) // before a secret can be cut in two
	}
	return oneline.Of(text, most)
}

// lines are as many of some texts as are kept.
func (r Redact) lines(texts []string) (kept []string) {
	left := maxValidationErrors
	for _, text := range texts {
		text = r.Line(text, maxValidationError)
		if left -= len(text); left < 0 {
			break
		}
		kept = append(kept, text)
	}
	return kept
}

// Redact takes a runner's secrets out of its answer. That comes before Bounded, which may cut a secret in two.
func (a *Account) Redact(redact Redact) {
	if redact == nil {
		return
	}
	a.LastAnswer = redact(a.LastAnswer)
	for i, text := range a.ValidationErrors {
		a.ValidationErrors[i] = redact(text)
	}
}

// Bounded is as much of an account as is kept.
func (a Account) Bounded() Account {
	a.CancelledBy = oneline.Of(a.CancelledBy, maxCancelledBy)
	a.Reason = oneline.Of(a.Reason, MaxReason)
	a.LastAnswer = excerpt(a.LastAnswer, MaxLastAnswer)
	a.ValidationErrors = Redact(nil).lines(a.ValidationErrors)
	a.UsageRefused = oneline.Of(a.UsageRefused, maxUsageRefused)
	return a
}

// Size is how many bytes it has.
func (a *Account) Size() int {
	size := len(a.CancelledBy) + len(a.Reason) + len(a.LastAnswer) + len(a.UsageRefused)
	for _, text := range a.ValidationErrors {
		size += len(text)
	}
	for i := range a.Permissions {
		size += a.Permissions[i].Size()
	}
	return size
}

// excerpt is the beginning of a text in valid UTF-8, lines and all. An ellipsis says that there was more.
func excerpt(of string, size int) string {
	const ellipsis = "…"
	whole := len(of) <= size
	of = strings.ToValidUTF8(text.Beginning(of, size), "\ufffd")
	if whole && len(of) <= size {
		return of
	}
	return text.Beginning(of, size-len(ellipsis)) + ellipsis
}
