package caddyhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// service has the engine and the live settings of an instance. It outlives reloads: the instances of the old and of the new
// configuration share it.
type service struct {
	engine   *engine.Engine
	settings engine.Settings       // where the live settings are kept
	store    engine.Store          // the engine's
	throttle func() *auth.Throttle // made when it is first needed
	samples  intake.Samples
	rates    rates
	figures  observe.StoreFigures
	previews previewLimiter
	searches slots
	exports  slots
	events   *eventHub

	announcer *announcer
	queued    queueCount

	runStreams runStreams

	mu        sync.Mutex
	live      settings.Settings
	changed   map[string]int64 // the number of the last change of each part of the live settings; see etag
	revision  int64            // of the live settings
	loaded    bool             // the live settings were read
	held      []*instance      // whose start waits for that
	instances []*instance      // that may have requests to answer, the newest last

	stop     chan struct{}
	follower sync.WaitGroup
}

// services has the services in use, by the key of their store.
var services = caddy.NewUsagePool()

// openService opens a store and reads the live settings in it.
func openService(opener engine.StoreOpener, name string) (*service, error) {
	store, err := opener.OpenStore(context.Background(), name)
	if err != nil {
		return nil, err
	}
	s := &service{
		engine: engine.New(store), settings: store.Settings(), store: store, throttle: sync.OnceValue(auth.NewThrottle), stop: make(chan struct{}),
		searches: make(slots, maxSearches), exports: make(slots, maxExports),
	}
	s.events = newEventHub(serviceEvents{s})
	s.announcer = newAnnouncer(name)
	if err := s.loadFirst(context.Background()); err != nil && !errors.Is(err, engine.ErrAway) {
		s.announcer.shut()
		store.Close()
		return nil, err
	}
	s.follower.Go(func() {
		if s.loadLater() {
			s.follow(store.Watch().SettingsChanged())
		}
	})
	return s, nil
}

// load reads the live settings.
func (s *service) load(ctx context.Context) (live settings.SavedSettings, revision int64, err error) {
	saved, revision, err := s.settings.Load(ctx)
	if err == nil && saved != nil {
		err = json.Unmarshal(saved, &live)
	}
	return live, revision, err
}

// follow puts settings in force that other nodes have saved.
func (s *service) follow(changed <-chan struct{}) {
	for {
		select {
		case <-s.stop:
			return
		case <-changed:
		}
		if err := s.refresh(context.Background()); err != nil && !errors.Is(err, engine.ErrAway) { // which the engine has logged
			if in := s.newestInstance(); in != nil {
				in.log.Error("reading the live settings failed", zap.Error(err))
			}
		}
	}
}

// storePatience is how long the store is waited for when settings are read or saved.
const storePatience = 10 * time.Second

// refresh puts the settings in force that were saved last, on whatever node.
func (s *service) refresh(ctx context.Context) error {
	return s.withSecrets(func(reads settings.SecretReads) error {
		ctx, stop := context.WithTimeout(ctx, storePatience)
		defer stop()
		return s.refreshLocked(ctx, reads)
	})
}

func (s *service) refreshLocked(ctx context.Context, reads settings.SecretReads) error {
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
	if s.events.listening() {
		s.events.settingsChanged(revision, s.lastChangeBy(ctx))
	}
	if newest := s.newest(); newest != nil {
		newest.logTakenOver(newest.active.Load())
	}
	return nil
}

// compileSaved compiles settings that were checked by whoever saved them. A setting that is refused here, because of an
// environment variable that is missing say, is left out and shown among the problems. It returns nil if nothing helps.
func (in *instance) compileSaved(live settings.Settings) *settings.Active {
	active, err := in.Compile(in.active.Load(), live, func(p settings.Part, err error) bool {
		in.log.Error("a live setting that was saved elsewhere is refused here and left out", zap.Stringer("setting", p), zap.Error(err))
		return true
	})
	if err != nil {
		in.log.Error("the live settings that were saved elsewhere are refused here", zap.Error(err))
	}
	return active
}

