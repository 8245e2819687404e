package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// addPayloadFlag lets a verb take the body of a request.
func addPayloadFlag(cmd *cobra.Command) {
	cmd.Flags().String("payload", "", "the body of the request: a file, or - for standard input")
	_ = cmd.MarkFlagFilename("payload") // for completion
}

// addExampleFlag lets a verb send an example instead of a payload.
func addExampleFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("example", false, "instead of --payload: an example of what the sender of the hook sends, with its headers")
}

// withPayload checks that --payload or --example is there, beside the arguments.
func withPayload(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		named, example := flagText(cmd, "payload") != "", flagIsOn(cmd, "example")
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

// exampleFor makes an example of a request to a hook with some headers. A built-in endpoint needs no mapping.
func exampleFor(name string, m settings.Mapping, header http.Header) (*intake.Request, error) {
	req := &intake.Request{Header: make(http.Header), Body: []byte(intake.BuiltInExamples[name])}
	if len(req.Body) == 0 {
		h := &settings.Hook{Mapping: m}
		if err := h.ParseTemplates(); err != nil {
			return nil, err
		}
		req = intake.Example(h, time.Now())
	}
	maps.Copy(req.Header, header)
	return req, nil
}

// readPayload reads what --payload names. It is nil with --example.
func readPayload(cmd *cobra.Command) ([]byte, error) {
	if err := withPayload(cobra.ArbitraryArgs)(cmd, nil); err != nil {
		return nil, &usageError{err.Error()}
	}
	if flagIsOn(cmd, "example") {
		return nil, nil
	}
	payload, err := readInput(cmd, flagText(cmd, "payload"), settings.MaxPayloadLimit)
	if err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	return payload, nil
}

// readInput reads a file, or standard input if its name is -.
func readInput(cmd *cobra.Command, name string, most int64) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return data, err
}

// noFiles keeps a shell from offering files as the values of flags.
func noFiles(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// flagText is the value of a flag with a text.
func flagText(cmd *cobra.Command, name string) string {
	value, _ := cmd.Flags().GetString(name)
	return value
}

func flagIsOn(cmd *cobra.Command, name string) bool {
	on, _ := cmd.Flags().GetBool(name)
	return on
}

// addHeaderFlag lets a verb take further headers of a request.
func addHeaderFlag(cmd *cobra.Command) {
	cmd.Flags().StringArray("header", nil, "a header of the request, as in 'X-GitHub-Event: issues'; can be repeated")
	noFiles(cmd, "header")
}

// headersOfSecrets carry a secret as it is. A signature in a header is none.
var headersOfSecrets = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Service-Token", "X-Gitlab-Token", "X-Telegram-Bot-Api-Secret-Token"}

// readHeaders reads what --header says. Errors do not quote values.
func readHeaders(cmd *cobra.Command) (http.Header, error) {
	lines, _ := cmd.Flags().GetStringArray("header")
	header := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, &usageError{"--header takes a name and a value, as in 'X-GitHub-Event: issues'"}
		}
		if slices.Contains(headersOfSecrets, http.CanonicalHeaderKey(name)) {
			return nil, &usageError{fmt.Sprintf("the header %s carries a secret, and %s", http.CanonicalHeaderKey(name), othersCanRead)}
		}
		header.Add(name, value)
	}
	return header, nil
}
