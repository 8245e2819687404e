package cli

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func againVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "again {RUN-ID [--to-chat CHAT] | [--failed] [--timed-out] [--expired] [--status STATUS,…] [--hook HOOK,…] [--chat CHAT] " +
			"[--since TIME] [--until TIME] [--search TEXT]} [--deliver]",
		Short: "Repeats a run that has ended, or all of a filter",
		Long: `
Starts a run again that has ended, as a new run with the old one's input. The beginning of its id is enough. Nothing is sent out unless
--deliver is given. If the run was run again before, you see that, and are asked first.

With a filter, as of caddy hooks runs, it does so with all runs that match and were not run again before, the oldest first. Without a status
these are the runs that failed, timed out or expired. You see how many these are, and are asked first. Caddy carries it out as a bulk
action, which caddy hooks bulk shows and can stop. The queue is filled to its half at most, so that senders still get in.

  caddy hooks again 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31
  caddy hooks again --since yesterday --until today
  caddy hooks again --failed --hook github-issues --deliver`,
		Args:              checkAgainArgs,
		RunE:              withSession(runAgain),
		ValidArgsFunction: flags.CompleteOne(runs.complete()),
	}
	cmd.Flags().Bool("deliver", false, "send the answer out, as the first run would have")
	flags.AddText(cmd, "to-chat", "", "the chat of the new run of a single run (default: that of the old one)", chats.complete())
	for _, status := range api.NotCompleted {
		cmd.Flags().Bool(statusFlag(string(status)), false, "all runs that "+statusWord(status))
	}
	addFilters(cmd, runFilters)
	flags.AddYes(cmd)
	return cmd
}

// statusFlag is the flag that selects what has a status.
func statusFlag(status string) string { return strings.ReplaceAll(status, "_", "-") }

// failedStatuses are those of runs that failed in one way or another.
func failedStatuses() (names []string) {
	for _, status := range api.NotCompleted {
		names = append(names, string(status))
	}
	return names
}

func checkAgainArgs(cmd *cobra.Command, args []string) error {
	all := len(namedByFlags(cmd, failedStatuses())) > 0 || hasFilter(cmd, runFilters)
	switch {
	case len(args) == 0 && !all:
		return errors.New("what to run again is missing: the id of a run, or a filter such as --failed or --since yesterday")
	case len(args) > 0 && all:
		return errors.New("name one run, or all by a filter; --to-chat is the chat of the new run")
	case all && flags.Text(cmd, "to-chat") != "":
		return errors.New("--to-chat is for a single run")
	case cmd.Flags().Changed("status") && len(namedByFlags(cmd, failedStatuses())) > 0:
		return errors.New("name statuses by --status, or by --failed, --timed-out and --expired")
	}
	return checkFilters(cmd, args)
}

// checkFilters checks the filters of a verb that takes them or one argument.
func checkFilters(cmd *cobra.Command, args []string) error {
	if _, err := filterQuery(cmd, runFilters); err != nil {
		return err
	}
	return flags.TakesOneAtMost(cmd, args)
}

// hasFilter reports whether a filter is given.
func hasFilter(cmd *cobra.Command, filters []filter) bool {
	return slices.ContainsFunc(filters, func(f filter) bool { return cmd.Flags().Changed(f.flag) })
}

// namedByFlags are the statuses whose flags are given.
func namedByFlags(cmd *cobra.Command, statuses []string) []string {
	return slices.DeleteFunc(slices.Clone(statuses), func(status string) bool { return !flags.IsOn(cmd, statusFlag(status)) })
}

// bulkQuery reads the filter of a bulk action. usual are its statuses if none is named.
func bulkQuery(cmd *cobra.Command, do string, filters []filter, named, usual []string) (url.Values, error) {
	query, err := filterQuery(cmd, filters)
	if err != nil {
		return nil, err
	}
	query.Set("do", do)
	if len(named) > 0 {
		query.Set("status", strings.Join(named, ","))
	} else if !query.Has("status") {
		query.Set("status", strings.Join(usual, ","))
	}
	query.Set("status", strings.ReplaceAll(query.Get("status"), "timed out", string(engine.TimedOut))) // as it is shown, too
	return query, nil
}

