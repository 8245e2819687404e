// Package caddyhooks is a Caddy module that turns webhooks into turns of an AI agent.
//
// A request comes in at the [Handler]. While webhooks are off it is answered 404, like every path that is no hook.
// Otherwise it is authenticated by token or signature, its body is read up to a limit and parsed once, and intake makes
// it a run, with the message rendered from a template if it came to a custom hook. The engine stores the run; from then
// on it is accepted, and the caller of wake or agent is answered. A worker claims it, has the configured runner carry
// out the turn, checks the answer against the schema if there is one, and ends the run. Whoever waits for that very run
// is woken, and callbacks and channel deliveries go out.
//
// What a handler is configured with makes an instance; its settings can in part be changed through the admin API while
// Caddy runs. The [App] starts and stops all instances of a configuration. What has to outlive a reload, namely the
// engine with its store and the live settings, is pooled across configurations.
package caddyhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	// The modules that come with this one.
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/channels"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/stores"
)

func init() {
	caddy.RegisterModule(App{})
}

// App runs the instances that the hooks handlers of a configuration define. It needs no configuration of its own: a
// handler brings it in.
type App struct {
	ctx       caddy.Context
	instances map[string]*instance
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision remembers where to find other apps.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	return nil
}

// instance returns the instance that handler configures. The same site can be served by several servers, each with a
// handler of its own: handlers with the same configuration share an instance, and with another one it is an error.
func (a *App) instance(ctx caddy.Context, handler *Handler) (*instance, error) {
	config, err := json.Marshal(handler)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of hooks instance %q: %w", handler.Name, err)
	}
	if in, ok := a.instances[handler.Name]; ok {
		if !bytes.Equal(in.config, config) {
			return nil, fmt.Errorf("hooks instance %q is configured twice, and not in the same way: give one of them another name", handler.Name)
		}
		return in, nil
	}
	in, err := newInstance(ctx, handler, config)
	if err != nil {
		return nil, fmt.Errorf("hooks instance %q: %w", handler.Name, err)
	}
	for _, other := range a.instances {
		if other.storeKey() == in.storeKey() {
			return nil, fmt.Errorf("the hooks instances %q and %q have the same store: give each its own", other.name, in.name)
		}
	}
	if a.instances == nil {
		a.instances = make(map[string]*instance)
	}
	a.instances[handler.Name] = in
	return in, nil
}

// Start opens the stores and starts the engines.
func (a *App) Start() error {
	var grace time.Duration
	if app, err := a.ctx.AppIfConfigured("http"); err == nil {
		grace = time.Duration(app.(*caddyhttp.App).GracePeriod)
	}
	var started []*instance
	for _, name := range slices.Sorted(maps.Keys(a.instances)) {
		in := a.instances[name]
		if err := in.start(grace); err != nil {
			for _, other := range started {
				other.stop()
			}
			return fmt.Errorf("starting hooks instance %q: %w", name, err)
		}
		started = append(started, in)
	}
	return nil
}

// Stop ends this configuration's use of the engines. An engine that the next configuration uses too goes on.
func (a *App) Stop() error {
	var group sync.WaitGroup
	for _, in := range a.instances {
		group.Go(in.stop) // each may take its drain time
	}
	group.Wait()
	return nil
}

// Interface guards
var (
	_ caddy.App         = (*App)(nil)
	_ caddy.Provisioner = (*App)(nil)
)
