package settings

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lastuse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Active are the settings in force, ready for requests: secrets are resolved and templates parsed. Every change of
// the live settings makes a new value.
type Active struct {
	Settings       Settings
	Rules          *Rules
	Revision       int64            // of the live settings
	Changed        map[string]int64 // the number of the last change of each part of them; see etag
	Saved          []string         // the names of settings that are live, whether they are in force or not
	On             bool
	OffBecause     string         // why it is not on
	Bearer         Authentication // of the built-in endpoints
	Tokens         auth.Tokens
	DefaultTimeout time.Duration
	maxPayload     int64
	MemoryPreset   string
	KeepRefused    time.Duration // how long requests that became no run are kept
	History        time.Duration // how long messages of finished runs are kept
	Hooks          map[string]*Hook
	Gone           map[string]struct{} // names of hooks that there were since the start
	SecretHeaders  auth.HeaderNames    // of request headers that must not be logged
	secretTexts    *secretTexts
	Problems       map[string]string // why live settings and hooks are left out, by the name of the part
	Warnings       []Warning
}

// Compiler makes active settings of those that Caddy's configuration pins and of live ones.
type Compiler struct {
	Pinned        Settings
	Rules         Rules
	StoreWarnings func() []string   // what the store finds about its own configuration; nil if it does not look
	Secrets       map[string]string // resolved secrets by their configured text
	Uses          *lastuse.Book     // of secrets; nil if nobody uses them
	Issuers       *oidc.Issuers     // of tokens; nil if no request is verified
	reads         SecretReads       // for the settings that are compiled now
}

// Compile makes the active settings of the pinned and the live ones. A pinned setting hides a live one. before is what is in force
// now, or nil. A live setting that is refused is an error, unless mayLeaveOut allows to go on without it. mayLeaveOut may be nil.
func (c *Compiler) Compile(before *Active, live Settings, mayLeaveOut func(p Part, err error) bool) (*Active, error) {
	problems := make(map[string]string)
	leaveOut := func(refused Part, err error) bool {
		name := refused.String()
		if mayLeaveOut == nil || problems[name] != "" || !mayLeaveOut(refused, err) {
			return false
		}
		problems[name] = err.Error()
		return true
	}
	saved := live.Names()
	active, secrets, refused, err := c.compileSettings(before, live)
	for err != nil {
		if refused.setting == nil || !leaveOut(refused, err) {
			return nil, err
		}
		refused.setting.Unset(&live)
		active, secrets, refused, err = c.compileSettings(before, live)
	}
	if err := c.compileHooks(active, secrets, leaveOut); err != nil {
		return nil, err
	}
	active.Problems, active.Saved = problems, saved
	active.NoteGone(before)
	if !active.On {
		active.OffBecause = c.offBecause(active, &live)
	}
	active.Warnings = append(c.warnings(&active.Settings), c.warningsAboutHidden(&live)...)
	active.Warnings = append(active.Warnings, c.warningsAboutChats(active)...)
	active.Warnings = append(active.Warnings, c.warningsAboutProgress(active)...)
	active.Warnings = append(active.Warnings, c.warningsAboutButtons(active)...)
	active.Warnings = append(active.Warnings, c.warningsAboutWorkers(active)...)
	active.Warnings = append(active.Warnings, c.warningsAboutStore()...)
	active.Warnings = append(active.Warnings, c.warningsAboutFoldMax(active)...)
	return active, nil
}

// warnings looks for mistakes in settings that were compiled.
func (c *Compiler) warnings(s *Settings) []Warning {
	var tokens []string
	for _, configured := range s.Token {
		if token, err := c.resolve(configured); err == nil {
			tokens = append(tokens, token)
		}
	}
	return warningsAbout(s, tokens)
}

// compileSettings compiles all but the mappings. It returns the part of the settings that an error is about.
func (c *Compiler) compileSettings(before *Active, live Settings) (active *Active, secrets HookSecrets, refused Part, err error) {
	settings := defaultSettings(&c.Rules).Merge(live).Merge(c.Pinned)
	if err := settings.Check(&c.Rules); err != nil {
		return nil, HookSecrets{}, partOf(err), err
	}
	active = &Active{
		Settings:       settings,
		Rules:          &c.Rules,
		DefaultTimeout: time.Duration(*settings.DefaultTimeoutSeconds) * time.Second,
		maxPayload:     int64(*settings.MaxPayloadSize),
		MemoryPreset:   *settings.MemoryPreset,
		History:        time.Duration(*settings.HistorySeconds) * time.Second,
		KeepRefused:    time.Duration(*settings.KeepRefusedSeconds) * time.Second,
		Hooks:          make(map[string]*Hook, len(settings.Mappings)),
		SecretHeaders:  make(auth.HeaderNames),
	}
	if before != nil {
		// Senders go on signing for a while after their hook is gone.
		active.SecretHeaders = maps.Clone(before.SecretHeaders)
	}
	active.SecretHeaders.Add(senderHeaders()...)
	active.SecretHeaders.Add(BearerScheme.SecretHeaders(nil)...)
	active.SecretHeaders.Add(PushTokenHeaders...)
	active.SecretHeaders.Add(accessHeader)
	active.secretTexts = newSecretTexts()
	resolve := active.secretTexts.noting(c.resolve)
	var tokens []string
	for _, s := range settings.Token {
		token, err := resolve(s)
		if err != nil {
			err = FieldErrorf("token", "%v", err)
			return nil, HookSecrets{}, partOf(err), err
		}
		tokens = append(tokens, token)
	}
	secrets = HookSecrets{Tokens: auth.NewTokens(tokens...), Resolve: resolve, uses: c.Uses, ofToken: c.Uses.FindAll(lastuse.OfAll, tokens)}
	if c.Issuers != nil {
		secrets.keysOf = func(issuer, keysURL string) oidc.Keys { return c.Issuers.Of(issuer, keysURL, c.Rules.Guard.Fetch) }
	}
	active.On = *settings.Enabled && !secrets.Tokens.Empty()
	active.Tokens = secrets.Tokens
	active.Bearer = Authentication{Scheme: BearerScheme, Verifier: secrets.Tokens, Secrets: secrets.ofToken}
	return active, secrets, Part{}, nil
}

