package caddyhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// instance is one hooks service as a configuration defines it.
type instance struct {
	name         string
	config       []byte // as JSON, to tell whether another handler means the same
	pinned       Settings
	rules        rules
	engineConfig engine.Config
	opener       engine.StoreOpener
	client       *outbound.Client

	maxRequest int64
	log        *zap.Logger
	accessLog  *zap.Logger

	secrets       map[string]string // resolved, by how they are configured; each is read once
	secretHeaders []string          // canonical names of the request headers that must not be logged, before the start

	// What is in force. There is none until the instance is started.
	view    atomic.Pointer[view]
	started chan struct{}
	shared  *shared
	stopped bool // under the lock of shared
	detach  func()
}

// view is the settings of an instance made ready for requests. It is replaced as a whole whenever they change.
type view struct {
	settings       Settings
	on             bool
	tokens         auth.Tokens
	defaultTimeout time.Duration
	maxPayload     int64
	memoryPreset   string
	hooks          map[string]*hook
	secretHeaders  []string          // canonical names of the request headers that must not be logged
	problems       map[string]string // live settings and hooks that were left out since they do not fit, and why
}

// shared is what outlives a reload: the engine, and the live settings in its store.
type shared struct {
	engine   *engine.Engine
	throttle func() *auth.Throttle // made when it is first needed

	mu        sync.Mutex
	live      Settings
	instances []*instance // that may have requests to answer, the newest last
}

var pool = caddy.NewUsagePool()

// running has the instances that are started, for the admin API. While a configuration is being replaced there are two
// of a name, and if the new one fails to start the old one is still there.
var running registry

type registry struct {
	mu        sync.Mutex
	instances []*instance // the newest last
}

func (r *registry) add(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = append(r.instances, in)
}

func (r *registry) remove(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = slices.DeleteFunc(r.instances, func(other *instance) bool { return other == in })
}

