package caddyhooks

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	instanceEndpoints.handle("GET /about", (*instance).serveAbout)
}

// aboutJSON is what a page has to know about an instance, and what no setting tells.
type aboutJSON struct {
	Instance          string      `json:"instance"`
	Path              string      `json:"path"`
	URLs              []string    `json:"urls"` // as far as they are known
	On                bool        `json:"on"`
	OffBecause        string      `json:"offBecause"`
	Channels          []guestJSON `json:"channels"`
	Runner            string      `json:"runner"` // the kind of the default one
	Runners           []guestJSON `json:"runners"`
	Store             string      `json:"store"`
	Tiers             []string    `json:"tiers"`
	MemoryPresets     []string    `json:"memoryPresets"`
	MaxTimeoutSeconds int         `json:"maxTimeoutSeconds"`
	QueueTimeSeconds  int         `json:"queueTimeSeconds"`
	RetentionSeconds  int         `json:"retentionSeconds"`
	Workers           int         `json:"workers"`
	Now               *time.Time  `json:"now"`
}

// guestJSON is a channel or a runner.
type guestJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

func (in *instance) serveAbout(w http.ResponseWriter, _ *http.Request) error {
	active := in.active.Load()
	about := aboutJSON{
		Instance: in.name, Path: in.path, URLs: in.urls, On: active.on, OffBecause: active.offBecause, Channels: []guestJSON{},
		Runner: kindOf(in.engineConfig.Runners[in.engineConfig.DefaultRunner]), Store: kindOf(in.opener),
		Tiers: tiers, MemoryPresets: memoryPresets,
		MaxTimeoutSeconds: in.rules.maxSeconds(), QueueTimeSeconds: in.rules.maxQueueSeconds(), RetentionSeconds: in.rules.retentionSeconds(),
		Workers: in.engineConfig.Workers, Now: jsonTime(time.Now()),
	}
	for _, name := range in.rules.runners.names {
		about.Runners = append(about.Runners, guestJSON{name, kindOf(in.engineConfig.Runners[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(in.rules.channels)) {
		about.Channels = append(about.Channels, guestJSON{name, kindOf(in.rules.channels[name])})
	}
	return writeAdminJSON(w, http.StatusOK, about)
}

// kindOf is the name of a module in its namespace, as the configuration has it.
func kindOf(module any) string {
	if m, ok := module.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return ""
}
