package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// addYesFlag lets a verb act without asking first.
func addYesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "do not ask first")
}

// confirm asks before something is done that cannot be undone, unless --yes is given. An error means that it must not be done.
func confirm(cmd *cobra.Command, plan string) error {
	if flagIsOn(cmd, "yes") {
		return nil
	}
	yes, err := newScreen(cmd).Confirm(plan + " Go on?")
	switch {
	case errors.Is(err, terminal.ErrNobody):
		return &usageError{fmt.Sprintf("%s But %v", plan, err)}
	case err != nil:
		return err
	case !yes:
		return errors.New("nothing was done")
	}
	return nil
}

func againVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "again {RUN-ID [--chat CHAT] | --failed | --timed-out | --expired [--hook NAME]} [--deliver]",
		Short: "Runs again what failed, timed out or expired",
		Long: `
Starts a run again, as a new run with what the old one was told. The beginning of its id is enough. Nothing is sent out unless --deliver is given.
If the run was run again before, you are told so, and asked first.

With --failed, --timed-out or --expired, all such runs that were not run again before are started again, or those of one hook. You are told how
many these are, and asked first.

  caddy hooks again 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31
  caddy hooks again --failed --hook github-issues --deliver`,
		Args: checkAgainArgs,
		RunE: withSession(runAgain),

		ValidArgsFunction: completeOne(completeRuns(againStatuses...)),
	}
	cmd.Flags().Bool("deliver", false, "send the answer out, as the first run would have")
	cmd.Flags().String("chat", "", "the chat of the new run (default: that of the old one)")
	for _, status := range againStatuses {
		cmd.Flags().Bool(strings.ReplaceAll(string(status), "_", "-"), false, "all runs that "+statusWord(status))
	}
	cmd.Flags().String("hook", "", "of those, the runs of this hook")
	_ = cmd.RegisterFlagCompletionFunc("chat", completeChats)
	_ = cmd.RegisterFlagCompletionFunc("hook", completeAllHooks)
	addYesFlag(cmd)
	return cmd
}

var againStatuses = []engine.Status{engine.Failed, engine.TimedOut, engine.Expired}