func runAgain(s *session, cmd *cobra.Command, args []string) error {
	deliver := flags.IsOn(cmd, "deliver")
	if len(args) == 0 {
		query, err := bulkQuery(cmd, "again", runFilters, namedByFlags(cmd, failedStatuses()), failedStatuses())
		if err != nil {
			return err
		}
		sent := "nothing is sent out."
		if deliver {
			sent = "the answers are sent out."
		}
		b := &bulkAction{session: s, query: query, body: text.PlainJSON(map[string]bool{"deliver": deliver}), one: "run", many: "runs",
			plan: " will be run again, and " + sent, nothing: "There is nothing to run again.", done: "started"}
		action, err := b.run(cmd)
		if err != nil {
			return err
		}
		return b.show(action)
	}
	how := map[string]any{"deliver": deliver}
	if chat := flags.Text(cmd, "to-chat"); chat != "" {
		how["chatId"] = chat
	}
	id, err := s.runIDOf(args[0])
	if err != nil {
		return err
	}
	var earlier api.RunDetails
	if _, err := s.get("runs/"+url.PathEscape(id), nil, &earlier); err != nil {
		return err
	}
	if earlier.AgainAs != "" { // whoever starts it once more may not know that
		plan := fmt.Sprintf("The run was run again already, as %s, and will be run once more.", earlier.AgainAs)
		if err := flags.Confirm(cmd, plan); err != nil {
			return err
		}
	}
	return s.callRun(cmd, adminclient.Call{Path: "runs/" + url.PathEscape(id) + "/again", Body: text.PlainJSON(how)},
		func(*api.Run) terminal.Text { return terminal.Good("started") })
}

// callRun posts something about a run, and prints what was done and how to see more of the run.
func (s *session) callRun(cmd *cobra.Command, call adminclient.Call, done func(run *api.Run) terminal.Text) error {
	call.Method = http.MethodPost
	var run api.Run
	answer, err := s.call(call, &run)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	s.screen.printRun(cmd, done(&run), &run)
	return nil
}

func (p printer) printRun(cmd *cobra.Command, done terminal.Text, run *api.Run) {
	p.Line(done, terminal.Plain("  run "), terminal.Bold(run.RunID), terminal.Plain("  chat "+run.ChatID),
		terminal.Faint("        "+flags.NextCommand(cmd, "show", run.RunID)))
}

func cancelVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel {RUN-ID | --all | [--status STATUS,…] [--hook HOOK,…] [--chat CHAT] [--since TIME] [--until TIME] [--search TEXT]}",
		Short: "Cancels a run that has not ended, or all of a filter",
		Long: `
Cancels a run. The beginning of its id is enough. One that is queued or waiting ends at once, and its questions are closed. The runner of
one that is running is told to stop, and the run ends when it has.

With a filter, as of caddy hooks runs, it does so with all runs that match, the newest first, and with --all with all that have
not ended. You see how many these are, and are asked first. Caddy carries it out as a bulk action, which caddy hooks bulk shows and can
stop.

  caddy hooks cancel 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31
  caddy hooks cancel --chat alerts --status queued`,
		Args: func(cmd *cobra.Command, args []string) error {
			all := flags.IsOn(cmd, "all") || hasFilter(cmd, runFilters)
			switch {
			case len(args) == 0 && !all:
				return errors.New("what to cancel is missing: the id of the run, a filter such as --chat, or --all")
			case len(args) > 0 && all:
				return errors.New("name one run, or all by a filter")
			}
			return checkFilters(cmd, args)
		},
		RunE:              withSession(runCancel),
		ValidArgsFunction: flags.CompleteOne(runs.complete(openStatuses...)),
	}
	cmd.Flags().Bool("all", false, "all runs that are queued, running or waiting")
	addFilters(cmd, runFilters)
	flags.AddYes(cmd)
	return cmd
}

// openStatuses are those of runs that have not ended.
var openStatuses = []string{string(engine.Queued), string(engine.Running), string(engine.Waiting)}

