package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// UsageError says how a command was called in a wrong way.
type UsageError struct{ problem string }

func (e *UsageError) Error() string { return e.problem }

// Usagef is fmt.Errorf for an error of usage.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// WrongUsage makes an error one of usage.
func WrongUsage(err error) error { return &UsageError{err.Error()} }

// TakesOne checks that a verb gets one argument, such as "the id of a run".
func TakesOne(noun string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s is missing: %s", noun, usageOf(cmd))
		}
		return TakesOneAtMost(cmd, args)
	}
}

// TakesOneAtMost checks that a verb gets no more than one argument.
func TakesOneAtMost(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%q is one argument too many: %s (a text with blanks stands in quotes)", text.Abridge(args[1]), usageOf(cmd))
	}
	return nil
}

// TakesNone checks that a verb gets flags alone. If a word is the value of one, that is told.
func TakesNone(cmd *cobra.Command, args []string) error {
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

// Problem says what is wrong with a flag, for people who do not know how it is read.
func Problem(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		if kind := flagKinds[invalid.GetFlag().Value.Type()]; kind != "" {
			return Usagef("--%s must be %s, and not %q", invalid.GetFlag().Name, kind, text.Abridge(invalid.GetValue()))
		}
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, flag.Name)
			}
		})
		if meant := text.Nearest(unknown.GetSpecifiedName(), names); meant != "" {
			return Usagef("there is no flag --%s; did you mean --%s?", text.Abridge(unknown.GetSpecifiedName()), meant)
		}
	}
	return WrongUsage(err)
}

// flagKinds are what flags take, by the type of their value.
var flagKinds = map[string]string{"int": "a number", "duration": "a duration such as 10s", "bool": "true or false"}
