// Package moment reads moments as operators write them in filters. It knows nothing of hooks.
package moment

import (
	"errors"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Forms are the forms that Parse reads, for errors and help texts.
const Forms = "2h or 7d back from now, 10:00, today, yesterday, 2026-01-31, 2026-01-31 15:04 or 2026-01-31T15:04:05Z"

// Offered are moments that a shell offers.
var Offered = []string{"1h", "24h", "7d", "today", "yesterday"}

var errForm = errors.New("must be a time: " + Forms)

// The forms of a time of day, and of a day with one, in the zone of now.
var (
	timesOfDay = []string{"15:04", "15:04:05"}
	localTimes = []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"}
)

// Parse reads a moment: a duration back from now, a time of day (the last one that has passed), the beginning of today or yesterday, a day,
// a day and a time, or RFC 3339. Those without a zone are in that of now. Of a time that a change of the clocks repeats it is the first
// one, and for a time that is skipped the moment of the change. Moments before 1970 are that of its beginning, and those after 9999
// that of its end. The result is in UTC, and can be written as JSON.
func Parse(text string, now time.Time) (time.Time, error) {
	at, err := parse(text, now)
	switch {
	case err != nil:
		return time.Time{}, err
	case at.Before(earliest):
		return earliest, nil
	case at.After(latest):
		return latest, nil
	}
	return at.UTC(), nil
}

var (
	earliest = time.Unix(0, 0).UTC()
	latest   = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

func parse(text string, now time.Time) (time.Time, error) {
	switch text {
	case "today":
		return daysAgo(now, 0, time.Time{}), nil
	case "yesterday":
		return daysAgo(now, 1, time.Time{}), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, form := range timesOfDay {
		if clock, err := time.Parse(form, text); err == nil {
			at := daysAgo(now, 0, clock)
			if at.After(now) {
				at = daysAgo(now, 1, clock)
			}
			return at, nil
		}
	}
	for _, form := range localTimes {
		if wall, err := time.Parse(form, text); err == nil {
			return inZone(wall, now.Location()), nil
		}
	}
	if ago, err := caddy.ParseDuration(text); err == nil && ago >= 0 && text[0] != '+' { // which might mean the future
		return now.Add(-ago), nil
	}
	return time.Time{}, errForm
}

// daysAgo is a time of day so many days before now.
func daysAgo(now time.Time, days int, clock time.Time) time.Time {
	year, month, day := now.Date()
	return inZone(time.Date(year, month, day-days, clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC), now.Location())
}

// inZone is when the clocks of a zone show what those of UTC show at wall.
func inZone(wall time.Time, zone *time.Location) time.Time {
	year, month, day := wall.Date()
	at := time.Date(year, month, day, wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	start, end := at.ZoneBounds()
	_, offset := at.Zone()
	switch shown := at.Add(time.Duration(offset) * time.Second); {
	case shown.Equal(wall) && !start.IsZero(): // unless the clocks showed it before they were changed
		_, before := start.Add(-1).Zone()
		if first := at.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
			return first
		}
	case shown.After(wall):
		return start
	case shown.Before(wall):
		return end
	}
	return at
}
