package storage

import "time"

// Backlog is what there is to do, on whatever node.
type Backlog struct {
	Queued  int
	Running int
	Waiting int           // put aside for a question
	Oldest  time.Duration // since the oldest of the queued runs was accepted, 0 if there is none
}

// Undelivered is how many deliveries have not arrived.
type Undelivered struct{ Pending, Dead int }

// MaxCounted is how many deliveries a store may look at to count them.
const MaxCounted = 10_000
