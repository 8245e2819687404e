package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func renderVerb() *cobra.Command {
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
		Args:              takesOneAtMost,
		RunE:              interruptible(runRender),
		ValidArgsFunction: completeOne(completeHooks),
	}
	cmd.Flags().String("template", "", "the template, in single quotes")
	cmd.Flags().String("template-file", "", "a file with the template, or - for standard input")
	_ = cmd.MarkFlagFilename("template-file")
	addPayloadFlag(cmd)
	addHeaderFlag(cmd)
	textFlag(cmd, "query", "", queryUsage, cobra.NoFileCompletions)
	noFiles(cmd, "template")
	return cmd
}

func runRender(ctx context.Context, cmd *cobra.Command, args []string) error {
	template, given, err := readTemplate(cmd)
	if err != nil {
		return err
	}
	if !given && len(args) == 0 {
		return usagef("what to render is missing: the name of a hook, --template <text> or --template-file <file>")
	}
	asked := api.PreviewRequest{}
	if asked.Header, err = readHeaders(cmd); err != nil {
		return err
	}
	if asked.Query, err = url.ParseQuery(flagText(cmd, "query")); err != nil {
		return usagef("--query cannot be read: %v", err)
	}
	if asked.Payload, err = readPayload(cmd); err != nil {
		return err
	}
	shown := intake.PreviewMapping(settings.Mapping{Action: engine.Agent, Body: "auto", MessageTemplate: template}, asked)
	if len(args) > 0 {
		if shown, err = askPreview(ctx, cmd, args[0], template, given, asked); err != nil {
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
	if wantsJSON(cmd) {
		return printValue(cmd.OutOrStdout(), shown)
	}
	printPreview(shown, newScreen(cmd))
	return nil
}

// readTemplate reads --template or --template-file, and reports whether there is one.
func readTemplate(cmd *cobra.Command) (text string, given bool, err error) {
	file := flagText(cmd, "template-file")
	inline := cmd.Flags().Changed("template")
	switch {
	case inline && file != "":
		return "", false, usagef("--template and --template-file do not go together")
	case file == "-" && flagText(cmd, "payload") == "-":
		return "", false, usagef("the template and the payload cannot both come from standard input")
	case file == "":
		return flagText(cmd, "template"), inline, nil
	}
	const maxTemplate = 1 << 20
	data, err := readInput(cmd, file, maxTemplate)
	if err != nil {
		return "", false, fmt.Errorf("reading the template: %w", err)
	}
	return string(data), true, nil
}

// askPreview asks a running Caddy what a hook makes of a request.
func askPreview(ctx context.Context, cmd *cobra.Command, hook, template string, replaced bool, asked api.PreviewRequest) (*api.Preview,
	error) {
	if isBuiltIn(hook) {
		return nil, fmt.Errorf("%s has no template: its message is the one in the payload", hook)
	}
	s, err := newSession(ctx, cmd)
	if err != nil {
		return nil, err
	}
	var mapping map[string]json.RawMessage
	if _, err := s.get(mappingPath(hook), nil, &mapping); err != nil {
		return nil, err
	}
	if replaced {
		mapping["messageTemplate"] = text.JSONString(template)
	}
	body := text.PlainJSON(map[string]any{
		"mapping": mapping, "payload": string(asked.Payload), "headers": asked.Header, "query": asked.Query.Encode(),
	})
	shown := new(api.Preview)
	_, err = s.call(adminclient.Call{Method: http.MethodPost, Path: "preview", Body: body}, shown)
	return shown, err
}

// printPreview prints the message, and beside it what there is to know about it.
func printPreview(p *api.Preview, screen printer) {
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