func runCancel(s *session, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		query, err := bulkQuery(cmd, "cancel", runFilters, nil, openStatuses)
		if err != nil {
			return err
		}
		b := &bulkAction{session: s, query: query, one: "run", many: "runs", plan: " will be cancelled.",
			nothing: "There is nothing to cancel.", done: "cancelled"}
		action, err := b.run(cmd)
		if err != nil {
			return err
		}
		return b.show(action)
	}
	id, err := s.runIDOf(args[0])
	if err != nil {
		return err
	}
	return s.callRun(cmd, adminclient.Call{Path: "runs/" + url.PathEscape(id) + "/cancel"}, func(run *api.Run) terminal.Text {
		if run.Status != engine.Cancelled {
			return terminal.Warn("stopping")
		}
		return terminal.Good("cancelled")
	})
}

func retryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry {DELIVERY-ID | --dead | --pending | --delivered [--host HOST] [--channel NAME]}",
		Short: "Sends deliveries again, one or all of a filter",
		Long: `
Sends a delivery now that was given up, or that waits for its next attempt. Its schedule begins anew. One that has arrived is sent once
more, with the same id, and you are asked first.

With --dead, --pending or --delivered it does so with all that were given up, that wait or that have arrived, or with those of them that
match a filter. You see how many these are, and are asked first. Caddy carries it out as a bulk action, which caddy hooks bulk shows and can
stop. Then this waits a while, and tells what became of the first 500.

  caddy hooks retry --dead --host callbacks.acme.dev
  caddy hooks retry msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
	}
	retry := deliveryAction{method: http.MethodPost, suffix: "/retry", done: "put back", nothing: "There is nothing to send again.",
		planAll: " will be sent again.", unsent: url.Values{"unsent": {"1"}}, show: (*redelivery).showRetried, do: "retry",
		statuses: []string{string(engine.Dead), string(engine.Pending), string(engine.Delivered)}}
	retry.setUp(cmd)
	cmd.Flags().Duration("wait", 10*time.Second, "wait at most so long to tell what became of them")
	return cmd
}

func dropVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Forgets deliveries that have not arrived, one or all of a filter",
		Long: `
Forgets a delivery that was given up, or that waits for its next attempt. It is never sent.

With --dead or --pending it does so with all that were given up or that wait, or with those of them that match a filter. You see how many
these are, and are asked first. Caddy carries it out as a bulk action, which caddy hooks bulk shows and can stop.

  caddy hooks drop --dead --channel team-chat
  caddy hooks drop msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
	}
	const plan = " will be forgotten, and never sent."
	drop := deliveryAction{method: http.MethodDelete, done: "dropped", nothing: "There is nothing to drop.", planAll: plan, planOne: plan,
		show: (*redelivery).showDropped, do: "drop", statuses: openDeliveries}
	drop.setUp(cmd)
	return cmd
}

// deliveryAction is what a verb does with a delivery that an id names, or with all that flags select.
type deliveryAction struct {
	method, suffix string     // of the call about one delivery
	do             string     // of the bulk action
	statuses       []string   // that it is for, each with a flag
	done           string     // in "3 of 4 dropped"
	nothing        string     // said if no delivery is selected
	planAll        string     // after how many deliveries are selected
	planOne        string     // asked before it is done with one delivery, "" if it can be undone
	unsent         url.Values // of a call that leaves alone what has arrived meanwhile
	show           func(r *redelivery, cmd *cobra.Command) error
}

// openDeliveries are the statuses of deliveries that have not arrived.
var openDeliveries = []string{string(engine.Dead), string(engine.Pending)}

// deliveryFilters select among the deliveries of a status.
var deliveryFilters = deliveries.filters[1:]

func (a deliveryAction) setUp(cmd *cobra.Command) {
	cmd.Args = a.checkArgs
	cmd.RunE = withSession(a.run)
	cmd.ValidArgsFunction = flags.CompleteOne(deliveries.complete(openDeliveries...))
	for _, status := range a.statuses {
		cmd.Flags().Bool(status, false, "all deliveries that "+map[string]string{"dead": "were given up",
			"pending": "wait for their next attempt", "delivered": "have arrived"}[status])
	}
	addFilters(cmd, deliveryFilters)
	flags.AddYes(cmd)
}

