package cli

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, cancelVerb)
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
		RunE: errandVerb(runCancel),

		ValidArgsFunction: completeOne(completeRuns(engine.Queued, engine.Running)),
	}
}

func runCancel(e *errand, cmd *cobra.Command, args []string) error {
	id, err := e.runIDOf(args[0])
	if err != nil {
		return err
	}
	var run api.Run
	answer, err := e.call(apiCall{method: http.MethodPost, path: "runs/" + url.PathEscape(id) + "/cancel"}, &run)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(answer)
	}
	word := terminal.Good("cancelled")
	if run.Status != engine.Cancelled {
		word = terminal.Warn("stopping")
	}
	e.printRun(cmd, word, run.RunID, run.ChatID)
	return nil
}

// printRun prints what was done with a run, and how to see more of it.
func (e *errand) printRun(cmd *cobra.Command, done terminal.Text, runID, chatID string) {
	e.screen.Line(done, terminal.Plain("  run "), terminal.Bold(runID), terminal.Plain("  chat "+chatID), terminal.Faint("        "+nextCommand(cmd, "show", runID)))
}
