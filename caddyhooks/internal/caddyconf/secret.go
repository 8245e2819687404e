package caddyconf

import (
	"errors"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

var errNoSecret = errors.New("is empty, or names an environment variable or a file that is not there")

// ResolveSecret replaces the placeholders in a configured secret, such as {env.X} and {file.X}. Its errors are made to
// follow the name of the secret ("the token is empty, …") and do not quote it.
func ResolveSecret(configured string) (string, error) {
	secret, err := caddy.NewReplacer().ReplaceOrErr(configured, true, true)
	if err != nil || secret == "" {
		return "", errNoSecret
	}
	return secret, nil
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
		return "", errNoSecret
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("has spaces or other characters in it that cannot be sent")
	}
	return token, nil
}
