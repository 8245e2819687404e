package service

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
)

// Instance is one hooks service as a configuration defines it.
type Instance struct {
	Name   string
	Path   string
	Urls   []string // at which its hooks are called, as far as they are known
	Config []byte   // as JSON, to compare with other handlers
	settings.Compiler
	EngineConfig engine.Config
	budgets      []budget.Budget // over all hooks
	Opener       engine.StoreOpener
	client       *outbound.Client
	own          *ownMessages
	whispers     whispers

	PublicURL  string // where others reach the site, if the configuration says so
	MaxRequest int64
	Memory     intake.Memory
	Log        *zap.Logger
	AccessLog  observe.AccessLog

	StreamEnd *sse.StreamEnd // of event streams
	Emitter   *Emitter       // of events for the events app

	Refused       *refused.Recorder
	leaveRecorder func()
	leaveRefused  func() // saves the rest of the counts
	Meters        *observe.Meters
	LeaveMeters   func()

	secretHeaders auth.HeaderNames   // request headers that must not be logged before the start
	warned        []settings.Warning // when it was loaded
	Unstarted     []settings.Warning // that a start may find to be wrong

	// Set when the instance is started.
	Active  atomic.Pointer[settings.Active]
	Service *Service
	Detach  func() // ends the use of the engine
	Traced  bool   // it uses the exporter of traces
	Started chan struct{}
	held    chan struct{} // closed if the start has to wait for the store
	stopped bool          // guarded by service.mu
}

func NewInstance(ctx caddy.Context, o *Options, config []byte) (*Instance, error) {
	in := &Instance{
		Name:       o.Name,
		Path:       o.Path,
		Urls:       []string{},
		Config:     config,
		Compiler:   settings.Compiler{Pinned: o.Settings, Secrets: make(map[string]string)},
		PublicURL:  o.PublicURL,
		MaxRequest: int64(o.MaxRequest),
		Log:        ctx.Logger().With(zap.String("instance", o.Name)),
		Started:    make(chan struct{}),
		held:       make(chan struct{}),
		StreamEnd:  sse.NewStreamEnd(),
	}
	in.AccessLog.Logger = ctx.Logger(observe.AccessLogModule{})
	in.Memory.Limit = int64(o.MaxMemory) / settings.MemoryPerByte
	budgets, err := settings.CompileBudgets("", o.Budgets)
	if err != nil {
		return nil, err
	}
	in.budgets = budgets.All
	choice, err := o.RunnerChoice()
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
	in.Opener = opener.(engine.StoreOpener)
	if store, ok := opener.(interface{ Warnings() []string }); ok {
		in.StoreWarnings = store.Warnings
	}
	if picky, ok := opener.(interface{ CheckInstance(name string) error }); ok {
		if err := picky.CheckInstance(o.Name); err != nil {
			return nil, err
		}
	}
	channels, limited := make(map[string]engine.Channel), make(map[string]engine.Channel)
	configs := o.ChannelsRaw // which is nil once they are loaded
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
	if err := checkAskers(runners, channels); err != nil {
		return nil, err
	}
	guard, err := o.Callbacks.Guard()
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
	in.own = newOwnMessages(channels, configs, in.Log)
	if len(in.own.channels) > 0 {
		in.Rules.Owner = in.own.Owner
	}
	in.EngineConfig = engine.Config{
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
		History:      in.HistoryInForce,
		Price:        priceOf(o.Prices),
		MaxAttempts:  o.MaxAttempts,
		DrainTimeout: time.Duration(o.DrainTimeout),
		Log:          in.Log,
	}
	if leased, ok := opener.(interface{ ClaimLease() time.Duration }); ok {
		in.EngineConfig.Lease = leased.ClaimLease()
	}
	// Refuse bad settings before anything is started.
	active, err := in.Compile(nil, settings.Settings{}, nil)
	if err != nil {
		return nil, err
	}
	in.secretHeaders = active.SecretHeaders
	in.warned, in.Unstarted = in.warningsWhenLoaded(active)
	in.LogWarnings(nil, in.warned)
	return in, nil
}

// Start opens the store, unless the previous configuration has it open already, and puts the instance in force. grace is
// the grace period of the web server at shutdown, 0 if it is unlimited.
func (in *Instance) Start(grace time.Duration) error {
	value, reload, err := services.LoadOrNew(in.StoreKey(), func() (caddy.Destructor, error) {
		return openService(in.Opener, in.Name)
	})
	if err != nil {
		return err
	}
	s := value.(*Service)
	// Waiting callers must be answered before the grace period of the web server is over.
	if most := grace - min(grace/2, 500*time.Millisecond); grace > 0 {
		in.EngineConfig.DrainTimeout = min(in.EngineConfig.DrainTimeout, most)
	}
	err = s.withSecrets(func(reads settings.SecretReads) error {
		if !s.loaded {
			in.holdStart(s)
			return nil
		}
		if err := giveSecrets(reads, []*Instance{in}, &s.Live); err != nil {
			return err
		}
		return in.startOn(s, reload)
	})
	if err != nil {
		_, _ = services.Delete(in.StoreKey())
	}
	return err
}

