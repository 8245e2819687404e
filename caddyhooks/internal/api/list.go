package api

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// MaxBody bounds the body of a request to the admin API.
const MaxBody = 4 << 20

// ShowAll shows the items of a page.
func ShowAll[T, Shown any](items []T, show func(T) Shown) []Shown {
	shown := make([]Shown, 0, len(items)) // an empty page is [] in JSON
	for _, item := range items {
		shown = append(shown, show(item))
	}
	return shown
}

// MaxPage bounds the items on one page.
const MaxPage = 1000

// GlobalPaths are those below /hooks that are about all instances.
var GlobalPaths = []string{"/health", "/health/ready", "/health/live", "/instances"}

// RunFilters are the parameters that select runs.
var RunFilters = []string{"status", "hook", "runner", "chatId", "since", "until", "q", "requestId"}

// DeliveryFilters are the parameters that select deliveries.
var DeliveryFilters = []string{"status", "channel", "host", "since", "until"}

// ExportFilters are the parameters that select what is exported, by what that is.
var ExportFilters = map[string][]string{"runs": RunFilters, "chat": {"chatId"}, "deliveries": DeliveryFilters}

// NotCompleted are the statuses of runs that failed in one way or another.
var NotCompleted = []engine.Status{engine.Failed, engine.TimedOut, engine.Expired}
