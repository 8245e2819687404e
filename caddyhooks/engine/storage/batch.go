package storage

import "time"

// Batch is how many runs to claim at most, and for how long they stay with their node unless it renews them.
type Batch struct {
	Max     int
	Bounds  []Bound
	Without []string // chats of which no run is claimed, MaxWithout at most
	Lease   time.Duration
}

// MaxWithout is how many chats a batch may leave out. A store passes over them one by one.
const MaxWithout = 100

// Bound is how many runs of some runners, or of some hooks, a batch may have, those together. Runners go by the names that
// runs have. Runs that are folded into one turn count as one.
type Bound struct {
	Runners []string
	Hooks   []string
	AtMost  int
}

// DeliveryBatch is how many deliveries to claim at most, and for how long.
type DeliveryBatch struct {
	Max   int
	Lease time.Duration

	// If a host is named, only deliveries to it are claimed that have been due for DueFor at least, however many are under
	// way and whether the host is throttled or not.
	Host   string
	DueFor time.Duration
}
