package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// The resources that verbs list.
var (
	runs = resource[api.RunSummary]{
		name: "runs", many: "runs", filters: runFilters,
		none:    "There are no runs yet. Send a webhook, or see with caddy hooks status whether webhooks are on.",
		noMatch: "No run matches. Leave some of the flags out to see more.",
		columns: []string{"ACCEPTED", "STATUS", "HOOK", "TOOK", "CHAT", "RUN", "MESSAGE OR REASON"},
		cells: func(c terminal.Clock, r *api.RunSummary) [][]terminal.Text {
			return terminal.Line(c.When(r.AcceptedAt), statusCell(r.Status), r.Hook, runTook(c, &r.Run), shortChat(r.ChatID), r.RunID, about(r))
		},
		word: func(r *api.RunSummary) (string, string) {
			return r.RunID, statusWord(r.Status) + " " + r.Hook + " " + r.Preview
		},
	}
	runFilters = []filter{
		{flag: "status", parameter: "status", usage: "only runs of this status, or of several with commas between them",
			complete: flags.CompleteSeveral(flags.CompleteWords(engine.Statuses...))},
		{flag: "hook", parameter: "hook", usage: "only runs of this hook, or of several with commas between them",
			complete: flags.CompleteSeveral(completeAllHooks), noteUnknown: (*session).noteUnknownHooks},
		{flag: "runner", parameter: "runner", usage: "only runs of this runner, or of several with commas between them",
			complete: flags.CompleteSeveral(completeRunners), noteUnknown: noteUnknownRunners},
		{flag: "chat", parameter: "chatId", usage: "only runs of this chat", complete: chats.complete()},
		sinceFilter, untilFilter,
		{flag: "search", parameter: "q", usage: "only runs with this id or its beginning, of this sender's request id, or with these words",
			complete: cobra.NoFileCompletions},
	}

	sinceFilter = filter{flag: "since", parameter: "since", usage: "only those since then: " + moment.Forms,
		complete: flags.CompleteWords(moment.Offered...), isMoment: true}
	untilFilter = filter{flag: "until", parameter: "until", usage: "only those before then",
		complete: flags.CompleteWords(moment.Offered...), isMoment: true}

	deliveries = resource[api.DeliveryDetails]{
		name: "deliveries", many: "deliveries",
		filters: append([]filter{{flag: "status", parameter: "status",
			usage:    "only those that are pending, delivered or dead, or several of that with commas between them",
			complete: flags.CompleteSeveral(flags.CompleteWords(engine.Pending, engine.Delivered, engine.Dead))}, sinceFilter, untilFilter},
			targetFilters...),
		none:    "Nothing was sent out yet. A run sends its answer out if it has a callbackUrl, or a channel to deliver to.",
		noMatch: "No delivery matches. Leave some of the flags out to see more.",
		columns: []string{"CREATED", "STATUS", "HOOK", "TRIES", "NEXT", "DELIVERY", "TO"},
		cells: func(c terminal.Clock, d *api.DeliveryDetails) [][]terminal.Text {
			return terminal.Line(c.When(d.CreatedAt), statusCell(d.Status), d.Hook, strconv.Itoa(d.Attempts), nextAttempt(c, d), d.ID,
				terminal.ShortText(targetAndReason(d), maxReasonCell))
		},
		beside: (*session).showPaused,
		word:   func(d *api.DeliveryDetails) (string, string) { return d.ID, string(d.Status) + " " + d.Target },
	}
	// targetFilters select deliveries by where they go.
	targetFilters = []filter{
		{flag: "host", parameter: "host", usage: "only callbacks to this host", complete: cobra.NoFileCompletions},
		{flag: "channel", parameter: "channel", usage: "only messages to this channel", complete: completeChannels,
			noteUnknown: noteUnknownChannel},
	}

	bulkActions = resource[api.Bulk]{
		name: "bulk", many: "bulk actions",
		none:    "There was no bulk action yet. again, cancel, retry and drop start one when they are given a filter.",
		columns: []string{"STARTED", "STATE", "DO", "DONE", "LEFT OUT", "BY", "BULK", "FILTER"},
		cells: func(c terminal.Clock, b *api.Bulk) [][]terminal.Text {
			skipped := 0
			for _, n := range b.Skipped {
				skipped += n
			}
			return terminal.Line(c.When(b.StartedAt), b.State, b.Do, terminal.WithCommas(b.Done)+" of "+matching(b), terminal.WithCommas(skipped),
				b.By, b.ID, terminal.Faint(terminal.ShortText(bulkFilter(b), maxReasonCell)))
		},
		word: func(b *api.Bulk) (string, string) { return b.ID, b.State + " " + b.Do },
	}

	changes = resource[api.Change]{
		name: "changes", many: "changes",
		none:    "The live settings were not changed yet. caddy hooks set and caddy hooks dashboard change them.",
		columns: []string{"WHEN", "BY", "VIA", "WHAT", "CHANGE"},
		cells:   changeLines,
	}

	chats = resource[api.Chat]{
		name: "chats", filters: []filter{sinceFilter},
		none:    "There are no chats yet that somebody named. A run without a chatId has a chat of its own: caddy hooks runs shows it.",
		columns: []string{"LAST", "RUNS", "STATUS", "HOOK", "CHAT", "MESSAGE"},
		cells: func(c terminal.Clock, chat *api.Chat) [][]terminal.Text {
			return terminal.Line(c.When(chat.LastAt), terminal.WithCommas(chat.Runs), statusCell(chat.Status), chat.Hook,
				terminal.ShortText(chat.ChatID, maxChatOfList),
				terminal.Faint(terminal.ShortText(chat.Preview, maxReasonCell)))
		},
		word: func(chat *api.Chat) (string, string) {
			if chat.ChatID != oneline.Of(chat.ChatID, len(chat.ChatID)) {
				return "", "" // a shell would take what comes after a tab or a line break for something else
			}
			return chat.ChatID, chat.Preview
		},
	}
)

