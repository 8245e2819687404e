package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Pause is a hook, a chat, a runner or everything whose runs are accepted and not started, or at a rate. Pauses are part of the live
// settings, and of no configuration.
type Pause struct {
	What   starts.What `json:"what"`             // hook, chat, runner or all
	Name   string      `json:"name,omitempty"`   // none for all
	Reason string      `json:"reason,omitempty"` // for operators
	By     string      `json:"by,omitempty"`     // the operator
	At     time.Time   `json:"at"`               // since when
	Rate   string      `json:"rate,omitempty"`   // how many runs of it start all the same, as ParsePace reads it
}

const (
	// MaxPauses bounds the pauses. Each claim of runs looks at all of them.
	MaxPauses = engine.MaxWithout
	// MaxPauseReason bounds a reason, in bytes.
	MaxPauseReason = 200
)

// String names what is paused, as in "hook github".
func (p *Pause) String() string {
	if p.What == starts.All {
		return "everything"
	}
	return string(p.What) + " " + p.Name
}

// IsPace reports whether runs start at a rate.
func (p *Pause) IsPace() bool { return p.Rate != "" }

// IsFor reports whether a pause is for a thing.
func (p *Pause) IsFor(what starts.What, name string) bool { return p.What == what && p.Name == name }

// Check checks what an operator wrote, but for whether there is such a thing.
func (p *Pause) Check() error {
	switch {
	case !slices.Contains(starts.Kinds, p.What):
		return FieldErrorf("what", "must be hook, chat, runner or all")
	case p.What == starts.All && p.Name != "":
		return FieldErrorf("name", "must be left out: all has no name")
	case p.What != starts.All && p.Name == "":
		return FieldErrorf("name", "must be that of the %s", p.What)
	case len(p.Name) > MaxChatID:
		return FieldErrorf("name", "must not be longer than %d bytes", MaxChatID)
	case len(p.Reason) > MaxPauseReason:
		return FieldErrorf("reason", "must not be longer than %d bytes", MaxPauseReason)
	case strings.ContainsFunc(p.Reason, text.IsControl):
		return FieldErrorf("reason", "must be one line")
	}
	if p.Rate == "" {
		return nil
	}
	rate, err := ParsePace(p.Rate)
	if err != nil {
		return FieldErrorf("rate", "%v", err)
	}
	p.Rate = rate.String()
	return nil
}

// ParsePace reads a rate at which paused runs start, such as "10/s", "10/1s" or "100/5m".
func ParsePace(value string) (HookRate, error) {
	if count, unit, ok := strings.Cut(value, "/"); ok && slices.Contains([]string{"s", "m", "h"}, unit) {
		value = count + "/1" + unit
	}
	rate, err := ParseRate(value)
	if err != nil {
		return HookRate{}, errors.New(strings.ReplaceAll(err.Error(), "60/1h", "10/s"))
	}
	return rate, nil
}

// Starts are pauses as the engine takes them.
func Starts(pauses []Pause) []starts.Pause {
	taken := make([]starts.Pause, len(pauses))
	for i, p := range pauses {
		taken[i] = starts.Pause{What: p.What, Name: p.Name, Reason: p.Reason, By: p.By}
		if rate, err := ParsePace(p.Rate); err == nil {
			taken[i].Rate = starts.Rate(rate)
		}
	}
	return taken
}

// SetPause adds a pause, or replaces the one of the same thing.
func (s *Settings) SetPause(p Pause) error {
	s.Pauses = slices.Clone(s.Pauses)
	for i := range s.Pauses {
		if s.Pauses[i].IsFor(p.What, p.Name) {
			s.Pauses[i] = p
			return nil
		}
	}
	if len(s.Pauses) >= MaxPauses {
		return fmt.Errorf("%d things are paused, and there may be no more: resume one of them, or pause all", MaxPauses)
	}
	s.Pauses = append(s.Pauses, p)
	return nil
}

// Resume takes a pause out, and reports whether there was one.
func (s *Settings) Resume(what starts.What, name string) bool {
	n := len(s.Pauses)
	s.Pauses = slices.DeleteFunc(slices.Clone(s.Pauses), func(p Pause) bool { return p.IsFor(what, name) })
	return len(s.Pauses) < n
}

// PausePart is the name of a pause among the parts of the live settings, as the list of changes has it.
func PausePart(p *Pause) string {
	if p.What == starts.All {
		return "pauses/all"
	}
	return "pauses/" + string(p.What) + "/" + p.Name
}
