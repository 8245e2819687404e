package admin

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /about", serveAbout)
}

// showSchemes lists all schemes.
func showSchemes() []api.Scheme {
	return api.ShowAll(settings.Schemes, func(s *settings.Scheme) api.Scheme {
		return api.Scheme{Name: s.Name, Title: cmp.Or(s.Title, s.Name), Fields: append([]string{}, s.Fields...), Theirs: s.SecretTheirs,
			Signs: s.Signs(), ToleranceSeconds: int(s.Tolerance / time.Second),
			SuccessStatus: settings.Authentication{Scheme: s}.SuccessStatus(nil, 0)}
	})
}

// showSettings lists all settings, as a page offers them.
func showSettings() []api.Setting {
	return api.ShowAll(settings.AllSettings, func(s settings.Setting) api.Setting {
		page := s.Page()
		return api.Setting{Name: s.JSONName(), Label: page.Label, Hint: page.Hint, Input: page.Input}
	})
}

func serveAbout(in *service.Instance, w http.ResponseWriter, _ *http.Request) error {
	active := in.Active.Load()
	about := api.About{
		Instance: in.Name, Path: in.Path, URLs: in.Urls, On: active.On, OffBecause: active.OffBecause, Runners: []api.Guest{},
		Channels: []api.Guest{},
		Runner:   kindOf(in.EngineConfig.Runners[in.EngineConfig.DefaultRunner]), Store: kindOf(in.Opener),
		MaxTimeoutSeconds: in.Rules.MaxSeconds(), QueueTimeSeconds: in.Rules.MaxQueueSeconds(), RetentionSeconds: in.Rules.RetentionSeconds(),
		Workers: in.EngineConfig.Workers, Schemes: showSchemes(), Settings: showSettings(), Now: text.JSONTime(time.Now()),
	}
	about.Tiers, about.MemoryPresets = usedByRunners(in)
	if figures, err := in.Service.Figures.Ask(in.Service.Engine); err == nil {
		about.StoreBytes = max(figures.Bytes, 0)
	}
	for _, name := range in.Rules.Runners.Names {
		about.Runners = append(about.Runners, api.Guest{Name: name, Kind: kindOf(in.EngineConfig.Runners[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(in.Rules.Channels)) {
		about.Channels = append(about.Channels, api.Guest{Name: name, Kind: kindOf(in.Rules.Channels[name])})
	}
	return writeJSON(w, http.StatusOK, about)
}

// usedByRunners are the model tiers and the memory presets that make a difference to a runner of the configuration.
func usedByRunners(in *service.Instance) (tiers, memoryPresets []string) {
	tiers, memoryPresets = slices.Collect(maps.Keys(in.Rules.Runners.ByTier)), []string{engine.MemoryDisabled}
	for _, runner := range in.EngineConfig.Runners {
		moreTiers, morePresets := settings.Tiers, settings.MemoryPresets
		if selective, ok := runner.(engine.Selective); ok {
			moreTiers, morePresets = selective.Uses()
		}
		tiers, memoryPresets = append(tiers, moreTiers...), append(memoryPresets, morePresets...)
	}
	inOrder := func(all, used []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return !slices.Contains(used, one) })
	}
	return inOrder(settings.Tiers, tiers), inOrder(settings.MemoryPresets, memoryPresets)
}

// kindOf is the name of a module in its namespace, as the configuration has it.
func kindOf(module any) string {
	if m, ok := module.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return ""
}
