// Package settings has the webhook settings and the mappings: how they are written in a Caddyfile and in JSON, checked, merged, and
// compiled into what a request needs: [Active] with its [Hook]s. Schemes of authentication, conditions, limits and warnings
// belong to it. To add a setting, see AllSettings; to add a sender, see Senders;
// to add another scheme, write a file like scheme_token.go.
//
// It imports auth, template, caddyconf, contract and text, and nothing that runs.
package settings

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

	// How long a run may take if neither its request nor its hook sets a time. Default: 300.
	DefaultTimeoutSeconds *int `json:"defaultTimeoutSeconds,omitempty"`

	// The largest body of a request to a custom hook, in bytes or as in "64KB". Default: 64KB.
	MaxPayloadSize *Size `json:"maxPayloadSize,omitempty"`

	// The memory preset of runs whose request or hook names none. Default: "disabled".
	MemoryPreset *string `json:"memoryPreset,omitempty"`

	// How long the message, the metadata and the schema of a finished run are kept; 0 keeps none. At most retention, which
	// is the default.
	HistorySeconds *int `json:"historySeconds,omitempty"`

	// How long requests that became no run are kept, with their headers and the beginning of their body, but without secrets; 0 keeps
	// none. At most a day. Default: 0.
	KeepRefusedSeconds *int `json:"keepRefusedSeconds,omitempty"`

	// How runs of the built-in wake are folded: runs that come within a time of each other are carried out in one turn. Default:
	// not at all.
	WakeFold *WakeFold `json:"wakeFold,omitempty"`

	// The custom hooks, at most 10000.
	Mappings []Mapping `json:"mappings,omitempty"`

	// What an operator has paused. Configurations have none, and SavedSettings stores it.
	Pauses []Pause `json:"-"`

	// The warnings that an operator has dismissed. As with Pauses.
	Dismissals []Dismissal `json:"-"`
}

// Size is a number of bytes. In JSON and in a Caddyfile it can be written as in "64KB", which is 65536.
type Size = caddyconf.Size

