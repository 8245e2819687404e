package service

import (
	"time"
)

// The number of idempotency keys that an instance remembers, and for how long. Keys outlive their runs: a signature that is sent
// again is known by its key alone, however short runs are kept.
const (
	maxKeys = 1_000_000
	keyAge  = 24 * time.Hour
)
