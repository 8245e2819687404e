package requests

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// addPayloadFlag lets a verb take the body of a request.
func addPayloadFlag(cmd *cobra.Command) {
	cmd.Flags().String("payload", "", "the body of the request: a file, or - for standard input")
	_ = cmd.MarkFlagFilename("payload") // for completion
}

// AddFlags lets a verb take a request: a payload with headers, or an example of it.
func AddFlags(cmd *cobra.Command) {
	addPayloadFlag(cmd)
	cmd.Flags().Bool("example", false, "instead of --payload: an example of what the sender of the hook sends, with its headers")
	addHeaderFlag(cmd)
}

const QueryUsage = "the query of the request, as in 'source=test&priority=1'"

// WithPayload checks that --payload or --example is there, beside the arguments.
func WithPayload(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		named, example := flags.Text(cmd, "payload") != "", flags.IsOn(cmd, "example")
		switch {
		case named && example:
			return errors.New("--example has a payload of its own: leave --payload out")
		case !named && !example && cmd.Flags().Lookup("example") != nil:
			return errors.New("--payload is missing: name a file with the body of the request, or - for standard input, or say --example")
		case !named && !example:
			return errors.New("--payload is missing: name a file with the body of the request, or - for standard input")
		}
		return check(cmd, args)
	}
}

// Read reads the headers and the payload of a request.
func Read(cmd *cobra.Command) (header http.Header, payload []byte, err error) {
	if header, err = readHeaders(cmd); err == nil {
		payload, err = readPayload(cmd)
	}
	return header, payload, err
}

// readPayload reads what --payload names. It is nil with --example.
func readPayload(cmd *cobra.Command) ([]byte, error) {
	if err := WithPayload(cobra.ArbitraryArgs)(cmd, nil); err != nil {
		return nil, flags.WrongUsage(err)
	}
	if flags.IsOn(cmd, "example") {
		return nil, nil
	}
	payload, err := flags.ReadInput(cmd, flags.Text(cmd, "payload"), settings.MaxPayloadLimit)
	if err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	return payload, nil
}

// addHeaderFlag lets a verb take further headers of a request.
func addHeaderFlag(cmd *cobra.Command) {
	cmd.Flags().StringArray("header", nil, "a header of the request, as in 'X-GitHub-Event: issues'; can be repeated")
	flags.NoFiles(cmd, "header")
}

// headersOfSecrets carry a secret as it is. A signature in a header is none.
var headersOfSecrets = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Service-Token", "X-Gitlab-Token",
	"X-Telegram-Bot-Api-Secret-Token"}

// readHeaders reads what --header says. Errors do not quote values.
func readHeaders(cmd *cobra.Command) (http.Header, error) {
	lines, _ := cmd.Flags().GetStringArray("header")
	header := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, flags.Usagef("--header takes a name and a value, as in 'X-GitHub-Event: issues'")
		}
		if slices.Contains(headersOfSecrets, http.CanonicalHeaderKey(name)) {
			return nil, flags.Usagef("the header %s carries a secret, and %s", http.CanonicalHeaderKey(name), flags.OthersCanRead)
		}
		header.Add(name, value)
	}
	return header, nil
}

var (
	hookSecretInput = flags.SecretInput{Flag: "secret", File: "secret-file", Variable: "HOOKS_SECRET", Noun: "secret of the hook"}
	tokenInput      = flags.SecretInput{Flag: "token", File: "token-file", Variable: "HOOKS_TOKEN", Noun: "token"}
)