// startOn puts the instance in force, with the live settings of the service. It is called under the service's lock.
func (in *Instance) startOn(s *Service, reload bool) error {
	in.Rules.CheckSchema, in.Uses, in.Issuers = s.Engine.CheckSchema, &s.uses, s.issuers
	active, err := in.Compile(in.Active.Load(), s.Live, func(p settings.Part, err error) bool {
		// A live setting that conflicts with the new configuration makes a reload fail: the operator can mend it, and
		// the previous configuration goes on. When Caddy starts, nobody may be there, and the other settings must work.
		if reload && s.problem(p) == "" {
			return false
		}
		in.Log.Error("live setting conflicts with the configuration; left out",
			zap.Stringer("setting", p), zap.Error(err))
		return true
	})
	if err != nil {
		return fmt.Errorf("the live settings do not go with this configuration: %w", err)
	}
	in.LogWarnings(in.warned, active.Warnings)
	active.Revision, active.Changed = s.revision, s.changed
	if before := s.newest(); before != nil {
		active.NoteGone(before.Active.Load())
		in.own.inherit(before.own)
	}
	if in.Service == nil { // otherwise others may be reading it
		in.Service = s
	}
	s.instances = append(s.instances, in)
	queued := s.countQueued() // before workers take them
	s.followSettings(active)
	in.Meters.Keep(in.meteredNames(active), false)
	in.EngineConfig.Announcer, in.EngineConfig.Progress, in.EngineConfig.Questions = s.Announcer, progressChats{in}, runQuestions{in}
	in.Detach = s.Engine.Attach(in.EngineConfig)
	s.Bulk.Adopt()
	in.Active.Store(active)
	s.progress.Sweep(progressChats{in})
	in.Refused.LogTo(in.Log)
	s.refused.Store(in.Refused)
	in.leaveRefused = in.Refused.Use(&refused.Store{Documents: s.Store.Documents(), Retention: in.Rules.Retention, Log: in.Log})
	in.own.begin(active.Hooks)
	close(in.Started)
	Running.add(in)
	in.logStart(reload, active, queued)
	return nil
}

func (in *Instance) Stop() {
	defer in.CloseTraces() // the engine has spans until it stops
	if in.Service == nil {
		return
	}
	Running.remove(in)
	Waiting.remove(in)
	in.endStreams()
	in.Service.Mu.Lock()
	in.stopped = true
	if newest := in.Service.newest(); newest != nil { // which is the one of before, if a reload failed
		in.Service.noteReload(in, newest)
		in.Service.followSettings(newest.Active.Load())
	}
	in.Service.Mu.Unlock()
	Running.remove(in) // if it was started just now
	Waiting.remove(in)
	if in.Detach != nil {
		in.Detach()
	}
	in.own.end()
	in.whispers.end()
	in.Service.Announcer.leave(in.Emitter)
	if in.leaveRefused != nil {
		in.leaveRefused()
	}
	if _, err := services.Delete(in.StoreKey()); err != nil {
		in.Log.Error("closing the engine failed", zap.Error(err))
	}
	in.client.Close()
	in.Refused.Report() // as long as there is a log
}

// Cleanup is called after the web server has begun to stop. Until then requests come in, even after stop, and the live
// settings must reach them.
func (in *Instance) Cleanup() {
	in.leaveRecorder()
	in.LeaveMeters()
	if in.Service == nil {
		return
	}
	in.Service.Mu.Lock()
	defer in.Service.Mu.Unlock()
	in.Service.instances = slices.DeleteFunc(in.Service.instances, func(other *Instance) bool { return other == in })
}

// recorders has the recorders of refused requests of the instances of all configurations, by the name of the instance.
var recorders = caddy.NewUsagePool()

// JoinRecorder shares the recorder of instances of the same name, which is how it outlives a reload.
func (in *Instance) JoinRecorder() {
	recorder, _, _ := recorders.LoadOrNew(in.Name, func() (caddy.Destructor, error) { return refused.NewRecorder(), nil })
	in.Refused = recorder.(*refused.Recorder)
	in.leaveRecorder = sync.OnceFunc(func() { _, _ = recorders.Delete(in.Name) })
}

// CloseTraces ends the use of the exporter, once.
func (in *Instance) CloseTraces() {
	if !in.Traced {
		return
	}
	in.Traced = false
	if err := observe.CloseTraces(); err != nil {
		in.Log.Warn("the last spans were not exported", zap.Error(err))
	}
}

func (in *Instance) StoreKey() string { return in.Opener.StoreKey(in.Name) }

// ServerStopping is called when the web server begins to shut down. It waits for requests, so event streams end now. If the process ends,
// the engine answers waiting callers now: the server waits for them.
func (in *Instance) ServerStopping() {
	in.endStreams()
	if caddy.Exiting() && in.Service != nil {
		in.Service.Engine.BeginStop()
	}
}

// Current returns the settings in force. It waits up to 5 seconds for the start of the instance, and returns nil after that. For a start
// that waits for the store it does not wait.
func (in *Instance) Current(ctx context.Context) *settings.Active {
	if active := in.Active.Load(); active != nil {
		return active
	}
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-in.Started:
	case <-in.held:
	case <-timer.C:
	case <-ctx.Done():
	}
	return in.Active.Load()
}

// endStreams ends the event streams of the instance.
func (in *Instance) endStreams() {
	if caddy.Exiting() {
		in.StreamEnd.End("shutdown")
	} else {
		in.StreamEnd.End("reload")
	}
}

// The number of idempotency keys that an instance remembers, and for how long. Keys outlive their runs: a signature that is sent
// again is known by its key alone, however short runs are kept.
const (
	maxKeys = 1_000_000
	keyAge  = 24 * time.Hour
)

// HistoryInForce is how long the engine keeps messages at most.
func (in *Instance) HistoryInForce() time.Duration {
	active := in.Active.Load()
	switch {
	case active == nil: // it is just being started
		return 0
	case active.History == 0:
		return engine.NoHistory
	default:
		return active.History
	}
}