// offBecause is the reason why webhooks are off.
func (c *Compiler) offBecause(active *Active, live *Settings) string {
	if *active.Settings.Enabled {
		if active.Problems["token"] != "" {
			return "the token that was saved is left out"
		}
		return "no token is set"
	}
	if active.Problems["enabled"] != "" {
		return "enabled was saved and is left out, since there is no runner"
	}
	if c.Pinned.Enabled != nil || live.Enabled != nil {
		return "enabled is false"
	}
	if len(active.Settings.Token) == 0 {
		return "enabled is not set, and no token is set"
	}
	return "enabled is not set"
}

// NoteGone remembers the names of hooks that an earlier configuration or setting had.
func (a *Active) NoteGone(before *Active) {
	if before == nil {
		return
	}
	if a.Gone == nil {
		a.Gone = make(map[string]struct{})
	}
	note := func(name string) {
		if a.Hooks[name] == nil && len(a.Gone) < maxGone {
			a.Gone[name] = struct{}{}
		}
	}
	for name := range before.Hooks {
		note(name)
	}
	for name := range before.Gone {
		note(name)
	}
}

// maxGone bounds the names that are remembered.
const maxGone = 1000

// compileHooks makes hooks of the mappings. The settings are without those that leaveOut allows to go on without.
func (c *Compiler) compileHooks(active *Active, secrets HookSecrets, leaveOut func(p Part, err error) bool) error {
	merged := active.Settings.Mappings
	active.Settings.Mappings = merged[:0]
	for i, m := range merged {
		pinned := i < len(c.Pinned.Mappings) // which come first
		if active.Hooks[m.Name] != nil {
			return FieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		var h *Hook
		err := errTooManyHooks()
		if len(active.Hooks) < MaxHooks {
			if h, err = m.Compile(&c.Rules, secrets); err != nil {
				err = fmt.Errorf("hook %q: %w", text.Abridge(m.Name), WithBothNames(err, pinned))
			}
		}
		if err != nil {
			if pinned || !leaveOut(Part{Mapping: m.Name}, err) {
				return err
			}
			continue
		}
		h.Pinned = pinned
		active.Hooks[m.Name] = h
		active.Settings.Mappings = append(active.Settings.Mappings, m)
		active.SecretHeaders.Add(h.Auth.SecretHeaders(&m)...)
	}
	return nil
}

// WithBothNames adds the name that a field has in a Caddyfile to an error about a hook of the configuration: whether that was
// a Caddyfile is not known here.
func WithBothNames(err error, pinned bool) error {
	var field *FieldError
	if !pinned || !errors.As(err, &field) || bothNames(field.Field) == field.Field {
		return err
	}
	return &FieldError{bothNames(field.Field), field.Problem}
}

// resolve is caddyconf.ResolveSecret, but reads each secret once. So a file that is removed later does not make changes of
// other settings fail.
func (c *Compiler) resolve(configured string) (string, error) {
	if secret, ok := c.Secrets[configured]; ok {
		return secret, nil
	}
	read, ok := c.reads[configured]
	if !ok {
		read.Secret, read.Err = caddyconf.ResolveSecret(configured)
	}
	if read.Err == nil {
		c.Secrets[configured] = read.Secret
	}
	return read.Secret, read.Err
}

// SecretReads are the secrets that were read from files for one change of settings, by their configured text.
type SecretReads map[string]SecretRead

type SecretRead struct {
	Secret string
	Err    error
}

// UseSecrets has secrets that were read from files used for live settings. It adds those that have to be read yet to unread.
func (c *Compiler) UseSecrets(reads SecretReads, live *Settings, unread map[string]struct{}) {
	c.reads = reads
	note := func(configured Secrets) {
		for _, text := range configured {
			_, known := c.Secrets[text]
			if _, read := reads[text]; !known && !read && caddyconf.NamesFile(text) {
				unread[text] = struct{}{}
			}
		}
	}
	note(live.Token) // those of the configuration were read when it was loaded
	for i := range live.Mappings {
		for _, field := range SecretFields {
			note(*field.In(&live.Mappings[i]))
		}
	}
}
