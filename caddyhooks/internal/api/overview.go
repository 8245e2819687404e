package api

import (
	"strconv"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// AttentionItem is something that an operator should look at.
type AttentionItem struct {
	Kind     string   `json:"kind"`
	Text     string   `json:"text"`
	Detail   string   `json:"detail,omitempty"`
	Link     string   `json:"link"` // in the dashboard
	Severity severity `json:"severity"`
	Code     string   `json:"code,omitempty"` // of a warning, which can be dismissed
}

type severity string

const (
	SeverityBad  severity = "bad"  // something was lost, or does not work
	SeverityLate severity = "late" // something should be seen to
)

// Overview is what an operator sees first: figures, plots and hooks of a range of time, and what needs somebody.
type Overview struct {
	Range       string          `json:"range"`
	StepSeconds int             `json:"stepSeconds"`
	Now         *time.Time      `json:"now"`
	Figures     Figures         `json:"figures"`
	Attention   []AttentionItem `json:"attention"`
	Dismissed   []Warning       `json:"dismissed,omitempty"` // warnings that are no attention items any more
	Series      []Series        `json:"series"`
	Hooks       []HookFigures   `json:"hooks"`
	Nodes       []Node          `json:"nodes,omitempty"` // of a store that nodes share
}

// Node is a process that works with a shared store.
type Node struct {
	Name     string     `json:"name"` // another one after each start
	Host     string     `json:"host"`
	This     bool       `json:"this,omitempty"`   // it is the one that answers
	Silent   bool       `json:"silent,omitempty"` // it has not been seen for ten seconds, and did not say that it stops
	JoinedAt *time.Time `json:"joinedAt"`
	SeenAt   *time.Time `json:"seenAt"`
	Running  int        `json:"running"` // runs
}

// Figures are counts of the range, but for running, queued, waiting, questions, pending and dead, which are of now.
type Figures struct {
	Accepted      int64    `json:"accepted"`
	Running       int      `json:"running"`
	Workers       int      `json:"workers"` // of this node
	Queued        int      `json:"queued"`
	Waiting       int      `json:"waiting"`   // put aside for a question
	Questions     int      `json:"questions"` // open ones, for people
	OldestSeconds float64  `json:"oldestSeconds"`
	Ended         int64    `json:"ended"` // completed, failed, timed out, expired and cancelled
	Completed     int64    `json:"completed"`
	Failed        int64    `json:"failed"`
	TimedOut      int64    `json:"timedOut"`
	Expired       int64    `json:"expired"`
	Cancelled     int64    `json:"cancelled"`
	MedianSeconds *float64 `json:"medianSeconds"`
	P95Seconds    *float64 `json:"p95Seconds"`
	P99Seconds    *float64 `json:"p99Seconds"`
	Delivered     int64    `json:"delivered"`
	Pending       int      `json:"pending"`
	Dead          int      `json:"dead"`
}

// Series is one line of a plot.
type Series struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Points []Point `json:"points"`
}

// Point is a value at the beginning of a step. It is nil if it is not known.
type Point struct {
	At    int64 // in seconds since 1970
	Value *float64
}

// MarshalJSON writes [at, value].
func (p Point) MarshalJSON() ([]byte, error) {
	data := strconv.AppendInt([]byte{'['}, p.At, 10)
	if data = append(data, ','); p.Value == nil {
		data = append(data, "null"...)
	} else {
		data = strconv.AppendFloat(data, *p.Value, 'f', -1, 64)
	}
	return append(data, ']'), nil
}

// HookFigures are those of one hook. The name "" stands for hooks that are too many to be counted each on its own.
type HookFigures struct {
	Name          string        `json:"name"`
	Action        engine.Action `json:"action,omitempty"` // none if the hook was deleted
	Accepted      int64         `json:"accepted"`
	Ended         int64         `json:"ended"`  // in whatever way
	Failed        int64         `json:"failed"` // timed out and expired ones too, a share of those that ended
	MedianSeconds *float64      `json:"medianSeconds"`
	P95Seconds    *float64      `json:"p95Seconds"`
	P99Seconds    *float64      `json:"p99Seconds"`
	LastAt        *time.Time    `json:"lastAt,omitempty"`
	Points        []Point       `json:"points"`
}

// OverviewRange is a range of time that ends now, and the steps of its plots.
type OverviewRange struct {
	Name  string
	Steps int
	Step  time.Duration
}

var OverviewRanges = []OverviewRange{
	{"1h", 60, time.Minute},
	{"6h", 72, 5 * time.Minute},
	{"24h", 72, 20 * time.Minute},
	{"7d", 84, 2 * time.Hour},
}
