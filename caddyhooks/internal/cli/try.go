package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, tryVerb)
}

func tryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "try HOOK {--payload FILE | --example} [--wait]",
		Short: "Starts a run of a hook that sends nothing out",
		Long: `
Starts a real run of a custom hook, in the chat test: and the name of the hook. Nothing is sent out: no callback, and no message to a channel. The payload needs no
signature, and webhooks may be off.

  caddy hooks try github-issues --payload issue.json --header 'X-GitHub-Event: issues' --wait
  caddy hooks try github-issues --example --wait`,
		Args: withPayload(takesOne("the hook")),
		RunE: errandVerb(runTry),

		ValidArgsFunction: completeOne(completeHooks),
	}
	addPayloadFlag(cmd)
	addExampleFlag(cmd)
	addHeaderFlag(cmd)
	cmd.Flags().String("query", "", "the query of the request, as in 'source=test&priority=1'")
	noFiles(cmd, "query")
	cmd.Flags().Bool("wait", false, "wait until the run has ended, and show its answer")
	return cmd
}

func runTry(e *errand, cmd *cobra.Command, args []string) error {
	if args[0] == "wake" || args[0] == "agent" {
		return fmt.Errorf("%s has no template to try: send it with %s", args[0], nextCommand(cmd, "send", args[0], "--payload", flagText(cmd, "payload")))
	}
	header, err := readHeaders(cmd)
	if err != nil {
		return err
	}
	payload, err := readPayload(cmd)
	if err != nil {
		return err
	}
	req := &intake.Request{Header: header, Body: payload}
	if flagIsOn(cmd, "example") {
		m, err := e.mapping(args[0])
		if err != nil {
			return err
		}
		if req, err = exampleFor(args[0], m, header); err != nil {
			return err
		}
	}
	query := testParameters(req.Header, cmp.Or(flagText(cmd, "query"), req.Values.Encode()))
	var run api.Run
	answer, err := e.call(apiCall{method: http.MethodPost, path: "mappings/" + url.PathEscape(args[0]) + "/test", query: query, body: req.Body}, &run)
	if err != nil {
		return err
	}
	if flagIsOn(cmd, "wait") {
		return e.showEnd(cmd, run.RunID)
	}
	if e.json {
		return e.printJSON(answer)
	}
	e.printRun(cmd, terminal.Good("started"), run.RunID, run.ChatID)
	return nil
}

// testParameters are the parameters by which the admin API is told the headers and the query of a request.
func testParameters(header http.Header, query string) url.Values {
	parameters := make(url.Values)
	var lines []string
	for name, values := range header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	if len(lines) > 0 {
		parameters.Set("headers", strings.Join(lines, "\n"))
	}
	if query != "" {
		parameters.Set("query", query)
	}
	return parameters
}

// pollPause is the pause between two questions about something that takes its time.
const pollPause = 200 * time.Millisecond

// showEnd waits until a run has ended, and shows its answer.
func (e *errand) showEnd(cmd *cobra.Command, runID string) error {
	progress := e.screen.Progress()
	defer progress.Close()
	for start := time.Now(); ; {
		var run api.Run
		answer, err := e.get("runs/"+url.PathEscape(runID), nil, &run)
		if err != nil {
			return err
		}
		if run.Status.Ended() {
			progress.Close()
			return e.printEnd(cmd, answer, run)
		}
		progress.Show("%s for %s", run.Status, time.Since(start).Round(time.Second))
		if err := e.pause(pollPause); err != nil {
			return err
		}
	}
}

func (e *errand) printEnd(cmd *cobra.Command, answer []byte, run api.Run) error {
	if e.json {
		if err := e.printJSON(answer); err != nil {
			return err
		}
	} else {
		look := terminal.Good
		if run.Reply == nil {
			look = terminal.Bad
		}
		e.printRun(cmd, look(statusWord(run.Status)), run.RunID, run.ChatID)
		if run.Reply != nil {
			for line := range strings.Lines(*run.Reply) {
				e.screen.Line(terminal.Plain(strings.TrimRight(line, "\r\n")))
			}
		}
	}
	if run.Reply == nil {
		return fmt.Errorf("the run did not complete: %s", cmp.Or(terminal.Escaped(run.ErrorMessage), string(run.Status)))
	}
	return nil
}

// pause waits, unless nobody waits any more.
func (e *errand) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}
