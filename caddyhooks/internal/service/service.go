// Package service has what lives longer than a request. An [Instance] is one hooks block of a configuration. A [Service], with the
// engine, its store and the live settings, outlives reloads and is shared by the instances of the old and the new configuration.
// Changes of settings, the event hub, rates, bulk actions and health belong to it. It imports settings, intake, observe, refused, bulk,
// lastuse, progress, questions, api and engine.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/bulk"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lastuse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/progress"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/questions"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Service has the engine and the live settings of an instance. It outlives reloads: the instances of the old and of the new
// configuration share it.
type Service struct {
	Engine   *engine.Engine
	Settings engine.Settings       // where the live settings are kept
	Store    engine.Store          // the engine's
	Throttle func() *auth.Throttle // made when it is first needed
	OneBody  auth.OneBody
	Samples  intake.Samples
	rates    rates
	Figures  observe.StoreFigures
	Previews PreviewLimiter
	Searches Slots
	Exports  Slots
	Events   *eventHub
	Bulk     *bulk.Actions
	progress *progress.Keeper
	Tokens   *questions.Tokens // of questions
	senders  questions.Senders // that somebody has approved

	Announcer *Announcer
	queued    queueCount

	RunStreams RunStreams
	uses       lastuse.Book                     // of tokens and secrets
	issuers    *oidc.Issuers                    // of tokens that callers send
	refused    atomic.Pointer[refused.Recorder] // that of the newest instance

	Mu        sync.Mutex
	Live      settings.Settings
	changed   map[string]int64 // the number of the last change of each part of the live settings; see etag
	revision  int64            // of the live settings
	loaded    bool             // the live settings were read
	pauses    []settings.Pause // that the engine has
	held      []*Instance      // whose start waits for that
	instances []*Instance      // that may have requests to answer, the newest last

	stop     chan struct{}
	follower sync.WaitGroup
}

// services has the services in use, by the key of their store.
var services = caddy.NewUsagePool()

// openService opens a store and reads the live settings in it.
func openService(opener engine.StoreOpener, name string) (*Service, error) {
	store, err := opener.OpenStore(context.Background(), name)
	if err != nil {
		return nil, err
	}
	s := &Service{
		Engine: engine.New(store), Settings: store.Settings(), Store: store, Throttle: sync.OnceValue(auth.NewThrottle),
		stop:     make(chan struct{}),
		Searches: make(Slots, maxSearches), Exports: make(Slots, maxExports),
	}
	s.issuers = oidc.NewIssuers(s.logger)
	s.Events = newEventHub(serviceEvents{s})
	s.Announcer = newAnnouncer(name)
	s.Bulk = bulk.New(s.Engine, store, s.logger)
	s.progress = progress.New(store, s.logger)
	s.Tokens, s.senders = questions.NewTokens(store.Documents()), questions.NewSenders(store.Documents())
	if err := s.loadFirst(context.Background()); err != nil && !errors.Is(err, engine.ErrUnreachable) {
		s.Announcer.shut()
		store.Close()
		return nil, err
	}
	s.follower.Go(func() {
		if s.loadLater() {
			s.follow(store.Watch().SettingsChanged())
		}
	})
	s.follower.Go(s.keepUses)
	return s, nil
}

// load reads the live settings.
func (s *Service) load(ctx context.Context) (live settings.SavedSettings, revision int64, err error) {
	saved, revision, err := s.Settings.Load(ctx)
	if err == nil && saved != nil {
		err = json.Unmarshal(saved, &live)
		live.Pauses, live.Dismissals = live.Paused, live.Dismissed
	}
	return live, revision, err
}

// follow puts settings in force that other nodes have saved.
func (s *Service) follow(changed <-chan struct{}) {
	for {
		select {
		case <-s.stop:
			return
		case <-changed:
		}
		if err := s.refresh(context.Background()); err != nil && !errors.Is(err, engine.ErrUnreachable) { // which the engine has logged
			if in := s.newestInstance(); in != nil {
				in.Log.Error("reading the live settings failed", zap.Error(err))
			}
		}
	}
}

// StorePatience is how long the store is waited for when settings are read or saved.
const StorePatience = 10 * time.Second

// refresh puts the settings in force that were saved last, on whatever node.
func (s *Service) refresh(ctx context.Context) error {
	return s.withSecrets(func(reads settings.SecretReads) error {
		ctx, stop := context.WithTimeout(ctx, StorePatience)
		defer stop()
		return s.refreshLocked(ctx, reads)
	})
}

func (s *Service) refreshLocked(ctx context.Context, reads settings.SecretReads) error {
	saved, revision, err := s.load(ctx)
	if err != nil || revision == s.revision {
		return err
	}
	if err := giveSecrets(reads, s.instances, &saved.Settings); err != nil {
		return err
	}
	compiled := make([]*settings.Active, len(s.instances))
	for i, in := range s.instances {
		compiled[i] = in.compileSaved(saved.Settings)
	}
	s.putInForce(saved, revision, compiled)
	if s.Events.listening() {
		s.Events.settingsChanged(revision, s.lastChangeBy(ctx))
	}
	if newest := s.newest(); newest != nil {
		newest.logTakenOver(newest.Active.Load())
	}
	return nil
}

