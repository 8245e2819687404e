package caddyhooks

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/ingress"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	caddy.RegisterModule(Health{})
}

// Health tells load balancers and Kubernetes whether an instance of hooks is live and ready on this node. It answers GET and HEAD at
// its path and at <path>/ready with 200 if the instance is ready, and at <path>/live with 200 if it is live; otherwise with 503. A slash
// at the end makes no difference. Other paths below are answered 404, so that a misspelt check fails. Other requests go to the next
// handler. Anybody may ask: the answer names reasons such as store_unreachable, and no details.
//
// An instance is not ready while it starts or stops, while its store is unreachable, cannot be written to or is broken, while more than 90
// % of queue_limit are queued, and while all of its runners are unreachable. It is not live if its store is broken, which a restart mends.
//
// In a Caddyfile it is the line "health <path>" of hooks.
type Health struct {
	// The name of the instance. Default: "default".
	Name string `json:"name,omitempty"`

	// The path to answer at. Default: /healthz.
	Path string `json:"path,omitempty"`

	// Reasons that do not count: runner_unreachable, queue_nearly_full. Runs are accepted and wait while all runners are unreachable, so a
	// service whose callers do not wait for replies may want to get requests all the same.
	Despite []string `json:"despite,omitempty"`

	app *App
}

// mayBeDisregarded are the reasons for which a request may be accepted all the same.
var mayBeDisregarded = []string{api.RunnerUnreachable, api.QueueNearlyFull}

// CaddyModule returns the Caddy module information.
func (Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.hooks_health",
		New: func() caddy.Module { return new(Health) },
	}
}

// Provision fills in defaults and finds the app, which checks that there is the instance.
func (h *Health) Provision(ctx caddy.Context) error {
	h.Name, h.Path = cmp.Or(h.Name, "default"), cmp.Or(h.Path, "/healthz")
	if err := checkHealthPath(h.Path); err != nil {
		return err
	}
	if err := checkDespite(h.Despite); err != nil {
		return err
	}
	app, err := ctx.App("hooks")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	h.app.healths = append(h.app.healths, h)
	return nil
}

// checkHealthPath refuses a path that no request has once Caddy has read it. Checks would never reach it, and may pass.
func checkHealthPath(at string) error {
	if err := service.CheckPath(at); err != nil {
		return err
	}
	if path.Clean(at) != at || strings.Contains(at, "%") {
		return fmt.Errorf("the path '%s' of health is refused: it must not hold //, /./, /../ or %%", at)
	}
	return nil
}

func checkDespite(codes []string) error {
	for _, code := range codes {
		if !slices.Contains(mayBeDisregarded, code) {
			return fmt.Errorf("despite takes %s, and not '%s'", strings.Join(mayBeDisregarded, " and "), code)
		}
	}
	return nil
}

// siteHealthJSON is for anybody, and so has no details.
type siteHealthJSON struct {
	Live     bool     `json:"live"`
	Ready    bool     `json:"ready"`
	Webhooks string   `json:"webhooks,omitempty"` // "on" or "off"
	Reasons  []string `json:"reasons,omitempty"`  // why it is not ready
	Degraded []string `json:"degraded,omitempty"` // what else is wrong
}

var errHealthPath = &api.Error{Status: http.StatusNotFound, Message: "Health is served at the path of health, and at /ready and /live " +
	"below it."}

var errHealthMethod = &api.Error{Status: http.StatusMethodNotAllowed, Header: [2]string{"Allow", "GET, HEAD"},
	Message: "Health is asked for with GET or HEAD."}

// ServeHTTP answers at the path.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !isAtOrBelow(r.URL.Path, h.Path) || h.app.hasHealthBetween(h.Path, r.URL.Path) {
		return next.ServeHTTP(w, r)
	}
	w.Header().Set("Cache-Control", "no-store")
	kind := strings.TrimSuffix(r.URL.Path[len(h.Path):], "/")
	if !slices.Contains(healthKinds, kind) {
		ingress.WriteError(w, r, errHealthPath)
		return nil
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		ingress.WriteError(w, r, errHealthMethod)
		return nil
	}
	found := h.app.instances[h.Name].Health()
	if stopping, _ := caddyShuttingDown(r); stopping && found.Ready() {
		found.Reasons = []api.HealthProblem{{Code: api.IsStopping}}
	}
	found = found.Despite(h.Despite)
	status := http.StatusOK
	if kind == "/live" && !found.Live || kind != "/live" && !found.Ready() {
		status = http.StatusServiceUnavailable
	}
	ingress.WriteJSON(w, status, siteHealthJSON{found.Live, found.Ready(), found.Webhooks, codesOf(found.Reasons), codesOf(found.Degraded)})
	return nil
}

