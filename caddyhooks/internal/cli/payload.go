package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// addPayloadFlag lets a verb take the body of a request.
func addPayloadFlag(cmd *cobra.Command) {
	cmd.Flags().String("payload", "", "the body of the request: a file, or - for standard input")
	_ = cmd.MarkFlagFilename("payload") // for completion
}

// addRequestFlags lets a verb take a request: a payload with headers, or an example of it.
func addRequestFlags(cmd *cobra.Command) {
	addPayloadFlag(cmd)
	cmd.Flags().Bool("example", false, "instead of --payload: an example of what the sender of the hook sends, with its headers")
	addHeaderFlag(cmd)
}

const queryUsage = "the query of the request, as in 'source=test&priority=1'"

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

// readRequest reads the headers and the payload of a request.
func readRequest(cmd *cobra.Command) (header http.Header, payload []byte, err error) {
	if header, err = readHeaders(cmd); err == nil {
		payload, err = readPayload(cmd)
	}
	return header, payload, err
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

// addHeaderFlag lets a verb take further headers of a request.
func addHeaderFlag(cmd *cobra.Command) {
	cmd.Flags().StringArray("header", nil, "a header of the request, as in 'X-GitHub-Event: issues'; can be repeated")
	noFiles(cmd, "header")
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
			return nil, usagef("--header takes a name and a value, as in 'X-GitHub-Event: issues'")
		}
		if slices.Contains(headersOfSecrets, http.CanonicalHeaderKey(name)) {
			return nil, usagef("the header %s carries a secret, and %s", http.CanonicalHeaderKey(name), othersCanRead)
		}
		header.Add(name, value)
	}
	return header, nil
}

// secretInput is a secret that a verb needs, and never takes as an argument.
type secretInput struct {
	flag     string // that would take it, and is refused
	file     string // the flag that names a file with it
	variable string // of the environment
	noun     string // for a person
}

var (
	hookSecretInput = secretInput{"secret", "secret-file", "HOOKS_SECRET", "secret of the hook"}
	tokenInput      = secretInput{"token", "token-file", "HOOKS_TOKEN", "token"}
)

const othersCanRead = "other users of this machine can read the arguments of a command"

// addFlags adds the flag for a file, and one that says why it is refused.
func (s secretInput) addFlags(cmd *cobra.Command) {
	cmd.Flags().String(s.file, "", fmt.Sprintf("a file with the %s (default: $%s)", s.noun, s.variable))
	_ = cmd.MarkFlagFilename(s.file)
	cmd.Flags().String(s.flag, "", "")
	_ = cmd.Flags().MarkHidden(s.flag)
}

// check refuses a secret among the arguments.
func (s secretInput) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed(s.flag) {
		return s.refused()
	}
	return nil
}

// refused says how the secret is given instead.
func (s secretInput) refused() error {
	return usagef("%s: put the %s in a file and name that by --%s, or set %s, or wait until you are asked", othersCanRead, s.noun, s.file,
		s.variable)
}

// maxSecretFile bounds a file with a secret.
const maxSecretFile = 64 << 10

// find reads the secret from its file or the environment, "" if it is in neither.
func (s secretInput) find(cmd *cobra.Command) (string, error) {
	if err := s.check(cmd); err != nil {
		return "", err
	}
	name := flagText(cmd, s.file)
	if name == "" {
		return os.Getenv(s.variable), nil
	}
	data, err := readInput(cmd, name, maxSecretFile)
	if err != nil {
		return "", fmt.Errorf("reading the %s: %w", s.noun, err)
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if strings.TrimSpace(secret) == "" {
		return "", fmt.Errorf("reading the %s: %s is empty", s.noun, name)
	}
	return secret, nil
}

// read finds the secret, or asks for it.
func (s secretInput) read(cmd *cobra.Command, screen printer) (string, error) {
	secret, err := s.find(cmd)
	if err != nil || secret != "" {
		return secret, err
	}
	missing := fmt.Sprintf("the %s is missing: name a file with it by --%s, or set %s", s.noun, s.file, s.variable)
	secret, err = screen.Secret(strings.ToUpper(s.noun[:1]) + s.noun[1:])
	if err != nil {
		return "", &usageError{missing}
	}
	if strings.TrimSpace(secret) == "" {
		return "", errors.New(missing)
	}
	return secret, nil
}
