package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func init() {
	verbs = append(verbs, execVerb)
}

// execVerb is `caddy hooks exec` for those who type it. Caddy starts itself with this verb to supervise a program, and is then the
// wrapper of package supervise long before it would come here.
func execVerb() *cobra.Command {
	return &cobra.Command{
		Use:                "exec",
		Short:              "Is started by Caddy, to end all processes of a program",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("exec is only for Caddy itself, which starts the programs of its runners with it")
		},
	}
}