// statusesToRunAgain are those that flags name.
func statusesToRunAgain(cmd *cobra.Command) (statuses []engine.Status) {
	for _, status := range againStatuses {
		if flagIsOn(cmd, strings.ReplaceAll(string(status), "_", "-")) {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func checkAgainArgs(cmd *cobra.Command, args []string) error {
	all := len(statusesToRunAgain(cmd)) > 0
	switch {
	case len(args) == 0 && !all:
		return errors.New("what to run again is missing: the id of a run, --failed, --timed-out or --expired")
	case len(args) > 0 && (all || flagText(cmd, "hook") != ""):
		return errors.New("name one run, or all by --failed, --timed-out, --expired and --hook")
	case all && flagText(cmd, "chat") != "":
		return errors.New("--chat is for a single run")
	}
	return takesOneAtMost(cmd, args)
}

func runAgain(s *session, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return s.allAgain(cmd, statusesToRunAgain(cmd), flagText(cmd, "hook"))
	}
	chat := flagText(cmd, "chat")
	how := map[string]any{"deliver": flagIsOn(cmd, "deliver")}
	if chat != "" {
		how["chatId"] = chat
	}
	body, err := json.Marshal(how)
	if err != nil {
		return err
	}
	id, err := s.runIDOf(args[0])
	if err != nil {
		return err
	}
	if err := s.confirmAnother(cmd, id); err != nil {
		return err
	}
	var run api.Run
	answer, err := s.call(apiCall{method: http.MethodPost, path: "runs/" + url.PathEscape(id) + "/again", body: body}, &run)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	s.printRun(cmd, terminal.Good("started"), run.RunID, run.ChatID)
	return nil
}

// confirmAnother asks first if a run was run again before: whoever starts it once more may not know that.
func (s *session) confirmAnother(cmd *cobra.Command, id string) error {
	var earlier api.RunDetails
	if _, err := s.get("runs/"+url.PathEscape(id), nil, &earlier); err != nil {
		return err
	}
	if earlier.AgainAs == "" {
		return nil
	}
	return confirm(cmd, fmt.Sprintf("The run was run again already, as %s, and will be run once more.", earlier.AgainAs))
}

// againSum is what became of runs that were run again.
type againSum struct {
	Would   int            `json:"-"`
	Started int            `json:"started"`
	Skipped map[string]int `json:"skipped,omitempty"` // runs that cannot be run again, by the reason
}

func (sum *againSum) add(other againSum) {
	sum.Would += other.Would
	sum.Started += other.Started
	for reason, n := range other.Skipped {
		if sum.Skipped == nil {
			sum.Skipped = make(map[string]int)
		}
		sum.Skipped[reason] += n
	}
}

// allAgain runs all runs of some statuses again.
func (s *session) allAgain(cmd *cobra.Command, statuses []engine.Status, hook string) error {
	deliver := flagIsOn(cmd, "deliver")
	planned, err := s.eachAgain(statuses, hook, deliver, true)
	if err != nil {
		return err
	}
	if planned.Would == 0 {
		s.screen.Note("There is nothing to run again.%s", planned.leftOut())
		return s.printAgain(planned)
	}
	words := make([]string, len(statuses))
	for i, status := range statuses {
		words[i] = statusWord(status)
	}
	plan := counted(planned.Would, "run", "runs")
	if hook != "" {
		plan += " of " + hook
	}
	plan += " that " + text.List(words) + " will be run again"
	if deliver {
		plan += ", and the answers are sent out."
	} else {
		plan += ", and nothing is sent out."
	}
	if err := confirm(cmd, plan); err != nil {
		return err
	}
	stop := s.tellStarted(statuses, hook, planned.Would)
	done, err := s.eachAgain(statuses, hook, deliver, false)
	stop()
	if err != nil {
		return err
	}
	done.Would = planned.Would
	return s.printAgain(done)
}

// eachAgain asks for one status after the other.
func (s *session) eachAgain(statuses []engine.Status, hook string, deliver, dry bool) (sum againSum, err error) {
	body, err := json.Marshal(map[string]bool{"deliver": deliver})
	if err != nil {
		return sum, err
	}
	for _, status := range statuses {
		query := url.Values{"status": {string(status)}}
		if hook != "" {
			query.Set("hook", hook)
		}
		if dry {
			query.Set("dry", "1")
		}
		var part struct {
			againSum
			Would int `json:"would"`
		}
		if err := s.callLong(apiCall{method: http.MethodPost, path: "runs/again", query: query, body: body}, &part); err != nil {
			return sum, err
		}
		part.againSum.Would = part.Would
		sum.add(part.againSum)
	}
	return sum, nil
}

// tellStarted tells on a terminal, every now and then, how many of so many runs were started, until it is stopped.
func (s *session) tellStarted(statuses []engine.Status, hook string, would int) (stop func()) {
	progress := s.screen.Progress()
	if !progress.IsShown() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	asking := *s
	asking.ctx = ctx
	var telling sync.WaitGroup
	telling.Go(func() {
		const pause = 2 * time.Second // to count them is work, too
		for asking.pause(pause) == nil {
			left, err := asking.eachAgain(statuses, hook, false, true)
			if err != nil {
				return
			}
			progress.Show("%s of %s started", withCommas(max(0, would-left.Would)), withCommas(would))
		}
	})
	return func() {
		cancel()
		telling.Wait()
		progress.Close()
	}
}

// callLong is call for work that takes as long as it takes.
func (s *session) callLong(call apiCall, into any) error {
	call.path = s.path(call.path)
	resp, err := s.client.open(s.ctx, call)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := s.client.readAnswer(resp)
	if err != nil {
		return err
	}
	return s.decode(answer, into)
}

func (s *session) printAgain(sum againSum) error {
	if s.json {
		return printValue(s.screen.Out(), sum)
	}
	if sum.Would > 0 {
		s.screen.Line(terminal.Plain(fmt.Sprintf("%s of %s started", withCommas(sum.Started), withCommas(sum.Would))), terminal.Plain(sum.leftOut()))
	}
	return nil
}

// leftOut says which runs cannot be run again, and why.
func (sum *againSum) leftOut() string {
	text := ""
	if n := sum.Skipped["gone"]; n > 0 {
		text += fmt.Sprintf("   %s left out, since their message is not kept any more", withCommas(n))
	}
	if n := sum.Skipped["cut"]; n > 0 {
		text += fmt.Sprintf("   %s left out, since only a part of their message is kept", withCommas(n))
	}
	return text
}

func cancelVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN-ID",
		Short: "Cancels a run that is queued or running",
		Long: `
Cancels a run. The beginning of its id is enough. One that is queued ends at once. The runner of one that is running is told to stop, and the run ends when it has.

  caddy hooks runs --status queued,running
  caddy hooks cancel 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31`,
		Args: takesOne("the id of the run"),
		RunE: withSession(runCancel),

		ValidArgsFunction: completeOne(completeRuns(engine.Queued, engine.Running)),
	}
}

