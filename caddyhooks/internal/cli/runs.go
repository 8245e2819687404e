package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, runsVerb)
}

func runsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs [--status STATUS,…] [--hook HOOK,…] [--chat CHAT] [--since TIME] [--until TIME] [--search TEXT] [--limit N] [--follow]",
		Short: "Lists runs, the newest first",
		Long: `
Lists runs, the newest first, with the reason of those that did not complete and the first line of the message of the others.

Times for --since and --until are a duration back from now, such as 1h, or RFC 3339, such as 2026-01-31T15:04:05Z. They are about when a run
was accepted. --search looks for the id of a run or its beginning, for a chat, or for words in messages, replies and errors, and
may take some time.

With --follow the list begins with the oldest, and goes on with a row whenever a run is accepted, started or ended. Ctrl-C ends it.`,
		Example: `  caddy hooks runs --status failed,timed_out --since 1h
  caddy hooks runs --hook github-issues --follow
  caddy hooks runs --limit 0 --json | jq -r '.runs[].runId'`,
		Args: takesNone,
		RunE: errandVerb(runRuns),
	}
	runFlags(cmd)
	limitFlag(cmd, "runs")
	cmd.Flags().Bool("follow", false, "print more rows as runs are accepted, started and ended")
	return cmd
}

// runFlags are those that select runs.
func runFlags(cmd *cobra.Command) {
	cmd.Flags().String("status", "", "only runs of this status, or of several with commas between them")
	cmd.Flags().String("hook", "", "only runs of this hook, or of several with commas between them")
	cmd.Flags().String("chat", "", "only runs of this chat")
	cmd.Flags().String("since", "", "only runs that were accepted since then, such as 1h or 2026-01-31T15:04:05Z")
	cmd.Flags().String("until", "", "only runs that were accepted before then")
	cmd.Flags().String("search", "", "only runs with this id or its beginning, or with these words")
	for flag, completion := range map[string]cobra.CompletionFunc{
		"status": completeSeveral(completeRunStatuses), "hook": completeSeveral(completeAllHooks), "chat": completeChats,
		"since": completeWords("1h", "24h", "168h"), "until": completeWords("1h", "24h", "168h"), "search": cobra.NoFileCompletions,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completion)
	}
}

// runParameters are the parameters of the API by the flag that sets them.
var runParameters = map[string]string{"status": "status", "hook": "hook", "chat": "chatId", "since": "since", "until": "until", "search": "q"}

// runQuery reads the flags that select runs.
func runQuery(cmd *cobra.Command) (url.Values, error) {
	query := make(url.Values)
	for flag, parameter := range runParameters {
		if err := setFrom(cmd, query, flag, parameter); err != nil {
			return nil, err
		}
	}
	if query.Has("status") { // as they are shown, too
		query.Set("status", strings.ReplaceAll(query.Get("status"), "timed out", string(engine.TimedOut)))
	}
	return query, nil
}

func runRuns(e *errand, cmd *cobra.Command, _ []string) error {
	query, err := runQuery(cmd)
	if err != nil {
		return err
	}
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	table := e.runTable(query)
	if follow, _ := cmd.Flags().GetBool("follow"); follow {
		return e.followRuns(query, limit, table)
	}
	none := "There are no runs yet. Send a webhook, or see with caddy hooks status whether webhooks are on."
	if len(query) > 0 {
		none = "No run matches. Leave some of the flags out to see more."
	}
	return showList(e, listing{part: "runs", member: "runs", query: query, limit: limit, ifNone: func() { e.noteUnknownHooks(query.Get("hook")) }}, none, table.print)
}

// runTable is a table of runs.
type runTable struct {
	rows  *terminal.Rows
	clock func() clock
}

func (e *errand) runTable(query url.Values) *runTable {
	last := "MESSAGE OR REASON"
	if statuses := strings.Split(query.Get("status"), ","); !slices.ContainsFunc(statuses, func(s string) bool { return !slices.Contains(api.NotCompleted, engine.Status(s)) }) {
		last = "REASON"
	}
	return &runTable{e.screen.Rows("ACCEPTED", "STATUS", "HOOK", "TOOK", "CHAT", "RUN", last), newClock}
}

