package service

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// The events that are emitted to Caddy's events app. Each run that ends is announced once: as failed if nobody may have wanted that
// (failed, timed_out, expired), otherwise as finished (completed, cancelled).
var announcedEvents = [...]string{runFinishedEvent, runFailedEvent, deliveryDeadEvent, settingsChangedEvent, budgetReachedEvent}

const (
	runFinishedEvent     = "hooks.run.finished"
	runFailedEvent       = "hooks.run.failed"
	deliveryDeadEvent    = "hooks.delivery.dead"
	settingsChangedEvent = "hooks.settings.changed"
	budgetReachedEvent   = "hooks.budget.reached"
)

const (
	// maxAnnouncements bounds the events that wait for the handlers of others. Those beyond are dropped.
	maxAnnouncements = 1000

	// announcePatience is how long handlers may take for the last events when a service ends.
	announcePatience = 5 * time.Second
)

// Announcer emits the events of a service. Handlers of events are run one after the other, by whoever emits, and may be slow or hang;
// so a goroutine does it, and the engine only puts events in a queue.
type Announcer struct {
	instance string
	wanted   atomic.Uint32 // a bit for each of announcedEvents that somebody may handle
	queue    chan announcement
	dropped  atomic.Int64 // since that was last logged

	mu       sync.Mutex
	emitters []*Emitter // of the configurations that run, the newest last

	ready chan struct{} // closed when there is the first emitter
	stop  chan struct{} // closed when no more events come
	done  chan struct{} // closed when all of them are emitted
}

// announcement is an event that waits. What it tells holds no text of callers, agents or operators but names: handlers may pass it to
// programs.
type announcement struct {
	name string
	data map[string]any
}

func newAnnouncer(instance string) *Announcer {
	a := &Announcer{instance: instance, queue: make(chan announcement, maxAnnouncements),
		ready: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	a.wanted.Store(1<<len(announcedEvents) - 1) // until it is known
	go a.emitAll()
	return a
}

// Emitter is the events app of a configuration.
type Emitter struct {
	ctx  caddy.Context // whose module is the origin of the events
	app  *caddyevents.App
	uses func() []*Announcer // those of the services of the configuration, asked for when all apps are started
}

// NewEmitter finds the events app. It can be used as soon as Handle was called: only then are the handlers of the
// configuration known.
func NewEmitter(ctx caddy.Context, uses func() []*Announcer) (*Emitter, error) {
	app, err := ctx.App("events")
	if err != nil {
		return nil, err
	}
	if ctx, err = eventContext(ctx); err != nil {
		return nil, err
	}
	e := &Emitter{ctx: ctx, app: app.(*caddyevents.App), uses: uses}
	return e, e.app.On("started", e)
}

// Handle is called when all apps of the configuration are started.
func (e *Emitter) Handle(_ context.Context, event caddy.Event) error {
	if event.Origin() != nil {
		return nil // it is not Caddy who says so
	}
	for _, a := range e.uses() {
		a.use(e)
	}
	return nil
}

// wanted is a bit for each event that somebody handles, or that is in the debug log.
func (e *Emitter) wanted() (bits uint32) {
	for i, name := range announcedEvents {
		if e.app.ShouldEmit(name) {
			bits |= 1 << i
		}
	}
	return bits
}

// use has events emitted by a configuration that was started.
func (a *Announcer) use(e *Emitter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.emitters = append(a.emitters, e)
	a.wanted.Store(e.wanted())
	if len(a.emitters) == 1 {
		close(a.ready)
	}
}

// leave is called when a configuration stops. The last one emits what is left.
func (a *Announcer) leave(e *Emitter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.emitters) < 2 {
		return
	}
	a.emitters = slices.DeleteFunc(a.emitters, func(other *Emitter) bool { return other == e })
	a.wanted.Store(a.emitters[len(a.emitters)-1].wanted())
}

// newest is the emitter to use, nil if there is none.
func (a *Announcer) newest() *Emitter {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range slices.Backward(a.emitters) {
		if e.ctx.Err() == nil { // its configuration may have failed after its start
			return e
		}
	}
	return nil
}

// announce puts an event in the queue, if somebody wants it.
func (a *Announcer) announce(name string, data func() map[string]any) {
	if a.wanted.Load()&(1<<slices.Index(announcedEvents[:], name)) == 0 {
		return
	}
	select {
	case a.queue <- announcement{name, data()}:
	default:
		if a.dropped.Add(1) == 1 {
			if e := a.newest(); e != nil {
				e.ctx.Logger().Error("events are dropped: their handlers are too slow", zap.String("instance", a.instance),
					zap.Int("waiting", maxAnnouncements))
			}
		}
	}
}

// emitAll emits events until the service ends.
func (a *Announcer) emitAll() {
	defer close(a.done)
	select {
	case <-a.ready:
	case <-a.stop:
		return
	}
	for {
		select {
		case next := <-a.queue:
			a.emit(next)
			continue
		default:
		}
		if e, dropped := a.newest(), a.dropped.Swap(0); dropped > 0 && e != nil {
			e.ctx.Logger().Warn("handlers of events have caught up", zap.String("instance", a.instance), zap.Int64("dropped", dropped))
		}
		select {
		case next := <-a.queue:
			a.emit(next)
		case <-a.stop:
			if len(a.queue) == 0 {
				return
			}
		}
	}
}