func (a deliveryAction) checkArgs(cmd *cobra.Command, args []string) error {
	all := len(namedByFlags(cmd, a.statuses)) > 0
	_, err := filterQuery(cmd, deliveryFilters)
	switch {
	case len(args) == 0 && !all:
		return fmt.Errorf("say which: the id of a delivery, or --%s", strings.Join(a.statuses, ", --"))
	case len(args) > 0 && (all || hasFilter(cmd, deliveryFilters)):
		return fmt.Errorf("name one delivery, or all by --%s and filters", strings.Join(a.statuses, ", --"))
	case err != nil: // an empty one would select everything
		return err
	}
	return flags.TakesOneAtMost(cmd, args)
}

// redelivery is an action on deliveries that goes on.
type redelivery struct {
	*session
	deliveryAction
	bulk    *api.Bulk             // of an action on many; nil if there is nothing to do
	count   int                   // with how many it was done
	watched []api.DeliveryDetails // the first of them, as they were before, or as the answer shows a single one
}

func (a deliveryAction) run(s *session, cmd *cobra.Command, args []string) error {
	r := &redelivery{session: s, deliveryAction: a, count: 1}
	var err error
	if len(args) > 0 {
		err = r.one(cmd, args[0])
	} else {
		err = r.all(cmd)
	}
	if err != nil {
		return err
	}
	return a.show(r, cmd)
}

// one does it with the delivery that an argument names.
func (r *redelivery) one(cmd *cobra.Command, arg string) error {
	id, err := r.deliveryIDOf(arg)
	if err != nil {
		return err
	}
	var d api.DeliveryDetails
	if _, err := r.get("deliveries/"+url.PathEscape(id), nil, &d); err != nil {
		return err
	}
	plan, query := r.planOne, r.unsent
	if d.Status == engine.Delivered && plan == "" {
		plan, query = " has arrived already, and will be sent once more.", nil
	}
	if plan != "" {
		if err := flags.Confirm(cmd, fmt.Sprintf("The %s to %s%s", d.Kind, d.Target, plan)); err != nil {
			return err
		}
	}
	answer, err := r.call(adminclient.Call{Method: r.method, Path: "deliveries/" + url.PathEscape(id) + r.suffix, Query: query}, nil)
	if err == nil && len(answer) > 0 {
		err = r.decode(answer, &d)
	}
	r.watched = append(r.watched, d)
	return err
}

// all does it with all deliveries that flags select.
func (r *redelivery) all(cmd *cobra.Command) error {
	query, err := bulkQuery(cmd, r.do, deliveryFilters, namedByFlags(cmd, r.statuses), nil)
	if err != nil {
		return err
	}
	filter := maps.Clone(query)
	filter.Del("do")
	_, _, err = r.walk(listing{path: "deliveries", member: "deliveries", query: filter, limit: maxWatched}, func(page listPage) error {
		rows, err := rowsOf[api.DeliveryDetails](r.session, page)
		r.watched = append(r.watched, rows...)
		return err
	})
	if err != nil {
		return wrongFilter(err)
	}
	b := r.action(query)
	if r.bulk, err = b.run(cmd); err != nil || r.bulk == nil {
		r.count, r.watched = 0, nil
		return err
	}
	r.count = r.bulk.Done
	return bulkError(r.bulk)
}

// maxWatched is of how many deliveries it is told what became of them.
const maxWatched = 500

func (r *redelivery) action(query url.Values) *bulkAction {
	return &bulkAction{session: r.session, query: query, one: "delivery", many: "deliveries", plan: r.planAll, nothing: r.nothing,
		done: r.done}
}

