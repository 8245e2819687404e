package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// confirmAll is flags.Confirm for all that flags select. If that is nothing, it says so instead.
func (s *session) confirmAll(cmd *cobra.Command, selected int, plan, nothing string) error {
	if selected == 0 {
		s.screen.Note("%s", nothing)
		return nil
	}
	return flags.Confirm(cmd, plan)
}

func againVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "again {RUN-ID [--chat CHAT] | --failed | --timed-out | --expired [--hook NAME]} [--deliver]",
		Short: "Repeats a run that has ended, or all that failed",
		Long: `
Starts a run again that has ended, as a new run with the old one's input. The beginning of its id is enough. Nothing is sent out unless --deliver is given.
If the run was run again before, you see that, and are asked first.

With --failed, --timed-out or --expired, all such runs that were not run again before are started again, or those of one hook. You see how
many these are, and are asked first.

  caddy hooks again 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31
  caddy hooks again --failed --hook github-issues --deliver`,
		Args:              checkAgainArgs,
		RunE:              withSession(runAgain),
		ValidArgsFunction: flags.CompleteOne(runs.complete()),
	}
	cmd.Flags().Bool("deliver", false, "send the answer out, as the first run would have")
	flags.AddText(cmd, "chat", "", "the chat of the new run (default: that of the old one)", chats.complete())
	for _, status := range againStatuses {
		cmd.Flags().Bool(againFlag(status), false, "all runs that "+statusWord(status))
	}
	flags.AddText(cmd, "hook", "", "of those, the runs of this hook", completeAllHooks)
	flags.AddYes(cmd)
	return cmd
}

var againStatuses = []string{string(engine.Failed), string(engine.TimedOut), string(engine.Expired)}

// againFlag is the flag that selects the runs of a status.
func againFlag(status string) string { return strings.ReplaceAll(status, "_", "-") }

func checkAgainArgs(cmd *cobra.Command, args []string) error {
	all := len(namedByFlags(cmd, againStatuses)) > 0
	switch {
	case len(args) == 0 && !all:
		return errors.New("what to run again is missing: the id of a run, --failed, --timed-out or --expired")
	case len(args) > 0 && (all || flags.Text(cmd, "hook") != ""):
		return errors.New("name one run, or all by --failed, --timed-out, --expired and --hook")
	case all && flags.Text(cmd, "chat") != "":
		return errors.New("--chat is for a single run")
	}
	return flags.TakesOneAtMost(cmd, args)
}

// namedByFlags are the statuses whose flags are given.
func namedByFlags(cmd *cobra.Command, statuses []string) []string {
	return slices.DeleteFunc(slices.Clone(statuses), func(status string) bool { return !flags.IsOn(cmd, againFlag(status)) })
}

