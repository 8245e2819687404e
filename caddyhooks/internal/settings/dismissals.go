package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Dismissal says that an operator knows of a warning, and why it may stay. Dismissals are part of the live settings, and of no
// configuration.
type Dismissal struct {
	Code    string    `json:"code"`         // of the warning
	Warning string    `json:"warning"`      // as it was, perhaps cut
	Reason  string    `json:"reason"`       // why it may stay
	By      string    `json:"by,omitempty"` // the operator
	At      time.Time `json:"at"`           // when it was dismissed
}

const (
	// MaxDismissals bounds the dismissals.
	MaxDismissals = 100
	// MaxDismissalReason bounds a reason, in bytes.
	MaxDismissalReason = 200
	maxDismissed       = 512
)

// Code names a warning by its text: one that says something else is another warning, which nobody has dismissed.
func (w Warning) Code() string {
	digest := sha256.Sum256([]byte(w.String()))
	return hex.EncodeToString(digest[:6])
}

// NewDismissal dismisses a warning.
func NewDismissal(w Warning, reason, by string, at time.Time) (Dismissal, error) {
	d := Dismissal{Code: w.Code(), Warning: oneline.Of(w.String(), maxDismissed), Reason: strings.TrimSpace(reason), By: by, At: at}
	switch {
	case d.Reason == "":
		return d, FieldErrorf("reason", "must say why the warning may stay")
	case len(d.Reason) > MaxDismissalReason:
		return d, FieldErrorf("reason", "must not be longer than %d bytes", MaxDismissalReason)
	case strings.ContainsFunc(d.Reason, text.IsControl):
		return d, FieldErrorf("reason", "must be one line")
	}
	return d, nil
}

// FindDismissal returns the dismissal of a warning, nil if there is none.
func (s *Settings) FindDismissal(code string) *Dismissal {
	for i := range s.Dismissals {
		if s.Dismissals[i].Code == code {
			return &s.Dismissals[i]
		}
	}
	return nil
}

// Dismiss adds a dismissal, or replaces the one of the same warning. Dismissals of warnings that are gone make place for it.
func (s *Settings) Dismiss(d Dismissal, current []Warning) error {
	s.Restore(d.Code)
	if len(s.Dismissals) >= MaxDismissals {
		codes := make(map[string]bool, len(current))
		for _, w := range current {
			codes[w.Code()] = true
		}
		s.Dismissals = slices.DeleteFunc(s.Dismissals, func(other Dismissal) bool { return !codes[other.Code] })
	}
	if len(s.Dismissals) >= MaxDismissals {
		return fmt.Errorf("%d warnings are dismissed, and there may be no more", MaxDismissals)
	}
	s.Dismissals = append(s.Dismissals, d)
	return nil
}

// Restore takes a dismissal back, and reports whether there was one.
func (s *Settings) Restore(code string) bool {
	n := len(s.Dismissals)
	s.Dismissals = slices.DeleteFunc(slices.Clone(s.Dismissals), func(d Dismissal) bool { return d.Code == code })
	return len(s.Dismissals) < n
}

// DismissalPart is the name of a dismissal among the parts of the live settings, as the list of changes has it.
func DismissalPart(code string) string { return "warnings/" + code }
