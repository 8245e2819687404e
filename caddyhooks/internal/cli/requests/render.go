package requests

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Render is the verb render.
func Render(open Opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "render {HOOK | --template TEXT | --template-file FILE} --payload FILE",
		Short: "Shows the message that a template or a hook makes of a payload",
		Long: `
Shows the message that the agent would get, and sends nothing. Placeholders without a value are counted beside the message, on standard
error.

A template is rendered here, and needs no running Caddy. For a hook the running Caddy is asked; then the message has the marks of untrusted
data, and you are told if the hook would ignore the payload. With a hook and a template, the template stands in for that of the hook.

  caddy hooks render --template 'Issue #{issue.number}: {issue.title}' --payload issue.json
  caddy hooks render --template-file issue.txt --payload - < issue.json
  caddy hooks render github-issues --payload issue.json --header 'X-GitHub-Event: issues'`,
		Args: flags.TakesOneAtMost,
		RunE: flags.Interruptible(open.render),
	}
	cmd.Flags().String("template", "", "the template, in single quotes")
	cmd.Flags().String("template-file", "", "a file with the template, or - for standard input")
	_ = cmd.MarkFlagFilename("template-file")
	addPayloadFlag(cmd)
	addHeaderFlag(cmd)
	flags.AddText(cmd, "query", "", QueryUsage, cobra.NoFileCompletions)
	flags.NoFiles(cmd, "template")
	return cmd
}

func (open Opener) render(ctx context.Context, cmd *cobra.Command, args []string) error {
	template, given, err := readTemplate(cmd)
	if err != nil {
		return err
	}
	if !given && len(args) == 0 {
		return flags.Usagef("what to render is missing: the name of a hook, --template <text> or --template-file <file>")
	}
	asked := api.PreviewRequest{}
	if asked.Header, err = readHeaders(cmd); err != nil {
		return err
	}
	if asked.Query, err = url.ParseQuery(flags.Text(cmd, "query")); err != nil {
		return flags.Usagef("--query cannot be read: %v", err)
	}
	if asked.Payload, err = readPayload(cmd); err != nil {
		return err
	}
	shown := intake.PreviewMapping(settings.Mapping{Action: engine.Agent, Body: "auto", MessageTemplate: template}, asked)
	if len(args) > 0 {
		if settings.IsBuiltIn(args[0]) {
			return fmt.Errorf("%s has no template: its message is the one in the payload", args[0])
		}
		caddy, err := open(ctx, cmd)
		if err != nil {
			return err
		}
		replaced := &template
		if !given {
			replaced = nil
		}
		if shown, err = caddy.Preview(args[0], replaced, asked); err != nil {
			return err
		}
	}
	for _, problem := range shown.Problems { // because of which there is no message
		if len(shown.Message) == 0 || problem.Field == "payload" {
			err = errors.Join(err, errors.New(problem.Message))
		}
	}
	if err != nil {
		return err
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(cmd.OutOrStdout(), shown)
	}
	printPreview(shown, flags.Screen(cmd))
	return nil
}

// readTemplate reads --template or --template-file, and reports whether there is one.
func readTemplate(cmd *cobra.Command) (text string, given bool, err error) {
	file := flags.Text(cmd, "template-file")
	inline := cmd.Flags().Changed("template")
	switch {
	case inline && file != "":
		return "", false, flags.Usagef("--template and --template-file do not go together")
	case file == "-" && flags.Text(cmd, "payload") == "-":
		return "", false, flags.Usagef("the template and the payload cannot both come from standard input")
	case file == "":
		return flags.Text(cmd, "template"), inline, nil
	}
	const maxTemplate = 1 << 20
	data, err := flags.ReadInput(cmd, file, maxTemplate)
	if err != nil {
		return "", false, fmt.Errorf("reading the template: %w", err)
	}
	return string(data), true, nil
}

// printPreview prints the message, and beside it what there is to know about it.
func printPreview(p *api.Preview, screen *terminal.Screen) {
	var line []terminal.Text
	for _, segment := range p.Message {
		for i, text := range strings.Split(segment.Text, "\n") {
			if i > 0 {
				screen.Line(line...)
				line = nil
			}
			look := terminal.Plain
			switch {
			case segment.Missing:
				look = terminal.Warn
			case segment.Placeholder != "":
				look = terminal.Bold
			}
			line = append(line, look(strings.ReplaceAll(text, "\t", "    ")))
		}
	}
	screen.Line(line...)
	if p.Missing > 0 {
		screen.Note("%s", missingPlaceholders(p))
	}
	if p.ChatID != "" {
		screen.Note("chat %s", p.ChatID)
	}
	if p.To != "" {
		screen.Note("The answer goes to %s %s", p.Channel, p.To)
	}
	switch {
	case p.Ignored != "":
		screen.Note("The hook would ignore this request: %s", p.Ignored)
	case p.Runs > 1:
		screen.Note("The request would become %d runs; this is the message of the first.", p.Runs)
	}
	for _, problem := range p.Problems {
		screen.Note("Problem: %s", problem.Message)
	}
	for _, warning := range p.Warnings {
		screen.Note("Warning: %s", warning)
	}
}

// missingPlaceholders says which placeholders have no value.
func missingPlaceholders(p *api.Preview) string {
	const most = 10
	var names []string
	for _, segment := range p.Message {
		if segment.Missing && !slices.Contains(names, segment.Placeholder) {
			names = append(names, segment.Placeholder)
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d others", more))
	}
	return fmt.Sprintf("The request has no value for %d of %s: %s", p.Missing, text.Count(p.Placeholders, "placeholder", "placeholders"),
		text.List(names))
}
