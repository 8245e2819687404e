package caddyhooks

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/ingress"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	caddy.RegisterModule(Handler{})
}

// Handler answers webhooks below a path, by default /api/hooks. Other requests go to the next handler.
//
// Webhooks are off until they are enabled, which needs a runner, and a token is set. While they are off, every path below is answered 404.
type Handler struct {
	service.Options

	instance *service.Instance
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.hooks",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision fills in defaults and joins the app.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.FillIn(); err != nil {
		return err
	}
	app, err := ctx.App("hooks")
	if err != nil {
		return err
	}
	hooks := app.(*App)
	if h.instance, err = hooks.instance(ctx, h); err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(h.instance.ServerStopping)
		hooks.serveOn(server)
	}
	return nil
}

// Cleanup releases the instance.
func (h *Handler) Cleanup() error {
	if h.instance != nil {
		h.instance.Cleanup()
	}
	return nil
}

// ServeHTTP answers a webhook.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return ingress.Serve(h.instance, w, r, next)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