func (r *registry) find(name string) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range slices.Backward(r.instances) {
		if in.name == name {
			return in
		}
	}
	return nil
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, in := range r.instances {
		names = append(names, in.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Destruct ends the engine after its last configuration is gone.
func (s *shared) Destruct() error {
	s.engine.Stop()
	return nil
}

func newInstance(ctx caddy.Context, h *Handler, config []byte) (*instance, error) {
	in := &instance{
		name:       h.Name,
		config:     config,
		pinned:     h.Settings,
		maxRequest: int64(h.MaxRequest),
		log:        ctx.Logger(),
		accessLog:  ctx.Logger(accessLogModule{}),
		started:    make(chan struct{}),
		secrets:    make(map[string]string),
	}
	runner, err := ctx.LoadModule(h, "RunnerRaw")
	if err != nil {
		return nil, fmt.Errorf("loading runner: %w", err)
	}
	opener, err := ctx.LoadModule(h, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("loading store: %w", err)
	}
	in.opener = opener.(engine.StoreOpener)
	channels := make(map[string]engine.Channel)
	if h.ChannelsRaw != nil {
		loaded, err := ctx.LoadModule(h, "ChannelsRaw")
		if err != nil {
			return nil, fmt.Errorf("loading channels: %w", err)
		}
		for name, channel := range loaded.(map[string]any) {
			channels[name] = channel.(engine.Channel)
		}
	}
	guard, err := h.Callbacks.guard()
	if err != nil {
		return nil, err
	}
	if in.client, err = h.Callbacks.client(guard); err != nil {
		return nil, err
	}
	in.rules = rules{
		maxTimeout:  time.Duration(h.MaxTimeout),
		guard:       guard,
		checkSchema: checkSchema,
		channels:    channels,
	}
	in.engineConfig = engine.Config{
		Runner:    runner.(engine.Runner),
		Channels:  channels,
		Callbacks: callbackSender{in.client},
		Workers:   h.Workers,
		Limits: engine.Limits{
			Queue: h.QueueLimit, Chat: h.ChatLimit,
			Retention: time.Duration(h.Retention),
			Keys:      maxKeys, KeyAge: min(keyAge, time.Duration(h.Retention)),
		},
		MaxAttempts:  h.MaxAttempts,
		DrainTimeout: time.Duration(h.DrainTimeout),
		Log:          in.log,
	}
	// Refuse bad settings now, when nothing has been touched yet.
	v, err := in.compile(Settings{}, nil)
	if err != nil {
		return nil, err
	}
	in.secretHeaders = v.secretHeaders
	return in, nil
}

// compile makes the view of the pinned settings with the live ones beneath them. A live setting that does not fit is an
// error, or left out if forgive says so.
func (in *instance) compile(live Settings, forgive func(name string, err error) bool) (*view, error) {
	problems := make(map[string]string)
	for {
		v, name, err := in.tryCompile(live)
		if err == nil {
			v.problems = problems
			return v, nil
		}
		if forgive == nil || problems[name] != "" || !forgive(name, err) {
			return nil, err
		}
		problems[name] = err.Error()
		live = live.without(name)
	}
}

// tryCompile names the setting that an error is about, or the hook.
func (in *instance) tryCompile(live Settings) (v *view, name string, err error) {
	settings := defaultSettings(&in.rules).merge(live).merge(in.pinned)
	if err := settings.check(&in.rules); err != nil {
		return nil, fieldOf(err), err
	}
	v = &view{
		settings:       settings,
		defaultTimeout: time.Duration(*settings.DefaultTimeoutSeconds) * time.Second,
		maxPayload:     int64(*settings.MaxPayloadSize),
		memoryPreset:   *settings.MemoryPreset,
		hooks:          make(map[string]*hook, len(settings.Mappings)),
		secretHeaders:  []string{"X-Service-Token"},
	}
	if before := in.view.Load(); before != nil {
		// Senders go on signing for a while after their hook is gone.
		v.secretHeaders = slices.Clone(before.secretHeaders)
	}
	var tokens []string
	for _, s := range settings.Token {
		token, err := in.resolve(s)
		if err != nil {
			return nil, "token", fieldErrorf("token", "%v", err)
		}
		tokens = append(tokens, token)
	}
	v.tokens = auth.NewTokens(tokens...)
	v.on = *settings.Enabled && !v.tokens.Empty()
	for _, m := range settings.Mappings {
		if v.hooks[m.Name] != nil {
			return nil, "", fieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		h, err := m.compile(&in.rules, in.resolve)
		if err != nil {
			return nil, hookProblem(m.Name), fmt.Errorf("hook %q: %w", m.Name, err)
		}
		h.pinned = indexMapping(in.pinned.Mappings, m.Name) >= 0
		v.hooks[m.Name] = h
		if h.hmac != nil {
			if header := http.CanonicalHeaderKey(m.HMACHeader); !slices.Contains(v.secretHeaders, header) {
				v.secretHeaders = append(v.secretHeaders, header)
			}
		}
	}
	return v, "", nil
}

// hookProblem is how a hook goes by among problems.
func hookProblem(name string) string { return "hook " + name }

func fieldOf(err error) string {
	var field *fieldError
	if errors.As(err, &field) {
		return field.field
	}
	return ""
}

// resolve is caddyconf.ResolveSecret with a memory, so that a file that goes away later is no reason to refuse a change of
// something else.
func (in *instance) resolve(configured string) (string, error) {
	if secret, ok := in.secrets[configured]; ok {
		return secret, nil
	}
	secret, err := caddyconf.ResolveSecret(configured)
	if err == nil {
		in.secrets[configured] = secret
	}
	return secret, err
}

// start opens the store, unless the configuration before this one has it open already, and puts the instance in force.
// grace is how long the web server waits for its requests when it shuts down, 0 if it does not mind.
func (in *instance) start(grace time.Duration) error {
	value, reload, err := pool.LoadOrNew(in.poolKey(), func() (caddy.Destructor, error) {
		store, err := in.opener.OpenStore(context.Background(), in.name)
		if err != nil {
			return nil, err
		}
		s := &shared{engine: engine.New(store), throttle: sync.OnceValue(auth.NewThrottle)}
		saved, err := store.Settings(context.Background())
		if err == nil && saved != nil {
			err = json.Unmarshal(saved, &s.live)
		}
		if err != nil {
			store.Close()
			return nil, fmt.Errorf("reading the live settings: %w", err)
		}
		return s, nil
	})
	if err != nil {
		return err
	}
	s := value.(*shared)
	s.mu.Lock()
	defer s.mu.Unlock()
	in.rules.checkSchema = s.engine.CheckSchema
	v, err := in.compile(s.live, func(name string, err error) bool {
		// When a configuration is loaded anew there is somebody who can put it right, and the one before goes on.
		// When Caddy starts there may be nobody, and what is right must not go down with what is not.
		if reload && s.known(name) == "" {
			return false
		}
		in.log.Error("a live setting does not go with the configuration and is left out",
			zap.String("setting", name), zap.Error(err))
		return true
	})
	if err != nil {
		_, _ = pool.Delete(in.poolKey())
		return fmt.Errorf("the live settings do not go with this configuration: %w", err)
	}
	// Callers that wait must be answered before the web server, whose grace period is over, drops them.
	if most := grace - min(grace/2, 500*time.Millisecond); grace > 0 {
		in.engineConfig.DrainTimeout = min(in.engineConfig.DrainTimeout, most)
	}
	in.shared = s
	s.instances = append(s.instances, in)
	in.detach = s.engine.Attach(in.engineConfig)
	in.view.Store(v)
	close(in.started)
	running.add(in)
	return nil
}

func (in *instance) stop() {
	if in.shared == nil {
		return
	}
	running.remove(in)
	in.shared.mu.Lock()
	in.stopped = true
	in.shared.mu.Unlock()
	in.detach()
	if _, err := pool.Delete(in.poolKey()); err != nil {
		in.log.Error("closing the engine failed", zap.Error(err))
	}
	in.client.Close()
}

// cleanup is called when Caddy has told the web server to go too. Until then, and be it after stop, requests come in, and
// they go by the live settings like all others.
func (in *instance) cleanup() {
	if in.shared == nil {
		return
	}
	in.shared.mu.Lock()
	defer in.shared.mu.Unlock()
	in.shared.instances = slices.DeleteFunc(in.shared.instances, func(other *instance) bool { return other == in })
}

func (in *instance) poolKey() string { return in.opener.StoreKey(in.name) }

// serverStopping is called when the web server begins to shut down. When the process ends, the callers that the engine
// holds must be let go first, or the server would wait for them.
func (in *instance) serverStopping() {
	if caddy.Exiting() && in.shared != nil {
		in.shared.engine.BeginStop()
	}
}

// current returns what is in force, and waits a moment for an instance that is being started. It is nil if that takes
// too long.
func (in *instance) current(ctx context.Context) *view {
	if v := in.view.Load(); v != nil {
		return v
	}
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-in.started:
	case <-timer.C:
	case <-ctx.Done():
	}
	return in.view.Load()
}

// known returns the problem of that name which the newest configuration has already.
func (s *shared) known(name string) string {
	for _, in := range slices.Backward(s.instances) {
		if v := in.view.Load(); v != nil && !in.stopped {
			return v.problems[name]
		}
	}
	return ""
}

// change has edit change the live settings, and puts the result in force for the next request. If anything about the
// result is wrong nothing changes.
func (s *shared) change(edit func(in *instance, live *Settings) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *instance
	for _, in := range s.instances {
		if !in.stopped {
			newest = in
		}
	}
	if newest == nil {
		return errors.New("the instance is not running")
	}
	live := s.live
	live.Mappings = slices.Clone(live.Mappings)
	if err := edit(newest, &live); err != nil {
		return err
	}
	views := make([]*view, len(s.instances))
	for i, in := range s.instances {
		v, err := in.compile(live, func(name string, err error) bool {
			// What was wrong before, in the same way, does not stand in the way of other changes.
			return s.known(name) == err.Error() && reflect.DeepEqual(s.live.setting(name), live.setting(name))
		})
		if err != nil && in == newest {
			return err
		}
		views[i] = v // nil for an outgoing configuration that cannot take it: it keeps what it has
	}
	saved, err := json.Marshal(live)
	if err != nil {
		return fmt.Errorf("encoding the live settings: %w", err)
	}
	if err := s.engine.Store().SaveSettings(context.Background(), saved); err != nil {
		return fmt.Errorf("saving the live settings: %w", err)
	}
	s.live = live
	for i, in := range s.instances {
		if views[i] != nil {
			in.view.Store(views[i])
		}
	}
	return nil
}
