package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// Settings are the webhook settings. Caddy's configuration and the admin API set them. A setting in the configuration is
// pinned. The others are live: the admin API changes them while Caddy runs.
type Settings struct {
	// Whether webhooks are on. That needs a runner. Without a token they stay off. Default: false.
	Enabled *bool `json:"enabled,omitempty"`

	// The bearer token, or a list of tokens while one replaces another.
	Token Secrets `json:"token,omitempty"`

	// How long a run may take if neither its request nor its mapping sets a time. Default: 300.
	DefaultTimeoutSeconds *int `json:"defaultTimeoutSeconds,omitempty"`

	// The largest body of a request to a custom hook, in bytes or as in "64KB". Default: 64KB.
	MaxPayloadSize *Size `json:"maxPayloadSize,omitempty"`

	// The memory preset of runs whose request or mapping names none. Default: "disabled".
	MemoryPreset *string `json:"memoryPreset,omitempty"`

	// How long the message, the metadata and the schema of a finished run are kept; 0 keeps none. At most retention, which
	// is the default.
	HistorySeconds *int `json:"historySeconds,omitempty"`

	// How runs of the built-in wake are folded: runs that come within a time of each other are carried out in one turn. Default:
	// not at all.
	WakeFold *WakeFold `json:"wakeFold,omitempty"`

	// The custom hooks, at most 10000.
	Mappings []Mapping `json:"mappings,omitempty"`
}

// Size is a number of bytes. In JSON and in a Caddyfile it can be written as in "64KB", which is 65536.
type Size = caddyconf.Size

// allSettings describes every setting but the mappings. To add a setting, add a field to Settings and an entry here: the
// Caddyfile, the configuration, the admin API and the stored live settings take it from this table.
var allSettings = []setting{
	settingOf[*bool]{
		name: "enabled", directive: "enabled",
		field:    func(s *Settings) **bool { return &s.Enabled },
		read:     caddyconf.Pointer(caddyconf.Present),
		jsonType: "true or false",
		fallback: func(*rules) *bool { return new(false) },
		check: func(enabled *bool, r *rules) error {
			if !*enabled {
				return nil
			}
			return r.runners.check()
		},
	},
	settingOf[Secrets]{
		name: "token", directive: "token",
		field:    func(s *Settings) *Secrets { return &s.Token },
		read:     func(d *caddyfile.Dispenser) (Secrets, error) { return caddyconf.Secrets(d) },
		jsonType: "a string or an array of strings",
		equal:    sameSecrets,
		show:     func(tokens Secrets) any { return tokens.masked() },
		unmask:   unmaskTokens,
	},
	settingOf[*int]{
		name: "defaultTimeoutSeconds", directive: "default_timeout",
		field:    func(s *Settings) **int { return &s.DefaultTimeoutSeconds },
		read:     caddyconf.Pointer(caddyconf.Seconds),
		jsonType: "a whole number",
		fallback: func(r *rules) *int { return new(min(300, r.maxSeconds())) },
		check: func(timeout *int, r *rules) error {
			if *timeout < 1 || *timeout > r.maxSeconds() {
				return problemf("must be from %v to %v", seconds(1), seconds(r.maxSeconds()))
			}
			return nil
		},
	},
	settingOf[*Size]{
		name: "maxPayloadSize", directive: "max_payload",
		field:    func(s *Settings) **Size { return &s.MaxPayloadSize },
		read:     caddyconf.Pointer(caddyconf.Bytes(maxPayloadLimit >> 20)),
		jsonType: `a number of bytes or as in "64KB"`,
		fallback: func(*rules) *Size { return new(Size(64 << 10)) },
		check:    func(size *Size, r *rules) error { return checkPayloadSize(*size, r) },
	},
	settingOf[*string]{
		name: "memoryPreset", directive: "memory_preset",
		field:    func(s *Settings) **string { return &s.MemoryPreset },
		read:     caddyconf.Pointer(caddyconf.Word),
		jsonType: "a string",
		fallback: func(*rules) *string { return new(engine.MemoryDisabled) },
		check: func(preset *string, _ *rules) error {
			if !slices.Contains(memoryPresets, *preset) {
				return fmt.Errorf("must be one of %s", strings.Join(memoryPresets, ", "))
			}
			return nil
		},
	},
	settingOf[*int]{
		name: "historySeconds", directive: "history",
		field:    func(s *Settings) **int { return &s.HistorySeconds },
		read:     caddyconf.Pointer(readHistory),
		jsonType: "a whole number",
		fallback: func(r *rules) *int { return new(r.retentionSeconds()) },
		check:    func(seconds *int, r *rules) error { return checkHistory(*seconds, r.retentionSeconds(), "retention") },
	},
	settingOf[*WakeFold]{
		name: "wakeFold", directive: "wake_fold",
		field:    func(s *Settings) **WakeFold { return &s.WakeFold },
		read:     caddyconf.Pointer(readFold),
		jsonType: `an object as in {"seconds": 5, "max": 50}`,
		check:    (*WakeFold).check,
		show: func(fold *WakeFold) any {
			if fold == nil {
				return nil
			}
			return fold
		},
	},
}

