package service

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// The most that is told about a change. Ten thousand hooks may change at once, and a thousand changes are kept.
const (
	maxChangedParts = 100
	maxChangeValue  = 4 << 10
	maxChangeValues = 48 << 10 // of all parts together, so that the whole takes less than 64 KiB
)

// describeChange tells what differs between two live settings, nil if nothing does.
func describeChange(from api.Origin, before, after *settings.Settings) *api.SettingsChange {
	change := &api.SettingsChange{Origin: from}
	room := maxChangeValues
	add := func(what string, values func() (was, is any)) {
		if len(change.Changes) == maxChangedParts {
			change.More++
			return
		}
		changed := api.ChangedPart{What: what, Cut: room <= 0}
		if room > 0 {
			was, is := values()
			short := shortener{room: room}
			changed.Before, changed.After = short.part(was), short.part(is)
			changed.Cut, room = short.cut, short.room
		}
		change.Changes = append(change.Changes, changed)
	}
	for _, e := range settings.AllSettings {
		if !e.Same(before, after) {
			add(e.JSONName(), func() (was, is any) { return e.Change(before, after) })
		}
	}
	had, has := settings.MappingsByName(before.Mappings), settings.MappingsByName(after.Mappings)
	for i := range after.Mappings {
		is := &after.Mappings[i]
		if was := had[is.Name]; was == nil || !settings.SameMapping(was, is) {
			add(settings.PartName(is.Name), func() (any, any) { return changedFields(was, is) })
		}
	}
	for i := range before.Mappings {
		if was := &before.Mappings[i]; has[was.Name] == nil {
			add(settings.PartName(was.Name), func() (any, any) { return changedFields(was, nil) })
		}
	}
	for i := range after.Pauses {
		is := &after.Pauses[i]
		if was := findPause(before.Pauses, is); was == nil || *was != *is {
			add(settings.PausePart(is), func() (any, any) { return pauseOrNil(was), is })
		}
	}
	for i := range before.Pauses {
		if was := &before.Pauses[i]; findPause(after.Pauses, was) == nil {
			add(settings.PausePart(was), func() (any, any) { return was, nil })
		}
	}
	addDismissals(add, before, after)
	if change.Changes == nil {
		return nil
	}
	return change
}

// addDismissals tells of warnings that were dismissed, and of those that came back.
func addDismissals(add func(what string, values func() (was, is any)), before, after *settings.Settings) {
	for i := range after.Dismissals {
		is := &after.Dismissals[i]
		switch was := before.FindDismissal(is.Code); {
		case was == nil:
			add(settings.DismissalPart(is.Code), func() (any, any) { return nil, is })
		case *was != *is:
			add(settings.DismissalPart(is.Code), func() (any, any) { return was, is })
		}
	}
	for i := range before.Dismissals {
		if was := &before.Dismissals[i]; after.FindDismissal(was.Code) == nil {
			add(settings.DismissalPart(was.Code), func() (any, any) { return was, nil })
		}
	}
}

// valueIn returns the value in a mapping, nil if it is not set.
func valueIn(f settings.MappingField, m *settings.Mapping) any {
	if m == nil {
		return nil
	}
	value := reflect.ValueOf(m).Elem().FieldByIndex(f.Index)
	if value.IsZero() {
		return nil
	}
	if f.Name == "callbackUrl" {
		return text.MaskedCallback(value.String()) // its path is often a secret
	}
	return value.Interface()
}

// fieldChange returns the values in two mappings, of which one may be nil.
func fieldChange(f settings.MappingField, before, after *settings.Mapping) (was, is any) {
	was, is = valueIn(f, before), valueIn(f, after)
	if !f.Secret {
		return was, is
	}
	secretOf := func(value any) settings.Secrets {
		if value == nil {
			return nil
		}
		return value.(settings.Secrets)
	}
	return settings.ChangedSecrets(secretOf(was), secretOf(is))
}

// changedFields are the values of the fields that differ in two mappings. If one of the mappings is nil, all fields that the
// other has are told.
func changedFields(before, after *settings.Mapping) (was, is any) {
	had, has := make(map[string]any), make(map[string]any)
	for _, field := range settings.DescribedFields {
		x, y := fieldChange(field, before, after)
		switch {
		case before == nil && valueIn(field, after) != nil:
			has[field.Name] = y
		case after == nil && valueIn(field, before) != nil:
			had[field.Name] = x
		case before != nil && after != nil && !field.Same(before, after):
			had[field.Name], has[field.Name] = x, y
		}
	}
	switch {
	case before == nil:
		return nil, has
	case after == nil:
		return had, nil
	default:
		return had, has
	}
}

// shortener writes values as JSON within the room there is.
type shortener struct {
	room int
	cut  bool
}

// part writes the value of a setting, or each of the fields of a mapping.
func (s *shortener) part(value any) json.RawMessage {
	fields, ok := value.(map[string]any)
	if !ok {
		return s.value(value)
	}
	short := make(map[string]json.RawMessage, len(fields))
	for _, field := range settings.DescribedFields { // so that the same ones are cut every time
		if value, ok := fields[field.Name]; ok {
			s.room -= len(field.Name) + len(`"":,`)
			short[field.Name] = s.value(value)
		}
	}
	return text.PlainJSON(short)
}

// value writes a value. If it is too long it becomes its beginning, as a text.
func (s *shortener) value(value any) json.RawMessage {
	raw := text.PlainJSON(value)
	if most := max(0, min(maxChangeValue, s.room)); len(raw) > most {
		text, ok := value.(string)
		if !ok {
			text = string(raw)
		}
		text = text[:min(len(text), most)]
		for raw = beginningAsJSON(text); len(raw) > most && text != ""; raw = beginningAsJSON(text) {
			text = text[:len(text)/2] // there are many characters in it that JSON writes in another way
		}
		s.cut = true
	}
	s.room -= len(raw)
	return raw
}

func beginningAsJSON(value string) json.RawMessage {
	return text.PlainJSON(strings.ToValidUTF8(value, "") + "…")
}

// encode is the form in which the store keeps the change. It is nil for none.
func encode(c *api.SettingsChange) []byte {
	if c == nil {
		return nil
	}
	return text.PlainJSON(c)
}

// logChange tells about the change, without any value.
func logChange(c *api.SettingsChange, in *Instance, active *settings.Active) {
	var names []string
	for _, part := range c.Changes {
		names = append(names, part.What)
	}
	fields := []zap.Field{
		zap.Int64("revision", active.Revision), zap.Strings("what", names),
		zap.String("by", c.By), zap.String("via", c.Via), zap.String("address", c.Address),
	}
	if c.More > 0 {
		fields = append(fields, zap.Int("more", c.More))
	}
	in.Log.Info("live settings changed", append(fields, onOrOff(active)...)...)
}

// logTakenOver tells that settings are in force which another node has saved. That node tells what was changed.
func (in *Instance) logTakenOver(active *settings.Active) {
	fields := []zap.Field{zap.Int64("revision", active.Revision)}
	in.Log.Info("live settings taken over", append(fields, onOrOff(active)...)...)
}

func NewChangeJSON(saved engine.SettingsChange) (api.Change, error) {
	shown := api.Change{At: text.JSONTime(saved.At), Revision: saved.Revision}
	if err := json.Unmarshal(saved.Description, &shown.SettingsChange); err != nil {
		return api.Change{}, fmt.Errorf("the change that made revision %d cannot be read: %w", saved.Revision, err)
	}
	return shown, nil
}