func runCancel(s *session, cmd *cobra.Command, args []string) error {
	id, err := s.runIDOf(args[0])
	if err != nil {
		return err
	}
	var run api.Run
	answer, err := s.call(apiCall{method: http.MethodPost, path: "runs/" + url.PathEscape(id) + "/cancel"}, &run)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	word := terminal.Good("cancelled")
	if run.Status != engine.Cancelled {
		word = terminal.Warn("stopping")
	}
	s.printRun(cmd, word, run.RunID, run.ChatID)
	return nil
}

// printRun prints what was done with a run, and how to see more of it.
func (s *session) printRun(cmd *cobra.Command, done terminal.Text, runID, chatID string) {
	s.screen.Line(done, terminal.Plain("  run "), terminal.Bold(runID), terminal.Plain("  chat "+chatID), terminal.Faint("        "+nextCommand(cmd, "show", runID)))
}

func retryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Sends deliveries again, one or all of a kind",
		Long: `
Sends a delivery now that was given up, or that waits for its next attempt. Its schedule begins anew.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You are told how many these
are, and asked first. Then it waits a while, and tells what became of them.

  caddy hooks retry --dead --host callbacks.acme.dev
  caddy hooks retry msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args: checkDeliveryArgs,
		RunE: withSession(runRetry),

		ValidArgsFunction: completeOne(completeDeliveries(engine.Dead, engine.Pending)),
	}
	addDeliveryFlags(cmd)
	cmd.Flags().Duration("wait", defaultRetryWait, "wait at most so long to tell what became of them")
	return cmd
}

func dropVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop {DELIVERY-ID | --dead | --pending [--host HOST] [--channel NAME]}",
		Short: "Forgets deliveries that have not arrived, one or all of a kind",
		Long: `
Forgets a delivery that was given up, or that waits for its next attempt. It is never sent.

With --dead or --pending it does so for all that were given up or that wait, or for those to a host or a channel. You are told how many these
are, and asked first.

  caddy hooks drop --dead --channel team-chat
  caddy hooks drop msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args: checkDeliveryArgs,
		RunE: withSession(runDrop),

		ValidArgsFunction: completeOne(completeDeliveries(engine.Dead, engine.Pending)),
	}
	addDeliveryFlags(cmd)
	return cmd
}

func addDeliveryFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("dead", false, "all deliveries that were given up")
	cmd.Flags().Bool("pending", false, "all deliveries that wait for their next attempt")
	cmd.Flags().String("host", "", "of those, the callbacks to this host")
	cmd.Flags().String("channel", "", "of those, the messages to this channel")
	_ = cmd.RegisterFlagCompletionFunc("channel", completeChannels)
	noFiles(cmd, "host")
	addYesFlag(cmd)
}

func checkDeliveryArgs(cmd *cobra.Command, args []string) error {
	all := flagIsOn(cmd, "dead") || flagIsOn(cmd, "pending")
	filtered := cmd.Flags().Changed("host") || cmd.Flags().Changed("channel")
	switch {
	case len(args) == 0 && !all:
		return errors.New("say which: the id of a delivery, --dead or --pending")
	case len(args) > 0 && (all || filtered):
		return errors.New("name one delivery, or all by --dead, --pending, --host and --channel")
	case cmd.Flags().Changed("host") && flagText(cmd, "host") == "" || cmd.Flags().Changed("channel") && flagText(cmd, "channel") == "":
		return errors.New("--host and --channel must not be empty") // which would select everything
	}
	return takesOneAtMost(cmd, args)
}

const (
	defaultRetryWait = 10 * time.Second
	deliveryPage     = 256
	deliveriesAtOnce = 8   // requests under way, which share what it costs to write to the disk
	maxWatched       = 500 // deliveries of which it is told what became of them
)

