package caddyhooks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// patch sets one of the live settings. null sets it back to its default.
func (in *instance) patch(live *Settings, member strictjson.Member) error {
	null := member.Value == nil
	set := func(target any, wanted string) error {
		if json.Unmarshal(member.Raw, target) != nil {
			return fieldErrorf(member.Key, "must be %s, or null for its default", wanted)
		}
		return nil
	}
	var err error
	var pinned bool
	switch member.Key {
	case "enabled":
		var v *bool
		err = set(&v, "true or false")
		pinned = in.pinned.Enabled != nil && !same(v, in.pinned.Enabled)
		live.Enabled = v
	case "defaultTimeoutSeconds":
		var v *int
		err = set(&v, "a whole number")
		pinned = in.pinned.DefaultTimeoutSeconds != nil && !same(v, in.pinned.DefaultTimeoutSeconds)
		live.DefaultTimeoutSeconds = v
	case "maxPayloadSize":
		var v *Size
		err = set(&v, "a number of bytes or as in \"64KB\"")
		pinned = in.pinned.MaxPayloadSize != nil && !same(v, in.pinned.MaxPayloadSize)
		live.MaxPayloadSize = v
	case "memoryPreset":
		var v *string
		err = set(&v, "a string")
		pinned = in.pinned.MemoryPreset != nil && !same(v, in.pinned.MemoryPreset)
		live.MemoryPreset = v
	case "token":
		var v Secrets
		if !null {
			err = set(&v, "a string or an array of strings")
		}
		if err == nil {
			v, err = unmaskTokens(v, live.merge(in.pinned).Token)
		}
		pinned = in.pinned.Token != nil && !sameSecrets(v, in.pinned.Token)
		live.Token = v
	case "mappings":
		var all []Mapping
		if all, err = parseMappings(member); err == nil {
			live.Mappings, err = in.replaceMappings(live.Mappings, all)
		}
	case "pinned", "problems": // what GET shows may be sent back
	default:
		return fieldErrorf(member.Key, "is unknown; settings are enabled, token, defaultTimeoutSeconds, maxPayloadSize, memoryPreset and mappings")
	}
	if err == nil && pinned {
		return conflictf("%s is set by Caddy's configuration, and can only be changed there", member.Key)
	}
	in.unsetPinned(live)
	return err
}

// unsetPinned takes out of the live settings what the configuration sets anyway, so that it does not come into force
// by surprise when it is taken out of the configuration.
func (in *instance) unsetPinned(live *Settings) {
	if in.pinned.Enabled != nil {
		live.Enabled = nil
	}
	if in.pinned.Token != nil {
		live.Token = nil
	}
	if in.pinned.DefaultTimeoutSeconds != nil {
		live.DefaultTimeoutSeconds = nil
	}
	if in.pinned.MaxPayloadSize != nil {
		live.MaxPayloadSize = nil
	}
	if in.pinned.MemoryPreset != nil {
		live.MemoryPreset = nil
	}
}

func same[T comparable](a, b *T) bool { return a != nil && b != nil && *a == *b }

// replaceMappings makes all the mappings there are, with the pinned ones among them as they are.
func (in *instance) replaceMappings(live, all []Mapping) ([]Mapping, error) {
	var replaced []Mapping
	for _, m := range all {
		if indexMapping(replaced, m.Name) >= 0 {
			return nil, fieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		isNew, err := in.takeMapping(&m, live)
		if err != nil {
			return nil, err
		}
		if isNew {
			replaced = append(replaced, m)
		}
	}
	for _, pinned := range in.pinned.Mappings {
		if indexMapping(all, pinned.Name) < 0 {
			return nil, pinnedHook(pinned.Name)
		}
	}
	return replaced, nil
}

// takeMapping puts the secret that is meant into a mapping that was sent, and reports whether the mapping can be stored:
// one that the configuration sets can only be confirmed.
func (in *instance) takeMapping(m *Mapping, live []Mapping) (store bool, err error) {
	i := indexMapping(in.pinned.Mappings, m.Name)
	known := live
	if i >= 0 {
		known = in.pinned.Mappings
	}
	if m.HMACSecret == mask {
		k := indexMapping(known, m.Name)
		if k < 0 || known[k].HMACSecret == "" {
			return false, fieldErrorf("hmacSecret", "must be the secret itself: there is none yet that a mask could stand for")
		}
		m.HMACSecret = known[k].HMACSecret
	}
	if i < 0 {
		return true, nil
	}
	if !sameMapping(*m, in.pinned.Mappings[i]) {
		return false, pinnedHook(m.Name)
	}
	return false, nil
}

func pinnedHook(name string) error {
	return conflictf("the hook %s is set by Caddy's configuration, and can only be changed there", name)
}

// shownSettings and shownMapping are what the API shows: all that is in force, with masks for secrets, and what of it
// cannot be changed here.
type shownSettings struct {
	Enabled               bool           `json:"enabled"`
	Token                 Secrets        `json:"token"`
	DefaultTimeoutSeconds int            `json:"defaultTimeoutSeconds"`
	MaxPayloadSize        Size           `json:"maxPayloadSize"`
	MemoryPreset          string         `json:"memoryPreset"`
	Mappings              []shownMapping `json:"mappings"`
	Pinned                []string       `json:"pinned"`
	Problems              []string       `json:"problems,omitempty"` // what was saved and is not in force
}

type shownMapping struct {
	Mapping
	Pinned bool `json:"pinned,omitempty"`
}

func (in *instance) showSettings() shownSettings {
	v := in.view.Load()
	s := v.settings
	shown := shownSettings{
		Enabled: *s.Enabled, DefaultTimeoutSeconds: *s.DefaultTimeoutSeconds, MaxPayloadSize: *s.MaxPayloadSize,
		MemoryPreset: *s.MemoryPreset, Mappings: []shownMapping{}, Pinned: []string{},
	}
	for range s.Token {
		shown.Token = append(shown.Token, mask)
	}
	for _, m := range s.Mappings {
		shown.Mappings = append(shown.Mappings, m.shown(v.hooks[m.Name].pinned))
	}
	for name, pinned := range map[string]bool{
		"enabled":               in.pinned.Enabled != nil,
		"token":                 in.pinned.Token != nil,
		"defaultTimeoutSeconds": in.pinned.DefaultTimeoutSeconds != nil,
		"maxPayloadSize":        in.pinned.MaxPayloadSize != nil,
		"memoryPreset":          in.pinned.MemoryPreset != nil,
	} {
		if pinned {
			shown.Pinned = append(shown.Pinned, name)
		}
	}
	slices.Sort(shown.Pinned)
	for name, problem := range v.problems {
		shown.Problems = append(shown.Problems, name+" is left out: "+problem)
	}
	slices.Sort(shown.Problems)
	return shown
}

func parseMappings(member strictjson.Member) ([]Mapping, error) {
	if member.Value == nil {
		return nil, nil
	}
	var raws []json.RawMessage
	if json.Unmarshal(member.Raw, &raws) != nil {
		return nil, fieldErrorf("mappings", "must be an array of mappings")
	}
	all := make([]Mapping, len(raws))
	for i, raw := range raws {
		var err error
		if all[i], err = parseMapping(raw); err != nil {
			return nil, fmt.Errorf("mapping %d: %w", i+1, err)
		}
	}
	return all, nil
}
