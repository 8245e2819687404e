package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// holdStart leaves the start of an instance to when the store can be reached: without the live settings nobody knows who may send
// what. Until then requests are answered 503. It is called under the service's lock.
func (in *Instance) holdStart(s *Service) {
	in.Service = s
	s.held = append(s.held, in)
	Waiting.add(in)
	in.Log.Error("the store cannot be reached; hooks start as soon as it can, and requests are answered 503 until then",
		zap.String("store", in.describeStore()), zap.Error(in.NotReady()))
	close(in.held)
}

// loadFirst reads the live settings when a store was opened.
func (s *Service) loadFirst(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, StorePatience)
	defer stop()
	saved, revision, err := s.load(ctx)
	if err != nil {
		return fmt.Errorf("reading the live settings: %w", err)
	}
	return s.withSecrets(func(reads settings.SecretReads) error {
		if err := giveSecrets(reads, s.held, &saved.Settings); err != nil {
			return err
		}
		s.Live, s.changed, s.revision, s.loaded = saved.Settings, saved.Changed, revision, true
		for _, in := range s.held {
			if in.stopped {
				continue
			}
			// Nobody may be there to mend a live setting that does not go with the configuration, so it is left out.
			if err := in.startOn(s, false); err != nil {
				in.Log.Error("the hooks cannot be started; correct the configuration and reload it", zap.Error(err))
				continue
			}
			Waiting.remove(in)
		}
		s.held = nil
		return nil
	})
}

// loadLater reads the live settings as soon as the store can be reached, unless they were read already. It reports false if the
// service is stopped before.
func (s *Service) loadLater() bool {
	s.Mu.Lock()
	loaded := s.loaded
	s.Mu.Unlock()
	for !loaded {
		_, changed, cause := s.Engine.StoreUnreachable()
		if cause == nil {
			if err := s.loadFirst(context.Background()); err == nil {
				return true
			} else if !errors.Is(err, engine.ErrUnreachable) {
				s.logHeld(err)
			}
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-s.stop:
			timer.Stop()
			return false
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return true
}

// logHeld tells why the instances cannot be started.
func (s *Service) logHeld(err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if len(s.held) > 0 {
		s.held[len(s.held)-1].Log.Error("the hooks cannot be started yet, trying again in a second", zap.Error(err))
	}
}

// NotReady is why an instance cannot do its work now, nil if it can.
func (in *Instance) NotReady() error {
	_, _, cause := in.Service.Engine.StoreUnreachable()
	switch {
	case cause != nil:
		return fmt.Errorf("%w: %w", engine.ErrUnreachable, cause)
	case in.Active.Load() == nil:
		return errors.New("the live settings are being read")
	default:
		return nil
	}
}

// StoreTrouble is why the store cannot be reached, "" if it can be.
func (s *Service) StoreTrouble() string {
	_, _, cause := s.Engine.StoreUnreachable()
	if cause == nil {
		return ""
	}
	return oneline.Of(cause.Error(), refused.MaxCause)
}

// IsStoreUnreachable reports whether the store cannot be reached.
func (in *Instance) IsStoreUnreachable() bool {
	_, _, cause := in.Service.Engine.StoreUnreachable()
	return cause != nil
}

// WhyNotStarted is the answer to a request before the instance is started.
func (in *Instance) WhyNotStarted() error {
	select {
	case <-in.held:
		return engine.ErrUnreachable
	default:
		return ErrStarting
	}
}

var ErrStarting = api.Busy(time.Second, "The service is starting; try again in a moment.", "the service is starting")