// deliveryQuery are the deliveries that flags select.
func deliveryQuery(cmd *cobra.Command) url.Values {
	query := make(url.Values)
	var statuses []string
	for _, status := range []engine.DeliveryStatus{engine.Dead, engine.Pending} {
		if flagIsOn(cmd, string(status)) {
			statuses = append(statuses, string(status))
		}
	}
	query.Set("status", strings.Join(statuses, ","))
	for _, name := range []string{"host", "channel"} {
		if value := flagText(cmd, name); value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// describeDeliveries says how many deliveries these are, as in "3 deliveries to callbacks.acme.dev".
func describeDeliveries(n int, query url.Values) string {
	text := counted(n, "delivery", "deliveries")
	for _, name := range []string{"host", "channel"} {
		if value := query.Get(name); value != "" {
			text += " to " + value
		}
	}
	return text
}

// redeliveries are deliveries that something is done with.
type redeliveries struct {
	*session
	query    url.Values
	selected int
	done     []api.DeliveryDetails // as the answers show them; a dropped one has an id alone
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

func runRetry(s *session, cmd *cobra.Command, args []string) error {
	r := &redeliveries{session: s, selected: 1}
	retry := func(id string) (d api.DeliveryDetails, err error) {
		_, err = s.call(apiCall{method: http.MethodPost, path: "deliveries/" + url.PathEscape(id) + "/retry"}, &d)
		return d, err
	}
	if len(args) > 0 {
		id, err := s.deliveryIDOf(args[0])
		if err != nil {
			return err
		}
		d, err := retry(id)
		if err != nil {
			return err
		}
		r.done = append(r.done, d)
	} else {
		r.query = deliveryQuery(cmd)
		if err := r.count(apiCall{method: http.MethodPost, path: "deliveries/retry"}); err != nil {
			return err
		}
		if r.selected == 0 {
			s.screen.Note("There is nothing to send again.")
		} else if err := confirm(cmd, describeDeliveries(r.selected, r.query)+" will be sent again."); err != nil {
			return err
		}
		if err := r.each("put back", retry); err != nil {
			return err
		}
	}
	patience, _ := cmd.Flags().GetDuration("wait")
	sum, err := r.watch(patience)
	if err != nil {
		return err
	}
	if s.json {
		return printValue(s.screen.Out(), sum)
	}
	if r.selected > 0 {
		s.printRetried(cmd, sum)
	}
	return nil
}

func runDrop(s *session, cmd *cobra.Command, args []string) error {
	r := &redeliveries{session: s, selected: 1}
	drop := func(id string) (api.DeliveryDetails, error) {
		_, err := s.call(apiCall{method: http.MethodDelete, path: "deliveries/" + url.PathEscape(id)}, nil)
		return api.DeliveryDetails{}, err
	}
	if len(args) > 0 {
		id, err := s.deliveryIDOf(args[0])
		if err != nil {
			return err
		}
		var d api.DeliveryDetails
		if _, err := s.get("deliveries/"+url.PathEscape(id), nil, &d); err != nil {
			return err
		}
		if err := confirm(cmd, fmt.Sprintf("The %s to %s will be forgotten, and never sent.", d.Kind, d.Target)); err != nil {
			return err
		}
		if _, err := drop(id); err != nil {
			return err
		}
		r.done = append(r.done, d)
	} else {
		r.query = deliveryQuery(cmd)
		if err := r.count(apiCall{method: http.MethodDelete, path: "deliveries"}); err != nil {
			return err
		}
		if r.selected == 0 {
			s.screen.Note("There is nothing to drop.")
		} else if err := confirm(cmd, describeDeliveries(r.selected, r.query)+" will be forgotten, and never sent."); err != nil {
			return err
		}
		if err := r.each("dropped", drop); err != nil {
			return err
		}
	}
	if s.json {
		return printValue(s.screen.Out(), map[string]int{"selected": r.selected, "dropped": len(r.done)})
	}
	if r.selected > 0 {
		s.screen.Line(terminal.Plain(fmt.Sprintf("%s of %s dropped", withCommas(len(r.done)), withCommas(r.selected))))
	}
	return nil
}

// count asks how many deliveries the query selects.
func (r *redeliveries) count(call apiCall) error {
	call.query = url.Values{"dry": {"1"}}
	for name, values := range r.query {
		call.query[name] = values
	}
	var plan struct {
		Would int `json:"would"`
	}
	err := wrongFilter(r.callLong(call, &plan))
	r.selected = plan.Would
	return err
}

// each does something with all deliveries that the query selects, page by page. One that has arrived, is under way or gone by then is left out.
func (r *redeliveries) each(word string, do func(id string) (api.DeliveryDetails, error)) error {
	if r.selected == 0 {
		return nil
	}
	progress := r.screen.Progress()
	defer progress.Close()
	for cursor := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(deliveryPage)}}
		for name, values := range r.query {
			query[name] = values
		}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page struct {
			Deliveries []api.DeliveryDetails `json:"deliveries"`
			Cursor     string                `json:"cursor"`
		}
		if _, err := r.get("deliveries", query, &page); err != nil {
			return r.soFar(word, err)
		}
		for len(page.Deliveries) > 0 {
			some := page.Deliveries[:min(deliveriesAtOnce, len(page.Deliveries))]
			page.Deliveries = page.Deliveries[len(some):]
			if err := r.atOnce(some, do); err != nil {
				return r.soFar(word, err)
			}
			progress.Show("%d of %d %s", len(r.done), r.selected, word)
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

// soFar adds to an error how far the work has got.
func (r *redeliveries) soFar(word string, err error) error {
	return fmt.Errorf("%w; %d of %d were %s before that", err, len(r.done), r.selected, word)
}

// atOnce does something with some deliveries at once.
func (r *redeliveries) atOnce(some []api.DeliveryDetails, do func(id string) (api.DeliveryDetails, error)) error {
	done, errs := make([]api.DeliveryDetails, len(some)), make([]error, len(some))
	var all sync.WaitGroup
	for i, d := range some {
		all.Go(func() { done[i], errs[i] = do(d.ID) })
	}
	all.Wait()
	for i, err := range errs {
		var refused *refusedError
		switch {
		case err == nil:
			r.done = append(r.done, done[i])
		case errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusConflict):
		default:
			return err
		}
	}
	return nil
}

// watch looks, for a while, at what becomes of deliveries that were put back.
func (r *redeliveries) watch(patience time.Duration) (*retrySum, error) {
	sum := &retrySum{Selected: r.selected, Retried: len(r.done), Unwatched: max(0, len(r.done)-maxWatched)}
	progress := r.screen.Progress()
	defer progress.Close()
	waiting := r.done[:len(r.done)-sum.Unwatched]
	for deadline := time.Now().Add(patience); len(waiting) > 0; {
		last := !time.Now().Before(deadline)
		var still []api.DeliveryDetails
		for _, d := range waiting {
			now, err := r.lookAt(d.ID)
			if err != nil {
				return nil, err
			}
			tried := now.Attempts > d.Attempts && now.NextAttemptAt != nil || now.WaitsFor != ""
			if now.Status == engine.Pending && !tried && !last {
				still = append(still, d)
				continue
			}
			sum.add(now)
		}
		waiting = still
		if len(waiting) == 0 {
			break
		}
		progress.Show("%d delivered, %d to go", sum.Delivered, len(waiting))
		if err := r.pause(pollPause); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// lookAt asks for a delivery. One that is not there any more was sent or dropped, and told about when it was.
func (r *redeliveries) lookAt(id string) (d api.DeliveryDetails, err error) {
	_, err = r.get("deliveries/"+url.PathEscape(id), nil, &d)
	var refused *refusedError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return d, nil
	}
	return d, err
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

func (s *session) printRetried(cmd *cobra.Command, sum *retrySum) {
	line := []terminal.Text{terminal.Plain(fmt.Sprintf("%s of %s put back", withCommas(sum.Retried), withCommas(sum.Selected)))}
	add := func(n int, look func(string) terminal.Text, word, more string) {
		if n > 0 {
			line = append(line, look("   "+withCommas(n)+" "+word))
			if more != "" {
				line = append(line, terminal.Plain(" ("+more+")"))
			}
		}
	}
	next := ""
	switch {
	case sum.NextAttemptAt != nil && time.Until(*sum.NextAttemptAt) > 0:
		next = "next attempt in " + roughly(time.Until(*sum.NextAttemptAt))
	case sum.waitsFor != "":
		next = "waits for " + sum.waitsFor
	}
	add(sum.Delivered, terminal.Good, "delivered", "")
	add(sum.Pending, terminal.Warn, "pending", next)
	add(sum.Dead, terminal.Bad, "given up again", sum.lastError)
	if sum.Unwatched > 0 {
		line = append(line, terminal.Faint("   and "+withCommas(sum.Unwatched)+" more: "+nextCommand(cmd, "deliveries", "--status", "pending")))
	}
	s.screen.Line(line...)
}