func runsVerb() *cobra.Command {
	cmd := runs.verb(&cobra.Command{
		Use: "runs [--status STATUS,…] [--hook HOOK,…] [--chat CHAT] [--since TIME] [--until TIME] [--search TEXT] " +
			"[--sort duration] [--limit N] [--follow]",
		Short: "Lists runs, the newest first",
		Long: `
Lists runs, the newest first, with the reason of those that did not complete and the first line of the message of the others.

Times for --since and --until are about when a run was accepted, and local: ` + moment.Forms + `.
All of yesterday is --since yesterday --until today, and 10:00 is the last one that has passed. --search looks for the id of a run or its
beginning, for a chat, or for words in messages, replies and errors, and may take some time.

With --follow the list begins with the oldest, and goes on with a row whenever a run is accepted, started or ended. Ctrl-C ends it.`,
		Example: `  caddy hooks runs --status failed,timed_out --since 1h
  caddy hooks runs --since yesterday --until today
  caddy hooks runs --hook github-issues --follow
  caddy hooks runs --limit 0 --json | jq -r '.runs[].runId'`,
	})
	cmd.Flags().Bool("follow", false, "print more rows as runs are accepted, started and ended")
	flags.AddText(cmd, "sort", "", "duration: of the runs that are listed, the one that took longest first", flags.CompleteWords("duration"))
	cmd.RunE = withSession(func(s *session, cmd *cobra.Command, _ []string) error {
		if statuses := flags.Text(cmd, "status"); statuses != "" { // as they are shown, too
			_ = cmd.Flags().Set("status", strings.ReplaceAll(statuses, "timed out", string(engine.TimedOut)))
		}
		list := runsOf(flags.Text(cmd, "status"))
		switch sort := flags.Text(cmd, "sort"); {
		case sort != "" && (sort != "duration" || flags.IsOn(cmd, "follow")):
			return flags.Usagef("--sort must be duration, and does not go with --follow")
		case sort != "":
			return s.listLongest(cmd, list)
		case flags.IsOn(cmd, "follow"):
			return s.followRuns(cmd, list)
		}
		return list.list(s, cmd)
	})
	return cmd
}

// listLongest lists the newest runs that flags select, the one that took longest first.
func (s *session) listLongest(cmd *cobra.Command, list *resource[api.RunSummary]) error {
	l, err := list.selected(cmd)
	if err != nil {
		return err
	}
	var rows []api.RunSummary
	_, more, err := s.walk(l, func(page listPage) error {
		found, err := rowsOf[api.RunSummary](s, page)
		rows = append(rows, found...)
		return err
	})
	if err != nil {
		return err
	}
	clock := terminal.NewClock()
	slices.SortStableFunc(rows, func(a, b api.RunSummary) int {
		return cmp.Compare(runSeconds(clock, &b.Run), runSeconds(clock, &a.Run))
	})
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), map[string]any{"runs": rows})
	}
	list.print(s.screen.Rows(list.columns...), clock, rows)
	if more {
		s.screen.Note("These are the newest %d that match, sorted: use --limit 0 to sort all.", len(rows))
	}
	return nil
}

