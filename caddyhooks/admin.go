package caddyhooks

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/admin"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin shows and changes live settings, tells how they were changed, and shows runs, chats, deliveries, refused requests and
// runners, on Caddy's admin endpoint. Dashboards and the command line have the same API:
//
//	GET               /hooks/about
//	GET               /hooks/overview
//	GET               /hooks/events
//	GET, PATCH        /hooks/settings
//	GET               /hooks/mappings
//	GET, PUT, DELETE  /hooks/mappings/<name>
//	POST              /hooks/mappings/<name>/sign
//	POST              /hooks/mappings/<name>/test
//	POST              /hooks/preview
//	GET               /hooks/samples
//	GET               /hooks/changes
//	GET               /hooks/runs
//	GET               /hooks/runs/<id>
//	POST              /hooks/runs/<id>/cancel
//	POST              /hooks/runs/<id>/again
//	GET               /hooks/chats
//	GET               /hooks/chat
//	GET               /hooks/deliveries
//	GET, DELETE       /hooks/deliveries/<id>
//	POST              /hooks/deliveries/<id>/retry
//	GET, POST         /hooks/bulk
//	GET               /hooks/bulk/<id>
//	POST              /hooks/bulk/<id>/stop
//	POST              /hooks/bulk/<id>/resume
//	GET               /hooks/export
//	GET               /hooks/backup
//	GET               /hooks/refused
//	GET               /hooks/runners
//	POST              /hooks/runners/<name>/try
//	GET               /hooks/instances
//	GET               /hooks/health
//	GET               /hooks/health/live
//	GET               /hooks/health/ready
//
// These are the endpoints of the instance "default". Another instance has the same ones below /hooks/instances/<name>/.
// Settings from the Caddy configuration are shown, and a change of one is answered 409. Secrets are shown masked, and so are
// the queries of callback URLs. A mask that is sent back keeps what it stands for. A backup has all secrets, so dashboards do not
// pass it on.
//
// Settings and mappings have an ETag. A change with If-Match is answered 412 if somebody else made one meanwhile, and with
// If-None-Match: * a mapping is only created.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.hooks",
		New: func() caddy.Module { return new(Admin) },
	}
}

// Provision offers metrics.
func (*Admin) Provision(ctx caddy.Context) error { return service.RegisterMetrics(ctx) }

// Routes returns the routes for Caddy's http.ServeMux. Its patterns have no methods here: the mux would answer 405 in plain
// text, take HEAD for GET, and match GET /bulk/stop with GET /bulk/{id}.
func (a *Admin) Routes() []caddy.AdminRoute { return admin.Routes("/hooks") }

// Interface guards
var (
	_ caddy.Provisioner = (*Admin)(nil)
	_ caddy.AdminRouter = (*Admin)(nil)
)
