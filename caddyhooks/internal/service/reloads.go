package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// reloadPatience bounds how long a reload waits for the store to note what it changed.
const reloadPatience = 3 * time.Second

// noteReload adds a reload to the list of changes, with what differs between two configurations. It is called under the service's lock,
// when the new configuration is in force and the old one stops.
func (s *Service) noteReload(before, after *Instance) {
	if old := slices.Index(s.instances, before); old < 0 || slices.Index(s.instances, after) < old {
		return // it was not in force, or the reload failed
	}
	change := describeReload(before, after)
	if change == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), reloadPatience)
	defer stop()
	err := s.saveReload(ctx, change)
	if errors.Is(err, engine.ErrSettingsChanged) {
		if err = s.refreshLocked(ctx, make(settings.SecretReads)); err == nil {
			err = s.saveReload(ctx, change)
		}
	}
	if err != nil {
		after.Log.Warn("the reload is missing in the list of changes", zap.Error(err))
	}
}

// saveReload saves the live settings as they are, with the change.
func (s *Service) saveReload(ctx context.Context, change *api.SettingsChange) error {
	encoded, err := json.Marshal(settings.SavedSettings{Settings: s.Live, Paused: s.Live.Pauses, Changed: s.changed})
	if err != nil {
		return fmt.Errorf("encoding the live settings: %w", err)
	}
	revision, err := s.Settings.Save(ctx, encoded, encode(change), s.revision)
	if err != nil {
		return err
	}
	s.revision = revision
	for _, in := range s.instances {
		s.use(in, nil)
	}
	s.Events.settingsChanged(revision, change.By)
	return nil
}

// describeReload tells what differs between two configurations, nil if nothing does. Settings and hooks are told as in a change of live
// ones. Of other options only the name is told: they may hold secrets.
func describeReload(before, after *Instance) *api.SettingsChange {
	origin := api.Origin{By: "Caddy", Via: api.ViaReload}
	change := describeChange(origin, &before.Pinned, &after.Pinned)
	if change == nil {
		change = &api.SettingsChange{Origin: origin}
	}
	was, is := otherOptions(before.Config), otherOptions(after.Config)
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch {
		case bytes.Equal(was[name], is[name]):
		case len(change.Changes) == maxChangedParts:
			change.More++
		default:
			change.Changes = append(change.Changes, api.ChangedPart{What: name})
		}
	}
	if change.Changes == nil {
		return nil
	}
	return change
}

// otherOptions are the options of a configuration that are no settings, as JSON.
func otherOptions(config []byte) map[string]json.RawMessage {
	options := make(map[string]json.RawMessage)
	_ = json.Unmarshal(config, &options) // it is an object
	delete(options, "settings")
	return options
}
