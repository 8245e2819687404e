package caddyhooks

import (
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// Settings are what an operator sets about webhooks. The same type serves Caddy's configuration, where whatever is set
// is pinned, and the admin API, where the rest can be changed while Caddy runs.
type Settings struct {
	// Whether webhooks are on. They stay off, too, as long as there is no token. Default: false.
	Enabled *bool `json:"enabled,omitempty"`

	// The bearer token, or a list of tokens while one is being replaced by another.
	Token Secrets `json:"token,omitempty"`

	// How long a run may take when neither its request nor its mapping says. Default: 300.
	DefaultTimeoutSeconds *int `json:"defaultTimeoutSeconds,omitempty"`

	// The largest body that a custom hook takes, in bytes or as in "64KB". Default: 64KB.
	MaxPayloadSize *Size `json:"maxPayloadSize,omitempty"`

	// The memory preset of runs whose request or mapping names none. Default: "disabled".
	MemoryPreset *string `json:"memoryPreset,omitempty"`

	// The custom hooks.
	Mappings []Mapping `json:"mappings,omitempty"`
}

// check looks at the settings other than the mappings.
func (s *Settings) check(r *rules) error {
	longest := int(r.maxTimeout / time.Second)
	if t := s.DefaultTimeoutSeconds; t != nil && (*t < 1 || *t > longest) {
		return fieldErrorf("defaultTimeoutSeconds", "must be from 1 to %d", longest)
	}
	if size := s.MaxPayloadSize; size != nil && (*size < 1 || *size > maxMaxPayload) {
		return fieldErrorf("maxPayloadSize", "must be from 1 byte to %s", humanize.IBytes(maxMaxPayload))
	}
	if p := s.MemoryPreset; p != nil && (*p == "" || oneOf("memoryPreset", *p, memoryPresets) != nil) {
		return fieldErrorf("memoryPreset", "must be one of %s", strings.Join(memoryPresets, ", "))
	}
	return nil
}

// maxMaxPayload bounds the bound, since bodies are read into memory.
const maxMaxPayload = 64 << 20

// merge returns the settings with what over has set laid on top. Mappings are joined, those of over first.
func (s Settings) merge(over Settings) Settings {
	if over.Enabled != nil {
		s.Enabled = over.Enabled
	}
	if over.Token != nil {
		s.Token = over.Token
	}
	if over.DefaultTimeoutSeconds != nil {
		s.DefaultTimeoutSeconds = over.DefaultTimeoutSeconds
	}
	if over.MaxPayloadSize != nil {
		s.MaxPayloadSize = over.MaxPayloadSize
	}
	if over.MemoryPreset != nil {
		s.MemoryPreset = over.MemoryPreset
	}
	mappings := slices.Clone(over.Mappings)
	for _, m := range s.Mappings {
		if indexMapping(mappings, m.Name) < 0 {
			mappings = append(mappings, m)
		}
	}
	s.Mappings = mappings
	return s
}

// without returns the settings with one of them unset, or without a hook.
func (s Settings) without(name string) Settings {
	switch name {
	case "token":
		s.Token = nil
	case "defaultTimeoutSeconds":
		s.DefaultTimeoutSeconds = nil
	case "maxPayloadSize":
		s.MaxPayloadSize = nil
	case "memoryPreset":
		s.MemoryPreset = nil
	default:
		s.Mappings = slices.DeleteFunc(slices.Clone(s.Mappings), func(m Mapping) bool { return hookProblem(m.Name) == name })
	}
	return s
}

// setting returns one of the settings, or a hook, by the name that without takes.
func (s Settings) setting(name string) any {
	switch name {
	case "token":
		return s.Token
	case "defaultTimeoutSeconds":
		return s.DefaultTimeoutSeconds
	case "maxPayloadSize":
		return s.MaxPayloadSize
	case "memoryPreset":
		return s.MemoryPreset
	default:
		return slices.DeleteFunc(slices.Clone(s.Mappings), func(m Mapping) bool { return hookProblem(m.Name) != name })
	}
}

// defaultSettings is what holds where nobody set anything.
func defaultSettings(r *rules) Settings {
	return Settings{
		Enabled:               new(false),
		DefaultTimeoutSeconds: new(min(300, int(r.maxTimeout/time.Second))),
		MaxPayloadSize:        new(Size(64 << 10)),
		MemoryPreset:          new(engine.MemoryDisabled),
	}
}

// Size is a number of bytes. In JSON and in a Caddyfile it can be written as in "64KB", which is 65536.
type Size = caddyconf.Size
