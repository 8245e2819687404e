package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

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
		RunE: withSession(runRuns),
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

func runRuns(s *session, cmd *cobra.Command, _ []string) error {
	query, err := runQuery(cmd)
	if err != nil {
		return err
	}
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	table := s.runTable(query)
	if follow, _ := cmd.Flags().GetBool("follow"); follow {
		return s.followRuns(query, limit, table)
	}
	none := "There are no runs yet. Send a webhook, or see with caddy hooks status whether webhooks are on."
	if len(query) > 0 {
		none = "No run matches. Leave some of the flags out to see more."
	}
	return showList(s, listing{part: "runs", member: "runs", query: query, limit: limit, ifNone: func() { s.noteUnknownHooks(query.Get("hook")) }}, none, table.print)
}

// runTable is a table of runs.
type runTable struct {
	rows  *terminal.Rows
	clock func() clock
}

func (s *session) runTable(query url.Values) *runTable {
	last := "MESSAGE OR REASON"
	if statuses := strings.Split(query.Get("status"), ","); !slices.ContainsFunc(statuses, func(s string) bool { return !slices.Contains(api.NotCompleted, engine.Status(s)) }) {
		last = "REASON"
	}
	return &runTable{s.screen.Rows("ACCEPTED", "STATUS", "HOOK", "TOOK", "CHAT", "RUN", last), newClock}
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
func (s *session) followRuns(query url.Values, limit int, table *runTable) error {
	for _, parameter := range []string{"until", "q"} {
		if query.Has(parameter) {
			return &usageError{"--follow does not go with --until and --search: it shows what happens from now on"}
		}
	}
	s.noteUnknownHooks(query.Get("hook"))
	wanted := newRunFilter(query)
	show := func(rows []json.RawMessage) error {
		for _, raw := range rows {
			var run api.RunSummary
			if err := s.decode(raw, &run); err != nil {
				return err
			}
			switch {
			case !wanted.matches(&run) || !wanted.news.isNews(run.RunID, string(run.Status)):
			case s.json:
				s.printLine(raw)
			default:
				table.print([]api.RunSummary{run})
			}
		}
		return nil
	}
	catchUp := func() error {
		page, err := s.page(listing{part: "runs", member: "runs", query: query}, min(cmp.Or(limit, api.MaxPage), api.MaxPage), "")
		slices.Reverse(page.rows)
		return errors.Join(err, show(page.rows))
	}
	begun := false
	return s.follow([]api.Topic{api.TopicRuns}, func(event heardEvent) error {
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
			rows, err := s.eventRows(event)
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

func deliveriesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries [--status STATUS,…] [--host HOST] [--channel CHANNEL] [--limit N]",
		Short: "Lists what is sent out: callbacks and messages to channels",
		Long: `
Lists what is sent out, that of the newest run first: callbacks and messages to channels. One that is pending is tried again; one that is dead
was given up. Hosts and channels that are left alone for a while are told on stderr.`,
		Example: `  caddy hooks deliveries --status dead
  caddy hooks deliveries --status pending,dead --host callbacks.example.com`,
		Args: takesNone,
		RunE: withSession(runDeliveries),
	}
	deliveryFlags(cmd)
	cmd.Flags().String("status", "", "only those that are pending, delivered or dead, or several of that with commas between them")
	_ = cmd.RegisterFlagCompletionFunc("status", completeSeveral(completeDeliveryStatuses))
	limitFlag(cmd, "deliveries")
	return cmd
}

// deliveryFlags are those that select deliveries by where they go.
func deliveryFlags(cmd *cobra.Command) {
	cmd.Flags().String("host", "", "only callbacks to this host")
	cmd.Flags().String("channel", "", "only messages to this channel")
	_ = cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("channel", completeChannels)
}

func runDeliveries(s *session, cmd *cobra.Command, _ []string) error {
	query := make(url.Values)
	for _, flag := range []string{"status", "host", "channel"} {
		if err := setFrom(cmd, query, flag, flag); err != nil {
			return err
		}
	}
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	none := "Nothing was sent out yet. A run sends its answer out if it has a callbackUrl, or a channel to deliver to."
	if len(query) > 0 {
		none = "No delivery matches. Leave some of the flags out to see more."
	}
	clock, table := newClock(), s.screen.Rows("CREATED", "STATUS", "HOOK", "TRIES", "NEXT", "DELIVERY", "TO")
	return showList(s, listing{part: "deliveries", member: "deliveries", query: query, limit: limit, beside: s.showPaused, ifNone: func() { s.noteUnknownChannel(query.Get("channel")) }}, none, func(deliveries []api.DeliveryDetails) {
		var rows [][]terminal.Text
		for i := range deliveries {
			d := &deliveries[i]
			rows = append(rows, []terminal.Text{terminal.Plain(clock.when(d.CreatedAt)), deliveryStatusCell(d.Status), terminal.Plain(d.Hook), terminal.Plain(strconv.Itoa(d.Attempts)),
				terminal.Plain(clock.next(d)), terminal.Plain(d.ID), terminal.Plain(shortText(targetAndReason(d), maxReasonCell))})
		}
		table.Print(rows...)
	})
}

// next is when a delivery is tried again, as in "in 5s".
func (c clock) next(d *api.DeliveryDetails) string {
	switch {
	case d.Status != engine.Pending:
		return ""
	case d.NextAttemptAt == nil || !d.NextAttemptAt.After(c.now):
		return "now"
	default:
		return c.ago(d.NextAttemptAt)
	}
}

// targetAndReason is where a delivery goes to, and why it has not got there.
func targetAndReason(d *api.DeliveryDetails) string {
	text := d.Target
	if d.Status != engine.Delivered && d.LastError != "" {
		text += ": " + d.LastError
	}
	if d.WaitsFor != "" {
		text += "; waits for " + d.WaitsFor
	}
	return text
}

// showPaused tells which hosts and channels are left alone.
func (s *session) showPaused(page listPage) error {
	var paused []api.Paused
	if raw, ok := page.members["paused"]; ok {
		if err := s.decode(raw, &paused); err != nil {
			return err
		}
	}
	clock := newClock()
	for _, p := range paused {
		s.screen.Note("%s is left alone until %s (%s).", cmp.Or(p.Host, "The channel "+p.Channel), clock.when(p.Until), clock.ago(p.Until))
	}
	return nil
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
		RunE: withSession(runRefused),
	}
	cmd.Flags().String("hook", "", "only requests to this hook, '' for names that no hook has")
	_ = cmd.RegisterFlagCompletionFunc("hook", completeAllHooks)
	limitFlag(cmd, "kinds of requests")
	return cmd
}

func runRefused(s *session, cmd *cobra.Command, _ []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	query := make(url.Values)
	if cmd.Flags().Changed("hook") {
		hook, _ := cmd.Flags().GetString("hook")
		query.Set("hook", hook)
	}
	clock, table := newClock(), s.screen.Rows("LAST", "COUNT", "ANSWER", "HOOK", "CLIENT", "REASON")
	none := "No request was refused since Caddy was started."
	if len(query) > 0 {
		none = "No such request was refused since Caddy was started."
	}
	return showList(s, listing{part: "refused", member: "refused", query: query, limit: limit, ifNone: func() { s.noteUnknownHooks(query.Get("hook")) }}, none, func(kinds []api.Refused) {
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
		RunE: withSession(runChanges),
	}
	limitFlag(cmd, "changes")
	return cmd
}

func runChanges(s *session, cmd *cobra.Command, _ []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	clock, table := newClock(), s.screen.Rows("WHEN", "BY", "VIA", "WHAT", "CHANGE")
	none := "The live settings were not changed yet. caddy hooks set and caddy hooks dashboard change them."
	return showList(s, listing{part: "changes", member: "changes", limit: limit}, none, func(changes []api.Change) {
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

func runnersVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "runners",
		Short: "Shows the agents: what they are, and how they fare",
		Long: `
Shows the runners of the Caddyfile, which carry out runs: their kind, the model tiers that they are for, how they fare on this node, how many
turns they carry out now, and when they last answered and failed. A runner that is unreachable or busy takes on no turns, and its runs wait.`,
		Example: `  caddy hooks runners
  caddy hooks runners --json | jq -r '.[] | select(.state != "ok").name'`,
		Args: takesNone,
		RunE: withSession(runRunners),
	}
}

func runRunners(s *session, _ *cobra.Command, _ []string) error {
	var runners []api.Runner
	answer, err := s.get("runners", nil, &runners)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	if len(runners) == 0 {
		s.screen.Note("There is no runner: add a line such as \"runner http http://127.0.0.1:8000\" to hooks in the Caddyfile, or runs wait.")
		return nil
	}
	clock := newClock()
	var rows [][]terminal.Text
	for i := range runners {
		r := &runners[i]
		failed := ""
		if r.LastErrorAt != nil {
			failed = clock.when(r.LastErrorAt) + " " + r.LastError
		}
		rows = append(rows, []terminal.Text{terminal.Plain(r.Name), terminal.Plain(runnerKind(r)), terminal.Plain(use(r)), stateCell(r),
			terminal.Plain(withCommas(r.InFlight)), terminal.Plain(clock.when(r.LastOK)), terminal.Plain(shortText(failed, maxReasonCell))})
	}
	s.screen.Table([]string{"RUNNER", "KIND", "FOR", "STATE", "NOW", "LAST GOOD", "LAST FAILED"}, rows)
	return nil
}

// runnerKind says what the runner is.
func runnerKind(r *api.Runner) string {
	words := slices.Compact([]string{r.Module, r.Preset, r.Address}) // the program of a preset mostly has its name
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ")
}

// use says which runs the runner carries out.
func use(r *api.Runner) string {
	var uses []string
	if r.Default {
		uses = append(uses, "all others")
		if len(r.Tiers) == 0 {
			uses[0] = "default"
		}
	}
	return strings.Join(append(r.Tiers, uses...), ", ")
}

// stateCell says how the runner fares.
func stateCell(r *api.Runner) terminal.Text {
	switch {
	case r.Gone:
		return terminal.Faint("gone")
	case r.State == engine.RunnerOK:
		return terminal.Good(r.State)
	case r.State == engine.RunnerUnreachable, r.State == engine.RunnerFailing:
		return terminal.Bad(r.State)
	case r.State == engine.RunnerBusy:
		return terminal.Warn(r.State)
	default:
		return terminal.Plain(r.State)
	}
}
