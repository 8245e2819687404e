package service

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// unreadSecretsError says that settings cannot be compiled before these secrets are read.
type unreadSecretsError struct{ configured []string }

func (*unreadSecretsError) Error() string { return "secrets are not read yet" }

// withSecrets calls f under the lock. If f needs secrets from files, they are read without the lock, and f is called again: a file that
// is slow must not hold up other changes.
func (s *Service) withSecrets(f func(reads settings.SecretReads) error) error {
	reads := make(settings.SecretReads)
	for {
		err := s.locked(func() error { return f(reads) })
		var unread *unreadSecretsError
		if !errors.As(err, &unread) {
			return err
		}
		add(reads, unread.configured)
	}
}

func (s *Service) locked(f func() error) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return f()
}

// add reads secrets, all at the same time.
func add(r settings.SecretReads, configured []string) {
	all := make([]settings.SecretRead, len(configured))
	var readers sync.WaitGroup
	for i, text := range configured {
		readers.Go(func() { all[i].Secret, all[i].Err = ResolveSecret(text) })
	}
	readers.Wait()
	for i, text := range configured {
		r[text] = all[i]
	}
}

// ResolveSecret is replaced by tests.
var ResolveSecret = caddyconf.ResolveSecret

// giveSecrets lets instances compile live settings with the secrets that were read. It is an error if there are others to read. It is
// called under the service's lock.
func giveSecrets(reads settings.SecretReads, instances []*Instance, live *settings.Settings) error {
	unread := make(map[string]struct{})
	for _, in := range instances {
		in.UseSecrets(reads, live, unread)
	}
	if len(unread) > 0 {
		return &unreadSecretsError{slices.Sorted(maps.Keys(unread))}
	}
	return nil
}
