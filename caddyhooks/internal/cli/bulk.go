package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// bulkAction is what a verb does with all runs or deliveries that flags select: it shows the plan, asks, and follows what Caddy does.
type bulkAction struct {
	*session
	query     url.Values // do, and the filter
	body      []byte
	one, many string // "run", "runs"
	plan      string // after how many, as in " will be cancelled."
	nothing   string // said if there is nothing to do
	done      string // as in "3 of 4 started"
}

// run carries it out. It returns nil if there is nothing to do.
func (b *bulkAction) run(cmd *cobra.Command) (*api.Bulk, error) {
	dry := maps.Clone(b.query)
	dry.Set("dry", "1")
	var planned api.BulkPlan
	answer, err := b.call(adminclient.Call{Method: http.MethodPost, Path: "bulk", Query: dry, Body: b.body, IsLong: true}, &planned)
	if err != nil {
		return nil, wrongFilter(err)
	}
	if planned.Would == 0 {
		b.screen.Note("%s%s", b.nothing, leftOut(planned.Skipped))
		if b.json {
			return nil, b.printJSON(answer)
		}
		return nil, nil
	}
	if err := flags.Confirm(cmd, terminal.Counted(planned.Would, b.one, b.many)+selection(b.query)+b.plan); err != nil {
		return nil, err
	}
	started := new(api.Bulk)
	if _, err := b.call(adminclient.Call{Method: http.MethodPost, Path: "bulk", Query: b.query, Body: b.body}, started); err != nil {
		return nil, err
	}
	return b.followBulk(cmd, started.ID, b.done)
}

// followBulk shows how a bulk action goes on, until it has ended. Whoever does not want to wait can look later.
func (s *session) followBulk(cmd *cobra.Command, id, done string) (*api.Bulk, error) {
	progress := s.screen.Progress()
	defer progress.Close()
	for {
		action := new(api.Bulk)
		if _, err := s.get("bulk/"+url.PathEscape(id), nil, action); err != nil && s.ctx.Err() == nil {
			return nil, err
		}
		if s.ctx.Err() == nil && action.State != "running" {
			return action, nil
		}
		if err := s.pause(pollPause); err != nil {
			progress.Close()
			s.screen.Note("The bulk action goes on. See it with %s, and stop it with %s.", flags.NextCommand(cmd, "bulk"),
				flags.NextCommand(cmd, "bulk", "stop", id))
			return nil, err
		}
		waits := ""
		if action.Waiting != "" {
			waits = "; waits: " + action.Waiting
		}
		progress.Show("%s of %s %s%s", terminal.WithCommas(action.Done), matching(action), done, waits)
	}
}

// bulkFilter is the filter of a bulk action, and what it waits for or why it failed.
func bulkFilter(b *api.Bulk) (filter string) {
	for _, name := range slices.Sorted(maps.Keys(b.Filter)) {
		filter += name + "=" + b.Filter[name] + " "
	}
	if b.State == "running" && b.Waiting != "" {
		filter += "waits: " + b.Waiting
	}
	return strings.TrimSpace(filter + b.Error)
}

func matching(b *api.Bulk) string {
	if b.Matching == nil {
		return "…"
	}
	return terminal.WithCommas(*b.Matching)
}

// show prints how a bulk action ended.
func (b *bulkAction) show(action *api.Bulk) error {
	if action == nil {
		return nil
	}
	if b.json {
		return terminal.PrintJSON(b.screen.Out(), action)
	}
	b.screen.Line(terminal.Cells(b.result(action), leftOut(action.Skipped))...)
	return bulkError(action)
}

func (b *bulkAction) result(action *api.Bulk) string {
	selected := 0
	if action.Matching != nil {
		selected = *action.Matching
	}
	for _, n := range action.Skipped {
		selected -= n
	}
	return terminal.WithCommas(action.Done) + " of " + terminal.WithCommas(selected) + " " + b.done
}

// bulkError is why a bulk action ended before all was done, nil if it did not.
func bulkError(action *api.Bulk) error {
	switch action.State {
	case "stopped":
		return fmt.Errorf("it was stopped by %s; caddy hooks bulk resume %s goes on", action.StoppedBy, action.ID)
	case "failed":
		return fmt.Errorf("%s; caddy hooks bulk resume %s goes on", action.Error, action.ID)
	}
	return nil
}

