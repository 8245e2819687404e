package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// addYesFlag lets a verb act without asking first.
func addYesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "do not ask first")
}

// confirm asks before something is done that cannot be undone, unless --yes is given. An error means that it must not be done.
func confirm(cmd *cobra.Command, plan string) error {
	if flagIsOn(cmd, "yes") {
		return nil
	}
	yes, err := newScreen(cmd).Confirm(plan + " Go on?")
	switch {
	case errors.Is(err, terminal.ErrNobody):
		return &usageError{fmt.Sprintf("%s But %v", plan, err)}
	case err != nil:
		return err
	case !yes:
		return errors.New("nothing was done")
	}
	return nil
}
