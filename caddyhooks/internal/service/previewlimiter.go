package service

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
)

// PreviewLimiter bounds how many previews a user may ask for. It outlives reloads.
type PreviewLimiter struct {
	Mu     sync.Mutex
	ByUser map[string]*rate.Limiter
}

// Wait takes a preview, and returns how long the user has to wait if there is none to take.
func (l *PreviewLimiter) Wait(user string, now time.Time) time.Duration {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	limiter := l.ByUser[user]
	if limiter == nil {
		l.makeRoom(now)
		limiter = rate.NewLimiter(intake.PreviewsASecond, intake.PreviewsAtOnce)
		l.ByUser[user] = limiter
	}
	taken := limiter.ReserveN(now, 1)
	delay := taken.DelayFrom(now)
	if delay > 0 {
		taken.CancelAt(now)
	}
	return delay
}

// makeRoom forgets users who may ask as if they never had, or any one if there is none.
func (l *PreviewLimiter) makeRoom(now time.Time) {
	if l.ByUser == nil {
		l.ByUser = make(map[string]*rate.Limiter)
	}
	if len(l.ByUser) < intake.MaxPreviewLimits {
		return
	}
	for user, limiter := range l.ByUser {
		if limiter.TokensAt(now) >= intake.PreviewsAtOnce {
			delete(l.ByUser, user)
		}
	}
	for user := range l.ByUser {
		if len(l.ByUser) < intake.MaxPreviewLimits {
			return
		}
		delete(l.ByUser, user)
	}
}