// print prints rows.
func (t *runTable) print(runs []api.RunSummary) {
	clock := t.clock()
	var rows [][]terminal.Text
	for i := range runs {
		r := &runs[i]
		rows = append(rows, []terminal.Text{
			terminal.Plain(clock.when(r.AcceptedAt)), statusCell(r.Status), terminal.Plain(r.Hook), terminal.Plain(clock.took(&r.Run)),
			terminal.Plain(shortChat(r.ChatID)), terminal.Plain(r.RunID), about(r),
		})
	}
	t.rows.Print(rows...)
}

func lowerFirst(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToLower(first)) + text[size:]
}

// about is why a run did not complete, or what it waits for, or else the first line of its message.
func about(r *api.RunSummary) terminal.Text {
	switch why := runReason(r); {
	case why != "":
		return terminal.Plain(shortText(why, maxReasonCell))
	default:
		return terminal.Faint(shortText(r.Preview, maxReasonCell))
	}
}

// runReason says why a run did not complete, or what it waits for. It is "" for others.
func runReason(r *api.RunSummary) string {
	switch {
	case r.Status == engine.Cancelled && r.CancelledBy != "":
		return "cancelled by " + r.CancelledBy
	case r.Status.Ended() && r.Status != engine.Completed:
		return cmp.Or(r.Reason, r.ErrorMessage)
	case !r.Status.Ended() && r.WaitingFor != "":
		return "waits: " + lowerFirst(strings.TrimSuffix(r.WaitingFor, "."))
	default:
		return ""
	}
}

// followRuns lists runs, the oldest first, and then prints a row whenever one is accepted, started or ended.
func (e *errand) followRuns(query url.Values, limit int, table *runTable) error {
	for _, parameter := range []string{"until", "q"} {
		if query.Has(parameter) {
			return &usageError{"--follow does not go with --until and --search: it shows what happens from now on"}
		}
	}
	e.noteUnknownHooks(query.Get("hook"))
	wanted := newRunFilter(query)
	show := func(rows []json.RawMessage) error {
		for _, raw := range rows {
			var run api.RunSummary
			if err := e.decode(raw, &run); err != nil {
				return err
			}
			switch {
			case !wanted.matches(&run) || !wanted.news.isNews(run.RunID, string(run.Status)):
			case e.json:
				e.printLine(raw)
			default:
				table.print([]api.RunSummary{run})
			}
		}
		return nil
	}
	catchUp := func() error {
		page, err := e.page(listing{part: "runs", member: "runs", query: query}, min(cmp.Or(limit, api.MaxPage), api.MaxPage), "")
		slices.Reverse(page.rows)
		return errors.Join(err, show(page.rows))
	}
	begun := false
	return e.follow([]api.Topic{api.TopicRuns}, func(event heardEvent) error {
		switch event.name {
		case "hello":
			if begun {
				return nil
			}
			begun = true
			return catchUp()
		case "reset":
			return catchUp()
		case "runs":
			rows, err := e.eventRows(event)
			return errors.Join(err, show(rows))
		}
		return nil
	})
}

// runFilter selects runs among events, as the API does in lists.
type runFilter struct {
	statuses, hooks []string
	chat            string
	news            news
}

func newRunFilter(query url.Values) *runFilter {
	return &runFilter{statuses: splitList(query.Get("status")), hooks: splitList(query.Get("hook")), chat: query.Get("chatId")}
}

func (f *runFilter) matches(r *api.RunSummary) bool {
	return (len(f.statuses) == 0 || slices.Contains(f.statuses, string(r.Status))) && f.ofHook(r.Hook) && (f.chat == "" || f.chat == r.ChatID)
}

// ofHook reports whether events of a hook are wanted.
func (f *runFilter) ofHook(name string) bool {
	return len(f.hooks) == 0 || slices.Contains(f.hooks, name)
}

// news tells apart what was printed and what was not.
type news struct{ last, before map[string]string } // the states of the last ones, and of those before them

// isNews reports whether something is in another state than when this was last asked.
func (n *news) isNews(id, state string) bool {
	known, ok := n.last[id]
	if !ok {
		known = n.before[id]
	}
	if n.last == nil || len(n.last) == newsKept {
		n.last, n.before = make(map[string]string), n.last
	}
	n.last[id] = state
	return known != state
}

// newsKept is of how many runs at least it is known what was printed.
const newsKept = 4096
