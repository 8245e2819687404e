package cli

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

var refusedFilters = []filter{{flag: "hook", parameter: "hook", usage: "only requests to this hook, '' for names that no hook has",
	complete: completeAllHooks, mayBeEmpty: true, noteUnknown: (*session).noteUnknownHooks}, sinceFilter, untilFilter}

// refusedRequests are kinds of requests that became no run.
var refusedRequests = resource[api.Refused]{
	name: "refused", many: "kinds of requests", filters: refusedFilters,
	none:    "No request was refused.",
	noMatch: "No such request was refused.",
	columns: []string{"LAST", "COUNT", "ANSWER", "HOOK", "CLIENT", "REASON"},
	cells: func(c terminal.Clock, k *api.Refused) [][]terminal.Text {
		return terminal.Line(c.When(k.LastAt), terminal.WithCommas(k.Count), refusedAnswer(k.Status, k.Ignored), cmp.Or(k.Hook, "(unknown)"),
			k.Client, terminal.ShortText(refusedReason(k), maxReasonCell))
	},
}

// keptRequests are those of them that are kept.
var keptRequests = resource[api.RefusedRequest]{
	name: "requests", path: "refused/requests", many: "requests", filters: refusedFilters,
	none:    "No refused request is kept. caddy hooks set keep_refused 1h keeps those that come from now on, for an hour.",
	noMatch: "No such request is kept.",
	columns: []string{"WHEN", "ID", "ANSWER", "HOOK", "CLIENT", "BYTES", "REASON"},
	cells: func(c terminal.Clock, r *api.RefusedRequest) [][]terminal.Text {
		return terminal.Line(c.When(r.At), r.ID, refusedAnswer(r.Status, r.Ignored), cmp.Or(r.Hook, "(unknown)"), r.Client,
			terminal.WithCommas(r.Size), terminal.ShortText(keptReason(r), maxReasonCell))
	},
	word: func(r *api.RefusedRequest) (string, string) { return r.ID, keptReason(r) },
}

func refusedVerb() *cobra.Command {
	cmd := refusedRequests.verb(&cobra.Command{
		Use:   "refused [REQUEST-ID] [--requests] [--hook HOOK] [--since TIME] [--until TIME] [--limit N]",
		Short: "Lists requests that became no run",
		Args:  cobra.MaximumNArgs(1),
		Long: `
Lists the requests that became no run, of all nodes, by their kind: those that were refused, and those that a condition of a hook leaves
out. Kinds are kept as long as runs (retention). Beside the number of each kind are the answer, the last client and the reason.

  --hook ''       requests to names that no hook has
  --requests      single requests, if keep_refused keeps them
  <request id>    one of them, with its headers and the beginning of its body. Secrets are shown as ••••`,
		Example: `  caddy hooks refused
  caddy hooks refused --hook github-issues --since 10:00
  caddy hooks set keep_refused 1h
  caddy hooks refused --requests`,
		ValidArgsFunction: keptRequests.complete(),
	})
	cmd.Flags().Bool("requests", false, "list the requests that keep_refused keeps")
	cmd.RunE = withSession(runRefused)
	return cmd
}

func runRefused(s *session, cmd *cobra.Command, args []string) error {
	requests := flags.IsOn(cmd, "requests")
	switch {
	case len(args) == 1 && (requests || cmd.Flags().Changed("hook") || cmd.Flags().Changed("since") || cmd.Flags().Changed("until")):
		return flags.Usagef("name a request, or use flags that select some, not both")
	case len(args) == 1:
		return s.showRefused(args[0])
	case requests:
		return keptRequests.list(s, cmd)
	default:
		return refusedRequests.list(s, cmd)
	}
}

// showRefused shows a request that is kept.
func (s *session) showRefused(id string) error {
	var r api.RefusedRequestDetails
	answer, err := s.get("refused/requests/"+url.PathEscape(id), nil, &r)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	shown, clock := new(properties), terminal.NewClock()
	shown.add("when", clock.When(r.At))
	shown.add("answer", refusedAnswer(r.Status, r.Ignored))
	shown.add("reason", keptReason(&r.RefusedRequest))
	shown.add("message", r.Message)
	shown.add("hook", cmp.Or(r.Hook, "(unknown)"))
	shown.add("client", r.Client)
	shown.add("request", r.Method+" "+r.Path)
	shown.add("query", r.Query)
	shown.add("size", terminal.ByteSize(r.Size))
	shown.print(s.screen)
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			headers = append(headers, name+": "+value)
		}
	}
	s.screen.showText("Headers", strings.Join(headers, "\n"))
	title := "Body"
	if r.Cut {
		title += ", of which only the beginning was kept"
	}
	s.screen.showText(title, r.Payload)
	if r.Unread {
		s.screen.Note("The body was not kept: the request was refused before it was read, or the hook has history off.")
	}
	return nil
}

func refusedAnswer(status int, ignored bool) terminal.Text {
	if ignored {
		return terminal.Plain(strconv.Itoa(status))
	}
	return terminal.Bad(strconv.Itoa(status))
}

func keptReason(r *api.RefusedRequest) string {
	if r.Ignored {
		return "ignored: " + r.Reason
	}
	return r.Reason
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
