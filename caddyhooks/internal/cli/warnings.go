package cli

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func warningsVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "warnings",
		Short: "Lists settings and hooks that are probably mistakes",
		Long: `
Lists warnings about settings and hooks that are allowed, and probably a mistake, with those that were dismissed, by whom and why.`,
		Example: `  caddy hooks warnings`,
		RunE:    withSession(runWarnings),
	}
}

func dismissVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dismiss CODE {--reason TEXT | --undo}",
		Short: "Dismisses a warning, or brings it back",
		Long: `
Dismisses a warning: status and the dashboard do not list it any more, on all nodes. It comes back when its text changes, or with --undo.
caddy hooks warnings shows the codes.

  caddy hooks dismiss 5f0c1d2e3a4b --reason "the sender cannot do better"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := flags.TakesOne("the code of the warning")(cmd, args); err != nil {
				return err
			}
			if undo, _ := cmd.Flags().GetBool("undo"); undo == (flags.Text(cmd, "reason") != "") {
				return errors.New("use either --reason, which says why the warning may stay, or --undo")
			}
			return nil
		},
		RunE:              withSession(runDismiss),
		ValidArgsFunction: flags.CompleteOne(completeNamed((*session).warningCodes)),
	}
	flags.AddText(cmd, "reason", "", "why the warning may stay, for other operators", cobra.NoFileCompletions)
	cmd.Flags().Bool("undo", false, "bring the warning back")
	return cmd
}

func (s *session) warningCodes() (codes []named, err error) {
	var list api.WarningList
	_, err = s.get("warnings", nil, &list)
	for _, w := range list.Warnings {
		codes = append(codes, named{w.Code, w.Setting + ": " + w.Problem})
	}
	return codes, err
}

func runWarnings(s *session, _ *cobra.Command, _ []string) error {
	var list api.WarningList
	answer, err := s.get("warnings", nil, &list)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	if len(list.Warnings) == 0 {
		s.screen.Note("There are no warnings.")
		return nil
	}
	var rows [][]terminal.Text
	for _, w := range list.Warnings {
		state, problem := terminal.Warn("open"), w.Problem
		if d := w.Dismissal; d != nil {
			state = terminal.Plain("dismissed by " + d.By + " " + terminal.NewClock().Ago(d.At))
			problem += " (" + d.Reason + ")"
		}
		rows = append(rows, terminal.Cells(w.Code, state, w.Setting, problem))
	}
	s.screen.Table([]string{"CODE", "STATE", "SETTING", "WARNING"}, rows)
	return nil
}

func runDismiss(s *session, cmd *cobra.Command, args []string) error {
	call := adminclient.Call{Method: http.MethodDelete, Path: "warnings/" + url.PathEscape(args[0]) + "/dismissal"}
	done := "brought back"
	if undo, _ := cmd.Flags().GetBool("undo"); !undo {
		call.Method, call.Body, done = http.MethodPut, text.PlainJSON(map[string]string{"reason": flags.Text(cmd, "reason")}), "dismissed"
	}
	if _, err := s.call(call, nil); err != nil {
		return err
	}
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), map[string]string{"code": args[0], "warning": done})
	}
	s.screen.Line(terminal.Good(done), terminal.Plain("  "+args[0]), terminal.Faint("        "+flags.NextCommand(cmd, "warnings")))
	return nil
}
