package caddyhooks

import "time"

// ShortenBodyTime lets slow bodies be ended soon.
func ShortenBodyTime(d time.Duration) (restore func()) {
	before := maxBodyTime
	maxBodyTime = d
	return func() { maxBodyTime = before }
}
