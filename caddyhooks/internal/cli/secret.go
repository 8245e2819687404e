package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

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

const othersCanRead = "what stands on a command line can be read by other users of this machine"

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
	return &usageError{fmt.Sprintf("%s: put the %s in a file and name that by --%s, or set %s, or wait until you are asked", othersCanRead, s.noun, s.file, s.variable)}
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
func (s secretInput) read(cmd *cobra.Command, screen *terminal.Screen) (string, error) {
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
