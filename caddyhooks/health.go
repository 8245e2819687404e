package caddyhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// health says whether an instance is live and ready, on this node.
//
// One that is not live is helped by a restart of Caddy, and by nothing else. That is so if the store is broken. A database that is away
// comes back by itself, and a restart would only interrupt runs.
//
// One that is not ready should get no requests. A node with some runners away can do the work of others, and is ready.
type health struct {
	live     bool
	webhooks string              // "on" or "off", which an operator chose; "" if that is not known yet
	reasons  []api.HealthProblem // why it is not ready; none if it is
	degraded []api.HealthProblem // what else is wrong
}

func (h *health) ready() bool { return len(h.reasons) == 0 }

// despite is the health if some problems are no reason to get no requests.
func (h health) despite(codes []string) health {
	var reasons []api.HealthProblem
	h.degraded = slices.Clone(h.degraded)
	for _, problem := range h.reasons {
		if slices.Contains(codes, problem.Code) {
			h.degraded = append(h.degraded, problem)
		} else {
			reasons = append(reasons, problem)
		}
	}
	h.reasons = reasons
	return h
}

// health looks at the instance. It waits for nobody but, at most once a second, a moment for the store.
func (in *instance) health() health {
	h := health{live: true}
	notReady := func(code, detail string) {
		h.reasons = append(h.reasons, api.HealthProblem{Code: code, Detail: detail})
	}
	if caddy.Exiting() {
		notReady(api.IsStopping, "Caddy is shutting down")
	}
	select {
	case <-in.started:
	case <-in.held:
	default:
		notReady(api.IsStarting, "the hooks are being started")
		return h
	}
	if active := in.active.Load(); active != nil && active.On {
		h.webhooks = "on"
	} else if active != nil {
		h.webhooks = "off"
	}
	e := in.service.engine
	if e.IsStopping() && len(h.reasons) == 0 {
		notReady(api.IsStopping, "the hooks are shutting down")
	}
	if e.IsBroken() {
		h.live = false
		notReady(api.StoreBroken, "the store is broken: restart Caddy, which then checks the store")
		return h
	}
	if err := in.notReady(); err != nil {
		code := api.IsStarting
		if in.isStoreAway() {
			code = api.StoreAway
		}
		notReady(code, err.Error())
		return h
	}
	if err := e.StoreFailing(); err != nil {
		notReady(storeProblem(err), "the store could not be written to: "+err.Error())
	}
	if limit := in.engineConfig.Limits.Queue; nearlyFull(in.service.queued.get(e.Queued), limit) {
		notReady(api.QueueNearlyFull, fmt.Sprintf("more than %d of %d runs are queued (queue_limit)", limit*nearlyFullPercent/100, limit))
	}
	runners := in.runnersDown()
	for _, runner := range runners {
		why := "cannot be reached"
		if runner.State == engine.RunnerBusy {
			why = "is busy"
		}
		problem := api.HealthProblem{Code: api.RunnerAway, Detail: fmt.Sprintf("the runner %q %s since %s: %s", runner.Name, why, runner.Since.UTC().Format(time.RFC3339), runner.Cause)}
		if len(runners) == len(in.engineConfig.Runners) {
			h.reasons = append(h.reasons, problem)
		} else {
			h.degraded = append(h.degraded, problem)
		}
	}
	return h
}

// runnersDown lists the configured runners that take on no turns.
func (in *instance) runnersDown() []engine.RunnerState {
	return slices.DeleteFunc(in.service.engine.RunnerStates(), func(runner engine.RunnerState) bool {
		return runner.IsUp() || in.engineConfig.Runners[runner.Name] == nil
	})
}

// storeProblem tells apart why a store cannot be written to.
func storeProblem(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return api.StoreDiskFull
	case errors.Is(err, syscall.EROFS):
		return api.StoreReadOnly
	default:
		return api.StoreFailing
	}
}

// nearlyFullPercent is the part of queue_limit beyond which other nodes should get the requests.
const nearlyFullPercent = 90

func nearlyFull(queued, limit int) bool { return queued*100 > limit*nearlyFullPercent }

// queueCount is the number of queued runs, as it was a moment ago, so that anybody may ask for the health as often as they like.
type queueCount struct {
	mu       sync.Mutex
	n        int
	at       time.Time
	counting bool
}

const (
	queueCountAge      = time.Second
	queueCountPatience = 250 * time.Millisecond
)

// get asks the store if what is known is too old. If the store does not answer soon, it is what was known before.
func (q *queueCount) get(count func(context.Context) (int, error)) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.counting || time.Since(q.at) < queueCountAge {
		return q.n
	}
	q.counting = true
	q.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), queueCountPatience)
	n, err := count(ctx)
	stop()
	q.mu.Lock()
	q.counting, q.at = false, time.Now()
	if err == nil {
		q.n = n
	}
	return q.n
}