// lastChangeBy is who made the last change of the live settings, on whatever node, "" if that is not known.
func (s *service) lastChangeBy(ctx context.Context) string {
	var last api.SettingsChange
	changes, _, err := s.settings.Changes(ctx, 1, "")
	if err != nil || len(changes) == 0 || json.Unmarshal(changes[0].Description, &last) != nil {
		return ""
	}
	return last.By
}

// putInForce puts live settings in force, for each instance as they were compiled for it.
func (s *service) putInForce(saved settings.SavedSettings, revision int64, compiled []*settings.Active) {
	history := s.history()
	s.live, s.changed, s.revision = saved.Settings, saved.Changed, revision
	for i, in := range s.instances {
		s.use(in, compiled[i])
	}
	if newest := s.newest(); newest != nil {
		s.followSettings(newest.active.Load())
	}
	if newest := s.newest(); newest != nil {
		newest.meters.SettingsChanges.Inc()
	}
	if s.history() < history { // what is too old now goes at once
		s.engine.Prune()
	}
}

// followSettings tells the parts of the service of the settings of the newest instance that is running.
func (s *service) followSettings(active *settings.Active) {
	s.samples.Follow(active)
	s.rates.follow(active)
	s.followMeters()
	s.engine.LimitHooks(active.HookWorkers())
}

// followMeters takes away the series of hooks and channels that no instance has any more. In a reload those of the old configuration
// stay until it is stopped: if the new one fails, nothing has changed.
func (s *service) followMeters() {
	wanted := make(map[*observe.Meters]observe.MeteredNames)
	for _, in := range s.instances {
		active := in.active.Load()
		if in.stopped || active == nil || in.meters == nil {
			continue
		}
		own := in.meteredNames(active)
		if others, ok := wanted[in.meters]; ok {
			own.Add(others)
		}
		wanted[in.meters] = own
	}
	for meters, own := range wanted {
		meters.Keep(own, true)
	}
}

// meteredNames are those of the hooks and channels of an instance.
func (in *instance) meteredNames(active *settings.Active) observe.MeteredNames {
	return observe.NewMeteredNames(maps.Keys(active.Hooks), maps.Keys(in.Rules.Channels))
}

// history is how long the newest instance keeps messages of finished runs.
func (s *service) history() time.Duration {
	if len(s.instances) == 0 {
		return 0
	}
	return s.instances[len(s.instances)-1].historyInForce()
}

// use puts settings of an instance in force for the next request. If they are nil, the instance keeps those it has.
func (s *service) use(in *instance, active *settings.Active) {
	if active == nil {
		kept := *in.active.Load()
		active = &kept
	}
	active.Revision, active.Changed = s.revision, s.changed
	if !in.stopped {
		in.logWarnings(in.active.Load().Warnings, active.Warnings)
	}
	in.active.Store(active)
}

// Destruct stops the engine when no configuration uses it any more.
func (s *service) Destruct() error {
	close(s.stop)
	s.follower.Wait()
	s.events.shut()
	s.engine.Stop()
	s.announcer.shut()
	return nil
}

func (s *service) newestInstance() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest()
}

// newest returns the instance of the newest configuration that is running, nil if there is none.
func (s *service) newest() *instance {
	for _, in := range slices.Backward(s.instances) {
		if !in.stopped {
			return in
		}
	}
	return nil
}

// problem returns why the newest configuration leaves out a part of the live settings, "" if it does not.
func (s *service) problem(p settings.Part) string {
	if in := s.newest(); in != nil {
		return in.active.Load().Problems[p.String()]
	}
	return ""
}

// change lets edit change the live settings, puts the result in force for the next request, and tells about it in the log and
// in the list of changes. It returns what is in force then. If the result is refused, nothing changes. If another node
// changes the settings at the same time, or a secret has to be read from a file, edit is called again, with the newer ones.
func (s *service) change(from api.Origin, edit func(in *instance, live *settings.Settings) error) (*settings.Active, error) {
	var active *settings.Active
	err := s.withSecrets(func(reads settings.SecretReads) (err error) {
		active, err = s.changeLocked(from, edit, reads)
		return err
	})
	return active, err
}

