package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
)

// handlersInSchema are the handlers of this module in Caddy's configuration.
var handlersInSchema = []string{"hooks", "hooks_dashboard", "hooks_health"}

func schemaVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Prints a JSON Schema of the JSON configuration",
		Long: `
Prints a JSON Schema (draft 2020-12) of the handlers hooks, hooks_dashboard and hooks_health in Caddy's JSON configuration, with all
runners, channels and stores of this Caddy, for editors and checks before a reload. It needs no running Caddy. Runners, channels
and stores of others are listed by name, and may have any members.

  caddy hooks schema > hooks.schema.json`,
		Args: takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := configschema.Of(handlersInSchema...)
			if err != nil {
				return err
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetEscapeHTML(false)
			out.SetIndent("", "  ")
			return out.Encode(schema)
		},
	}
}