// AllSettings describes every setting but the mappings. To add a setting, add a field to Settings and an entry here: the
// Caddyfile, the configuration, the admin API and the stored live settings take it from this table.
var AllSettings = []Setting{
	SettingOf[*bool]{
		name: "enabled", directive: "enabled",
		page:     PageField{"Webhooks", "", "switch"},
		field:    func(s *Settings) **bool { return &s.Enabled },
		read:     caddyconf.Pointer(caddyconf.Present),
		jsonType: "true or false",
		fallback: func(*Rules) *bool { return new(false) },
		check: func(enabled *bool, r *Rules) error {
			if !*enabled {
				return nil
			}
			return r.Runners.Check()
		},
	},
	SettingOf[Secrets]{
		name: "token", directive: "token",
		page:     PageField{"Token", "For wake, agent and hooks that take the token", "token"},
		field:    func(s *Settings) *Secrets { return &s.Token },
		read:     func(d *caddyfile.Dispenser) (Secrets, error) { return caddyconf.Secrets(d) },
		jsonType: "a string or an array of strings",
		equal:    sameSecrets,
		show:     func(tokens Secrets) any { return tokens.masked() },
		unmask:   unmaskTokens,
		check: func(tokens Secrets, _ *Rules) error {
			if slices.ContainsFunc(tokens, beginsWithBearer) {
				return errors.New("must not begin with the word Bearer: leave it out, callers send it before the token")
			}
			return nil
		},
	},
	SettingOf[*int]{
		name: "defaultTimeoutSeconds", directive: "default_timeout",
		page:     PageField{"Time limit of a run", "In seconds, unless the hook sets one", "seconds"},
		field:    func(s *Settings) **int { return &s.DefaultTimeoutSeconds },
		read:     caddyconf.Pointer(caddyconf.Seconds),
		jsonType: "a whole number",
		fallback: func(r *Rules) *int { return new(min(300, r.MaxSeconds())) },
		check: func(timeout *int, r *Rules) error {
			if *timeout < 1 || *timeout > r.MaxSeconds() {
				return fmt.Errorf("must be from 1 to %s", inSeconds(r.MaxSeconds()))
			}
			return nil
		},
	},
	SettingOf[*Size]{
		name: "maxPayloadSize", directive: "max_payload",
		page:     PageField{"Largest body of a hook", "Such as 64 KB", "size"},
		field:    func(s *Settings) **Size { return &s.MaxPayloadSize },
		read:     caddyconf.Pointer(caddyconf.Bytes(MaxPayloadLimit >> 20)),
		jsonType: `a number of bytes or as in "64KB"`,
		fallback: func(*Rules) *Size { return new(Size(64 << 10)) },
		check:    func(size *Size, r *Rules) error { return checkPayloadSize(*size, r) },
	},
	SettingOf[*string]{
		name: "memoryPreset", directive: "memory_preset",
		page:     PageField{"Memory preset", "Unless the hook sets one", "preset"},
		field:    func(s *Settings) **string { return &s.MemoryPreset },
		read:     caddyconf.Pointer(caddyconf.Word),
		jsonType: "a string",
		fallback: func(*Rules) *string { return new(engine.MemoryDisabled) },
		check: func(preset *string, _ *Rules) error {
			if !slices.Contains(MemoryPresets, *preset) {
				return fmt.Errorf("must be one of %s", strings.Join(MemoryPresets, ", "))
			}
			return nil
		},
	},
	SettingOf[*int]{
		name: "historySeconds", directive: "history",
		page:     PageField{"History", "How long the messages of runs are kept", "history"},
		field:    func(s *Settings) **int { return &s.HistorySeconds },
		read:     caddyconf.Pointer(readHistory),
		jsonType: "a whole number",
		fallback: func(r *Rules) *int { return new(r.RetentionSeconds()) },
		check:    func(seconds *int, r *Rules) error { return checkHistory(*seconds, r.RetentionSeconds(), "retention") },
	},
	SettingOf[*int]{
		name: "keepRefusedSeconds", directive: "keep_refused",
		page:     PageField{"Keep refused requests", "In seconds, such as 3600, with headers and the start of the body. 0: off", "seconds"},
		field:    func(s *Settings) **int { return &s.KeepRefusedSeconds },
		read:     caddyconf.Pointer(readHistory),
		jsonType: "a whole number",
		fallback: func(*Rules) *int { return new(0) },
		check: func(seconds *int, _ *Rules) error {
			if *seconds < 0 || *seconds > maxKeepRefused {
				return fmt.Errorf("must be from 0 to %d, which is a day", maxKeepRefused)
			}
			return nil
		},
	},
	SettingOf[*WakeFold]{
		name: "wakeFold", directive: "wake_fold",
		page:     PageField{"Folding of wake", "Seconds, and the most runs in one turn, such as 30 50. Blank: off", "fold"},
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
func checkPayloadSize(size Size, r *Rules) error {
	if size < 1 || size > MaxPayloadLimit {
		return fmt.Errorf("must be from 1 byte to %s", humanize.IBytes(MaxPayloadLimit))
	}
	if r.MaxMemory > 0 && size > r.MaxMemory/MemoryPerByte {
		return fmt.Errorf("must not be larger than an eighth of max_memory, which is %s", humanize.IBytes(uint64(r.MaxMemory)))
	}
	return nil
}

// MemoryPerByte is how much memory a byte of a request takes until the request is stored. It is in the body, in the message, and in the
// record and the pages of the store. The garbage collector lets the heap grow to twice of what is in use.
const MemoryPerByte = 8

// MaxPayloadLimit is the largest max_payload and max_request, since bodies are read into memory.
const MaxPayloadLimit = 64 << 20

// maxKeepRefused is how long refused requests are kept at most, in seconds.
const maxKeepRefused = 24 * 60 * 60

// Setting is an entry of AllSettings.
type Setting interface {
	// JSONName is the name of the setting in JSON.
	JSONName() string
	// CaddyfileDirective reads the setting from a Caddyfile.
	CaddyfileDirective(s *Settings) caddyconf.Directive
	IsSet(s *Settings) bool
	Unset(s *Settings)
	setDefault(s *Settings, r *Rules)
	// Copy takes over the value of another Settings.
	Copy(to, from *Settings)
	Same(a, b *Settings) bool
	checkIn(s *Settings, r *Rules) error
	// ShownIn is the value for the admin API, with secrets masked.
	ShownIn(s *Settings) any
	// Page says how a page shows the setting.
	Page() PageField
	// Change is the value before and after a change, for the list of changes.
	Change(before, after *Settings) (was, is any)
	// Parse reads the value from JSON, where null unsets it. A mask stands for the secret that is in force.
	Parse(s *Settings, raw []byte, inForce *Settings) error
}

// SettingOf describes a setting by its type, whose zero value means unset.
type SettingOf[T any] struct {
	name      string              // in JSON
	directive string              // in a Caddyfile
	field     func(*Settings) *T  // the place of the value
	read      caddyconf.Reader[T] // reads the value from a Caddyfile
	jsonType  string              // describes the value in JSON, for errors
	page      PageField

	// Optional.
	fallback func(*Rules) T                   // the default
	check    func(T, *Rules) error            // the error follows the name of the setting
	equal    func(a, b T) bool                // default: reflect.DeepEqual
	show     func(T) any                      // masks secrets
	unmask   func(sent, inForce T) (T, error) // puts secrets in the places of masks
}

// PageField is a setting on a page: its label, a hint below, and the kind of input, which is a member of inputs in
// dashboard/assets/settings.js.
type PageField struct{ Label, Hint, Input string }

func (e SettingOf[T]) JSONName() string { return e.name }

func (e SettingOf[T]) Page() PageField { return e.page }

func (e SettingOf[T]) CaddyfileDirective(s *Settings) caddyconf.Directive {
	return caddyconf.Set(e.directive, e.field(s), e.read)
}

func (e SettingOf[T]) IsSet(s *Settings) bool { return !reflect.ValueOf(e.field(s)).Elem().IsZero() }

func (e SettingOf[T]) Unset(s *Settings) { e.Copy(s, new(Settings)) }

func (e SettingOf[T]) setDefault(s *Settings, r *Rules) {
	if e.fallback != nil {
		*e.field(s) = e.fallback(r)
	}
}

func (e SettingOf[T]) Copy(to, from *Settings) { *e.field(to) = *e.field(from) }

func (e SettingOf[T]) Same(a, b *Settings) bool {
	if e.equal != nil {
		return e.equal(*e.field(a), *e.field(b))
	}
	return reflect.DeepEqual(*e.field(a), *e.field(b))
}

func (e SettingOf[T]) checkIn(s *Settings, r *Rules) error {
	if e.check == nil || !e.IsSet(s) {
		return nil
	}
	if err := e.check(*e.field(s), r); err != nil {
		return FieldErrorf(e.name, "%v", err)
	}
	return nil
}

func (e SettingOf[T]) ShownIn(s *Settings) any {
	if e.show != nil {
		return e.show(*e.field(s))
	}
	return *e.field(s)
}

func (e SettingOf[T]) Parse(s *Settings, raw []byte, inForce *Settings) error {
	var value T
	if json.Unmarshal(raw, &value) != nil {
		return FieldErrorf(e.name, "must be %s, or null for its default", e.jsonType)
	}
	if e.unmask != nil {
		var err error
		if value, err = e.unmask(value, *e.field(inForce)); err != nil {
			return FieldErrorf(e.name, "%v", err)
		}
	}
	*e.field(s) = value
	return nil
}

// Names are the names of the settings that are set, but for the mappings.
func (s *Settings) Names() []string {
	names := []string{} // none are [] in JSON
	for _, e := range AllSettings {
		if e.IsSet(s) {
			names = append(names, e.JSONName())
		}
	}
	slices.Sort(names)
	return names
}

// findSetting returns the setting with a name in JSON, nil if there is none.
func findSetting(name string) Setting {
	for _, e := range AllSettings {
		if e.JSONName() == name {
			return e
		}
	}
	return nil
}

// defaultSettings are the settings in force where nothing is set.
func defaultSettings(r *Rules) Settings {
	var s Settings
	for _, e := range AllSettings {
		e.setDefault(&s, r)
	}
	return s
}

// Check checks all settings but the mappings.
func (s *Settings) Check(r *Rules) error {
	for _, e := range AllSettings {
		if err := e.checkIn(s, r); err != nil {
			return err
		}
	}
	return nil
}

// Merge returns the settings with those that are set in over in their places. Mappings are joined, those of over first.
func (s Settings) Merge(over Settings) Settings {
	for _, e := range AllSettings {
		if e.IsSet(&over) {
			e.Copy(&s, &over)
		}
	}
	mappings := slices.Clone(over.Mappings)
	taken := MappingsByName(mappings)
	for i, m := range s.Mappings {
		if taken[m.Name] == nil {
			taken[m.Name] = &s.Mappings[i]
			mappings = append(mappings, m)
		}
	}
	s.Mappings = mappings
	if over.Pauses != nil {
		s.Pauses = over.Pauses
	}
	if over.Dismissals != nil {
		s.Dismissals = over.Dismissals
	}
	return s
}

// Part is a piece of the live settings that can be left out on its own: a setting or a mapping.
type Part struct {
	setting Setting
	Mapping string // if setting is nil
	option  string // of the configuration alone, such as store; then the others are not set
}

// String is the name of the part in problems and logs.
func (p Part) String() string {
	if p.option != "" {
		return p.option
	}
	if p.setting != nil {
		return p.setting.JSONName()
	}
	return "hook " + p.Mapping
}

// partOf returns the setting that an error is about.
func partOf(err error) Part {
	var field *FieldError
	if errors.As(err, &field) {
		return Part{setting: findSetting(field.Field)}
	}
	return Part{}
}

// SameParts returns a function that reports whether a part is the same in both settings.
func SameParts(a, b *Settings) func(Part) bool {
	mappingsOfA := sync.OnceValue(func() map[string]*Mapping { return MappingsByName(a.Mappings) })
	mappingsOfB := sync.OnceValue(func() map[string]*Mapping { return MappingsByName(b.Mappings) })
	return func(p Part) bool {
		if p.setting != nil {
			return p.setting.Same(a, b)
		}
		x, y := mappingsOfA()[p.Mapping], mappingsOfB()[p.Mapping]
		if x == nil || y == nil {
			return x == y
		}
		return SameMapping(x, y)
	}
}

// Change returns the values of a setting that was changed. Of secrets it tells only that.
func (e SettingOf[T]) Change(before, after *Settings) (was, is any) {
	was, is = *e.field(before), *e.field(after)
	if secrets, ok := was.(Secrets); ok {
		return ChangedSecrets(secrets, is.(Secrets))
	}
	return was, is
}

// ChangedSecrets tells what was done to secrets: "set" if some were added, "removed" if some were taken out, or "replaced".
func ChangedSecrets(before, after Secrets) (was, is any) {
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