// skipReasons say with what nothing was done.
var skipReasons = map[string]string{
	"again": "since they were run again before", "gone": "since their message is not kept any more",
	"cut":   "since only a part of their message is kept",
	"ended": "since they had ended", "open": "since they have not ended", "underWay": "since they are being sent",
	"delivered": "since they have arrived",
	"forgotten": "since they are not there any more",
}

// leftOut says with how many nothing is done, and why.
func leftOut(skipped map[string]int) string {
	said := ""
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		said += fmt.Sprintf("   %s left out, %s", terminal.WithCommas(skipped[reason]), skipReasons[reason])
	}
	return said
}

// selection says which runs or deliveries a filter selects, as in " of issues that failed".
func selection(query url.Values) string {
	said := ""
	for _, part := range []struct{ parameter, before string }{
		{"hook", " of "}, {"chatId", " in the chat "}, {"runner", " for the runner "}, {"host", " to "}, {"channel", " to "}, {"q", " with "},
	} {
		if value := query.Get(part.parameter); value != "" {
			said += part.before + text.List(strings.Split(value, ","))
		}
	}
	for _, part := range []struct{ parameter, before string }{{"since", " since "}, {"until", " until "}} {
		if value := query.Get(part.parameter); value != "" {
			if at, err := time.Parse(time.RFC3339, value); err == nil {
				value = at.Local().Format("2006-01-02 15:04:05")
			}
			said += part.before + value
		}
	}
	statuses := text.List(strings.Split(query.Get("status"), ","))
	switch query.Get("do") {
	case "again":
		said += " that " + strings.ReplaceAll(statusWord(statuses), "cancelled", "were cancelled")
	case "cancel":
		said += " that are " + statuses
	}
	return said
}

func bulkVerb() *cobra.Command {
	cmd := bulkActions.verb(&cobra.Command{
		Use:   "bulk [stop ID | resume ID]",
		Short: "Lists bulk actions, stops one, or has it go on",
		Long: `
A bulk action does something with all runs or deliveries of a filter: again, cancel, retry and drop start one when they are given a filter.
Caddy carries it out, and goes on with it after a restart. This lists those that go on and the last ones that have ended, the newest first.

bulk stop ends one before all is done. bulk resume has one go on that was stopped or has failed, and waits for its end.`,
		Example: `  caddy hooks bulk
  caddy hooks bulk stop 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31`,
	})
	cmd.AddCommand(
		&cobra.Command{Use: "stop ID", Short: "Ends a bulk action before all is done",
			Long: `
Ends a bulk action before all is done. What it has done stays done, and caddy hooks bulk resume goes on where it was.

  caddy hooks bulk stop 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31`,
			Args:              flags.TakesOne("the id of the bulk action"),
			ValidArgsFunction: flags.CompleteOne(bulkActions.complete()),
			RunE: withSession(func(s *session, cmd *cobra.Command, args []string) error {
				return s.postBulk(args[0], "stop", func(*api.Bulk) error { return nil })
			})},
		&cobra.Command{Use: "resume ID", Short: "Has a bulk action go on that was stopped or has failed",
			Long: `
Has a bulk action go on that was stopped or has failed, and waits for its end. Ctrl-C ends the wait alone.

  caddy hooks bulk resume 019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31`,
			Args: flags.TakesOne("the id of the bulk action"), ValidArgsFunction: flags.CompleteOne(bulkActions.complete()),
			RunE: withSession(func(s *session, cmd *cobra.Command, args []string) error {
				return s.postBulk(args[0], "resume", func(action *api.Bulk) error {
					ended, err := s.followBulk(cmd, action.ID, "done")
					if err == nil {
						*action = *ended
						err = bulkError(ended)
					}
					return err
				})
			})},
	)
	return cmd
}

// postBulk tells a bulk action to stop or to go on, and prints how far it is after that.
func (s *session) postBulk(id, what string, after func(*api.Bulk) error) error {
	action := new(api.Bulk)
	if _, err := s.call(adminclient.Call{Method: http.MethodPost, Path: "bulk/" + url.PathEscape(id) + "/" + what}, action); err != nil {
		return err
	}
	err := after(action)
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), action)
	}
	done := fmt.Sprintf("   %s of %s done", terminal.WithCommas(action.Done), matching(action))
	s.screen.Line(terminal.Cells(action.State, done, leftOut(action.Skipped))...)
	return err
}