// runsOf are the runs of some statuses, with commas between them. Those that did not complete have a reason each.
func runsOf(statuses string) *resource[api.RunSummary] {
	list := runs
	completes := func(status string) bool { return !slices.Contains(api.NotCompleted, engine.Status(status)) }
	if !slices.ContainsFunc(strings.Split(statuses, ","), completes) {
		list.columns = append(slices.Clone(runs.columns[:len(runs.columns)-1]), "REASON")
	}
	return &list
}

// about is why a run did not complete, or what it waits for, or else the first line of its message.
func about(r *api.RunSummary) terminal.Text {
	if why := runReason(r); why != "" {
		return terminal.Plain(terminal.ShortText(why, maxReasonCell))
	}
	return terminal.Faint(terminal.ShortText(r.Preview, maxReasonCell))
}

// runReason says why a run did not complete, or what it waits for. It is "" for others.
func runReason(r *api.RunSummary) string {
	switch {
	case r.Status == engine.Cancelled && r.CancelledBy != "":
		return "cancelled by " + r.CancelledBy
	case r.Status.Ended() && r.Status != engine.Completed:
		return cmp.Or(r.Reason, r.ErrorMessage)
	case !r.Status.Ended() && r.WaitingFor != "":
		return "waits: " + strings.ToLower(r.WaitingFor[:1]) + strings.TrimSuffix(r.WaitingFor[1:], ".") // a sentence in English
	default:
		return ""
	}
}

func deliveriesVerb() *cobra.Command {
	return deliveries.verb(&cobra.Command{
		Use:   "deliveries [--status STATUS,…] [--since TIME] [--until TIME] [--host HOST] [--channel CHANNEL] [--limit N]",
		Short: "Lists what is sent out: callbacks and messages to channels",
		Long: `
Lists what is sent out, that of the newest run first: callbacks and messages to channels. One that is pending is tried again; one that is
dead was given up. Hosts and channels that are left alone for a while are told on stderr. Times for --since and --until are about when the
run of a delivery was accepted; caddy hooks runs --help has their forms.`,
		Example: `  caddy hooks deliveries --status dead
  caddy hooks deliveries --status pending,dead --host callbacks.example.com --since 10:00 --until 11:00`,
	})
}