func runAgain(s *session, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		a := &again{session: s, statuses: namedByFlags(cmd, againStatuses), hook: flags.Text(cmd, "hook"), deliver: flags.IsOn(cmd, "deliver")}
		return a.run(cmd)
	}
	how := map[string]any{"deliver": flags.IsOn(cmd, "deliver")}
	if chat := flags.Text(cmd, "chat"); chat != "" {
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

// again runs all runs of some statuses again.
type again struct {
	*session
	statuses []string
	hook     string
	deliver  bool
}

// againSum is what became of runs that were run again.
type againSum struct {
	Would   int            `json:"would,omitempty"` // before they were
	Started int            `json:"started"`
	Skipped map[string]int `json:"skipped,omitempty"` // runs that cannot be run again, by the reason
}

func (a *again) run(cmd *cobra.Command) error {
	planned, err := a.each(true)
	if err != nil {
		return err
	}
	plan := terminal.Counted(planned.Would, "run", "runs")
	if a.hook != "" {
		plan += " of " + a.hook
	}
	plan += " that " + statusWord(text.List(a.statuses)) + " will be run again"
	if a.deliver {
		plan += ", and the answers are sent out."
	} else {
		plan += ", and nothing is sent out."
	}
	if err := a.confirmAll(cmd, planned.Would, plan, "There is nothing to run again."+planned.leftOut()); err != nil {
		return err
	}
	done := planned
	if planned.Would > 0 {
		stop := a.showProgress(planned.Would)
		done, err = a.each(false)
		stop()
	}
	if err != nil {
		return err
	}
	if a.json {
		done.Would = 0
		return terminal.PrintJSON(a.screen.Out(), done)
	}
	if planned.Would > 0 {
		a.screen.Line(terminal.Cells(terminal.WithCommas(done.Started)+" of "+terminal.WithCommas(planned.Would)+" started", done.leftOut())...)
	}
	return nil
}

// each asks for one status after the other.
func (a *again) each(dry bool) (sum againSum, err error) {
	sum.Skipped = make(map[string]int)
	for _, status := range a.statuses {
		query := url.Values{"status": {status}}
		if a.hook != "" {
			query.Set("hook", a.hook)
		}
		if dry {
			query.Set("dry", "1")
		}
		var part againSum
		body := text.PlainJSON(map[string]bool{"deliver": a.deliver})
		call := adminclient.Call{Method: http.MethodPost, Path: "runs/again", Query: query, Body: body, IsLong: true}
		if _, err := a.call(call, &part); err != nil {
			return sum, err
		}
		sum.Would += part.Would
		sum.Started += part.Started
		for reason, n := range part.Skipped {
			sum.Skipped[reason] += n
		}
	}
	return sum, nil
}

// showProgress shows on a terminal, every now and then, how many of so many runs were started, until it is stopped.
func (a *again) showProgress(would int) (stop func()) {
	progress := a.screen.Progress()
	if !progress.IsShown() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	asking, asked := *a, *a.session
	asking.session, asked.ctx = &asked, ctx
	var showing sync.WaitGroup
	showing.Go(func() {
		const pause = 2 * time.Second // to count them is work, too
		for asking.pause(pause) == nil {
			left, err := asking.each(true)
			if err != nil {
				return
			}
			progress.Show("%s of %s started", terminal.WithCommas(max(0, would-left.Would)), terminal.WithCommas(would))
		}
	})
	return func() {
		cancel()
		showing.Wait()
		progress.Close()
	}
}

// leftOut says which runs cannot be run again, and why.
func (sum *againSum) leftOut() string {
	text := ""
	for _, left := range [][2]string{{"gone", "their message is not kept any more"}, {"cut", "only a part of their message is kept"}} {
		if n := sum.Skipped[left[0]]; n > 0 {
			text += fmt.Sprintf("   %s left out, since %s", terminal.WithCommas(n), left[1])
		}
	}
	return text
}

func cancelVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN-ID",
		Short: "Cancels a run that is queued or running",
		Long: `
Cancels a run. The beginning of its id is enough. One that is queued ends at once. The runner of one that is running is told to stop, and
the run ends when it has.

  caddy hooks runs --status queued,running
  caddy hooks cancel 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31`,
		Args: flags.TakesOne("the id of the run"),
		RunE: withSession(func(s *session, cmd *cobra.Command, args []string) error {
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
		}),
		ValidArgsFunction: flags.CompleteOne(runs.complete(string(engine.Queued), string(engine.Running))),
	}
}

func retryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Sends deliveries again, one or all of a kind",
		Long: `
Sends a delivery now that was given up, or that waits for its next attempt. Its schedule begins anew. One that has arrived is sent once
more, with the same id, and you are asked first.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You see how many these
are, and are asked first. Then it waits a while, and tells what became of them.

  caddy hooks retry --dead --host callbacks.acme.dev
  caddy hooks retry msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
	}
	retry := deliveryAction{method: http.MethodPost, suffix: "/retry", done: "put back", nothing: "There is nothing to send again.",
		planAll: " will be sent again.", unsent: url.Values{"unsent": {"1"}}, show: (*redelivery).showRetried}
	retry.setUp(cmd)
	cmd.Flags().Duration("wait", 10*time.Second, "wait at most so long to tell what became of them")
	return cmd
}

func dropVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Forgets deliveries that have not arrived, one or all of a kind",
		Long: `
Forgets a delivery that was given up, or that waits for its next attempt. It is never sent.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You see how many these
are, and are asked first.

  caddy hooks drop --dead --channel team-chat
  caddy hooks drop msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
	}
	const plan = " will be forgotten, and never sent."
	drop := deliveryAction{method: http.MethodDelete, done: "dropped", nothing: "There is nothing to drop.", planAll: plan, planOne: plan,
		show: (*redelivery).showDropped}
	drop.setUp(cmd)
	return cmd
}

// deliveryAction is what a verb does with a delivery that an id names, or with all that flags select.
type deliveryAction struct {
	method, suffix string     // of the call
	done           string     // in "3 of 4 dropped"
	nothing        string     // said if no delivery is selected
	planAll        string     // after how many deliveries are selected
	planOne        string     // asked before it is done with one delivery, "" if it can be undone
	unsent         url.Values // of a call that leaves alone what has arrived meanwhile
	show           func(r *redelivery, cmd *cobra.Command) error
}

// openDeliveries are the statuses of deliveries that have not arrived.
var openDeliveries = []string{string(engine.Dead), string(engine.Pending)}

func (a deliveryAction) setUp(cmd *cobra.Command) {
	cmd.Args = checkDeliveryArgs
	cmd.RunE = withSession(a.run)
	cmd.ValidArgsFunction = flags.CompleteOne(deliveries.complete(openDeliveries...))
	cmd.Flags().Bool("dead", false, "all deliveries that were given up")
	cmd.Flags().Bool("pending", false, "all deliveries that wait for their next attempt")
	flags.AddText(cmd, "host", "", "of those, the callbacks to this host", cobra.NoFileCompletions)
	flags.AddText(cmd, "channel", "", "of those, the messages to this channel", completeChannels)
	flags.AddYes(cmd)
}

