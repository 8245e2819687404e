package api

import (
	"strings"
	"time"

	"github.com/google/uuid"
)

// IsRunID reports whether a text is the id of a run, or at least eight characters of its beginning. They tell when the run was
// accepted: so a number such as 20260131, which has eight digits too, is none.
func IsRunID(text string, now time.Time) bool {
	const shortest, longest = 8, 36
	if len(text) < shortest || len(text) > longest {
		return false
	}
	const pattern = "00000000-0000-7000-8000-000000000000"
	whole, err := uuid.Parse(text + pattern[len(text):])
	if err != nil || !strings.EqualFold(whole.String()[:len(text)], text) {
		return false
	}
	accepted := TimeOfID(whole)
	return len(text) == longest || accepted.After(oldestRun) && accepted.Before(now.Add(24*time.Hour))
}

// oldestRun is before any run that there can be.
var oldestRun = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// TimeOfID is when a run was accepted, to the millisecond, by its id.
func TimeOfID(id uuid.UUID) time.Time {
	var milliseconds int64
	for _, b := range id[:6] {
		milliseconds = milliseconds<<8 | int64(b)
	}
	return time.UnixMilli(milliseconds)
}
