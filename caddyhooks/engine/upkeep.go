package engine

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// renew keeps the claims on the runs that are being carried out.
func (e *Engine) renew() {
	defer e.renewer.Done()
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-e.base.Done():
			return
		case <-ticker.C:
		}
		e.protect("renewing claims", e.renewOnce)
		signal(e.freed) // a claim of somebody else may have run out
	}
}

func (e *Engine) renewOnce() {
	e.mu.Lock()
	claims := make([]*Claim, 0, len(e.running))
	for _, turn := range e.running {
		claims = append(claims, turn.claim)
	}
	e.mu.Unlock()
	lost, err := e.store.Renew(e.base, claims, lease)
	if err != nil {
		e.log().Error("renewing claims failed", zap.Error(err))
	}
	for _, claim := range lost {
		if record, err := e.store.Get(e.base, claim.Run.ID); err == nil && record.Status == Queued {
			continue // nobody else has it: the process stood still, and will claim it again itself
		}
		e.mu.Lock()
		if turn := e.running[claim.Run.ID]; turn != nil && turn.claim == claim {
			turn.cancel(ErrClaimLost)
		}
		e.mu.Unlock()
	}
}

// pruneEvery is how often the engine looks for runs that have been kept long enough.
const pruneEvery = time.Minute

// prune forgets old runs and keys, in steps that are small and leave the store to others most of the time.
func (e *Engine) prune() {
	defer e.loops.Done()
	timer := time.NewTimer(pruneEvery)
	defer timer.Stop()
	for {
		select {
		case <-e.stopping:
			return
		case <-timer.C:
		}
		pause := pruneEvery
		e.protect("pruning", func() {
			start := time.Now()
			more, err := e.store.Prune(context.Background(), start, e.config.Load().Limits)
			if err != nil {
				e.log().Error("pruning failed", zap.Error(err))
			} else if more {
				pause = max(4*time.Since(start), 5*time.Millisecond)
			}
		})
		timer.Reset(pause)
	}
}
