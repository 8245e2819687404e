package api

import "time"

// Bulk is a bulk action: something that is done with all runs or deliveries of a filter.
type Bulk struct {
	ID        string            `json:"id"`
	Do        string            `json:"do"` // again, cancel, retry or drop
	Filter    map[string]string `json:"filter"`
	Deliver   bool              `json:"deliver,omitempty"`  // of runs that are started again: their answers are sent out
	By        string            `json:"by"`                 // who started it
	State     string            `json:"state"`              // running, stopped, done or failed
	Matching  *int              `json:"matching,omitempty"` // how many there were when it began, once they are counted
	Done      int               `json:"done"`
	Skipped   map[string]int    `json:"skipped,omitempty"` // with which nothing was done, by the reason
	StartedAt *time.Time        `json:"startedAt"`
	EndedAt   *time.Time        `json:"endedAt,omitempty"`
	StoppedBy string            `json:"stoppedBy,omitempty"`
	Waiting   string            `json:"waiting,omitempty"` // what it waits for now
	Error     string            `json:"error,omitempty"`   // why it failed
}

// BulkList has the bulk actions that go on and the last ones that have ended, the newest first.
type BulkList struct {
	Bulk []Bulk `json:"bulk"`
}

// BulkPlan is what a bulk action would do.
type BulkPlan struct {
	Would   int            `json:"would"`
	Skipped map[string]int `json:"skipped,omitempty"` // with which it would do nothing, by the reason
}
