package observe

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// IsTraced reports whether Caddy's tracing comes before hooks in the routes of a server. Matchers are not looked at: a site may trace
// only some of its requests. isHooks tells which handlers are meant.
func IsTraced(app *caddyhttp.App, isHooks func(caddyhttp.MiddlewareHandler) bool) bool {
	for _, server := range app.Servers {
		s := tracingSearch{isHooks: isHooks, named: server.NamedRoutes}
		s.walk(server.Routes, false, 0)
		if s.found {
			return true
		}
	}
	return false
}

// tracingSearch looks for hooks whose requests are traced.
type tracingSearch struct {
	isHooks func(caddyhttp.MiddlewareHandler) bool
	named   map[string]*caddyhttp.Route
	found   bool
}

// MaxRouteDepth ends the search in a named route that invokes itself.
const MaxRouteDepth = 64

// walk looks through routes whose requests are traced or not. It reports whether those of a route after them may be.
func (s *tracingSearch) walk(routes caddyhttp.RouteList, traced bool, depth int) bool {
	if depth > MaxRouteDepth {
		return traced
	}
	groups := make(map[string]bool) // one route of a group is taken: what is known before the first holds for all
	for _, route := range routes {
		before := traced
		if route.Group != "" {
			if known, ok := groups[route.Group]; ok {
				before = known
			} else {
				groups[route.Group] = traced
			}
		}
		after := s.handlers(route.Handlers, before, depth)
		if !route.Terminal {
			traced = traced || after
		}
	}
	return traced
}

// handlers looks through the handlers of a route.
func (s *tracingSearch) handlers(handlers []caddyhttp.MiddlewareHandler, traced bool, depth int) bool {
	for _, handler := range handlers {
		s.found = s.found || traced && s.isHooks(handler)
		switch handler := handler.(type) {
		case *caddyhttp.Subroute:
			traced = s.walk(handler.Routes, traced, depth+1)
		case *caddyhttp.Invoke:
			if route := s.named[handler.Name]; route != nil {
				traced = s.walk(caddyhttp.RouteList{*route}, traced, depth+1)
			}
		case caddy.Module:
			traced = traced || handler.CaddyModule().ID == "http.handlers.tracing"
		}
	}
	return traced
}
