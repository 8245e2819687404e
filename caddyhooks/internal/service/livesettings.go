package service

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// settingsMember is a member of the settings object in the admin API.
type settingsMember struct {
	name string

	// show returns the value in a GET. A nil value is left out.
	show func(in *Instance, active *settings.Active) any

	// patch changes the live settings. It is nil for members that a PATCH ignores, so that the answer of a GET can be
	// sent back.
	patch func(in *Instance, live *settings.Settings, raw []byte) error
}

// settingsMembers are all members, in the order in which they are shown.
var settingsMembers = append(membersOfSettings(),
	settingsMember{"mappings", (*Instance).showMappings, (*Instance).patchMappings},
	settingsMember{"pinned", (*Instance).showPinned, nil},
	settingsMember{"saved", (*Instance).showSaved, nil},
	settingsMember{"problems", (*Instance).showProblems, nil},
	settingsMember{"warnings", (*Instance).showWarnings, nil},
	settingsMember{"dismissed", (*Instance).showDismissed, nil},
)

func membersOfSettings() []settingsMember {
	var members []settingsMember
	for _, e := range settings.AllSettings {
		members = append(members, settingsMember{
			name:  e.JSONName(),
			show:  func(_ *Instance, active *settings.Active) any { return e.ShownIn(&active.Settings) },
			patch: func(in *Instance, live *settings.Settings, raw []byte) error { return in.patchSetting(e, live, raw) },
		})
	}
	return members
}

// SelectedSettings are the members of a PATCH.
var SelectedSettings = func() *strictjson.Selection {
	selected := new(strictjson.Selection)
	for _, member := range settingsMembers {
		selected.Member(member.name)
	}
	return selected
}()

func UnknownSetting(name string) error {
	var names []string
	for _, member := range settingsMembers {
		if member.patch != nil {
			names = append(names, member.name)
		}
	}
	last := len(names) - 1
	return settings.FieldErrorf(text.Abridge(name), "is unknown; settings are %s and %s", strings.Join(names[:last], ", "), names[last])
}

// Patch changes one member of the live settings. null sets a setting back to its default.
func (in *Instance) Patch(live *settings.Settings, sent strictjson.Member) error {
	for _, member := range settingsMembers {
		if member.name == sent.Key && member.patch != nil {
			return member.patch(in, live, sent.Raw)
		}
	}
	return nil
}

func (in *Instance) patchSetting(e settings.Setting, live *settings.Settings, raw []byte) error {
	changed, inForce := *live, live.Merge(in.Pinned)
	if err := e.Parse(&changed, raw, &inForce); err != nil {
		return err
	}
	if e.IsSet(&in.Pinned) && !e.Same(&changed, &in.Pinned) {
		return api.Conflictf("%s is set by Caddy's configuration, and can only be changed there", e.JSONName())
	}
	e.Copy(live, &changed)
	return nil
}

// UnsetPinned unsets live settings that are pinned. Otherwise their old values would come back, to the operator's surprise,
// when they are no longer pinned.
func (in *Instance) UnsetPinned(live *settings.Settings) {
	for _, e := range settings.AllSettings {
		if e.IsSet(&in.Pinned) {
			e.Unset(live)
		}
	}
}

// settingsJSON is the settings object in the admin API. Its members keep their order.
type settingsJSON []settingsValue

type settingsValue struct {
	name  string
	value any
}

// MarshalJSON writes the members as an object.
func (s settingsJSON) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i, member := range s {
		buf.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(member.name); err != nil {
			return nil, err
		}
		buf.WriteByte(':')
		if err := enc.Encode(member.value); err != nil {
			return nil, err
		}
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

// ShowSettings returns settings, with secrets masked.
func (in *Instance) ShowSettings(active *settings.Active) settingsJSON {
	var shown settingsJSON
	for _, member := range settingsMembers {
		if value := member.show(in, active); value != nil {
			shown = append(shown, settingsValue{member.name, value})
		}
	}
	return shown
}

// showPinned returns the names of the settings in the configuration.
func (in *Instance) showPinned(*settings.Active) any { return in.Pinned.Names() }

// showSaved returns the names of the settings that were saved while Caddy ran, also of those that the configuration hides or
// that are left out.
func (in *Instance) showSaved(active *settings.Active) any { return active.Saved }

// showProblems returns the live settings that were saved and are not in force, with the reason.
func (in *Instance) showProblems(active *settings.Active) any {
	if len(active.Problems) == 0 {
		return nil
	}
	var shown []string
	for name, problem := range active.Problems {
		shown = append(shown, name+" is left out: "+problem)
	}
	slices.Sort(shown)
	return shown
}
