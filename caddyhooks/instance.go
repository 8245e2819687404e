package caddyhooks

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
)

// instance is one hooks service as a configuration defines it.
type instance struct {
	name   string
	path   string
	urls   []string // at which its hooks are called, as far as they are known
	config []byte   // as JSON, to compare with other handlers
	settings.Compiler
	engineConfig engine.Config
	opener       engine.StoreOpener
	client       *outbound.Client

	maxRequest int64
	memory     intake.Memory
	log        *zap.Logger
	accessLog  observe.AccessLog

	streamEnd *sse.StreamEnd // of event streams
	emitter   *emitter       // of events for the events app

	refused       *refusals
	leaveRecorder func()
	meters        *observe.Meters
	leaveMeters   func()

	secretHeaders auth.HeaderNames   // request headers that must not be logged before the start
	warned        []settings.Warning // when it was loaded
	unstarted     []settings.Warning // that a start may find to be wrong

	// Set when the instance is started.
	active  atomic.Pointer[settings.Active]
	service *service
	detach  func() // ends the use of the engine
	traced  bool   // it uses the exporter of traces
	started chan struct{}
	held    chan struct{} // closed if the start has to wait for the store
	stopped bool          // guarded by service.mu
}

func newInstance(ctx caddy.Context, o *Options, config []byte) (*instance, error) {
	in := &instance{
		name:       o.Name,
		path:       o.Path,
		urls:       []string{},
		config:     config,
		Compiler:   settings.Compiler{Pinned: o.Settings, Secrets: make(map[string]string)},
		maxRequest: int64(o.MaxRequest),
		log:        ctx.Logger().With(zap.String("instance", o.Name)),
		started:    make(chan struct{}),
		held:       make(chan struct{}),
		streamEnd:  sse.NewStreamEnd(),
	}
	in.accessLog.Logger = ctx.Logger(observe.AccessLogModule{})
	in.memory.Limit = int64(o.MaxMemory)
	choice, err := o.runnerChoice()
	if err != nil {
		return nil, err
	}
	loadedRunners, err := ctx.LoadModule(o, "RunnersRaw")
	if err != nil {
		return nil, fmt.Errorf("loading runners: %w", err)
	}
	runners := make(map[string]engine.Runner)
	for name, runner := range loadedRunners.(map[string]any) {
		runners[name] = runner.(engine.Runner)
		if placed, ok := runner.(interface{ Place(dir string) }); ok {
			placed.Place(filepath.Join(caddy.AppDataDir(), "hooks", o.Name+".runners", name))
		}
	}
	opener, err := ctx.LoadModule(o, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("loading store: %w", err)
	}
	in.opener = opener.(engine.StoreOpener)
	if store, ok := opener.(interface{ Warnings() []string }); ok {
		in.StoreWarnings = store.Warnings
	}
	if picky, ok := opener.(interface{ CheckInstance(name string) error }); ok {
		if err := picky.CheckInstance(o.Name); err != nil {
			return nil, err
		}
	}
	channels, limited := make(map[string]engine.Channel), make(map[string]engine.Channel)
	if o.ChannelsRaw != nil {
		loaded, err := ctx.LoadModule(o, "ChannelsRaw")
		if err != nil {
			return nil, fmt.Errorf("loading channels: %w", err)
		}
		for name, channel := range loaded.(map[string]any) {
			channels[name] = channel.(engine.Channel)
			limited[name] = in.limited(channels[name])
		}
	}
	guard, err := o.Callbacks.guard()
	if err != nil {
		return nil, err
	}
	if in.client, err = o.Callbacks.client(guard); err != nil {
		return nil, err
	}
	in.Rules = settings.Rules{
		MaxTimeout:  time.Duration(o.MaxTimeout),
		QueueTime:   time.Duration(o.QueueTime),
		MaxMemory:   o.MaxMemory,
		Retention:   time.Duration(o.Retention),
		Workers:     o.Workers,
		ChatLimit:   *o.ChatLimit,
		History:     o.Settings.HistorySeconds,
		Guard:       guard,
		CheckSchema: settings.CheckSchema,
		Channels:    channels,
		Runners:     choice,
	}
	in.engineConfig = engine.Config{
		Runners: runners, DefaultRunner: choice.Fallback,
		Channels:  limited,
		Callbacks: callbackSender{in.client},
		ErrorBody: func(message string) (string, string) { return "application/json", string(api.ErrorBody(message)) },
		Workers:   o.Workers,
		Limits: engine.Limits{
			Queue: o.QueueLimit, Chat: *o.ChatLimit,
			Retention: time.Duration(o.Retention),
			Keys:      maxKeys, KeyAge: keyAge,
			HistoryBytes: int64(o.HistoryLimit),
		},
		History:      in.historyInForce,
		MaxAttempts:  o.MaxAttempts,
		DrainTimeout: time.Duration(o.DrainTimeout),
		Log:          in.log,
	}
	if leased, ok := opener.(interface{ ClaimLease() time.Duration }); ok {
		in.engineConfig.Lease = leased.ClaimLease()
	}
	// Refuse bad settings before anything is started.
	active, err := in.Compile(nil, settings.Settings{}, nil)
	if err != nil {
		return nil, err
	}
	in.secretHeaders = active.SecretHeaders
	in.warned, in.unstarted = in.warningsWhenLoaded(active)
	in.logWarnings(nil, in.warned)
	return in, nil
}

