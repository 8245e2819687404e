package service

import (
	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(EventOrigin{})
}

// EventOrigin is where the events of hooks come from: hooks.run.finished, hooks.run.failed, hooks.delivery.dead and
// hooks.settings.changed. It has no configuration, and nothing refers to it but subscriptions of the events app that name a
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
