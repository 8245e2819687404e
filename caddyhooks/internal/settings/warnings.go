package settings

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Warning is about a setting or a hook that is allowed, and probably a mistake.
type Warning struct {
	Part Part
	Text string
}

func (w Warning) String() string { return w.Part.String() + ": " + w.Text }

// Split returns what is wrong, and what to do about it or why, which may be "".
func (w Warning) Split() (problem, advice string) {
	const shortest = 24 // a shorter beginning is the name of a field
	for at := shortest; at+1 < len(w.Text); at++ {
		if w.Text[at:at+2] == ": " && w.Text[at-1:min(at+3, len(w.Text))] != `": "` { // and not that of a JSON member
			return w.Text[:at], w.Text[at+2:]
		}
	}
	return w.Text, ""
}

// whichOf names one of several values of a field.
func whichOf(name string, values []string, isMeant func(string) bool) string {
	if len(values) == 1 {
		return name
	}
	return fmt.Sprintf("%s %d of %d", strings.TrimPrefix(name, "the "), 1+slices.IndexFunc(values, isMeant), len(values))
}

// warningsAbout looks for mistakes in the settings in force. tokens are the resolved tokens.
func warningsAbout(s *Settings, tokens []string) []Warning {
	var found []Warning
	if *s.Enabled && len(tokens) == 0 {
		found = append(found, Warning{Part{setting: findSetting("enabled")}, "there is no token, so webhooks stay off and answer 404: " +
			"write 'token <secret>' in the Caddyfile, or set the token with the admin API"})
	}
	if isShort := func(token string) bool { return utf8.RuneCountInString(token) < minToken }; slices.ContainsFunc(tokens, isShort) {
		found = append(found, Warning{Part{setting: findSetting("token")},
			fmt.Sprintf("%s has fewer than %d characters and can be guessed: use a long random one, for example from: openssl rand -hex 32",
				whichOf("the token", tokens, isShort), minToken)})
	}
	if slices.ContainsFunc(s.Token, likeShellVariable.MatchString) {
		found = append(found, Warning{Part{setting: findSetting("token")},
			whichOf("the token", s.Token, likeShellVariable.MatchString) + " " + takenAsWritten})
	}
	for i := range s.Mappings {
		m := &s.Mappings[i]
		for _, text := range m.FindWarnings() {
			found = append(found, Warning{Part{Mapping: m.Name}, text})
		}
	}
	return found
}

// minToken is the fewest characters that a token should have.
const minToken = 16

// likeShellVariable matches secrets that a shell would replace by an environment variable.
var likeShellVariable = regexp.MustCompile(`^\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)$`)

const takenAsWritten = "begins with $ and is taken as it is written: write {env.NAME} for an environment variable"

// FindWarnings looks for mistakes in a mapping.
func (m *Mapping) FindWarnings() []string {
	var found []string
	if ignored := m.ignoredByWake(); len(ignored) > 0 {
		why := ""
		if m.Action == "" {
			why = ", because it sets no action"
		}
		found = append(found, fmt.Sprintf("%s for agent hooks alone, and this is a wake hook%s: set action to agent, or leave %s out",
			isOrAre(ignored), why, itOrThem(ignored)))
	} else if idle := m.ignoredWithoutDeliver(); len(idle) > 0 {
		found = append(found, fmt.Sprintf("%s ignored without deliver: set deliver to true, or leave %s out", isOrAre(idle), itOrThem(idle)))
	}
	if m.Message != "" && m.MessageTemplate == "" {
		found = append(found, "message is ignored: the text for the agent is messageTemplate")
	}
	found = append(found, m.warningsAboutTemplates()...)
	for _, field := range []struct{ name, text string }{
		{"respondBody", m.RespondBody}, {"callbackUrl", m.CallbackURL}, {"metadata", string(m.Metadata)},
	} {
		if hint := notReplaced(field.text); hint != "" {
			found = append(found, bothNames(field.name)+" has "+hint)
		}
	}
	for _, word := range MisspeltKeywords(m.ResponseJSONSchema) {
		problem := fmt.Sprintf("%s has %q, an unknown keyword that is ignored", bothNames("responseJsonSchema"), word.Written)
		if word.Meant != "" {
			problem += ": did you mean " + word.Meant + "?"
		}
		found = append(found, problem)
	}
	if m.RespondStatus != 0 && m.Action == engine.Agent && m.SyncResponse {
		found = append(found, fmt.Sprintf("%s is ignored with %s: callers get the reply of the agent", bothNames("respondStatus"),
			bothNames("syncResponse")))
	}
	found = append(found, m.warningsAboutIntake()...)
	found = append(found, m.warningsAboutAuth()...)
	return append(append(found, m.warningsAboutFold()...), m.warningsAboutOverlap()...)
}

