package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, changesVerb)
}

func changesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes [--limit N]",
		Short: "Lists who changed the live settings, and how",
		Long: `
Lists the changes of the live settings and saved hooks, the newest first: when, by whom, from where, and the values before and after. Secrets
are told as set, replaced or removed. Changes of the Caddyfile are not among them.`,
		Example: `  caddy hooks changes
  caddy hooks changes --limit 1 --json`,
		Args: takesNone,
		RunE: errandVerb(runChanges),
	}
	limitFlag(cmd, "changes")
	return cmd
}

func runChanges(e *errand, cmd *cobra.Command, _ []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	clock, table := newClock(), e.screen.Rows("WHEN", "BY", "VIA", "WHAT", "CHANGE")
	none := "The live settings were not changed yet. caddy hooks set and caddy hooks dashboard change them."
	return showList(e, listing{part: "changes", member: "changes", limit: limit}, none, func(changes []api.Change) {
		var rows [][]terminal.Text
		for _, c := range changes {
			when, by, via := clock.when(c.At), c.By, c.Via
			for _, part := range c.Changes {
				what := name(&part)
				for _, line := range lines(&part) {
					rows = append(rows, []terminal.Text{terminal.Plain(when), terminal.Plain(by), terminal.Plain(via), terminal.Plain(what), terminal.Plain(line)})
					when, by, via, what = "", "", "", "" // said above
				}
			}
			if c.More > 0 {
				rows = append(rows, []terminal.Text{{}, {}, {}, terminal.Plain("…"), terminal.Plain(fmt.Sprintf("and %d more", c.More))})
			}
		}
		table.Print(rows...)
	})
}

// name is the setting, or the hook as in "hook github-issues".
func name(p *api.ChangedPart) string {
	if name, ok := strings.CutPrefix(p.What, settings.PartName("")); ok {
		return "hook " + name
	}
	return p.What
}

// lines tell how a part was changed: a setting on one line, each field of a hook on its own.
func lines(p *api.ChangedPart) []string {
	had, has := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	was, is := isObject(p.Before, &had), isObject(p.After, &has)
	switch {
	case isNull(p.Before) && is:
		return append([]string{"added"}, fieldLines(nil, has)...)
	case isNull(p.After) && was:
		return []string{"removed"}
	case was && is:
		return fieldLines(had, has)
	default:
		return []string{beforeAndAfter(p.Before, p.After)}
	}
}

func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

func isObject(raw json.RawMessage, members *map[string]json.RawMessage) bool {
	return bytes.HasPrefix(raw, []byte("{")) && json.Unmarshal(raw, members) == nil
}

// fieldLines tell how the fields of a hook were changed.
func fieldLines(had, has map[string]json.RawMessage) (lines []string) {
	names := maps.Clone(had)
	if names == nil {
		names = make(map[string]json.RawMessage)
	}
	maps.Copy(names, has)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if had == nil {
			lines = append(lines, name+": "+shortText(valueWords(has[name]), maxReasonCell))
		} else {
			lines = append(lines, name+": "+beforeAndAfter(had[name], has[name]))
		}
	}
	return lines
}

func beforeAndAfter(before, after json.RawMessage) string {
	return shortText(valueWords(before), maxReasonCell/2) + " → " + shortText(valueWords(after), maxReasonCell/2)
}

// valueWords is a value as it is read: JSON, but for one that is not there.
func valueWords(raw json.RawMessage) string {
	if isNull(raw) {
		return "not set"
	}
	return string(text.CompactJSON(raw))
}
