package caddyhooks

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// activeSettings are the settings in force, ready for requests: secrets are resolved and templates parsed. Every change of
// the live settings makes a new value.
type activeSettings struct {
	settings       Settings
	rules          *rules
	revision       int64            // of the live settings
	changed        map[string]int64 // the number of the last change of each part of them; see etag
	saved          []string         // the names of settings that are live, whether they are in force or not
	on             bool
	offBecause     string         // why it is not on
	bearer         authentication // of the built-in endpoints
	tokens         auth.Tokens
	defaultTimeout time.Duration
	maxPayload     int64
	memoryPreset   string
	history        time.Duration // how long messages of finished runs are kept
	hooks          map[string]*hook
	gone           map[string]struct{} // names of hooks that there were since the start
	secretHeaders  auth.HeaderNames    // of request headers that must not be logged
	problems       map[string]string   // why live settings and hooks are left out, by the name of the part
	warnings       []warning
}

// compiler makes active settings of those that Caddy's configuration pins and of live ones.
type compiler struct {
	pinned        Settings
	rules         rules
	storeWarnings func() []string   // what the store finds about its own configuration; nil if it does not look
	secrets       map[string]string // resolved secrets by their configured text
	reads         secretReads       // for the settings that are compiled now
}

// compile makes the active settings of the pinned and the live ones. A pinned setting hides a live one. before is what is in force
// now, or nil. A live setting that is refused is an error, unless mayLeaveOut allows to go on without it. mayLeaveOut may be nil.
func (c *compiler) compile(before *activeSettings, live Settings, mayLeaveOut func(p part, err error) bool) (*activeSettings, error) {
	problems := make(map[string]string)
	leaveOut := func(refused part, err error) bool {
		name := refused.String()
		if mayLeaveOut == nil || problems[name] != "" || !mayLeaveOut(refused, err) {
			return false
		}
		problems[name] = err.Error()
		return true
	}
	saved := live.names()
	active, secrets, refused, err := c.compileSettings(before, live)
	for err != nil {
		if refused.setting == nil || !leaveOut(refused, err) {
			return nil, err
		}
		refused.setting.unset(&live)
		active, secrets, refused, err = c.compileSettings(before, live)
	}
	if err := c.compileHooks(active, secrets, leaveOut); err != nil {
		return nil, err
	}
	active.problems, active.saved = problems, saved
	active.noteGone(before)
	if !active.on {
		active.offBecause = c.offBecause(active, &live)
	}
	active.warnings = append(c.warnings(&active.settings), c.warningsAboutHidden(&live)...)
	active.warnings = append(active.warnings, c.warningsAboutChats(active)...)
	active.warnings = append(active.warnings, c.warningsAboutWorkers(active)...)
	active.warnings = append(active.warnings, c.warningsAboutStore()...)
	active.warnings = append(active.warnings, c.warningsAboutFoldMax(active)...)
	return active, nil
}

// warnings looks for mistakes in settings that were compiled.
func (c *compiler) warnings(s *Settings) []warning {
	var tokens []string
	for _, configured := range s.Token {
		if token, err := c.resolve(configured); err == nil {
			tokens = append(tokens, token)
		}
	}
	return warningsAbout(s, &c.pinned, tokens)
}

// compileSettings compiles all but the mappings. It returns the part of the settings that an error is about.
func (c *compiler) compileSettings(before *activeSettings, live Settings) (active *activeSettings, secrets hookSecrets, refused part, err error) {
	settings := defaultSettings(&c.rules).merge(live).merge(c.pinned)
	if err := settings.check(&c.rules); err != nil {
		return nil, hookSecrets{}, partOf(err), err
	}
	active = &activeSettings{
		settings:       settings,
		rules:          &c.rules,
		defaultTimeout: time.Duration(*settings.DefaultTimeoutSeconds) * time.Second,
		maxPayload:     int64(*settings.MaxPayloadSize),
		memoryPreset:   *settings.MemoryPreset,
		history:        time.Duration(*settings.HistorySeconds) * time.Second,
		hooks:          make(map[string]*hook, len(settings.Mappings)),
		secretHeaders:  make(auth.HeaderNames),
	}
	if before != nil {
		// Senders go on signing for a while after their hook is gone.
		active.secretHeaders = maps.Clone(before.secretHeaders)
	}
	active.secretHeaders.Add(senderHeaders()...)
	active.secretHeaders.Add(bearerScheme.secretHeaders(nil)...)
	var tokens []string
	for _, s := range settings.Token {
		token, err := c.resolve(s)
		if err != nil {
			err = fieldErrorf("token", "%v", err)
			return nil, hookSecrets{}, partOf(err), err
		}
		tokens = append(tokens, token)
	}
	secrets = hookSecrets{tokens: auth.NewTokens(tokens...), resolve: c.resolve}
	active.on = *settings.Enabled && !secrets.tokens.Empty()
	active.tokens = secrets.tokens
	active.bearer = authentication{scheme: bearerScheme, verifier: secrets.tokens}
	return active, secrets, part{}, nil
}

