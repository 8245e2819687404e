package flags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// SecretInput is a secret that a verb needs, and never takes as an argument.
type SecretInput struct {
	Flag     string // that would take it, and is refused
	File     string // the flag that names a file with it
	Variable string // of the environment
	Noun     string // for a person
}

// OthersCanRead is why secrets are no arguments.
const OthersCanRead = "other users of this machine can read the arguments of a command"

// AddFlags adds the flag for a file, and one that says why it is refused.
func (s SecretInput) AddFlags(cmd *cobra.Command) {
	cmd.Flags().String(s.File, "", fmt.Sprintf("a file with the %s (default: $%s)", s.Noun, s.Variable))
	_ = cmd.MarkFlagFilename(s.File)
	cmd.Flags().String(s.Flag, "", "")
	_ = cmd.Flags().MarkHidden(s.Flag)
}

// Check refuses a secret among the arguments.
func (s SecretInput) Check(cmd *cobra.Command) error {
	if cmd.Flags().Changed(s.Flag) {
		return s.Refused()
	}
	return nil
}

// Refused says how the secret is given instead.
func (s SecretInput) Refused() error {
	return Usagef("%s: put the %s in a file and name that by --%s, or set %s, or wait until you are asked", OthersCanRead, s.Noun, s.File,
		s.Variable)
}

// maxSecretFile bounds a file with a secret.
const maxSecretFile = 64 << 10

// Find reads the secret from its file or the environment, "" if it is in neither.
func (s SecretInput) Find(cmd *cobra.Command) (string, error) {
	if err := s.Check(cmd); err != nil {
		return "", err
	}
	name := Text(cmd, s.File)
	if name == "" {
		return os.Getenv(s.Variable), nil
	}
	data, err := ReadInput(cmd, name, maxSecretFile)
	if err != nil {
		return "", fmt.Errorf("reading the %s: %w", s.Noun, err)
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if strings.TrimSpace(secret) == "" {
		return "", fmt.Errorf("reading the %s: %s is empty", s.Noun, name)
	}
	return secret, nil
}

// Read finds the secret, or asks for it.
func (s SecretInput) Read(cmd *cobra.Command, screen *terminal.Screen) (string, error) {
	secret, err := s.Find(cmd)
	if err != nil || secret != "" {
		return secret, err
	}
	missing := fmt.Sprintf("the %s is missing: name a file with it by --%s, or set %s", s.Noun, s.File, s.Variable)
	secret, err = screen.Secret(strings.ToUpper(s.Noun[:1]) + s.Noun[1:])
	if err != nil {
		return "", Usagef("%s", missing)
	}
	if strings.TrimSpace(secret) == "" {
		return "", errors.New(missing)
	}
	return secret, nil
}

// ReadInput reads a file, or standard input if its name is -.
func ReadInput(cmd *cobra.Command, name string, most int64) ([]byte, error) {
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