// checkPayloadSize checks the largest body of all custom hooks, or of one.
func checkPayloadSize(size Size, r *rules) error {
	if size < 1 || size > maxPayloadLimit {
		return fmt.Errorf("must be from 1 byte to %s", humanize.IBytes(maxPayloadLimit))
	}
	if r.maxMemory > 0 && size > r.maxMemory {
		return fmt.Errorf("must not be larger than max_memory, which is %s", humanize.IBytes(uint64(r.maxMemory)))
	}
	return nil
}

// maxPayloadLimit is the largest max_payload and max_request, since bodies are read into memory.
const maxPayloadLimit = 64 << 20

// setting is an entry of allSettings.
type setting interface {
	// jsonName is the name of the setting in JSON.
	jsonName() string
	// caddyfileDirective reads the setting from a Caddyfile.
	caddyfileDirective(s *Settings) caddyconf.Directive
	isSet(s *Settings) bool
	unset(s *Settings)
	setDefault(s *Settings, r *rules)
	// copy takes over the value of another Settings.
	copy(to, from *Settings)
	same(a, b *Settings) bool
	checkIn(s *Settings, r *rules) error
	// shownIn is the value for the admin API, with secrets masked.
	shownIn(s *Settings) any
	// change is the value before and after a change, for the list of changes.
	change(before, after *Settings) (was, is any)
	// parse reads the value from JSON, where null unsets it. A mask stands for the secret that is in force.
	parse(s *Settings, raw []byte, inForce *Settings) error
}

// settingOf describes a setting by its type, whose zero value means unset.
type settingOf[T any] struct {
	name      string              // in JSON
	directive string              // in a Caddyfile
	field     func(*Settings) *T  // the place of the value
	read      caddyconf.Reader[T] // reads the value from a Caddyfile
	jsonType  string              // describes the value in JSON, for errors

	// Optional.
	fallback func(*rules) T                   // the default
	check    func(T, *rules) error            // the error follows the name of the setting
	equal    func(a, b T) bool                // default: reflect.DeepEqual
	show     func(T) any                      // masks secrets
	unmask   func(sent, inForce T) (T, error) // puts secrets in the places of masks
}

func (e settingOf[T]) jsonName() string { return e.name }

func (e settingOf[T]) caddyfileDirective(s *Settings) caddyconf.Directive {
	return caddyconf.Set(e.directive, e.field(s), e.read)
}

func (e settingOf[T]) isSet(s *Settings) bool { return !reflect.ValueOf(e.field(s)).Elem().IsZero() }

func (e settingOf[T]) unset(s *Settings) { e.copy(s, new(Settings)) }

func (e settingOf[T]) setDefault(s *Settings, r *rules) {
	if e.fallback != nil {
		*e.field(s) = e.fallback(r)
	}
}

