package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/openapi"
)

func openapiVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "openapi [--admin]",
		Short: "Prints an OpenAPI document of the webhooks",
		Long: `
Prints an OpenAPI 3.1 document of the HTTP API: the endpoints for callers, and as webhooks what receivers of callbacks and runners of your
own get. With --admin it is that of the admin API. It needs no running Caddy.

  caddy hooks openapi > hooks.openapi.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			described := openapi.Callers
			if admin, _ := cmd.Flags().GetBool("admin"); admin {
				described = openapi.Operators
			}
			document, err := described.JSON(false)
			if err != nil {
				return err
			}
			return printDocument(cmd, document)
		},
	}
	cmd.Flags().Bool("admin", false, "the API of operators")
	return cmd
}

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
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := configschema.Of(handlersInSchema...)
			if err != nil {
				return err
			}
			return printDocument(cmd, schema)
		},
	}
}

func printDocument(cmd *cobra.Command, document any) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(document)
}
