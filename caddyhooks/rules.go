package caddyhooks

import (
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// rules are the bounds of an instance for the fields of requests and mappings.
type rules struct {
	maxTimeout  time.Duration
	queueTime   time.Duration
	maxMemory   Size // 0 if it is not known
	retention   time.Duration
	workers     int  // 0 if it is not known
	chatLimit   int  // how many runs of a chat may be queued; 0 is any number
	history     *int // in seconds, if the configuration sets it: no hook may set more
	guard       *outbound.Guard
	checkSchema func(raw []byte) error
	channels    map[string]engine.Channel // nil for a channel that is not loaded yet
	runners     runnerChoice
}

// maxSeconds is the longest time that a run may take.
func (r *rules) maxSeconds() int { return int(r.maxTimeout / time.Second) }

// maxQueueSeconds is the longest time that a run may wait until an agent takes it on.
func (r *rules) maxQueueSeconds() int { return int(r.queueTime / time.Second) }

// retentionSeconds is the longest time that messages of finished runs are kept.
func (r *rules) retentionSeconds() int { return int(r.retention / time.Second) }

// checkHistory checks how long a hook wants messages to be kept. A time that is longer than the one in force, which can be
// changed while Caddy runs, is cut down to it when a run is accepted.
func (r *rules) checkHistory(seconds int) error {
	if r.history != nil {
		return checkHistory(seconds, *r.history, "the instance's history")
	}
	return checkHistory(seconds, r.retentionSeconds(), "retention")
}

// checkSchema checks a schema before there is an engine, which keeps compiled schemas.
func checkSchema(raw []byte) error {
	_, err := contract.Compile(raw)
	return err
}

// fieldError says which field is wrong, and why.
type fieldError struct {
	field   string // its name in JSON
	problem *problem
}

func (e *fieldError) Error() string { return e.in(jsonWords) }

func (e *fieldError) in(w words) string { return w.of(e.field) + " " + e.problem.in(w) }

// fieldErrorf is told in the words of JSON, and in a Caddyfile in its own. See byWords.
func fieldErrorf(field, format string, args ...any) error {
	return &fieldError{field, problemf(format, args...)}
}

func oneOf(field, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fieldErrorf(field, "must be one of %s", strings.Join(allowed, ", "))
}
