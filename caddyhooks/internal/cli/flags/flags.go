// Package flags has what the commands below `caddy hooks` share: how they read their flags, arguments and secrets, ask before they act, and
// say that they were called in a wrong way. It imports terminal and text.
package flags

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// Text is the value of a flag with a text.
func Text(cmd *cobra.Command, name string) string {
	value, _ := cmd.Flags().GetString(name)
	return value
}

// IsOn reports whether a flag without a value is given.
func IsOn(cmd *cobra.Command, name string) bool {
	on, _ := cmd.Flags().GetBool(name)
	return on
}

// Number is the value of a flag with a number.
func Number(cmd *cobra.Command, name string) int {
	number, _ := cmd.Flags().GetInt(name)
	return number
}

// AddText adds a flag with a text, and what a shell offers as its value.
func AddText(cmd *cobra.Command, name, usual, usage string, complete cobra.CompletionFunc) {
	cmd.Flags().String(name, usual, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, complete)
}

// NoFiles keeps a shell from offering files as the values of flags.
func NoFiles(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// NextCommand is a command for a shell that asks the same instance, to be copied.
func NextCommand(cmd *cobra.Command, words ...string) string {
	line := "caddy hooks"
	for _, flag := range []string{"address", "instance"} {
		if cmd.Flags().Changed(flag) {
			line += " --" + flag + " " + terminal.ShellWord(Text(cmd, flag))
		}
	}
	for _, word := range words {
		line += " " + terminal.ShellWord(word)
	}
	return line
}

// Screen is the screen of a command.
func Screen(cmd *cobra.Command) *terminal.Screen {
	return terminal.New(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// Interruptible is the RunE of a verb that ends when the person at the terminal does not want to wait any more.
func Interruptible(run func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return run(ctx, cmd, args)
	}
}

// WantsJSON reports whether the answer is to be printed as JSON.
func WantsJSON(cmd *cobra.Command) bool { return IsOn(cmd, "json") }

// AddYes lets a verb act without asking first.
func AddYes(cmd *cobra.Command) { cmd.Flags().BoolP("yes", "y", false, "do not ask first") }

// Confirm asks before something is done that cannot be undone, unless --yes is given. An error means that it must not be done.
func Confirm(cmd *cobra.Command, plan string) error {
	if IsOn(cmd, "yes") {
		return nil
	}
	yes, err := Screen(cmd).Confirm(plan + " Go on?")
	switch {
	case errors.Is(err, terminal.ErrNobody):
		return Usagef("%s But %v", plan, err)
	case err == nil && !yes:
		return errors.New("nothing was done")
	}
	return err
}
