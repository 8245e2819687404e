package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Each field of the page has a link to the place in the documentation that explains it.
func TestFieldsLeadToTheReference(t *testing.T) {
	t.Parallel()
	table := sourceOf(t, "reference.js")
	_, forSettings, _ := strings.Cut(table, "settings: {")
	forSettings, forHooks, _ := strings.Cut(forSettings, "hook: {")
	var names, hookNames []string
	for _, setting := range settings.AllSettings {
		names = append(names, setting.JSONName())
	}
	for _, name := range settings.MappingFields {
		if !slices.Contains([]string{"message", "pinned", "warnings"}, name) { // which the page does not edit
			hookNames = append(hookNames, name)
		}
	}
	anchors := make(map[string][]string)
	place := regexp.MustCompile(`(?m)^\t\t(\w+): "([^"#]+)#([^"]+)",$`)
	for _, part := range []struct {
		table  string
		fields []string
	}{{forSettings, names}, {forHooks, hookNames}} {
		var linked []string
		for _, m := range place.FindAllStringSubmatch(part.table, -1) {
			linked = append(linked, m[1])
			if anchors[m[2]] == nil {
				anchors[m[2]] = anchorsOf(t, m[2])
			}
			if !slices.Contains(anchors[m[2]], m[3]) {
				t.Errorf("%s leads to %s, which has no place %s", m[1], m[2], m[3])
			}
		}
		slices.Sort(linked)
		slices.Sort(part.fields)
		if !slices.Equal(linked, part.fields) {
			t.Errorf("there are links for\n%s\nand the fields are\n%s", linked, part.fields)
		}
	}
	// The editor has no other fields than those of a hook.
	for _, m := range regexp.MustCompile(`(?m)^\t(?:add|all\.set)\("(\w+)"`).FindAllStringSubmatch(sourceOf(t, "fields.js"), -1) {
		if !slices.Contains(hookNames, m[1]) {
			t.Errorf("the editor has a field %s, which no hook has", m[1])
		}
	}
}

func sourceOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("assets", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchorsOf are the places of a page of the reference that a link can name: its headings, and the rows that have an id.
func anchorsOf(t *testing.T, page string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "reference", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		if slices.Contains(names, m[1]) {
			t.Errorf("%s has two places %s", page, m[1])
		}
		names = append(names, m[1])
	}
	return names
}