// start opens the store, unless the previous configuration has it open already, and puts the instance in force. grace is
// the grace period of the web server at shutdown, 0 if it is unlimited.
func (in *instance) start(grace time.Duration) error {
	value, reload, err := services.LoadOrNew(in.storeKey(), func() (caddy.Destructor, error) {
		return openService(in.opener, in.name)
	})
	if err != nil {
		return err
	}
	s := value.(*service)
	// Waiting callers must be answered before the grace period of the web server is over.
	if most := grace - min(grace/2, 500*time.Millisecond); grace > 0 {
		in.engineConfig.DrainTimeout = min(in.engineConfig.DrainTimeout, most)
	}
	err = s.withSecrets(func(reads settings.SecretReads) error {
		if !s.loaded {
			in.holdStart(s)
			return nil
		}
		if err := giveSecrets(reads, []*instance{in}, &s.live); err != nil {
			return err
		}
		return in.startOn(s, reload)
	})
	if err != nil {
		_, _ = services.Delete(in.storeKey())
	}
	return err
}

// startOn puts the instance in force, with the live settings of the service. It is called under the service's lock.
func (in *instance) startOn(s *service, reload bool) error {
	in.Rules.CheckSchema = s.engine.CheckSchema
	active, err := in.Compile(in.active.Load(), s.live, func(p settings.Part, err error) bool {
		// A live setting that conflicts with the new configuration makes a reload fail: the operator can mend it, and
		// the previous configuration goes on. When Caddy starts, nobody may be there, and the other settings must work.
		if reload && s.problem(p) == "" {
			return false
		}
		in.log.Error("a live setting does not go with the configuration and is left out",
			zap.Stringer("setting", p), zap.Error(err))
		return true
	})
	if err != nil {
		return fmt.Errorf("the live settings do not go with this configuration: %w", err)
	}
	in.logWarnings(in.warned, active.Warnings)
	active.Revision, active.Changed = s.revision, s.changed
	if before := s.newest(); before != nil {
		active.NoteGone(before.active.Load())
	}
	if in.service == nil { // otherwise others may be reading it
		in.service = s
	}
	s.instances = append(s.instances, in)
	queued := s.countQueued() // before workers take them
	s.followSettings(active)
	in.meters.Keep(in.meteredNames(active), false)
	in.engineConfig.Announcer = s.announcer
	in.detach = s.engine.Attach(in.engineConfig)
	in.active.Store(active)
	in.refused.logTo(in.log)
	close(in.started)
	running.add(in)
	in.logStart(reload, active, queued)
	return nil
}

func (in *instance) stop() {
	defer in.closeTraces() // the engine has spans until it stops
	if in.service == nil {
		return
	}
	running.remove(in)
	waiting.remove(in)
	in.endStreams()
	in.service.mu.Lock()
	in.stopped = true
	if newest := in.service.newest(); newest != nil { // which is the one of before, if a reload failed
		in.service.followSettings(newest.active.Load())
	}
	in.service.mu.Unlock()
	running.remove(in) // if it was started just now
	waiting.remove(in)
	if in.detach != nil {
		in.detach()
	}
	in.service.announcer.leave(in.emitter)
	if _, err := services.Delete(in.storeKey()); err != nil {
		in.log.Error("closing the engine failed", zap.Error(err))
	}
	in.client.Close()
	in.refused.report() // as long as there is a log
}

// cleanup is called after the web server has begun to stop. Until then requests come in, even after stop, and the live
// settings must reach them.
func (in *instance) cleanup() {
	in.leaveRecorder()
	in.leaveMeters()
	if in.service == nil {
		return
	}
	in.service.mu.Lock()
	defer in.service.mu.Unlock()
	in.service.instances = slices.DeleteFunc(in.service.instances, func(other *instance) bool { return other == in })
}

// closeTraces ends the use of the exporter, once.
func (in *instance) closeTraces() {
	if !in.traced {
		return
	}
	in.traced = false
	if err := observe.CloseTraces(); err != nil {
		in.log.Warn("the last spans were not exported", zap.Error(err))
	}
}

func (in *instance) storeKey() string { return in.opener.StoreKey(in.name) }

// serverStopping is called when the web server begins to shut down. It waits for requests, so event streams end now. If the process ends, the engine answers waiting callers
// now: the server waits for them.
func (in *instance) serverStopping() {
	in.endStreams()
	if caddy.Exiting() && in.service != nil {
		in.service.engine.BeginStop()
	}
}

// current returns the settings in force. It waits up to 5 seconds for the start of the instance, and returns nil after that. For a start
// that waits for the store it does not wait.
func (in *instance) current(ctx context.Context) *settings.Active {
	if active := in.active.Load(); active != nil {
		return active
	}
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-in.started:
	case <-in.held:
	case <-timer.C:
	case <-ctx.Done():
	}
	return in.active.Load()
}
