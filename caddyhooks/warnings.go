package caddyhooks

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// warning is about a setting or a hook that is allowed, and probably a mistake.
type warning struct {
	part part
	text string
}

func (w warning) String() string { return w.part.String() + ": " + w.text }

// warningsAbout looks for mistakes in the settings in force. Each is told in the words of the one who made it: those of a
// Caddyfile for what is pinned, those of JSON for the rest. tokens are the resolved tokens.
func warningsAbout(s, pinned *Settings, tokens []string) []warning {
	var found []warning
	wordsOf := func(setting string) words {
		if findSetting(setting).isSet(pinned) {
			return caddyfileWords
		}
		return jsonWords
	}
	if *s.Enabled && len(tokens) == 0 {
		found = append(found, warning{part{setting: findSetting("enabled")}, "there is no token, so webhooks stay off and answer 404: " +
			byWords{"set token", "write 'token <secret>', or set the token with the admin API"}.in(wordsOf("enabled"))})
	}
	if slices.ContainsFunc(tokens, func(token string) bool { return utf8.RuneCountInString(token) < minToken }) {
		found = append(found, warning{part{setting: findSetting("token")},
			fmt.Sprintf("a token of fewer than %d characters can be guessed: use a long random one, for example from: openssl rand -hex 32", minToken)})
	}
	if slices.ContainsFunc(s.Token, likeShellVariable.MatchString) {
		found = append(found, warning{part{setting: findSetting("token")}, "a token " + takenAsWritten})
	}
	for i := range s.Mappings {
		m, w := &s.Mappings[i], jsonWords
		if i < len(pinned.Mappings) { // which come first
			w = caddyfileWords
		}
		for _, text := range m.warnings(w) {
			found = append(found, warning{part{mapping: m.Name}, text})
		}
	}
	return found
}

// minToken is the fewest characters that a token should have.
const minToken = 16

// likeShellVariable matches secrets that a shell would replace by an environment variable.
var likeShellVariable = regexp.MustCompile(`^\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)$`)

const takenAsWritten = "begins with $ and is taken as it is written: write {env.NAME} for an environment variable"

// warnings looks for mistakes in a mapping.
func (m *Mapping) warnings(w words) []string {
	var found []string
	if ignored := m.ignoredByWake(w); len(ignored) > 0 {
		why := ""
		if m.Action == "" {
			why = ", because it sets no action"
		}
		found = append(found, fmt.Sprintf("%s for agent hooks alone, and this is a wake hook%s: %s, or leave %s out", isOrAre(ignored), why,
			byWords{`set action to "agent"`, "write 'action agent'"}.in(w), itOrThem(ignored)))
	} else if idle := m.ignoredWithoutDeliver(); len(idle) > 0 {
		found = append(found, fmt.Sprintf("%s ignored without deliver: set deliver to true, or leave %s out", isOrAre(idle), itOrThem(idle)))
	}
	if m.Message != "" && m.MessageTemplate == "" {
		found = append(found, "message is ignored: the text for the agent is messageTemplate")
	}
	for _, field := range []struct{ name, text string }{{"messageTemplate", m.MessageTemplate}, {"chatId", m.ChatID}} {
		if braces, meant := template.DoubleBraces(field.text); braces != "" {
			found = append(found, fmt.Sprintf("%s has %s, which is not replaced: write %s", w.of(field.name), braces,
				cmp.Or(meant, "a path in one pair of braces, such as {issue.title}")))
		}
		if open := template.UnclosedBrace(field.text); open != "" {
			found = append(found, fmt.Sprintf("%s has a brace without its end: %s is not replaced; write %s}", w.of(field.name), open, open))
		}
		if parsed, err := template.Parse(field.text); err == nil {
			for _, warning := range append(parsed.Warnings(), m.warningsAboutSources(parsed)...) {
				found = append(found, w.of(field.name)+": "+warning)
			}
		}
	}
	for _, field := range []struct{ name, text string }{{"to", m.To}, {"respondBody", m.RespondBody}} {
		if hint := notReplaced(field.text); hint != "" {
			found = append(found, w.of(field.name)+" has "+hint)
		}
	}
	for _, word := range misspeltKeywords(m.ResponseJSONSchema) {
		found = append(found, fmt.Sprintf("%s has %q, which is no keyword and is ignored: did you mean %s?", w.of("responseJsonSchema"), word.written, word.meant))
	}
	if m.RespondStatus != 0 && m.Action == engine.Agent && m.SyncResponse {
		found = append(found, fmt.Sprintf("%s is ignored with %s: callers get the reply of the agent", w.of("respondStatus"), w.of("syncResponse")))
	}
	found = append(found, m.warningsAboutIntake()...)
	found = append(found, m.warningsAboutAuth(w)...)
	return append(found, m.warningsAboutFold(w)...)
}