// notReplaced says that a text which is no template has a placeholder in it, "" if it has none.
func notReplaced(text string) string {
	found, _ := template.DoubleBraces(text)
	if parsed, err := template.Parse(text); err == nil {
		found = cmp.Or(parsed.FirstPlaceholder(), found)
	} else {
		found = beginsExpression.FindString(text)
	}
	if found == "" {
		return ""
	}
	return found + ", which is not replaced: it is the same for all requests"
}

// beginsExpression matches the beginning of a placeholder with a JSONPath expression.
var beginsExpression = regexp.MustCompile(`\{ *\$[!-~]{0,40}`)

// usedByWake are the fields of agent requests that wake hooks use, too.
var usedByWake = []string{"chatId", "queueTimeSeconds", "metadata"}

// ignoredByWake returns the names of fields that are set in a wake hook, and have no effect there.
func (m *Mapping) ignoredByWake() (names []string) {
	if m.Action == engine.Agent {
		return nil
	}
	add := func(field string) {
		if name := bothNames(field); !slices.Contains(names, name) {
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
	if m.Progress != "" {
		add("progress")
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
	if m.Progress != "" {
		names = append(names, "progress")
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

// MaxLoggedWarnings bounds the lines that one change of the settings logs.
const MaxLoggedWarnings = 20

// warningsAboutHidden looks for saved hooks that the configuration hides. One that is the same as the hook of the configuration
// was copied there, and is no mistake.
func (c *Compiler) warningsAboutHidden(live *Settings) []Warning {
	var found []Warning
	pinned := MappingsByName(c.Pinned.Mappings)
	for i := range live.Mappings {
		m := &live.Mappings[i]
		if by := pinned[m.Name]; by != nil && !SameMapping(m, by) {
			found = append(found, Warning{Part{Mapping: m.Name}, "the saved hook of this name is not used: the Caddyfile has one, too"})
		}
	}
	return found
}

// warningsAboutStore returns what the store finds about its own configuration.
func (c *Compiler) warningsAboutStore() (found []Warning) {
	if c.StoreWarnings == nil {
		return nil
	}
	for _, text := range c.StoreWarnings() {
		found = append(found, Warning{Part{option: "store"}, text})
	}
	return found
}

// WarningsOfHook returns the warnings about one hook.
func (a *Active) WarningsOfHook(name string) []string {
	var found []string
	for _, w := range a.Warnings {
		if w.Part.setting == nil && w.Part.Mapping == name {
			found = append(found, w.String())
		}
	}
	return found
}

// HookWorkers are how many runs of hooks are carried out at once, of those hooks that say so.
func (a *Active) HookWorkers() map[string]int {
	limits := make(map[string]int)
	for name, h := range a.Hooks {
		if h.Workers > 0 {
			limits[name] = h.Workers
		}
	}
	return limits
}

// warningsAboutWorkers looks for hooks with as many workers as the instance, which is no limit.
func (c *Compiler) warningsAboutWorkers(active *Active) (found []Warning) {
	for i := range active.Settings.Mappings {
		if m := &active.Settings.Mappings[i]; m.Workers >= c.Rules.Workers {
			found = append(found, Warning{Part{Mapping: m.Name},
				fmt.Sprintf("workers is %d and limits nothing: the instance has %d workers for all hooks", m.Workers, c.Rules.Workers)})
		}
	}
	return found
}
