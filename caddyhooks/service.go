package caddyhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// service has the engine and the live settings of an instance. It outlives reloads: the instances of the old and of the new
// configuration share it.
type service struct {
	engine   *engine.Engine
	throttle func() *auth.Throttle // made when it is first needed

	mu        sync.Mutex
	live      Settings
	instances []*instance // that may have requests to answer, the newest last
}

// services has the services in use, by the key of their store.
var services = caddy.NewUsagePool()

// openService opens a store and reads the live settings in it.
func openService(opener engine.StoreOpener, name string) (*service, error) {
	store, err := opener.OpenStore(context.Background(), name)
	if err != nil {
		return nil, err
	}
	s := &service{engine: engine.New(store), throttle: sync.OnceValue(auth.NewThrottle)}
	saved, err := store.Settings(context.Background())
	if err == nil && saved != nil {
		err = json.Unmarshal(saved, &s.live)
	}
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("reading the live settings: %w", err)
	}
	return s, nil
}

// Destruct stops the engine when no configuration uses it any more.
func (s *service) Destruct() error {
	s.engine.Stop()
	return nil
}

// newest returns the instance of the newest configuration that is running, nil if there is none.
func (s *service) newest() *instance {
	for _, in := range slices.Backward(s.instances) {
		if !in.stopped {
			return in
		}
	}
	return nil
}

// problem returns why the newest configuration leaves out a part of the live settings, "" if it does not.
func (s *service) problem(p part) string {
	if in := s.newest(); in != nil {
		return in.active.Load().problems[p.String()]
	}
	return ""
}

// change lets edit change the live settings, and puts the result in force for the next request. If the result is refused,
// nothing changes.
func (s *service) change(edit func(in *instance, live *Settings) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.newest()
	if newest == nil {
		return errors.New("the instance is not running")
	}
	live := s.live
	live.Mappings = slices.Clone(live.Mappings)
	if err := edit(newest, &live); err != nil {
		return err
	}
	compiled := make([]*activeSettings, len(s.instances))
	for i, in := range s.instances {
		active, err := in.compile(live, func(p part, err error) bool {
			// A part that was left out before, for the same reason, does not prevent changes of others.
			return s.problem(p) == err.Error() && p.same(&s.live, &live)
		})
		if err != nil && in == newest {
			return err
		}
		compiled[i] = active // nil for an old configuration that refuses the change: it keeps its settings
	}
	if err := s.save(live); err != nil {
		return err
	}
	s.live = live
	for i, in := range s.instances {
		if compiled[i] != nil {
			in.active.Store(compiled[i])
		}
	}
	return nil
}

func (s *service) save(live Settings) error {
	saved, err := json.Marshal(live)
	if err != nil {
		return fmt.Errorf("encoding the live settings: %w", err)
	}
	if err := s.engine.Store().SaveSettings(context.Background(), saved); err != nil {
		return fmt.Errorf("saving the live settings: %w", err)
	}
	return nil
}