// compileSaved compiles settings that were checked by whoever saved them. A setting that is refused here, because of an
// environment variable that is missing say, is left out and shown among the problems. It returns nil if nothing helps.
func (in *Instance) compileSaved(live settings.Settings) *settings.Active {
	active, err := in.Compile(in.Active.Load(), live, func(p settings.Part, err error) bool {
		in.Log.Error("live setting from another node refused", zap.Stringer("setting", p), zap.Error(err))
		return true
	})
	if err != nil {
		in.Log.Error("live settings from another node refused", zap.Error(err))
	}
	return active
}

// lastChangeBy is who made the last change of the live settings, on whatever node, "" if that is not known.
func (s *Service) lastChangeBy(ctx context.Context) string {
	var last api.SettingsChange
	changes, _, err := s.Settings.Changes(ctx, 1, "")
	if err != nil || len(changes) == 0 || json.Unmarshal(changes[0].Description, &last) != nil {
		return ""
	}
	return last.By
}

// putInForce puts live settings in force, for each instance as they were compiled for it.
func (s *Service) putInForce(saved settings.SavedSettings, revision int64, compiled []*settings.Active) {
	history := s.history()
	s.Live, s.changed, s.revision = saved.Settings, saved.Changed, revision
	for i, in := range s.instances {
		s.use(in, compiled[i])
	}
	if newest := s.newest(); newest != nil {
		s.followSettings(newest.Active.Load())
	}
	if newest := s.newest(); newest != nil {
		newest.Meters.SettingsChanges.Inc()
	}
	if s.history() < history { // what is too old now goes at once
		s.Engine.Prune()
	}
}

// followSettings tells the parts of the service of the settings of the newest instance that is running.
func (s *Service) followSettings(active *settings.Active) {
	s.Samples.Follow(active)
	s.rates.follow(active)
	s.followMeters()
	s.Engine.LimitHooks(active.HookWorkers())
	s.followPauses(active)
	s.followBudgets(active)
	if newest := s.newest(); newest != nil {
		newest.Refused.Keep(active.KeepRefused)
	}
}

// followMeters takes away the series of hooks and channels that no instance has any more. In a reload those of the old configuration
// stay until it is stopped: if the new one fails, nothing has changed.
func (s *Service) followMeters() {
	wanted := make(map[*observe.Meters]observe.MeteredNames)
	for _, in := range s.instances {
		active := in.Active.Load()
		if in.stopped || active == nil || in.Meters == nil {
			continue
		}
		own := in.meteredNames(active)
		if others, ok := wanted[in.Meters]; ok {
			own.Add(others)
		}
		wanted[in.Meters] = own
	}
	for meters, own := range wanted {
		meters.Keep(own, true)
	}
}

// meteredNames are those of the hooks and channels of an instance.
func (in *Instance) meteredNames(active *settings.Active) observe.MeteredNames {
	return observe.NewMeteredNames(maps.Keys(active.Hooks), maps.Keys(in.Rules.Channels))
}

// history is how long the newest instance keeps messages of finished runs.
func (s *Service) history() time.Duration {
	if len(s.instances) == 0 {
		return 0
	}
	return s.instances[len(s.instances)-1].HistoryInForce()
}

// use puts settings of an instance in force for the next request. If they are nil, the instance keeps those it has.
func (s *Service) use(in *Instance, active *settings.Active) {
	if active == nil {
		kept := *in.Active.Load()
		active = &kept
	}
	active.Revision, active.Changed = s.revision, s.changed
	if !in.stopped {
		in.LogWarnings(in.Active.Load().Warnings, active.Warnings)
	}
	in.Active.Store(active)
}

// Destruct stops the engine when no configuration uses it any more.
func (s *Service) Destruct() error {
	close(s.stop)
	s.Bulk.Close()
	s.follower.Wait()
	s.Events.shut()
	s.progress.Close()
	s.issuers.Close()
	s.Engine.Stop()
	s.Announcer.shut()
	return nil
}

// logger is that of the newest instance.
func (s *Service) logger() *zap.Logger {
	if in := s.newestInstance(); in != nil {
		return in.Log
	}
	return zap.NewNop()
}

func (s *Service) newestInstance() *Instance {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.newest()
}

// newest returns the instance of the newest configuration that is running, nil if there is none.
func (s *Service) newest() *Instance {
	for _, in := range slices.Backward(s.instances) {
		if !in.stopped {
			return in
		}
	}
	return nil
}