func checkDeliveryArgs(cmd *cobra.Command, args []string) error {
	all := len(namedByFlags(cmd, openDeliveries)) > 0
	_, err := filterQuery(cmd, targetFilters)
	switch {
	case len(args) == 0 && !all:
		return errors.New("say which: the id of a delivery, --dead or --pending")
	case len(args) > 0 && (all || cmd.Flags().Changed("host") || cmd.Flags().Changed("channel")):
		return errors.New("name one delivery, or all by --dead, --pending, --host and --channel")
	case err != nil:
		return errors.New("--host and --channel must not be empty") // which would select everything
	}
	return flags.TakesOneAtMost(cmd, args)
}

// redelivery is an action on deliveries that goes on.
type redelivery struct {
	*session
	deliveryAction
	selected int
	done     []api.DeliveryDetails // as the answers show them; a dropped one has an id alone
}

func (a deliveryAction) run(s *session, cmd *cobra.Command, args []string) error {
	r := &redelivery{session: s, deliveryAction: a, selected: 1}
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
	d, err = r.do(id, query)
	r.done = append(r.done, d)
	return err
}

func (r *redelivery) do(id string, query url.Values) (d api.DeliveryDetails, err error) {
	answer, err := r.call(adminclient.Call{Method: r.method, Path: "deliveries/" + url.PathEscape(id) + r.suffix, Query: query}, nil)
	if err == nil && len(answer) > 0 {
		err = r.decode(answer, &d)
	}
	return d, err
}

// all does it with all deliveries that flags select, page by page.
func (r *redelivery) all(cmd *cobra.Command) error {
	query := url.Values{"status": {strings.Join(namedByFlags(cmd, openDeliveries), ",")}}
	to := ""
	for _, f := range targetFilters {
		if value := flags.Text(cmd, f.flag); value != "" {
			query.Set(f.parameter, value)
			to += " to " + value
		}
	}
	dry := maps.Clone(query)
	dry.Set("dry", "1")
	var planned struct {
		Would int `json:"would"`
	}
	if _, err := r.call(adminclient.Call{Method: r.method, Path: "deliveries" + r.suffix, Query: dry, IsLong: true}, &planned); err != nil {
		return wrongFilter(err)
	}
	r.selected = planned.Would
	plan := terminal.Counted(r.selected, "delivery", "deliveries") + to + r.planAll
	if err := r.confirmAll(cmd, r.selected, plan, r.nothing); err != nil || r.selected == 0 {
		return err
	}
	progress := r.screen.Progress()
	defer progress.Close()
	_, _, err := r.walk(listing{path: "deliveries", member: "deliveries", query: query}, func(page listPage) error {
		const atOnce = 8 // requests under way, which share what it costs to write to the disk
		rows, err := rowsOf[api.DeliveryDetails](r.session, page)
		for some := range slices.Chunk(rows, atOnce) {
			if err := r.atOnce(some); err != nil {
				return err
			}
			progress.Show("%d of %d %s", len(r.done), r.selected, r.deliveryAction.done)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; %d of %d were %s before that", err, len(r.done), r.selected, r.deliveryAction.done)
	}
	return nil
}

// atOnce does it with some deliveries at once. One that has arrived, is under way or gone by then is left out.
func (r *redelivery) atOnce(some []api.DeliveryDetails) error {
	done, errs := make([]api.DeliveryDetails, len(some)), make([]error, len(some))
	var all sync.WaitGroup
	for i, d := range some {
		all.Go(func() { done[i], errs[i] = r.do(d.ID, r.unsent) })
	}
	all.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			r.done = append(r.done, done[i])
		case !adminclient.IsRefused(err, http.StatusNotFound) && !adminclient.IsRefused(err, http.StatusConflict):
			return err
		}
	}
	return nil
}

func (r *redelivery) showDropped(*cobra.Command) error {
	if r.json {
		return terminal.PrintJSON(r.screen.Out(), map[string]int{"selected": r.selected, "dropped": len(r.done)})
	}
	if r.selected > 0 {
		r.screen.Line(terminal.Plain(fmt.Sprintf("%s of %s dropped", terminal.WithCommas(len(r.done)), terminal.WithCommas(r.selected))))
	}
	return nil
}

// retrySum is what became of deliveries that were put back.
type retrySum struct {
	Selected      int        `json:"selected"`
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
	const maxWatched = 500
	sum := &retrySum{Selected: r.selected, Retried: len(r.done), Unwatched: max(0, len(r.done)-maxWatched)}
	progress := r.screen.Progress()
	defer progress.Close()
	waiting := r.done[:len(r.done)-sum.Unwatched]
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
	if r.json {
		return terminal.PrintJSON(r.screen.Out(), sum)
	}
	if r.selected == 0 {
		return nil
	}
	line := terminal.Cells(terminal.WithCommas(sum.Retried) + " of " + terminal.WithCommas(sum.Selected) + " put back")
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
