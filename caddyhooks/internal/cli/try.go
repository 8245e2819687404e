package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/requests"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func tryVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "try HOOK {--payload FILE | --example} [--wait]",
		Short: "Starts a run of a hook that sends nothing out",
		Long: `
Starts a real run of a custom hook, in the chat test: and the name of the hook. Nothing is sent out: no callback, and no message to a
channel. The payload needs no signature, and webhooks may be off.

  caddy hooks try github-issues --payload issue.json --header 'X-GitHub-Event: issues' --wait
  caddy hooks try github-issues --example --wait`,
		Args:              requests.WithPayload(flags.TakesOne("the hook")),
		RunE:              withSession(runTry),
		ValidArgsFunction: flags.CompleteOne(completeHooks),
	}
	requests.AddFlags(cmd)
	flags.AddText(cmd, "query", "", requests.QueryUsage, cobra.NoFileCompletions)
	cmd.Flags().Bool("wait", false, "wait until the run has ended, and show its answer")
	return cmd
}

func runTry(s *session, cmd *cobra.Command, args []string) error {
	if settings.IsBuiltIn(args[0]) {
		return fmt.Errorf("%s has no template to try: send it with %s", args[0],
			flags.NextCommand(cmd, "send", args[0], "--payload", flags.Text(cmd, "payload")))
	}
	header, payload, err := requests.Read(cmd)
	if err != nil {
		return err
	}
	req := &intake.Request{Header: header, Body: payload}
	if flags.IsOn(cmd, "example") {
		m, err := s.Mapping(args[0])
		if err != nil {
			return err
		}
		if req, err = intake.ExampleFor(args[0], m, header); err != nil {
			return err
		}
	}
	query := requests.Parameters(req.Header, cmp.Or(flags.Text(cmd, "query"), req.Values.Encode()))
	call := adminclient.Call{Method: http.MethodPost, Path: mappingPath(args[0]) + "/test", Query: query, Body: req.Body}
	var run api.Tested
	answer, err := s.call(call, &run)
	if err == nil && run.Channel != "" && !s.json {
		s.screen.Note("The answer of such a request goes to %s %s. This one is sent nowhere.", run.Channel, run.To)
	}
	if err == nil && flags.IsOn(cmd, "wait") {
		return s.showEnd(cmd, run.RunID)
	}
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	s.screen.printRun(cmd, terminal.Good("started"), &api.Run{RunID: run.RunID, ChatID: run.ChatID})
	return nil
}

// pollPause is the pause between two questions about something that takes its time.
const pollPause = 200 * time.Millisecond

// showEnd waits until a run has ended, and shows its answer.
func (s *session) showEnd(cmd *cobra.Command, runID string) error {
	progress := s.screen.Progress()
	defer progress.Close()
	for start := time.Now(); ; {
		var run api.Run
		answer, err := s.get("runs/"+url.PathEscape(runID), nil, &run)
		if err != nil {
			return err
		}
		if run.Status.Ended() {
			progress.Close()
			return s.printEnd(cmd, answer, run)
		}
		progress.Show("%s for %s", run.Status, time.Since(start).Round(time.Second))
		if err := s.pause(pollPause); err != nil {
			return err
		}
	}
}

func (s *session) printEnd(cmd *cobra.Command, answer []byte, run api.Run) error {
	if s.json {
		if err := s.printJSON(answer); err != nil {
			return err
		}
	} else {
		look := terminal.Good
		if run.Reply == nil {
			look = terminal.Bad
		}
		s.screen.printRun(cmd, look(statusWord(run.Status)), &run)
		if run.Reply != nil {
			s.screen.Lines(terminal.Plain(""), *run.Reply)
		}
	}
	if run.Reply == nil {
		return fmt.Errorf("the run did not complete: %s", cmp.Or(terminal.Escaped(run.ErrorMessage), string(run.Status)))
	}
	return nil
}

// pause waits, unless nobody waits any more.
func (s *session) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
