package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

// Caller is who calls the admin API, and through what: the admin endpoint, or a dashboard.
type Caller struct {
	By        string // the operator
	Via       string // "admin API", or the name of a dashboard
	Address   string
	HideTexts bool     // lists show neither inputs nor answers of runs
	ReadOnly  bool     // read-only access
	Anybody   bool     // by names nobody: everybody who comes this way has the name
	Instances []string // that the caller may see; nil if these are all
}

type callerKey struct{}

// WithCaller attaches the dashboard's caller to the request.
func WithCaller(r *http.Request, c Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// nobodyNamed stands for the operator of a call to the admin endpoint that names none.
const nobodyNamed = "admin"

// callerFrom is the caller of a request to the admin API.
func callerFrom(r *http.Request) Caller {
	if c, ok := r.Context().Value(callerKey{}).(Caller); ok {
		return c
	}
	c := Caller{By: cmp.Or(oneline.First(r.Header.Get(api.OperatorHeader), api.MaxOperator), nobodyNamed), Via: api.ViaAdminAPI,
		Address: addressOf(r)}
	c.Anybody = c.By == nobodyNamed
	if via := r.Header.Get(api.ViaHeader); via == api.ViaLocalDashboard || via == api.ViaCommand {
		c.Via = via
	}
	if only := r.Header.Get(api.InstanceHeader); only != "" {
		c.Instances = []string{only}
	}
	return c
}

// usesDashboard reports whether a browser asks.
func (c Caller) usesDashboard() bool { return c.Via != api.ViaAdminAPI && c.Via != api.ViaCommand }

// account is whose share of event streams and previews a caller uses. Some logins ignore case, so Alice has no other than alice.
// Those who have no name of their own are told apart by their addresses.
func (c Caller) account() string {
	account := c.Via + " " + strings.ToLower(c.By)
	if c.Anybody {
		addr, _ := netip.ParseAddr(c.Address) // all whose address is unknown share one account
		key := auth.AddressKey(addr)
		account += " " + string(key[:])
	}
	return account
}

// maySee reports whether the caller may see an instance.
func (c Caller) maySee(instance string) bool {
	return c.Instances == nil || slices.Contains(c.Instances, instance)
}

// String says to operators who that is, in the log and in the record of a run.
func (c Caller) String() string {
	if c.Via == api.ViaAdminAPI && c.By == nobodyNamed {
		return service.CallerOf("the "+c.Via, c.Address)
	}
	return service.CallerOf(c.By, c.Address)
}

func originOf(c Caller) api.Origin { return api.Origin{By: c.By, Via: c.Via, Address: c.Address} }
