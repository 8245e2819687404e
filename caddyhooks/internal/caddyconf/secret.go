package caddyconf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

var errNoSecret = errors.New("is empty, or names an environment variable or a file that is not there")

// ResolveSecret replaces the placeholders in a configured secret, such as {env.X} and {file.X}. Its errors are made to
// follow the name of the secret ("the token is empty, …") and do not quote it. They do name an environment variable or a file
// that the secret should come from.
func ResolveSecret(configured string) (string, error) {
	var unreadable error
	repl := caddy.NewReplacer().WithoutFile() // which waits for the writer of a pipe
	repl.Map(func(key string) (any, bool) {
		path, ok := strings.CutPrefix(key, "file.")
		if !ok {
			return nil, false
		}
		var text []byte
		text, unreadable = ReadRegularFile(path)
		return string(bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))), true
	})
	secret, err := repl.ReplaceOrErr(configured, true, true)
	if err != nil || secret == "" {
		return "", noSecret(configured, unreadable)
	}
	return secret, nil
}

// NamesFile reports whether ResolveSecret reads a file, which may take a moment.
func NamesFile(configured string) bool { return strings.Contains(configured, "{file.") }

// envPlaceholder and filePlaceholder match a text that is one placeholder and nothing else, so that no piece of a secret is
// among what they match.
var (
	envPlaceholder  = regexp.MustCompile(`^\{env\.([A-Za-z_][A-Za-z0-9_]{0,99})\}$`)
	filePlaceholder = regexp.MustCompile(`^\{file\.([^{}\pC]{1,500})\}$`)
)

// noSecret says why there is no secret behind the configured text. unreadable is the error of reading its file, if there was one.
func noSecret(configured string, unreadable error) error {
	if env := envPlaceholder.FindStringSubmatch(configured); env != nil {
		if _, set := os.LookupEnv(env[1]); !set {
			return fmt.Errorf("names the environment variable %s, which is not set", env[1])
		}
		return fmt.Errorf("names the environment variable %s, which is empty", env[1])
	}
	if file := filePlaceholder.FindStringSubmatch(configured); file != nil {
		if unreadable != nil {
			return fmt.Errorf("names the file %s, which cannot be read: %w", file[1], unreadable)
		}
		return fmt.Errorf("names the file %s, which is empty", file[1])
	}
	return errNoSecret
}

// ResolveSecrets is ResolveSecret for a list.
func ResolveSecrets(configured []string) ([]string, error) {
	var secrets []string
	for _, text := range configured {
		secret, err := ResolveSecret(text)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// ResolveToken is ResolveSecret for a secret that is sent in a URL or a header: white space around it is dropped, and it
// must consist of visible ASCII characters.
func ResolveToken(configured string) (string, error) {
	token, err := ResolveSecret(configured)
	if err != nil {
		return "", err
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", noSecret(configured, nil)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("has spaces or other characters in it that cannot be sent")
	}
	return token, nil
}