func (s *service) changeLocked(from api.Origin, edit func(in *instance, live *settings.Settings) error, reads settings.SecretReads) (*settings.Active, error) {
	ctx, stop := context.WithTimeout(context.Background(), storePatience)
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

func (s *service) tryChange(
	ctx context.Context, from api.Origin, edit func(in *instance, live *settings.Settings) error, reads settings.SecretReads,
) (*settings.Active, error) {
	newest := s.newest()
	if newest == nil {
		return nil, errors.New("the instance is not running")
	}
	live := s.live
	live.Mappings = slices.Clone(live.Mappings)
	if err := edit(newest, &live); err != nil {
		return nil, err
	}
	compiled := make([]*settings.Active, len(s.instances))
	unchanged := settings.SameParts(&s.live, &live)
	if err := newest.CheckAllowed(&live, unchanged); err != nil {
		return nil, err
	}
	if err := giveSecrets(reads, s.instances, &live); err != nil {
		return nil, err
	}
	for i, in := range s.instances {
		active, err := in.Compile(in.active.Load(), live, func(p settings.Part, err error) bool {
			// A part that was left out before, for the same reason, does not prevent changes of others.
			return s.problem(p) == err.Error() && unchanged(p)
		})
		if err != nil && in == newest {
			return nil, err
		}
		compiled[i] = active // nil for an old configuration that refuses the change
	}
	// The settings are saved only if no other revision was made from this one, so no other change has this number.
	saved := settings.SavedSettings{Settings: live, Changed: settings.NumberChanges(s.changed, &s.live, &live, s.revision+1)}
	encoded, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("encoding the live settings: %w", err)
	}
	change := describeChange(from, &s.live, &live)
	revision, err := s.settings.Save(ctx, encoded, encode(change), s.revision)
	if err != nil {
		return nil, fmt.Errorf("saving the live settings: %w", err)
	}
	s.putInForce(saved, revision, compiled)
	s.events.settingsChanged(revision, from.By)
	active := newest.active.Load()
	if change != nil {
		s.announcer.settingsChanged(change)
		logChange(change, newest, active)
	}
	return active, nil
}

// newerSettings returns newer settings than those that a request was checked against, nil if there are none. It looks for
// them only if the request was refused, or ignored, because of the settings.
func (in *instance) newerSettings(ctx context.Context, active *settings.Active, err error) *settings.Active {
	if !errors.Is(err, engine.ErrSettingsChanged) && !isBySettings(err) {
		return nil
	}
	if newer := in.upToDate(ctx, active); newer != active {
		return newer
	}
	return nil
}

// isBySettings reports whether a request was refused, or ignored, because of the settings.
func isBySettings(err error) bool {
	var nothing *noWebhookError
	var refused *settings.RefusedCredential
	var ignored *intake.IgnoredError
	return errors.As(err, &nothing) || errors.As(err, &refused) || errors.As(err, &ignored) || errors.Is(err, errNotFrom)
}

// upToDate returns the settings that were saved last, on whatever node. If they cannot be read it returns the ones it is
// given.
func (in *instance) upToDate(ctx context.Context, active *settings.Active) *settings.Active {
	revision, err := in.service.settings.Revision(ctx)
	if err != nil || revision == active.Revision {
		return active
	}
	if err := in.service.refresh(ctx); err != nil {
		if !errors.Is(err, engine.ErrAway) {
			in.log.Error("reading the live settings failed", zap.Error(err))
		}
		return active
	}
	return in.service.catchUp(in)
}

// catchUp returns the settings in force of an instance. One that is gone after a reload, but for requests that it has yet
// to answer, is not told of changes any more.
func (s *service) catchUp(in *instance) *settings.Active {
	_ = s.withSecrets(func(reads settings.SecretReads) error { // which has no other errors
		if in.active.Load().Revision == s.revision {
			return nil
		}
		if err := giveSecrets(reads, []*instance{in}, &s.live); err != nil {
			return err
		}
		s.use(in, in.compileSaved(s.live))
		return nil
	})
	return in.active.Load()
}
