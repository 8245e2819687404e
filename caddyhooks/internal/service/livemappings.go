package service

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func (in *Instance) Mappings(active *settings.Active) []settings.ShownMapping {
	shown := []settings.ShownMapping{}
	for _, m := range active.Settings.Mappings {
		shown = append(shown, settings.ShowMapping(m, active.Hooks[m.Name].Pinned))
	}
	return shown
}

func (in *Instance) showMappings(active *settings.Active) any { return in.Mappings(active) }

// patchMappings replaces all mappings. The pinned ones must be among them, unchanged.
func (in *Instance) patchMappings(live *settings.Settings, raw []byte) error {
	all, err := settings.ParseMappings(raw)
	if err != nil {
		return err
	}
	sent := settings.MappingsByName(all)
	pinned, inForce := settings.MappingsByName(in.Pinned.Mappings), settings.MappingsByName(live.Mappings)
	var replaced []settings.Mapping
	for i := range all {
		m := &all[i]
		if sent[m.Name] != m {
			return settings.FieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		if err := settings.AdmitMapping(m, pinned[m.Name], inForce[m.Name]); err != nil {
			return err
		}
		if pinned[m.Name] == nil {
			replaced = append(replaced, *m)
		}
	}
	for _, m := range in.Pinned.Mappings {
		if sent[m.Name] == nil {
			return &settings.PinnedHookError{Name: m.Name}
		}
	}
	live.Mappings = replaced
	return nil
}
