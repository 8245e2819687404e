package settings

import (
	"cmp"
	"fmt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// warningsAboutIntake looks for mistakes in what decides which requests become runs. What cannot be parsed is an error elsewhere.
func (m *Mapping) warningsAboutIntake() (found []string) {
	hidden := (&Hook{Mapping: *m}).HiddenHeaders()
	for _, list := range []struct {
		field string
		lines []string
	}{{"only", m.Only}, {"skip", m.Skip}} {
		for _, line := range list.lines {
			condition, err := template.ParseCondition(line)
			if err != nil {
				continue
			}
			source := condition.Source()
			if source.Kind == "header" && hidden.Has(source.Name) {
				found = append(found, fmt.Sprintf("%s: the header %s may carry a secret, so it is always missing in conditions: auth checks callers",
					list.field, source.Name))
			}
			switch mistake := condition.Warning(m.Body == "form"); {
			case mistake == "":
			case condition.NeedsBody():
				found = append(found, fmt.Sprintf("%s %s: %s", list.field, text.Abridge(line), mistake))
			default: // without the values, of which one may be a secret
				found = append(found, fmt.Sprintf("%s %s %s: %s", list.field, source.Kind, source.Name, mistake))
			}
		}
	}
	each, err := template.ParseEach(m.Each)
	if err != nil {
		return found
	}
	if mistake := each.Warning(m.Body == "form"); mistake != "" {
		found = append(found, fmt.Sprintf("each %s: %s", text.Abridge(m.Each), mistake))
	}
	if each.Single() {
		found = append(found, fmt.Sprintf("each %s leads to one place, so a request is one run: write %[1]s[*] for a run of each item",
			text.Abridge(m.Each)))
	}
	return found
}

// warningsAboutTemplates looks for mistakes in all templates of a mapping.
func (m *Mapping) warningsAboutTemplates() (found []string) {
	type field struct{ name, text string }
	templates := []field{{"messageTemplate", m.MessageTemplate}, {"chatId", m.ChatID}, {"once", m.Once}, {"rateBy", m.RateBy}}
	if m.Deliver {
		templates = append(templates, field{"to", m.To})
	}
	for _, b := range m.Budgets {
		templates = append(templates, field{"budgets", b.By})
	}
	for _, a := range m.Ask {
		templates = append(templates, field{"ask", a.First})
	}
	for _, field := range templates {
		if braces, meant := template.DoubleBraces(field.text); braces != "" {
			found = append(found, fmt.Sprintf("%s has %s, which is not replaced: write %s", bothNames(field.name), braces,
				cmp.Or(meant, "a path in one pair of braces, such as {issue.title}")))
		}
		if open := template.UnclosedBrace(field.text); open != "" {
			found = append(found, fmt.Sprintf("%s has a brace without its end: %s is not replaced; write %s}", bothNames(field.name), open, open))
		}
		if parsed, err := template.Parse(field.text); err == nil {
			for _, warning := range append(parsed.Warnings(), m.warningsAboutSources(parsed)...) {
				found = append(found, bothNames(field.name)+": "+warning)
			}
		}
	}
	return found
}

// warningsAboutSources looks for sources of a template that are never there.
func (m *Mapping) warningsAboutSources(parsed *template.Template) (found []string) {
	hidden := (&Hook{Mapping: *m}).HiddenHeaders()
	for _, source := range parsed.Sources() {
		if source.Kind == "header" && hidden.Has(source.Name) {
			found = append(found, fmt.Sprintf("{%s} is always missing: the header may carry a secret", source))
		}
	}
	if m.Each == "" && parsed.ReadsRoot() {
		found = append(found, "@root is for hooks with each: without it, {a} is a key of the body, and {@root.a} is missing")
	}
	return found
}
