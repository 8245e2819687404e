package service

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lastuse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

const (
	// saveUsesEvery is how often the last use of tokens and secrets is saved.
	saveUsesEvery = time.Minute
	// saveUsesPatience bounds how long that may take.
	saveUsesPatience = 3 * time.Second
)

// keepUses saves the last use of tokens and secrets until the service stops, and then once more. It forgets secrets that senders told.
func (s *Service) keepUses() {
	ticker := time.NewTicker(saveUsesEvery)
	defer ticker.Stop()
	for stopping := false; !stopping; {
		select {
		case <-ticker.C:
		case <-s.stop:
			stopping = true
		}
		ctx, cancel := context.WithTimeout(context.Background(), saveUsesPatience)
		err := s.uses.Save(ctx, s.Store.Documents(), s.secretsInForce())
		if err == nil {
			err = s.forgetTold(ctx, time.Now())
		}
		cancel()
		if in := s.newestInstance(); err != nil && in != nil {
			in.Log.Warn("saving the last use of tokens failed", zap.Error(err))
		}
	}
}

// secretsInForce are those of all instances.
func (s *Service) secretsInForce() map[*lastuse.Secret]bool {
	inForce := make(map[*lastuse.Secret]bool)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, in := range s.instances {
		active := in.Active.Load()
		if active == nil {
			continue
		}
		for _, secret := range active.Bearer.Secrets {
			inForce[secret] = true
		}
		for _, hook := range active.Hooks {
			for _, secret := range hook.Auth.Secrets {
				inForce[secret] = true
			}
		}
	}
	return inForce
}

// Tokens tells of the tokens and of the secrets of hooks: when they were set and last used. Those that all hooks take come first.
func (in *Instance) Tokens(ctx context.Context) ([]api.Token, error) {
	active := in.Active.Load()
	tokens, secrets := []api.Token{}, []*lastuse.Secret{}
	add := func(a settings.Authentication, hook string, pinned bool) {
		for i, secret := range a.Secrets {
			tokens = append(tokens, api.Token{Hook: hook, Scheme: a.Name, Number: i + 1, Pinned: pinned})
			secrets = append(secrets, secret)
		}
	}
	add(active.Bearer, "", in.Pinned.Token != nil)
	for _, name := range slices.Sorted(maps.Keys(active.Hooks)) {
		if hook := active.Hooks[name]; hook.Auth.Scheme != settings.BearerScheme {
			add(hook.Auth, name, hook.Pinned)
		}
	}
	ctx, stop := context.WithTimeout(ctx, StorePatience)
	defer stop()
	uses, err := in.Service.uses.Uses(ctx, in.Service.Store.Documents(), secrets)
	for i, use := range uses {
		tokens[i].ID, tokens[i].Since, tokens[i].LastUsedAt = use.ID, text.JSONTime(use.Since), text.JSONTime(use.Used)
	}
	return tokens, err
}
