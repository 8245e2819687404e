package service

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// Slots bound how many costly requests are served at once.
type Slots chan struct{}

// The most of an instance. A search may read 32 MB of the store, and an export all of it.
const (
	maxSearches = 2
	maxExports  = 4
)

// Take returns a function that gives the slot back. If there is none, the error tells the caller to come back; what names the
// requests.
func (s Slots) Take(w http.ResponseWriter, what string) (free func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
		w.Header().Set("Retry-After", api.RetryAfterSeconds(time.Second))
		return nil, api.Errorf(http.StatusServiceUnavailable, "%d %s are under way already; try again in a second", cap(s), what)
	}
}
