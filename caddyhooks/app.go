// Package caddyhooks is a Caddy module that turns webhooks into turns of an AI agent. It has what Caddy sees: the modules [App],
// [Handler], [Dashboard], [Health] and [Admin], and the grammar of the Caddyfile. What they do is in the packages below, whose
// imports run one way:
//
//	caddyhooks → cli, admin, ingress → service → observe, intake → settings → oidc → auth; settings → template, caddyconf, text
//	cli, admin, ingress, service, intake → api → engine
//	runners, channels, stores → engine
//
// One request walks through them like this. [Handler.ServeHTTP] gives it to package ingress. While webhooks are off the answer is 404,
// as for every path without a hook. Otherwise the token or the signature is checked, by the settings in force, and the body is read
// up to a limit. Package intake parses the body once and makes runs of it; the message of a custom hook is rendered from its
// template, and the runner is chosen. The engine stores the runs. Now they are accepted, and the caller of wake or agent gets an
// answer. A worker claims a run, and its runner carries out the turn; what the agent says meanwhile can be followed. The reply is
// checked against the schema if there is one, and the run ends. Callers that wait for the run are answered, and callbacks and channel
// deliveries are sent. A request that becomes no run is noted among the refusals.
//
// The configuration of a handler makes an instance of package service. The [App] starts and stops all instances of a
// configuration. The [Admin] API changes live settings of an instance while Caddy runs. A service outlives reloads and is shared by
// the instances of the old and the new configuration.
//
// Operators have a page, in package dashboard. The [Dashboard] serves it on a site, and the command "caddy hooks dashboard" on this
// machine. Behind the page are the endpoints of package admin.
//
// To add
//
//   - a setting, see AllSettings in internal/settings/settings.go,
//   - a sender that signs its webhooks, see Senders in internal/settings/scheme_senders.go,
//   - another scheme, write a file like internal/settings/scheme_token.go,
//   - an endpoint of the admin API, write a file like internal/admin/runs.go,
//   - a page of the dashboard, write a module like dashboard/assets/changes.js and name it in main.js,
//   - a runner or a channel, see the comments of the packages runners and channels,
//   - a store, implement engine.Store in a package like stores/memory, and check it with stores/storetest.
package caddyhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/channels"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func init() {
	caddy.RegisterModule(App{})
}

// App runs the instances of all hooks handlers in a configuration. It has no configuration of its own. Handlers load it.
type App struct {
	ctx       caddy.Context
	instances map[string]*service.Instance
	emitter   *service.Emitter
	healths   []*Health // of all sites
	started   bool      // or an attempt was made
	ends      appEnds
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision keeps the context, in which Start finds the http app, finds the events app, and offers metrics.
func (a *App) Provision(ctx caddy.Context) (err error) {
	a.ctx = ctx
	if a.emitter, err = service.NewEmitter(ctx, a.allStarted); err != nil {
		return err
	}
	return service.RegisterMetrics(ctx)
}

// allStarted is called when all apps of the configuration are started. It returns the announcers of the started instances.
func (a *App) allStarted() (all []*service.Announcer) {
	a.ends.allStarted = true
	for _, in := range a.instances {
		if in.Service != nil {
			all = append(all, in.Service.Announcer)
		}
	}
	return all
}

// instance returns the instance of a handler. Handlers with the same name share an instance, since one site may have several
// servers. It is an error if their configurations differ.
func (a *App) instance(ctx caddy.Context, handler *Handler) (*service.Instance, error) {
	config, err := json.Marshal(handler)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of hooks instance %q: %w", handler.Name, err)
	}
	if in, ok := a.instances[handler.Name]; ok {
		if !bytes.Equal(in.Config, config) {
			return nil, fmt.Errorf("hooks instance %q is configured twice, and not in the same way: give one of them another name", handler.Name)
		}
		return in, nil
	}
	in, err := service.NewInstance(ctx, &handler.Options, config)
	if err != nil {
		return nil, fmt.Errorf("hooks instance %q: %w", handler.Name, err)
	}
	for _, other := range a.instances {
		if other.StoreKey() == in.StoreKey() {
			return nil, fmt.Errorf("the hooks instances %q and %q have the same store: give each its own", other.Name, in.Name)
		}
	}
	if a.instances == nil {
		a.instances = make(map[string]*service.Instance)
	}
	in.Emitter = a.emitter
	a.instances[handler.Name] = in
	in.JoinRecorder()
	in.Meters, in.LeaveMeters = observe.JoinMeters(in.Name)
	in.EngineConfig.Metrics = in.Meters
	return in, nil
}

