package caddyhooks

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /about", (*instance).serveAbout)
}

// showSchemes lists all schemes.
func showSchemes() []api.Scheme {
	return api.ShowAll(settings.Schemes, func(s *settings.Scheme) api.Scheme {
		return api.Scheme{Name: s.Name, Title: cmp.Or(s.Title, s.Name), Fields: append([]string{}, s.Fields...), Theirs: s.SecretTheirs, Signs: s.Signs(), ToleranceSeconds: int(s.Tolerance / time.Second),
			SuccessStatus: settings.Authentication{Scheme: s}.SuccessStatus(nil, 0)}
	})
}

func (in *instance) serveAbout(w http.ResponseWriter, _ *http.Request) error {
	active := in.active.Load()
	about := api.About{
		Instance: in.name, Path: in.path, URLs: in.urls, On: active.On, OffBecause: active.OffBecause, Runners: []api.Guest{}, Channels: []api.Guest{},
		Runner: kindOf(in.engineConfig.Runners[in.engineConfig.DefaultRunner]), Store: kindOf(in.opener),
		Tiers: settings.Tiers, MemoryPresets: settings.MemoryPresets,
		MaxTimeoutSeconds: in.Rules.MaxSeconds(), QueueTimeSeconds: in.Rules.MaxQueueSeconds(), RetentionSeconds: in.Rules.RetentionSeconds(),
		Workers: in.engineConfig.Workers, Schemes: showSchemes(), Now: text.JSONTime(time.Now()),
	}
	if told, err := in.service.figures.Ask(in.service.engine); err == nil {
		about.StoreBytes = max(told.Bytes, 0)
	}
	for _, name := range in.Rules.Runners.Names {
		about.Runners = append(about.Runners, api.Guest{Name: name, Kind: kindOf(in.engineConfig.Runners[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rules.Channels)) {
		about.Channels = append(about.Channels, api.Guest{Name: name, Kind: kindOf(in.Rules.Channels[name])})
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