func (e settingOf[T]) copy(to, from *Settings) { *e.field(to) = *e.field(from) }

func (e settingOf[T]) same(a, b *Settings) bool {
	if e.equal != nil {
		return e.equal(*e.field(a), *e.field(b))
	}
	return reflect.DeepEqual(*e.field(a), *e.field(b))
}

func (e settingOf[T]) checkIn(s *Settings, r *rules) error {
	if e.check == nil || !e.isSet(s) {
		return nil
	}
	if err := e.check(*e.field(s), r); err != nil {
		return fieldErrorf(e.name, "%v", err)
	}
	return nil
}

func (e settingOf[T]) shownIn(s *Settings) any {
	if e.show != nil {
		return e.show(*e.field(s))
	}
	return *e.field(s)
}

func (e settingOf[T]) parse(s *Settings, raw []byte, inForce *Settings) error {
	var value T
	if json.Unmarshal(raw, &value) != nil {
		return fieldErrorf(e.name, "must be %s, or null for its default", e.jsonType)
	}
	if e.unmask != nil {
		var err error
		if value, err = e.unmask(value, *e.field(inForce)); err != nil {
			return fieldErrorf(e.name, "%v", err)
		}
	}
	*e.field(s) = value
	return nil
}

// names are the names of the settings that are set, but for the mappings.
func (s *Settings) names() []string {
	names := []string{} // none are [] in JSON
	for _, e := range allSettings {
		if e.isSet(s) {
			names = append(names, e.jsonName())
		}
	}
	slices.Sort(names)
	return names
}

// findSetting returns the setting with a name in JSON, nil if there is none.
func findSetting(name string) setting {
	for _, e := range allSettings {
		if e.jsonName() == name {
			return e
		}
	}
	return nil
}

// defaultSettings are the settings in force where nothing is set.
func defaultSettings(r *rules) Settings {
	var s Settings
	for _, e := range allSettings {
		e.setDefault(&s, r)
	}
	return s
}

// check checks all settings but the mappings.
func (s *Settings) check(r *rules) error {
	for _, e := range allSettings {
		if err := e.checkIn(s, r); err != nil {
			return err
		}
	}
	return nil
}

// merge returns the settings with those that are set in over in their places. Mappings are joined, those of over first.
func (s Settings) merge(over Settings) Settings {
	for _, e := range allSettings {
		if e.isSet(&over) {
			e.copy(&s, &over)
		}
	}
	mappings := slices.Clone(over.Mappings)
	taken := mappingsByName(mappings)
	for i, m := range s.Mappings {
		if taken[m.Name] == nil {
			taken[m.Name] = &s.Mappings[i]
			mappings = append(mappings, m)
		}
	}
	s.Mappings = mappings
	return s
}

// part is a piece of the live settings that can be left out on its own: a setting or a mapping.
type part struct {
	setting setting
	mapping string // if setting is nil
	option  string // of the configuration alone, such as store; then the others are not set
}

// String is the name of the part in problems and logs.
func (p part) String() string {
	if p.option != "" {
		return p.option
	}
	if p.setting != nil {
		return p.setting.jsonName()
	}
	return "hook " + p.mapping
}

// partOf returns the setting that an error is about.
func partOf(err error) part {
	var field *fieldError
	if errors.As(err, &field) {
		return part{setting: findSetting(field.field)}
	}
	return part{}
}

// sameParts returns a function that reports whether a part is the same in both settings.
func sameParts(a, b *Settings) func(part) bool {
	mappingsOfA := sync.OnceValue(func() map[string]*Mapping { return mappingsByName(a.Mappings) })
	mappingsOfB := sync.OnceValue(func() map[string]*Mapping { return mappingsByName(b.Mappings) })
	return func(p part) bool {
		if p.setting != nil {
			return p.setting.same(a, b)
		}
		x, y := mappingsOfA()[p.mapping], mappingsOfB()[p.mapping]
		if x == nil || y == nil {
			return x == y
		}
		return sameMapping(x, y)
	}
}