// healthKinds are the ends of the paths.
var healthKinds = []string{"", "/ready", "/live"}

func isAtOrBelow(path, top string) bool { return strings.HasPrefix(path+"/", top+"/") }

// hasHealthBetween reports whether a path is that of another health, which is itself below top.
func (a *App) hasHealthBetween(top, path string) bool {
	return slices.ContainsFunc(a.healths, func(other *Health) bool {
		return other.Path != top && isAtOrBelow(other.Path, top) && isAtOrBelow(path, other.Path)
	})
}

// caddyShuttingDown reports whether the web server is about to stop. It serves on for shutdown_delay, so that load balancers hear of it.
func caddyShuttingDown(r *http.Request) (stopping, known bool) {
	if repl := observe.ReplacerOf(r); repl != nil {
		value, _ := repl.Get("http.shutting_down")
		stopping, known = value.(bool)
	}
	return stopping, known
}

func codesOf(problems []api.HealthProblem) (codes []string) {
	for _, problem := range problems {
		if !slices.Contains(codes, problem.Code) {
			codes = append(codes, problem.Code)
		}
	}
	return codes
}

// unmarshalHealth parses:
//
//	health <path> {
//		despite <reason>...
//	}
func unmarshalHealth(d *caddyfile.Dispenser) (*Health, error) {
	h := new(Health)
	if !d.NextArg() {
		return nil, d.Err("health takes a path, such as /healthz")
	}
	h.Path = d.Val()
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	if err := checkHealthPath(h.Path); err != nil {
		return nil, d.WrapErr(err)
	}
	return h, caddyconf.ReadBlock(d, "health", caddyconf.Set("despite", &h.Despite, caddyconf.Checked(caddyconf.List, checkDespite)))
}

// checkPaths refuses a path of health that a hook may have, or that has the hooks below it.
func (h *Health) checkPaths(hooks string) error {
	if isAtOrBelow(h.Path, hooks) || isAtOrBelow(hooks, h.Path) {
		return fmt.Errorf("the path '%s' of health is refused: it must not be that of the hooks, %s, nor above or below it; use /healthz, say",
			h.Path, hooks)
	}
	return nil
}

// checkHealth refuses instances that are not there, and those of one site that have the same path: only the first would be told about.
func (a *App) checkHealth(sites *caddyhttp.App) error {
	for _, health := range a.healths {
		if a.instances[health.Name] == nil {
			return fmt.Errorf("hooks_health is for the hooks instance %q, and no hooks handler has this name", health.Name)
		}
	}
	if sites == nil || len(a.healths) < 2 {
		return nil
	}
	for _, server := range sites.Servers {
		if err := checkHealthPaths(server.Routes); err != nil {
			return err
		}
	}
	return nil
}

func checkHealthPaths(routes caddyhttp.RouteList) error {
	names := make(map[string]string) // by path
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Health:
				if other, ok := names[handler.Path]; ok && other != handler.Name {
					return fmt.Errorf("the health of the hooks instances %q and %q has the same path, %s, on one site: give each its own", other,
						handler.Name, handler.Path)
				}
				names[handler.Path] = handler.Name
			case *caddyhttp.Subroute:
				if err := checkHealthPaths(handler.Routes); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// route is the route of health. It goes before that of the hooks, and has no other matcher, so that it is reached whatever the matcher
// of the hooks.
func (h *Health) route(helper httpcaddyfile.Helper) []httpcaddyfile.ConfigValue {
	return helper.NewRoute(caddy.ModuleMap{"path": helper.JSON(caddyhttp.MatchPath{h.Path, h.Path + "/*"})}, h)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Health)(nil)
	_ caddyhttp.MiddlewareHandler = (*Health)(nil)
)
