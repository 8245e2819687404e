package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// health says whether an instance is live and ready, on this node.
//
// One that is not live is helped by a restart of Caddy, and by nothing else. That is so if the store is broken. A database that is
// unreachable comes back by itself, and a restart would only interrupt runs.
//
// One that is not ready should get no requests. A node with some runners unreachable can do the work of others, and is ready.
type health struct {
	Live     bool
	Webhooks string              // "on" or "off", which an operator chose; "" if that is not known yet
	Reasons  []api.HealthProblem // why it is not ready; none if it is
	Degraded []api.HealthProblem // what else is wrong
}

func (h *health) Ready() bool { return len(h.Reasons) == 0 }

// Despite is the health if some problems are no reason to get no requests.
func (h health) Despite(codes []string) health {
	var reasons []api.HealthProblem
	h.Degraded = slices.Clone(h.Degraded)
	for _, problem := range h.Reasons {
		if slices.Contains(codes, problem.Code) {
			h.Degraded = append(h.Degraded, problem)
		} else {
			reasons = append(reasons, problem)
		}
	}
	h.Reasons = reasons
	return h
}

// Health looks at the instance. It waits for nobody but, at most once a second, a moment for the store.
func (in *Instance) Health() (h health) {
	h.Live = true
	notReady := func(code, detail string) {
		h.Reasons = append(h.Reasons, api.HealthProblem{Code: code, Detail: detail})
	}
	if caddy.Exiting() {
		notReady(api.IsStopping, "Caddy is shutting down")
	}
	select {
	case <-in.Started:
	case <-in.held:
	default:
		notReady(api.IsStarting, "the hooks are being started")
		return h
	}
	if active := in.Active.Load(); active != nil && active.On {
		h.Webhooks = "on"
	} else if active != nil {
		h.Webhooks = "off"
	}
	defer h.addRunners(in) // whatever else is wrong: metrics and the list of runners tell of them, too
	e := in.Service.Engine
	if e.IsStopping() && len(h.Reasons) == 0 {
		notReady(api.IsStopping, "the hooks are shutting down")
	}
	if e.IsBroken() {
		h.Live = false
		notReady(api.StoreBroken, "the store is broken: restart Caddy, which then checks the store")
		return h
	}
	if err := in.NotReady(); err != nil {
		code := api.IsStarting
		if in.IsStoreUnreachable() {
			code = api.StoreUnreachable
		}
		notReady(code, err.Error())
		return h
	}
	if err := e.StoreFailing(); err != nil {
		notReady(StoreProblem(err), "the store could not be written to: "+err.Error())
	}
	if limit := in.EngineConfig.Limits.Queue; nearlyFull(in.Service.queued.get(e.Queued), limit) {
		notReady(api.QueueNearlyFull, fmt.Sprintf("more than %d of %d runs are queued (queue_limit)", limit*nearlyFullPercent/100, limit))
	}
	return h
}

// DiskLow says that the disk of the store is almost full, "" if it is not.
func (s *Service) DiskLow() string {
	free, low := s.Engine.StoreSpaceIsLow()
	if !low {
		return ""
	}
	return "the disk of the store has only " + humanize.IBytes(free) + " left: when it is full, nothing more is accepted"
}

// addRunners adds the runners that take on no turns. If there are no others, the instance is not ready.
func (h *health) addRunners(in *Instance) {
	if active := in.Active.Load(); active != nil {
		h.Degraded = pauseProblems(active.Settings.Pauses)
	}
	if why := in.Service.DiskLow(); why != "" {
		h.Degraded = append(h.Degraded, api.HealthProblem{Code: api.StoreDiskLow, Detail: why})
	}
	runners := in.RunnersDown()
	for _, runner := range runners {
		why := "cannot be reached"
		if runner.State == engine.RunnerBusy {
			why = "is busy"
		}
		problem := api.HealthProblem{Code: api.RunnerUnreachable,
			Detail: fmt.Sprintf("the runner %q %s since %s: %s", runner.Name, why, runner.Since.UTC().Format(time.RFC3339), runner.Cause)}
		if len(runners) == len(in.EngineConfig.Runners) {
			h.Reasons = append(h.Reasons, problem)
		} else {
			h.Degraded = append(h.Degraded, problem)
		}
	}
}

// RunnersDown lists the configured runners that take on no turns.
func (in *Instance) RunnersDown() []engine.RunnerState {
	return slices.DeleteFunc(in.Service.Engine.RunnerStates(), func(runner engine.RunnerState) bool {
		return runner.IsUp() || in.EngineConfig.Runners[runner.Name] == nil
	})
}

// StoreProblem tells apart why a store cannot be written to.
func StoreProblem(err error) string {
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

// QueueCountAge is how old the number may be. Tests shorten it.
var QueueCountAge = time.Second

const queueCountPatience = 250 * time.Millisecond

// get asks the store if what is known is too old. If the store does not answer soon, it is what was known before.
func (q *queueCount) get(count func(context.Context) (int, error)) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.counting || time.Since(q.at) < QueueCountAge {
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