// Start opens the stores and starts the engines.
func (a *App) Start() error {
	a.started = true
	var grace time.Duration
	var sites *caddyhttp.App
	if app, err := a.ctx.AppIfConfigured("http"); err == nil {
		sites = app.(*caddyhttp.App)
		grace = time.Duration(sites.GracePeriod)
	}
	if err := a.checkHealth(sites); err != nil {
		return err
	}
	var started []*service.Instance
	for _, name := range slices.Sorted(maps.Keys(a.instances)) {
		in := a.instances[name]
		var err error
		if sites != nil {
			in.Urls = siteURLs(sites, in)
			in.AccessLog.FindAppended(sites, serves(in))
			warnAboutReach(in, sites)
			in.WarnAboutPublicURL()
			err = openTraces(in, sites)
		}
		if err == nil {
			err = in.Start(grace)
		}
		if err != nil {
			in.CloseTraces()
			for _, other := range started {
				other.Stop()
			}
			return fmt.Errorf("starting hooks instance %q: %w", name, err)
		}
		started = append(started, in)
	}
	return nil
}

// serves returns a function that reports whether a handler is one of the instance.
func serves(in *service.Instance) func(caddyhttp.MiddlewareHandler) bool {
	return func(handler caddyhttp.MiddlewareHandler) bool {
		hooks, ok := handler.(*Handler)
		return ok && hooks.instance == in
	}
}

// openTraces has the engine of an instance show its runs as spans, if Caddy's tracing handles requests to its hooks.
func openTraces(in *service.Instance, sites *caddyhttp.App) error {
	if !observe.IsTraced(sites, serves(in)) {
		return nil
	}
	spans, err := observe.OpenRunSpans(in.Name, in.EngineConfig.Runners)
	if err != nil {
		return err
	}
	in.Traced = true
	in.EngineConfig.Traces = spans
	return nil
}

// appEnds is how far the end of a configuration has come. Caddy stops its apps one after the other, in any order, and the web server serves
// on for shutdown_delay. So the instances stop when both this app and the web server have, and accept requests until then.
type appEnds struct {
	allStarted  bool // so Caddy will stop the web server, too
	served      bool // a server of the web server has a hooks handler
	webStopped  bool
	stopWanted  bool
	stopStarted bool
}

// serveOn has the instances wait for the end of the web server that has this server.
func (a *App) serveOn(server *caddyhttp.Server) {
	a.ends.served = true
	server.RegisterOnStop(func(context.Context) error { // called when all servers have stopped
		a.ends.webStopped = true
		a.stopIfDue()
		return nil
	})
}

// Stop ends the use of the engines by this configuration, unless that is left to the end of the web server. An engine goes on if the next
// configuration uses it, too.
func (a *App) Stop() error {
	a.ends.stopWanted = true
	a.stopIfDue()
	return nil
}

func (a *App) stopIfDue() {
	ends := &a.ends
	if serving := ends.allStarted && ends.served && !ends.webStopped; serving || !ends.stopWanted || ends.stopStarted {
		return
	}
	ends.stopStarted = true
	var group sync.WaitGroup
	for _, in := range a.instances {
		group.Go(in.Stop) // each may take up to drain_timeout
	}
	group.Wait()
}

// Cleanup warns about a configuration that was loaded and not started, as "caddy validate" has it: only now all routes are known.
func (a *App) Cleanup() error {
	if a.started || len(a.instances) == 0 {
		return nil
	}
	app, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return nil //nolint:nilerr // it was refused, and Caddy says why
	}
	for _, name := range slices.Sorted(maps.Keys(a.instances)) {
		in := a.instances[name]
		in.LogWarnings(nil, in.Unstarted)
		warnAboutReach(in, app.(*caddyhttp.App))
	}
	return nil
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
