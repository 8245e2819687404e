package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func pauseVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause {hook NAME | chat CHAT | runner NAME | all} [--reason TEXT]",
		Short: "Keeps runs from being started, until resume",
		Long: `
Pauses a hook, a chat, a runner or everything, on all nodes. Requests are accepted and kept, and their runs are not started. Turns under way
go on, and so do deliveries. A restart of Caddy does not end a pause. A name alone is that of a hook.

  caddy hooks pause hook github --reason "deploy of the agent"
  caddy hooks pause all
  caddy hooks pauses`,
		Args: checkPausedArgs,
		RunE: withSession(func(s *session, cmd *cobra.Command, args []string) error {
			what, name := pausedThing(args)
			return s.postPause(cmd, map[string]string{"what": string(what), "name": name, "reason": flags.Text(cmd, "reason")})
		}),
		ValidArgsFunction: completePaused(map[starts.What]cobra.CompletionFunc{
			starts.Hook: completeAllHooks, starts.Chat: chats.complete(), starts.Runner: completeRunners}),
	}
	flags.AddText(cmd, "reason", "", "why, for other operators", cobra.NoFileCompletions)
	return cmd
}

func resumeVerb() *cobra.Command {
	paused := completeNamed((*session).pausedNames)
	cmd := &cobra.Command{
		Use:   "resume {hook NAME | chat CHAT | runner NAME | all} [--rate N/TIME]",
		Short: "Lets runs start again that were paused",
		Long: `
Ends the pause of a hook, a chat, a runner or everything, on all nodes. With --rate, its runs start at this pace on each node, until it is
resumed without --rate. To resume all does not resume what is paused on its own.

  caddy hooks resume hook github
  caddy hooks resume all --rate 10/s`,
		Args: checkPausedArgs,
		RunE: withSession(runResume),
		ValidArgsFunction: completePaused(map[starts.What]cobra.CompletionFunc{
			starts.Hook: paused, starts.Chat: paused, starts.Runner: paused}),
	}
	flags.AddText(cmd, "rate", "", "how many runs start in a time on each node, such as 10/s or 100/5m",
		flags.CompleteWords("1/s", "10/s", "10/m"))
	return cmd
}

func pausesVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "pauses",
		Short: "Shows what is paused, by whom and why",
		Long: `
Shows which hooks, chats and runners are paused, or everything, and how many of their runs wait.`,
		Example: `  caddy hooks pauses`,
		RunE:    withSession(runPauses),
	}
}

// pausedThing is what arguments name.
func pausedThing(args []string) (what starts.What, name string) {
	switch {
	case len(args) == 2:
		return starts.What(args[0]), args[1]
	case args[0] == string(starts.All):
		return starts.All, ""
	default:
		return starts.Hook, args[0]
	}
}

func checkPausedArgs(cmd *cobra.Command, args []string) error {
	var words []string
	for _, kind := range starts.Kinds {
		words = append(words, string(kind))
	}
	switch {
	case len(args) == 0:
		return fmt.Errorf("what to %s is missing: hook NAME, chat CHAT, runner NAME or all", cmd.Name())
	case len(args) > 2:
		return fmt.Errorf("%q is one argument too many (a text with blanks stands in quotes)", text.Abridge(args[2]))
	case len(args) == 2 && args[0] == string(starts.All):
		return fmt.Errorf("all has no name, and got %q", text.Abridge(args[1]))
	case len(args) == 2 && !slices.Contains(words, args[0]):
		return fmt.Errorf("%q is none of hook, chat, runner and all", text.Abridge(args[0]))
	case len(args) == 1 && args[0] != string(starts.All) && slices.Contains(words, args[0]):
		return fmt.Errorf("the name of the %s is missing", args[0])
	}
	return nil
}

// completePaused completes the kind of a thing, and then its name.
func completePaused(names map[starts.What]cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return flags.CompleteWords(starts.Kinds...)(cmd, args, typed)
		}
		if complete := names[starts.What(args[0])]; complete != nil && len(args) == 1 {
			return complete(cmd, args, typed)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (s *session) pausedNames() (names []named, err error) {
	var list api.PauseList
	_, err = s.get("pauses", nil, &list)
	for _, p := range list.Pauses {
		if p.Name != "" {
			names = append(names, named{p.Name, p.What + " " + p.Reason})
		}
	}
	return names, err
}

// postPause pauses something, or resumes it at a rate.
func (s *session) postPause(cmd *cobra.Command, sent map[string]string) error {
	var p api.Pause
	answer, err := s.call(adminclient.Call{Method: http.MethodPost, Path: "pauses", Body: text.PlainJSON(sent)}, &p)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	next := []string{"resume", p.What}
	if p.Name != "" {
		next = append(next, p.Name)
	}
	done := terminal.Warn("paused")
	if p.Rate != "" {
		done = terminal.Good("resumed at " + p.Rate)
	}
	s.screen.Line(done, terminal.Plain("  "+pauseName(&p)+"  "+waitingCell(&p)+" waiting"),
		terminal.Faint("        "+flags.NextCommand(cmd, next...)))
	return nil
}

func runResume(s *session, cmd *cobra.Command, args []string) error {
	what, name := pausedThing(args)
	if rate := flags.Text(cmd, "rate"); cmd.Flags().Changed("rate") {
		if _, err := settings.ParsePace(rate); err != nil {
			return flags.Usagef("--rate %v", err)
		}
		return s.postPause(cmd, map[string]string{"what": string(what), "name": name, "rate": rate})
	}
	query := url.Values{"what": {string(what)}}
	if name != "" {
		query.Set("name", name)
	}
	if _, err := s.call(adminclient.Call{Method: http.MethodDelete, Path: "pauses", Query: query}, nil); err != nil {
		return err
	}
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), map[string]string{"resumed": string(what), "name": name})
	}
	s.screen.Line(terminal.Good("resumed"), terminal.Plain("  "+pauseName(&api.Pause{What: string(what), Name: name})))
	return nil
}

func runPauses(s *session, _ *cobra.Command, _ []string) error {
	var list api.PauseList
	answer, err := s.get("pauses", nil, &list)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	if len(list.Pauses) == 0 {
		s.screen.Note("Nothing is paused.")
		return nil
	}
	clock, rows := terminal.NewClock(), [][]terminal.Text(nil)
	for i := range list.Pauses {
		p, state := &list.Pauses[i], terminal.Warn("paused")
		if p.Rate != "" {
			state = terminal.Plain("at " + p.Rate)
		}
		rows = append(rows, terminal.Cells(clock.When(p.At), state, pauseName(p), waitingCell(p), p.By,
			terminal.ShortText(p.Reason, maxReasonCell)))
	}
	s.screen.Table([]string{"SINCE", "STATE", "WHAT", "WAITING", "BY", "REASON"}, rows)
	return nil
}

// pauseName names what is paused.
func pauseName(p *api.Pause) string {
	if p.Name == "" {
		return p.What
	}
	return p.What + " " + terminal.ShortText(p.Name, maxReasonCell)
}

// waitingCell is how many runs wait.
func waitingCell(p *api.Pause) string {
	if p.WaitingMore {
		return terminal.WithCommas(p.Waiting) + "+"
	}
	return terminal.WithCommas(p.Waiting)
}