// nextAttempt is when a delivery is tried again, as in "in 5s".
func nextAttempt(c terminal.Clock, d *api.DeliveryDetails) string {
	switch {
	case d.Status != engine.Pending:
		return ""
	case d.NextAttemptAt == nil || !d.NextAttemptAt.After(c.Now):
		return "now"
	default:
		return c.Ago(d.NextAttemptAt)
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

// showPaused shows which hosts and channels are left alone.
func (s *session) showPaused(page listPage) error {
	var paused []api.Paused
	if raw, ok := page.members["paused"]; ok {
		if err := s.decode(raw, &paused); err != nil {
			return err
		}
	}
	clock := terminal.NewClock()
	for _, p := range paused {
		s.screen.Note("%s is left alone until %s (%s).", cmp.Or(p.Host, "The channel "+p.Channel), clock.When(p.Until), clock.Ago(p.Until))
	}
	return nil
}

func changesVerb() *cobra.Command {
	return changes.verb(&cobra.Command{
		Use:   "changes [--limit N]",
		Short: "Lists who changed settings, and how",
		Long: `
Lists the changes of the live settings and saved hooks, the newest first: when, by whom, from where, and the values before and after.
Secrets are told as set, replaced or removed. A reload with another Caddyfile is among them, by Caddy via reload, with the options that
differ; a restart is not.`,
		Example: `  caddy hooks changes
  caddy hooks changes --limit 1 --json`,
	})
}

// changeLines are the lines of a change: one for each setting, and for each field of a hook.
func changeLines(clock terminal.Clock, c *api.Change) (rows [][]terminal.Text) {
	when, by, via := clock.When(c.At), c.By, c.Via
	for i := range c.Changes {
		what := c.Changes[i].What
		if name, ok := strings.CutPrefix(what, settings.PartName("")); ok {
			what = "hook " + name
		}
		for _, change := range changedValues(&c.Changes[i]) {
			rows = append(rows, terminal.Cells(when, by, via, what, change))
			when, by, via, what = "", "", "", "" // said above
		}
	}
	if c.More > 0 {
		rows = append(rows, terminal.Cells("", "", "", "…", fmt.Sprintf("and %d more", c.More)))
	}
	return rows
}

// changedValues say how a part was changed: a setting in one text, each field of a hook in its own.
func changedValues(p *api.ChangedPart) []string {
	had, has := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	was, is := isObject(p.Before, &had), isObject(p.After, &has)
	switch {
	case p.Before == nil && p.After == nil:
		return []string{"changed"} // of an option that may hold secrets
	case isNull(p.Before) && is:
		return append([]string{"added"}, changedFields(nil, has)...)
	case isNull(p.After) && was:
		return []string{"removed"}
	case was && is:
		return changedFields(had, has)
	default:
		return []string{beforeAndAfter(p.Before, p.After)}
	}
}

func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

func isObject(raw json.RawMessage, members *map[string]json.RawMessage) bool {
	return bytes.HasPrefix(raw, []byte("{")) && json.Unmarshal(raw, members) == nil
}

func changedFields(had, has map[string]json.RawMessage) (fields []string) {
	names := make(map[string]json.RawMessage)
	maps.Copy(names, had)
	maps.Copy(names, has)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if had == nil {
			fields = append(fields, name+": "+terminal.ShortText(valueText(has[name]), maxReasonCell))
		} else {
			fields = append(fields, name+": "+beforeAndAfter(had[name], has[name]))
		}
	}
	return fields
}

func beforeAndAfter(before, after json.RawMessage) string {
	return terminal.ShortText(valueText(before), maxReasonCell/2) + " → " + terminal.ShortText(valueText(after), maxReasonCell/2)
}

// valueText is a value as it is read: JSON, but for one that is not there.
func valueText(raw json.RawMessage) string {
	if isNull(raw) {
		return "not set"
	}
	return string(text.CompactJSON(raw))
}

func runnersVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "runners",
		Short: "Shows the agents and their state",
		Long: `
Shows the runners of the Caddyfile, which carry out runs: their kind, the model tiers that they are for, their state on this node, how
many turns they carry out now, and when they last answered and failed. A runner that is unreachable or busy takes on no turns, and its runs
wait.`,
		Example: `  caddy hooks runners
  caddy hooks runners --json | jq -r '.[] | select(.state != "ok").name'`,
		RunE: withSession(runRunners),
	}
}

func runRunners(s *session, _ *cobra.Command, _ []string) error {
	var runners []api.Runner
	answer, err := s.get("runners", nil, &runners)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	if len(runners) == 0 {
		s.screen.Note("There is no runner: add a line such as \"runner http http://127.0.0.1:8000\" to hooks in the Caddyfile, or runs wait.")
		return nil
	}
	clock, rows := terminal.NewClock(), [][]terminal.Text(nil)
	for i := range runners {
		r, failed := &runners[i], ""
		if r.LastErrorAt != nil {
			failed = clock.When(r.LastErrorAt) + " " + r.LastError
		}
		kind := slices.Compact([]string{r.Module, r.Preset, r.Address}) // the program of a preset mostly has its name
		kind = slices.DeleteFunc(kind, func(word string) bool { return word == "" })
		rows = append(rows, terminal.Cells(r.Name, strings.Join(kind, " "), runnerUse(r), runnerStateCell(r), terminal.WithCommas(r.InFlight),
			clock.When(r.LastOK), terminal.ShortText(failed, maxReasonCell)))
	}
	s.screen.Table([]string{"RUNNER", "KIND", "FOR", "STATE", "NOW", "LAST GOOD", "LAST FAILED"}, rows)
	return nil
}

// runnerUse says which runs the runner carries out.
func runnerUse(r *api.Runner) string {
	switch {
	case !r.Default:
		return strings.Join(r.Tiers, ", ")
	case len(r.Tiers) == 0:
		return "default"
	default:
		return strings.Join(append(r.Tiers, "all others"), ", ")
	}
}

// runnerStateCell says how the runner fares.
func runnerStateCell(r *api.Runner) terminal.Text {
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
