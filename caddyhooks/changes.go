package caddyhooks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// settingsChange is one change of the live settings as the store keeps it and the admin API shows it. One change may be about
// several settings. It holds no secret.
type settingsChange struct {
	origin
	Changes []changedPart `json:"changes"`
	More    int           `json:"more,omitempty"` // parts that are not listed
}

// origin is where a change of the live settings came from.
type origin struct {
	By      string `json:"by,omitempty"` // who made it; changes of before do not tell
	Via     string `json:"via"`
	Address string `json:"address"`
}

func originOf(c caller) origin { return origin{By: c.by, Via: c.via, Address: c.address} }

// changedPart is a setting or a mapping that was changed. Before and After are the values that were saved, null where there
// was none; of a mapping that was there before and after, the fields that differ.
type changedPart struct {
	What   string          `json:"what"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Cut    bool            `json:"cut,omitempty"` // values are shortened or left out
}

// The most that is told about a change. Ten thousand hooks may change at once, and a thousand changes are kept.
const (
	maxChangedParts = 100
	maxChangeValue  = 4 << 10
	maxChangeValues = 48 << 10 // of all parts together, so that the whole takes less than 64 KiB
)

// describeChange tells what differs between two live settings, nil if nothing does.
func describeChange(from origin, before, after *Settings) *settingsChange {
	change := &settingsChange{origin: from}
	room := maxChangeValues
	add := func(what string, values func() (was, is any)) {
		if len(change.Changes) == maxChangedParts {
			change.More++
			return
		}
		changed := changedPart{What: what, Cut: room <= 0}
		if room > 0 {
			was, is := values()
			short := shortener{room: room}
			changed.Before, changed.After = short.part(was), short.part(is)
			changed.Cut, room = short.cut, short.room
		}
		change.Changes = append(change.Changes, changed)
	}
	for _, e := range allSettings {
		if !e.same(before, after) {
			add(e.jsonName(), func() (was, is any) { return e.change(before, after) })
		}
	}
	had, has := mappingsByName(before.Mappings), mappingsByName(after.Mappings)
	for i := range after.Mappings {
		is := &after.Mappings[i]
		if was := had[is.Name]; was == nil || !sameMapping(was, is) {
			add(partName(is.Name), func() (any, any) { return changedFields(was, is) })
		}
	}
	for i := range before.Mappings {
		if was := &before.Mappings[i]; has[was.Name] == nil {
			add(partName(was.Name), func() (any, any) { return changedFields(was, nil) })
		}
	}
	if change.Changes == nil {
		return nil
	}
	return change
}

// change returns the values of a setting that was changed. Of secrets it tells only that.
func (e settingOf[T]) change(before, after *Settings) (was, is any) {
	was, is = *e.field(before), *e.field(after)
	if secrets, ok := was.(Secrets); ok {
		return changedSecrets(secrets, is.(Secrets))
	}
	return was, is
}

// changedSecrets tells what was done to secrets: "set" if some were added, "removed" if some were taken out, or "replaced".
func changedSecrets(before, after Secrets) (was, is any) {
	if len(before) > 0 {
		was = "set"
	}
	switch {
	case len(after) > len(before) && containsSecrets(after, before):
		return was, "set"
	case len(after) < len(before) && containsSecrets(before, after):
		return was, "removed"
	default:
		return was, "replaced"
	}
}

// containsSecrets reports whether all of some secrets are among others. Of long lists it says no, if they are not empty: to
// compare each with each would take too long.
func containsSecrets(all, some Secrets) bool {
	const most = 100
	if len(some) == 0 {
		return true
	}
	if len(all) > most || len(some) > most {
		return false
	}
	for _, s := range some {
		found := false
		for _, other := range all {
			found = sameSecrets(Secrets{s}, Secrets{other}) || found
		}
		if !found {
			return false
		}
	}
	return true
}

// in returns the value in a mapping, nil if it is not set.
func (f mappingField) in(m *Mapping) any {
	if m == nil {
		return nil
	}
	value := reflect.ValueOf(m).Elem().FieldByIndex(f.index)
	if value.IsZero() {
		return nil
	}
	if f.name == "callbackUrl" {
		return maskedCallback(value.String()) // its path is often a secret
	}
	return value.Interface()
}

// change returns the values in two mappings, of which one may be nil.
func (f mappingField) change(before, after *Mapping) (was, is any) {
	was, is = f.in(before), f.in(after)
	if !f.secret {
		return was, is
	}
	secretOf := func(value any) Secrets {
		if value == nil {
			return nil
		}
		return value.(Secrets)
	}
	return changedSecrets(secretOf(was), secretOf(is))
}

// changedFields are the values of the fields that differ in two mappings. If one of the mappings is nil, all fields that the
// other has are told.
func changedFields(before, after *Mapping) (was, is any) {
	had, has := make(map[string]any), make(map[string]any)
	for _, field := range describedFields {
		x, y := field.change(before, after)
		switch {
		case before == nil && field.in(after) != nil:
			has[field.name] = y
		case after == nil && field.in(before) != nil:
			had[field.name] = x
		case before != nil && after != nil && !field.same(before, after):
			had[field.name], has[field.name] = x, y
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
	for _, field := range describedFields { // so that the same ones are cut every time
		if value, ok := fields[field.name]; ok {
			s.room -= len(field.name) + len(`"":,`)
			short[field.name] = s.value(value)
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
func (c *settingsChange) encode() []byte {
	if c == nil {
		return nil
	}
	return text.PlainJSON(c)
}

// log tells about the change, without any value.
func (c *settingsChange) log(in *instance, active *activeSettings) {
	var names []string
	for _, part := range c.Changes {
		names = append(names, part.What)
	}
	fields := []zap.Field{
		zap.Int64("revision", active.revision), zap.Strings("what", names),
		zap.String("by", c.By), zap.String("via", c.Via), zap.String("address", c.Address),
	}
	if c.More > 0 {
		fields = append(fields, zap.Int("more", c.More))
	}
	in.log.Info("live settings changed", append(fields, active.onOrOff()...)...)
}

// logTakenOver tells that settings are in force which another node has saved. That node tells what was changed.
func (in *instance) logTakenOver(active *activeSettings) {
	fields := []zap.Field{zap.Int64("revision", active.revision)}
	in.log.Info("live settings taken over", append(fields, active.onOrOff()...)...)
}

// changeJSON is a change as the admin API shows it.
type changeJSON struct {
	At       *time.Time `json:"at"`
	Revision int64      `json:"revision"`
	settingsChange
}

func newChangeJSON(saved engine.SettingsChange) (changeJSON, error) {
	shown := changeJSON{At: text.JSONTime(saved.At), Revision: saved.Revision}
	if err := json.Unmarshal(saved.Description, &shown.settingsChange); err != nil {
		return changeJSON{}, fmt.Errorf("the change that made revision %d cannot be read: %w", saved.Revision, err)
	}
	return shown, nil
}