// offBecause is the reason why webhooks are off.
func (c *compiler) offBecause(active *activeSettings, live *Settings) string {
	if *active.settings.Enabled {
		if active.problems["token"] != "" {
			return "the token that was saved is left out"
		}
		return "no token is set"
	}
	if active.problems["enabled"] != "" {
		return "enabled was saved and is left out, since there is no runner"
	}
	if c.pinned.Enabled != nil || live.Enabled != nil {
		return "enabled is false"
	}
	if len(active.settings.Token) == 0 {
		return "enabled is not set, and no token is set"
	}
	return "enabled is not set"
}

// noteGone remembers the names of hooks that an earlier configuration or setting had.
func (a *activeSettings) noteGone(before *activeSettings) {
	if before == nil {
		return
	}
	if a.gone == nil {
		a.gone = make(map[string]struct{})
	}
	note := func(name string) {
		if a.hooks[name] == nil && len(a.gone) < maxGone {
			a.gone[name] = struct{}{}
		}
	}
	for name := range before.hooks {
		note(name)
	}
	for name := range before.gone {
		note(name)
	}
}

// maxGone bounds the names that are remembered.
const maxGone = 1000

// whyNoHook says why no hook has a name.
func (a *activeSettings) whyNoHook(name string) *noWebhookError {
	if a.problems[part{mapping: name}.String()] != "" {
		return errHookLeftOut
	}
	if _, ok := a.gone[name]; ok {
		return errHookDeleted
	}
	return errUnknownHook
}

// compileHooks makes hooks of the mappings. The settings are without those that leaveOut allows to go on without.
func (c *compiler) compileHooks(active *activeSettings, secrets hookSecrets, leaveOut func(p part, err error) bool) error {
	merged := active.settings.Mappings
	active.settings.Mappings = merged[:0]
	for i, m := range merged {
		pinned := i < len(c.pinned.Mappings) // which come first
		if active.hooks[m.Name] != nil {
			return fieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		var h *hook
		err := errTooManyHooks
		if len(active.hooks) < maxHooks {
			if h, err = m.compile(&c.rules, secrets); err != nil {
				err = fmt.Errorf("hook %q: %w", text.Abridge(m.Name), inBothWords(err, pinned))
			}
		}
		if err != nil {
			if pinned || !leaveOut(part{mapping: m.Name}, err) {
				return err
			}
			continue
		}
		h.pinned = pinned
		active.hooks[m.Name] = h
		active.settings.Mappings = append(active.settings.Mappings, m)
		active.secretHeaders.Add(h.auth.secretHeaders(&m)...)
	}
	return nil
}

// inBothWords adds the name that a field has in a Caddyfile to an error about a hook of the configuration: whether that was
// a Caddyfile is not known here.
func inBothWords(err error, pinned bool) error {
	var field *fieldError
	if !pinned || !errors.As(err, &field) || caddyfileWords.of(field.field) == field.field {
		return err
	}
	return fieldErrorf(fmt.Sprintf("%s (%s in a Caddyfile)", field.field, caddyfileWords.of(field.field)), "%v", field.problem)
}

// resolve is caddyconf.ResolveSecret, but reads each secret once. So a file that is removed later does not make changes of
// other settings fail.
func (c *compiler) resolve(configured string) (string, error) {
	if secret, ok := c.secrets[configured]; ok {
		return secret, nil
	}
	read, ok := c.reads[configured]
	if !ok {
		read.secret, read.err = caddyconf.ResolveSecret(configured)
	}
	if read.err == nil {
		c.secrets[configured] = read.secret
	}
	return read.secret, read.err
}

// secretReads are the secrets that were read from files for one change of settings, by their configured text.
type secretReads map[string]secretRead

type secretRead struct {
	secret string
	err    error
}

// useSecrets has secrets that were read from files used for live settings. It adds those that have to be read yet to unread.
func (c *compiler) useSecrets(reads secretReads, live *Settings, unread map[string]struct{}) {
	c.reads = reads
	note := func(configured Secrets) {
		for _, text := range configured {
			_, known := c.secrets[text]
			if _, read := reads[text]; !known && !read && caddyconf.NamesFile(text) {
				unread[text] = struct{}{}
			}
		}
	}
	note(live.Token) // those of the configuration were read when it was loaded
	for i := range live.Mappings {
		for _, field := range secretFields {
			note(*field.in(&live.Mappings[i]))
		}
	}
}