// notReplaced says that a text which is no template has a placeholder in it, "" if it has none.
func notReplaced(text string) string {
	parsed, err := template.Parse(text)
	if err != nil || parsed.FirstPlaceholder() == "" {
		return ""
	}
	return parsed.FirstPlaceholder() + ", which is not replaced: it is the same for all requests"
}

// usedByWake are the fields of agent requests that wake hooks use, too.
var usedByWake = []string{"chatId", "queueTimeSeconds", "metadata"}

// ignoredByWake returns the names of fields that are set in a wake hook, and have no effect there.
func (m *Mapping) ignoredByWake(w words) (names []string) {
	if m.Action == engine.Agent {
		return nil
	}
	add := func(field string) {
		if name := w.of(field); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	fields := reflect.ValueOf(m.AgentFields)
	for field, value := range fields.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !value.IsZero() && !slices.Contains(usedByWake, name) {
			add(name)
		}
	}
	if m.Untrusted != "" {
		add("untrusted")
	}
	return names
}

// ignoredWithoutDeliver returns the names of fields that have no effect, since deliver is not set. In a Caddyfile one line
// sets all of them.
func (m *Mapping) ignoredWithoutDeliver() (names []string) {
	if m.Deliver {
		return nil
	}
	if m.Channel != "" {
		names = append(names, "channel")
	}
	if m.To != "" {
		names = append(names, "to")
	}
	return names
}

func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return text.List(names) + " are"
}

func itOrThem(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}

// maxLoggedWarnings bounds the lines that one change of the settings logs.
const maxLoggedWarnings = 20

// logWarnings logs the warnings that were not there before.
func (in *instance) logWarnings(before, now []warning) {
	known := make(map[string]bool, len(before))
	for _, w := range before {
		known[w.String()] = true
	}
	logged := 0
	for _, w := range now {
		switch {
		case known[w.String()]:
			continue
		case logged < maxLoggedWarnings:
			in.log.Warn("a setting is probably a mistake", zap.Stringer("setting", w.part), zap.String("warning", w.text))
		}
		logged++
	}
	if logged > maxLoggedWarnings {
		in.log.Warn("more settings are probably mistakes; GET /hooks/settings on the admin endpoint lists all",
			zap.Int("more", logged-maxLoggedWarnings))
	}
}

// warningsAboutHidden looks for saved hooks that the configuration hides. One that is the same as the hook of the configuration
// was copied there, and is no mistake.
func (c *compiler) warningsAboutHidden(live *Settings) []warning {
	var found []warning
	pinned := mappingsByName(c.pinned.Mappings)
	for i := range live.Mappings {
		m := &live.Mappings[i]
		if by := pinned[m.Name]; by != nil && !sameMapping(m, by) {
			found = append(found, warning{part{mapping: m.Name}, "the saved hook of this name is not used: the Caddyfile has one, too"})
		}
	}
	return found
}

// warningsAboutStore returns what the store finds about its own configuration.
func (c *compiler) warningsAboutStore() (found []warning) {
	if c.storeWarnings == nil {
		return nil
	}
	for _, text := range c.storeWarnings() {
		found = append(found, warning{part{option: "store"}, text})
	}
	return found
}

// warningsWhenLoaded returns the warnings about a configuration that is not started yet, and those that a start may find to be
// wrong: a token that is missing may be among the live settings.
func (in *instance) warningsWhenLoaded(active *activeSettings) (certain, unstarted []warning) {
	for _, w := range active.warnings {
		if w.part.String() == "enabled" {
			w.text = "unless a token was saved while Caddy ran, " + w.text
			unstarted = append(unstarted, w)
		} else {
			certain = append(certain, w)
		}
	}
	return certain, unstarted
}

// showWarnings returns the warnings about the settings in force.
func (in *instance) showWarnings(active *activeSettings) any {
	if len(active.warnings) == 0 {
		return nil
	}
	return showAll(active.warnings, warning.String)
}

// warningsOfHook returns the warnings about one hook.
func (a *activeSettings) warningsOfHook(name string) []string {
	var found []string
	for _, w := range a.warnings {
		if w.part.setting == nil && w.part.mapping == name {
			found = append(found, w.String())
		}
	}
	return found
}
