package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// flagText is the value of a flag with a text.
func flagText(cmd *cobra.Command, name string) string {
	value, _ := cmd.Flags().GetString(name)
	return value
}

func flagIsOn(cmd *cobra.Command, name string) bool {
	on, _ := cmd.Flags().GetBool(name)
	return on
}

func flagNumber(cmd *cobra.Command, name string) int {
	number, _ := cmd.Flags().GetInt(name)
	return number
}

// textFlag adds a flag with a text, and what a shell offers as its value.
func textFlag(cmd *cobra.Command, name, usual, usage string, complete cobra.CompletionFunc) {
	cmd.Flags().String(name, usual, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, complete)
}

// noFiles keeps a shell from offering files as the values of flags.
func noFiles(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// takesOne checks that a verb gets one argument, such as "the id of a run".
func takesOne(noun string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s is missing: %s", noun, usageOf(cmd))
		}
		return takesOneAtMost(cmd, args)
	}
}

// takesOneAtMost checks that a verb gets no more than one argument.
func takesOneAtMost(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%q is one argument too many: %s (a text with blanks stands in quotes)", text.Abridge(args[1]), usageOf(cmd))
	}
	return nil
}

// takesNone checks that a verb gets flags alone. If a word is the value of one, that is told.
func takesNone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for _, flag := range []string{"of", "status", "range"} { // whose values are always the same
		complete, ok := cmd.GetFlagCompletionFunc(flag)
		if !ok {
			continue
		}
		if words, _ := complete(cmd, nil, args[0]); slices.Contains(words, args[0]) {
			return fmt.Errorf("%s takes no argument: did you mean --%s %s?", cmd.Name(), flag, args[0])
		}
	}
	return fmt.Errorf("%s takes no argument, and got %q", cmd.Name(), text.Abridge(args[0]))
}

// usageOf is how a command is called.
func usageOf(cmd *cobra.Command) string { return strings.TrimSuffix(cmd.UseLine(), " [flags]") }

// flagProblem says what is wrong with a flag, for people who do not know how it is read.
func flagProblem(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		if kind := flagKinds[invalid.GetFlag().Value.Type()]; kind != "" {
			return usagef("--%s must be %s, and not %q", invalid.GetFlag().Name, kind, text.Abridge(invalid.GetValue()))
		}
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, flag.Name)
			}
		})
		if meant := text.Nearest(unknown.GetSpecifiedName(), names); meant != "" {
			return usagef("there is no flag --%s; did you mean --%s?", text.Abridge(unknown.GetSpecifiedName()), meant)
		}
	}
	return &usageError{err.Error()}
}

// flagKinds are what flags take, by the type of their value.
var flagKinds = map[string]string{"int": "a number", "duration": "a duration such as 10s", "bool": "true or false"}

// nextCommand is a command for a shell that asks the same instance, to be copied.
func nextCommand(cmd *cobra.Command, words ...string) string {
	line := "caddy hooks"
	for _, flag := range []string{"address", "instance"} {
		if cmd.Flags().Changed(flag) {
			line += " --" + flag + " " + terminal.ShellWord(flagText(cmd, flag))
		}
	}
	for _, word := range words {
		line += " " + terminal.ShellWord(word)
	}
	return line
}
