package cli

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, listVerb)
}

func listVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--range 1h|6h|24h|7d]",
		Short: "Lists the hooks",
		Long: `
Lists the hooks: wake and agent, those of the Caddyfile, and those that were saved while Caddy ran. Beside each it says how callers
authenticate, how many runs were accepted and how many failed in the range of time, and when the last one was accepted. A hook that is gone
and had runs is listed, too.`,
		Example: `  caddy hooks list
  caddy hooks list --range 7d --json | jq '.[] | select(.failed > 0)'`,
		Args: takesNone,
		RunE: errandVerb(runList),
	}
	rangeFlag(cmd, "24h")
	return cmd
}

// listedHook is a row of the list, and how it is printed as JSON.
type listedHook struct {
	Name     string        `json:"name"`             // "" for hooks that are too many to be counted each on its own
	Action   engine.Action `json:"action,omitempty"` // none if the hook is gone
	AuthMode string        `json:"authMode,omitempty"`
	Pinned   bool          `json:"pinned,omitempty"` // in the Caddyfile
	Accepted int64         `json:"accepted"`
	Failed   int64         `json:"failed"`
	LastAt   *time.Time    `json:"lastAt,omitempty"`
}

func runList(e *errand, cmd *cobra.Command, _ []string) error {
	during, err := rangeOf(cmd)
	if err != nil {
		return err
	}
	hooks, overview, err := e.listHooks(during)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(text.PlainJSON(hooks))
	}
	clock := newClock()
	var rows [][]terminal.Text
	for _, h := range hooks {
		action, failed := terminal.Plain(string(h.Action)), terminal.Plain(withCommas(h.Failed))
		if h.Action == "" {
			action = terminal.Faint("gone")
		}
		if h.Failed > 0 {
			failed = terminal.Bad(withCommas(h.Failed))
		}
		rows = append(rows, []terminal.Text{terminal.Plain(cmp.Or(h.Name, "(others)")), action, terminal.Plain(h.AuthMode),
			terminal.Plain(withCommas(h.Accepted)), failed, terminal.Plain(clock.when(h.LastAt))})
	}
	e.screen.Table([]string{"HOOK", "ACTION", "AUTH", "RUNS " + during, "FAILED", "LAST"}, rows)
	for _, need := range overview.Needs {
		if need.Kind == "not_in_force" {
			e.screen.Note("! %s: %s", need.Text, need.Detail)
		}
	}
	if len(hooks) == len(builtInHooks) {
		e.screen.Note("There are no hooks of your own yet. Add one to the Caddyfile, or with caddy hooks dashboard.")
	}
	return nil
}

// builtInHooks are always there.
var builtInHooks = []listedHook{
	{Name: "wake", Action: engine.Wake, AuthMode: settings.BearerScheme.Name},
	{Name: "agent", Action: engine.Agent, AuthMode: settings.BearerScheme.Name},
}

// listHooks lists all hooks with their figures, those that had runs and are gone at the end.
func (e *errand) listHooks(during string) (hooks []listedHook, overview overviewTold, err error) {
	var mappings []settings.ShownMapping
	if _, err := e.get("mappings", nil, &mappings); err != nil {
		return nil, overview, err
	}
	if _, err := e.get("overview", url.Values{"range": {during}}, &overview); err != nil {
		return nil, overview, err
	}
	hooks = slices.Clone(builtInHooks)
	for _, m := range mappings {
		hooks = append(hooks, listedHook{Name: m.Name, Action: cmp.Or(m.Action, engine.Wake), AuthMode: cmp.Or(m.AuthMode, settings.BearerScheme.Name), Pinned: m.Pinned})
	}
	for _, figures := range overview.Hooks {
		at := slices.IndexFunc(hooks, func(h listedHook) bool { return h.Name == figures.Name })
		if at < 0 {
			at = len(hooks)
			hooks = append(hooks, listedHook{Name: figures.Name})
		}
		h := &hooks[at]
		h.Accepted, h.Failed, h.LastAt = figures.Accepted, figures.Failed, figures.LastAt
	}
	return hooks, overview, nil
}