func (r *redelivery) showDropped(*cobra.Command) error {
	switch {
	case r.json && r.count > 0:
		return terminal.PrintJSON(r.screen.Out(), map[string]int{"dropped": r.count})
	case r.bulk != nil:
		return r.action(nil).show(r.bulk)
	case r.count > 0:
		r.screen.Line(terminal.Plain("1 of 1 dropped"))
	}
	return nil
}

// retrySum is what became of deliveries that were put back.
type retrySum struct {
	Retried       int        `json:"retried"`
	Delivered     int        `json:"delivered"`
	Pending       int        `json:"pending"`
	Dead          int        `json:"dead"`
	Unwatched     int        `json:"unwatched,omitempty"` // beyond those of which it is told what became of them
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	lastError     string
	waitsFor      string
}

// watch looks, for a while, at what becomes of deliveries that were put back.
func (r *redelivery) watch(patience time.Duration) (*retrySum, error) {
	sum := &retrySum{Retried: r.count, Unwatched: max(0, r.count-len(r.watched))}
	progress := r.screen.Progress()
	defer progress.Close()
	waiting := r.watched
	for deadline := time.Now().Add(patience); len(waiting) > 0; {
		last := !time.Now().Before(deadline)
		var still []api.DeliveryDetails
		for _, d := range waiting {
			var now api.DeliveryDetails
			_, err := r.get("deliveries/"+url.PathEscape(d.ID), nil, &now)
			if err != nil && !adminclient.IsRefused(err, http.StatusNotFound) { // then it was sent or dropped, and told about when it was
				return nil, err
			}
			tried := now.Attempts > d.Attempts && now.NextAttemptAt != nil || now.WaitsFor != ""
			if now.Status == engine.Pending && !tried && !last {
				still = append(still, d)
				continue
			}
			sum.add(now)
		}
		if waiting = still; len(waiting) == 0 {
			break
		}
		progress.Show("%d delivered, %d to go", sum.Delivered, len(waiting))
		if err := r.pause(pollPause); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (sum *retrySum) add(d api.DeliveryDetails) {
	switch d.Status {
	case engine.Delivered:
		sum.Delivered++
	case engine.Dead:
		sum.Dead++
		sum.lastError = d.LastError
	case engine.Pending:
		sum.Pending++
		if d.NextAttemptAt != nil && (sum.NextAttemptAt == nil || d.NextAttemptAt.Before(*sum.NextAttemptAt)) {
			sum.NextAttemptAt = d.NextAttemptAt
		}
		sum.waitsFor = d.WaitsFor
	}
}

// showRetried waits for what becomes of the deliveries, and prints it.
func (r *redelivery) showRetried(cmd *cobra.Command) error {
	patience, _ := cmd.Flags().GetDuration("wait")
	sum, err := r.watch(patience)
	if err != nil {
		return err
	}
	if r.count == 0 {
		return nil
	}
	if r.json {
		return terminal.PrintJSON(r.screen.Out(), sum)
	}
	line := terminal.Cells("1 of 1 put back")
	if r.bulk != nil {
		line = terminal.Cells(r.action(nil).result(r.bulk), leftOut(r.bulk.Skipped))
	}
	add := func(n int, look func(string) terminal.Text, word, more string) {
		if n > 0 {
			line = append(line, look("   "+terminal.WithCommas(n)+" "+word))
			if more != "" {
				line = append(line, terminal.Plain(" ("+more+")"))
			}
		}
	}
	next := ""
	switch {
	case sum.NextAttemptAt != nil && time.Until(*sum.NextAttemptAt) > 0:
		next = "next attempt in " + terminal.Roughly(time.Until(*sum.NextAttemptAt))
	case sum.waitsFor != "":
		next = "waits for " + sum.waitsFor
	}
	add(sum.Delivered, terminal.Good, "delivered", "")
	add(sum.Pending, terminal.Warn, "pending", next)
	add(sum.Dead, terminal.Bad, "given up again", sum.lastError)
	if sum.Unwatched > 0 {
		more := flags.NextCommand(cmd, "deliveries", "--status", "pending")
		line = append(line, terminal.Faint("   and "+terminal.WithCommas(sum.Unwatched)+" more: "+more))
	}
	r.screen.Line(line...)
	return nil
}