// problem returns why the newest configuration leaves out a part of the live settings, "" if it does not.
func (s *Service) problem(p settings.Part) string {
	if in := s.newest(); in != nil {
		return in.Active.Load().Problems[p.String()]
	}
	return ""
}

// Change lets edit change the live settings, puts the result in force for the next request, and tells about it in the log and
// in the list of changes. It returns what is in force then. If the result is refused, nothing changes. If another node
// changes the settings at the same time, or a secret has to be read from a file, edit is called again, with the newer ones.
func (s *Service) Change(from api.Origin, edit func(in *Instance, live *settings.Settings) error) (*settings.Active, error) {
	var active *settings.Active
	err := s.withSecrets(func(reads settings.SecretReads) (err error) {
		active, err = s.changeLocked(from, edit, reads)
		return err
	})
	return active, err
}

func (s *Service) changeLocked(from api.Origin, edit func(in *Instance, live *settings.Settings) error,
	reads settings.SecretReads) (*settings.Active, error) {
	ctx, stop := context.WithTimeout(context.Background(), StorePatience)
	defer stop()
	active, err := s.tryChange(ctx, from, edit, reads)
	for pause := time.Millisecond; errors.Is(err, engine.ErrSettingsChanged); pause *= 2 {
		if pause > maxChangePause {
			return nil, api.Conflictf("the settings are being changed elsewhere again and again; try again")
		}
		time.Sleep(rand.N(pause)) //nolint:gosec // any number will do: nodes that save at the same time must come apart
		if err = s.refreshLocked(ctx, reads); err == nil {
			active, err = s.tryChange(ctx, from, edit, reads)
		}
	}
	return active, err
}

// maxChangePause bounds the pauses between attempts to save: about 4 s in all.
const maxChangePause = 2 * time.Second

func (s *Service) tryChange(
	ctx context.Context, from api.Origin, edit func(in *Instance, live *settings.Settings) error, reads settings.SecretReads,
) (*settings.Active, error) {
	newest := s.newest()
	if newest == nil {
		return nil, errors.New("the instance is not running")
	}
	live := s.Live
	live.Mappings = slices.Clone(live.Mappings)
	if err := edit(newest, &live); err != nil {
		return nil, err
	}
	compiled := make([]*settings.Active, len(s.instances))
	unchanged := settings.SameParts(&s.Live, &live)
	if err := newest.CheckAllowed(&live, unchanged); err != nil {
		return nil, err
	}
	if err := giveSecrets(reads, s.instances, &live); err != nil {
		return nil, err
	}
	for i, in := range s.instances {
		active, err := in.Compile(in.Active.Load(), live, func(p settings.Part, err error) bool {
			// A part that was left out before, for the same reason, does not prevent changes of others.
			return s.problem(p) == err.Error() && unchanged(p)
		})
		if err != nil && in == newest {
			return nil, err
		}
		compiled[i] = active // nil for an old configuration that refuses the change
	}
	// The settings are saved only if no other revision was made from this one, so no other change has this number.
	saved := settings.SavedSettings{Settings: live, Paused: live.Pauses, Dismissed: live.Dismissals,
		Changed: settings.NumberChanges(s.changed, &s.Live, &live, s.revision+1)}
	encoded, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("encoding the live settings: %w", err)
	}
	change := describeChange(from, &s.Live, &live)
	revision, err := s.Settings.Save(ctx, encoded, encode(change), s.revision)
	if err != nil {
		return nil, fmt.Errorf("saving the live settings: %w", err)
	}
	s.putInForce(saved, revision, compiled)
	s.Events.settingsChanged(revision, from.By)
	active := newest.Active.Load()
	if change != nil {
		s.Announcer.settingsChanged(change)
		logChange(change, newest, active)
	}
	return active, nil
}

// UpToDate returns the settings that were saved last, on whatever node. If they cannot be read it returns the ones it is
// given.
func (in *Instance) UpToDate(ctx context.Context, active *settings.Active) *settings.Active {
	revision, err := in.Service.Settings.Revision(ctx)
	if err != nil || revision == active.Revision {
		return active
	}
	if err := in.Service.refresh(ctx); err != nil {
		if !errors.Is(err, engine.ErrUnreachable) {
			in.Log.Error("reading the live settings failed", zap.Error(err))
		}
		return active
	}
	return in.Service.catchUp(in)
}

// catchUp returns the settings in force of an instance. One that is gone after a reload, but for requests that it has yet
// to answer, is not told of changes any more.
func (s *Service) catchUp(in *Instance) *settings.Active {
	_ = s.withSecrets(func(reads settings.SecretReads) error { // which has no other errors
		if in.Active.Load().Revision == s.revision {
			return nil
		}
		if err := giveSecrets(reads, []*Instance{in}, &s.Live); err != nil {
			return err
		}
		s.use(in, in.compileSaved(s.Live))
		return nil
	})
	return in.Active.Load()
}

// MaxChecks bounds how often a request is checked while the settings change again and again.
const MaxChecks = 100