// emit calls the handlers of an event. One that panics must not take Caddy down.
func (a *Announcer) emit(next announcement) {
	e := a.newest()
	if e == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			e.ctx.Logger().Error("a handler of an event panicked", zap.String("event", next.name), zap.Any("panic", p),
				zap.ByteString("stack", debug.Stack()))
		}
	}()
	e.app.Emit(e.ctx, next.name, next.data)
}

// shut waits until all events are emitted, but not for handlers that hang.
func (a *Announcer) shut() {
	close(a.stop)
	timer := time.NewTimer(announcePatience)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
		if e := a.newest(); e != nil {
			e.ctx.Logger().Warn("handlers of events do not return; going on without them", zap.String("instance", a.instance),
				zap.Int("dropped", len(a.queue)))
		}
	}
}

// RunEnded announces a run that has ended.
func (a *Announcer) RunEnded(run *engine.Run, outcome engine.Outcome, took time.Duration) {
	name := runFailedEvent
	if outcome.Status == engine.Completed || outcome.Status == engine.Cancelled {
		name = runFinishedEvent
	}
	a.announce(name, func() map[string]any {
		return map[string]any{
			"instance": a.instance, "hook": run.Hook, "action": string(run.Action), "run_id": run.ID, "runner": run.Runner, "test": run.Test,
			"status": string(outcome.Status), "failure": string(outcome.Failure), "took_seconds": took.Seconds(),
		}
	})
}

// DeliveryDead announces a delivery that was given up.
func (a *Announcer) DeliveryDead(d *engine.Delivery) {
	a.announce(deliveryDeadEvent, func() map[string]any {
		return map[string]any{
			"instance": a.instance, "hook": d.Hook, "run_id": d.RunID, "delivery_id": d.ID,
			"channel": d.Channel, "host": plainHost(d.CallbackHost()), "attempts": d.Attempt, "last_status": d.LastStatus,
		}
	})
}

// BudgetReached announces a budget of which 80 or 100 percent are used. Who spends comes from outside, and is not told.
func (a *Announcer) BudgetReached(s *budget.State) {
	a.announce(budgetReachedEvent, func() map[string]any {
		return map[string]any{"instance": a.instance, "hook": s.Hook, "budget": s.Limit.String(), "percent": s.Percent(),
			"used": s.Limit.Amount(s.Used), "by_value": s.By != ""}
	})
}

// plainHost is a host and its port, "" if there are other characters in it: a caller chose it.
func plainHost(host string) string {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]"
	if strings.Trim(host, allowed) != "" || strings.HasPrefix(host, "-") {
		return ""
	}
	return host
}

// plainName is a name in which characters that mean something to a shell or a program are underscores: whoever asks for a change chooses
// it.
func plainName(name string) string {
	plain := strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune(" .@+-_", c) {
			return c
		}
		return '_'
	}, name)
	if strings.HasPrefix(plain, "-") {
		return "_" + plain[1:]
	}
	return plain
}

// settingsChanged announces a change of the live settings that was made on this node.
func (a *Announcer) settingsChanged(change *api.SettingsChange) {
	a.announce(settingsChangedEvent, func() map[string]any {
		var names []string
		for _, part := range change.Changes {
			names = append(names, part.What)
		}
		return map[string]any{"instance": a.instance, "by": plainName(change.By), "via": change.Via, "settings": strings.Join(names, ","),
			"more": change.More}
	})
}

// Interface guards
var (
	_ engine.Announcer    = (*Announcer)(nil)
	_ caddyevents.Handler = (*Emitter)(nil)
)

func init() {
	caddy.RegisterModule(EventOrigin{})
}

// EventOrigin is where the events of hooks come from: hooks.run.finished, hooks.run.failed, hooks.delivery.dead, hooks.settings.changed
// and hooks.budget.reached. It has no configuration, and nothing refers to it but subscriptions of the events app that name a
// module: those to hooks get all of these events.
type EventOrigin struct {
	ctx caddy.Context
}

// CaddyModule returns the Caddy module information.
func (EventOrigin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.events",
		New: func() caddy.Module { return new(EventOrigin) },
	}
}

// Provision keeps the context.
func (o *EventOrigin) Provision(ctx caddy.Context) error {
	o.ctx = ctx
	return nil
}

// eventContext is a context for events. Emit takes the origin of an event from its context, and Caddy loads modules so that the one
// in a context that was kept may be another one later, if they were loaded by the same parent. In this context there is one module alone.
func eventContext(ctx caddy.Context) (caddy.Context, error) {
	alone, _ := caddy.NewContext(ctx) // it ends with its parent, and the module has nothing to clean up
	origin, err := alone.LoadModuleByID("hooks.events", nil)
	if err != nil {
		return ctx, err
	}
	return origin.(*EventOrigin).ctx, nil
}

// Interface guards
var _ caddy.Provisioner = (*EventOrigin)(nil)
