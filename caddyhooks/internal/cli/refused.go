package cli

import (
	"cmp"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, refusedVerb)
}

func refusedVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refused [--hook HOOK] [--limit N]",
		Short: "Lists requests that became no run",
		Long: `
Lists the requests that became no run since Caddy was started, by their kind: those that were refused, and those that a condition of a hook
leaves out. Beside the number of each kind are the answer, the last client and the reason.

  --hook ''    requests to names that no hook has`,
		Example: `  caddy hooks refused
  caddy hooks refused --hook github-issues`,
		Args: takesNone,
		RunE: errandVerb(runRefused),
	}
	cmd.Flags().String("hook", "", "only requests to this hook, '' for names that no hook has")
	_ = cmd.RegisterFlagCompletionFunc("hook", completeAllHooks)
	limitFlag(cmd, "kinds of requests")
	return cmd
}

func runRefused(e *errand, cmd *cobra.Command, _ []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	query := make(url.Values)
	if cmd.Flags().Changed("hook") {
		hook, _ := cmd.Flags().GetString("hook")
		query.Set("hook", hook)
	}
	clock, table := newClock(), e.screen.Rows("LAST", "COUNT", "ANSWER", "HOOK", "CLIENT", "REASON")
	none := "No request was refused since Caddy was started."
	if len(query) > 0 {
		none = "No such request was refused since Caddy was started."
	}
	return showList(e, listing{part: "refused", member: "refused", query: query, limit: limit, ifNone: func() { e.noteUnknownHooks(query.Get("hook")) }}, none, func(kinds []api.Refused) {
		var rows [][]terminal.Text
		for i := range kinds {
			k := &kinds[i]
			answer := terminal.Bad(strconv.Itoa(k.Status))
			if k.Ignored {
				answer = terminal.Plain(strconv.Itoa(k.Status))
			}
			rows = append(rows, []terminal.Text{terminal.Plain(clock.when(k.LastAt)), terminal.Plain(withCommas(k.Count)), answer, terminal.Plain(cmp.Or(k.Hook, "(unknown)")),
				terminal.Plain(k.Client), terminal.Plain(shortText(refusedReason(k), maxReasonCell))})
		}
		table.Print(rows...)
	})
}

// refusedReason says why the requests became no run.
func refusedReason(k *api.Refused) string {
	value := k.Reason
	if k.Ignored {
		value = "ignored: " + k.Condition
	}
	if k.Error != "" {
		value += ": " + k.Error
	}
	if len(k.Asked) > 0 {
		value += ": asked for " + text.List(k.Asked)
	}
	return value
}
