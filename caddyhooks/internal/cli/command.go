// Package cli has the commands `caddy hooks …`. Most of them talk to the admin endpoint of a running Caddy: a session is the use of
// one instance by one command, and a client sends its requests. Lists are described by the table of resources.
//
// Three packages are below it, which do not import it. Package stores has the commands about the files and tables of stores. Package
// requests has those that make a request: send, sign and render. Package flags has what all commands share. The running Caddy is handed to
// stores and requests, as far as they ask it.
//
// The package may import api for what the admin endpoint answers, settings and intake for what hooks are and make of a request, text
// and terminal for what is printed, and dashboard for its page. It never imports service, ingress or admin: a command is another process
// than the Caddy that it asks.
package cli

import (
	"cmp"
	"errors"
	"fmt"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/stores"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "hooks",
		Usage: "VERB",
		Short: "Works with the hooks of a running Caddy",
		Long: `
Works with the hooks of a running Caddy, through its admin endpoint.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`,
		CobraFunc: HooksCommand,
	})
}

// helpTemplate is cobra's own. Caddy's points to its documentation, which knows nothing of hooks.
const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

// verbs make the commands below `caddy hooks`.
var verbs = []func() *cobra.Command{
	againVerb, answerVerb, backupVerb, bulkVerb, cancelVerb, changesVerb, stores.Compact, costVerb, dashboardVerb, deliveriesVerb, dismissVerb,
	execVerb, exportVerb, healthVerb, hookVerb, listVerb, stores.Migrate, stores.MigrateStore, openapiVerb, pauseVerb, pausesVerb,
	questionsVerb, retryVerb, dropVerb, refusedVerb, renderVerb, stores.Restore, resumeVerb, runnersVerb, runsVerb, schemaVerb, sendVerb,
	sessionVerb, setVerb, showVerb, signVerb, statusVerb, tailVerb, tokenVerb, tryVerb, warningsVerb,
}

// HooksCommand makes the command `caddy hooks` of what its verbs have in common.
func HooksCommand(cmd *cobra.Command) {
	cmd.PersistentFlags().String("address", "", "the admin endpoint of Caddy: host:port, or unix//path (default: $CADDY_ADMIN, or else "+
		"localhost:2019)")
	cmd.PersistentFlags().String("instance", "", "the hooks instance (default: the one named default, or the only one)")
	cmd.PersistentFlags().Bool("json", false, "print JSON, for other programs")
	_ = cmd.RegisterFlagCompletionFunc("instance", completeInstances)
	_ = cmd.RegisterFlagCompletionFunc("address", cobra.NoFileCompletions)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, flags.Problem(cmd, err)) })
	cmd.SetHelpTemplate(helpTemplate)
	for _, verb := range verbs {
		cmd.AddCommand(verb())
	}
	wrapVerbs(cmd)
}

// wrapVerbs gives a command and all below it the exit codes of `caddy hooks`. A command that only groups others says which there are.
// One that does not say which arguments it takes has none.
func wrapVerbs(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		wrapVerbs(child)
	}
	run, args := cmd.RunE, cmd.Args
	switch {
	case run == nil:
		run, args = missingVerb, cobra.ArbitraryArgs
	case args == nil:
		args = flags.TakesNone
	}
	cmd.Args = nil
	if cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs // or cobra itself refuses them, with another exit code
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return exit(cmd, flags.WrongUsage(err))
		}
		out := terminal.NewOutput(cmd.OutOrStdout())
		cmd.SetOut(out)
		return exit(cmd, cmp.Or(run(cmd, given), out.Failure()))
	}
}

func missingVerb(cmd *cobra.Command, given []string) error {
	var names []string
	for _, child := range cmd.Commands() {
		if !child.Hidden {
			names = append(names, child.Name())
		}
	}
	if len(given) > 0 {
		if meant := text.Nearest(given[0], names); meant != "" {
			return flags.Usagef("there is no verb %q; did you mean %s?", text.Abridge(given[0]), meant)
		}
		return flags.Usagef("there is no verb %q; use %s", given[0], text.List(names))
	}
	return flags.Usagef("a verb is missing; use %s", text.List(names))
}

// exit ends a command. Caddy ends with the code 1 for an error, and knows no other way to get another code.
func exit(cmd *cobra.Command, err error) error {
	var usage *flags.UsageError
	if !errors.As(err, &usage) {
		return err
	}
	cmd.SilenceErrors = true
	fmt.Fprintf(cmd.ErrOrStderr(), "Error: %v\nMore: %s --help\n", err, cmd.CommandPath())
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return exitUsage, nil })(cmd, nil)
}

const exitUsage = 2

// execVerb is `caddy hooks exec` for those who type it. Caddy starts itself with this verb to supervise a program, and is then the
// wrapper of package supervise long before it would come here.
func execVerb() *cobra.Command {
	return &cobra.Command{
		Use:                "exec",
		Short:              "Is started by Caddy, to end all processes of a program",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("exec is only for Caddy itself, which starts the programs of its runners with it")
		},
	}
}
