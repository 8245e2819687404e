package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, againVerb)
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
		RunE: errandVerb(runAgain),

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

func runAgain(e *errand, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return e.allAgain(cmd, statusesToRunAgain(cmd), flagText(cmd, "hook"))
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
	id, err := e.runIDOf(args[0])
	if err != nil {
		return err
	}
	if err := e.confirmAnother(cmd, id); err != nil {
		return err
	}
	var run api.Run
	answer, err := e.call(apiCall{method: http.MethodPost, path: "runs/" + url.PathEscape(id) + "/again", body: body}, &run)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(answer)
	}
	e.printRun(cmd, terminal.Good("started"), run.RunID, run.ChatID)
	return nil
}

// confirmAnother asks first if a run was run again before: whoever starts it once more may not know that.
func (e *errand) confirmAnother(cmd *cobra.Command, id string) error {
	var earlier api.RunDetails
	if _, err := e.get("runs/"+url.PathEscape(id), nil, &earlier); err != nil {
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
func (e *errand) allAgain(cmd *cobra.Command, statuses []engine.Status, hook string) error {
	deliver := flagIsOn(cmd, "deliver")
	planned, err := e.eachAgain(statuses, hook, deliver, true)
	if err != nil {
		return err
	}
	if planned.Would == 0 {
		e.screen.Note("There is nothing to run again.%s", planned.leftOut())
		return e.printAgain(planned)
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
	stop := e.tellStarted(statuses, hook, planned.Would)
	done, err := e.eachAgain(statuses, hook, deliver, false)
	stop()
	if err != nil {
		return err
	}
	done.Would = planned.Would
	return e.printAgain(done)
}

// eachAgain asks for one status after the other.
func (e *errand) eachAgain(statuses []engine.Status, hook string, deliver, dry bool) (sum againSum, err error) {
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
		if err := e.callLong(apiCall{method: http.MethodPost, path: "runs/again", query: query, body: body}, &part); err != nil {
			return sum, err
		}
		part.againSum.Would = part.Would
		sum.add(part.againSum)
	}
	return sum, nil
}

// tellStarted tells on a terminal, every now and then, how many of so many runs were started, until it is stopped.
func (e *errand) tellStarted(statuses []engine.Status, hook string, would int) (stop func()) {
	progress := e.screen.Progress()
	if !progress.IsShown() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(e.ctx)
	asking := *e
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
func (e *errand) callLong(call apiCall, into any) error {
	call.path = e.path(call.path)
	resp, err := e.client.open(e.ctx, call)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := e.client.readAnswer(resp)
	if err != nil {
		return err
	}
	return e.decode(answer, into)
}

func (e *errand) printAgain(sum againSum) error {
	if e.json {
		return printValue(e.screen.Out(), sum)
	}
	if sum.Would > 0 {
		e.screen.Line(terminal.Plain(fmt.Sprintf("%s of %s started", withCommas(sum.Started), withCommas(sum.Would))), terminal.Plain(sum.leftOut()))
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
