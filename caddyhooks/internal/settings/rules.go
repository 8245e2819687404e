package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// Rules are the bounds of an instance for the fields of requests and mappings.
type Rules struct {
	MaxTimeout  time.Duration
	QueueTime   time.Duration
	MaxMemory   Size // 0 if it is not known
	Retention   time.Duration
	Workers     int  // 0 if it is not known
	ChatLimit   int  // how many runs of a chat may be queued; 0 is any number
	History     *int // in seconds, if the configuration sets it: no hook may set more
	Guard       *outbound.Guard
	CheckSchema func(raw []byte) error
	Channels    map[string]engine.Channel // nil for a channel that is not loaded yet
	Runners     RunnerChoice
	Owner       func(EventAuthor) (channel, unsure string) // tells the channel that wrote an event; nil if there is none
}

// MaxSeconds is the longest time that a run may take.
func (r *Rules) MaxSeconds() int { return int(r.MaxTimeout / time.Second) }

// MaxQueueSeconds is the longest time that a run may wait until an agent takes it on.
func (r *Rules) MaxQueueSeconds() int { return int(r.QueueTime / time.Second) }

// RetentionSeconds is the longest time that messages of finished runs are kept.
func (r *Rules) RetentionSeconds() int { return int(r.Retention / time.Second) }

// checkHistory checks how long a hook wants messages to be kept. A time that is longer than the one in force, which can be
// changed while Caddy runs, is cut down to it when a run is accepted.
func (r *Rules) checkHistory(seconds int) error {
	if r.History != nil {
		return checkHistory(seconds, *r.History, "the instance's history")
	}
	return checkHistory(seconds, r.RetentionSeconds(), "retention")
}

// CheckSchema checks a schema before there is an engine, which keeps compiled schemas.
func CheckSchema(raw []byte) error {
	_, err := contract.Compile(raw)
	return err
}

// FieldError says which field is wrong, and why.
type FieldError struct {
	Field   string // its name in JSON
	Problem string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

func FieldErrorf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

func oneOf(field, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return FieldErrorf(field, "must be one of %s", strings.Join(allowed, ", "))
}
