package caddyhooks

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
)

// previewLimiter bounds how many previews a user may ask for. It outlives reloads.
type previewLimiter struct {
	mu     sync.Mutex
	byUser map[string]*rate.Limiter
}

// wait takes a preview, and returns how long the user has to wait if there is none to take.
func (l *previewLimiter) wait(user string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.byUser[user]
	if limiter == nil {
		l.makeRoom(now)
		limiter = rate.NewLimiter(intake.PreviewsASecond, intake.PreviewsAtOnce)
		l.byUser[user] = limiter
	}
	taken := limiter.ReserveN(now, 1)
	delay := taken.DelayFrom(now)
	if delay > 0 {
		taken.CancelAt(now)
	}
	return delay
}

// makeRoom forgets users who may ask as if they never had, or any one if there is none.
func (l *previewLimiter) makeRoom(now time.Time) {
	if l.byUser == nil {
		l.byUser = make(map[string]*rate.Limiter)
	}
	if len(l.byUser) < intake.MaxPreviewLimits {
		return
	}
	for user, limiter := range l.byUser {
		if limiter.TokensAt(now) >= intake.PreviewsAtOnce {
			delete(l.byUser, user)
		}
	}
	for user := range l.byUser {
		if len(l.byUser) < intake.MaxPreviewLimits {
			return
		}
		delete(l.byUser, user)
	}
}
