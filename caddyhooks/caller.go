package caddyhooks

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
)

// caller is who calls the admin API, and by which door: the admin endpoint, or a dashboard.
type caller struct {
	by        string // the operator
	via       string // the door
	address   string
	hideTexts bool     // lists show nothing of what runs were told and answered
	readOnly  bool     // may look, and change nothing
	anybody   bool     // by names nobody: everybody who comes by this door has the name
	instances []string // that the caller may see; nil if these are all
}

type callerKey struct{}

// withCaller lets a request be one of a caller that a dashboard knows.
func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// nobodyNamed stands for the operator of a call to the admin endpoint that names none.
const nobodyNamed = "admin"

// callerFrom is the caller of a request to the admin API.
func callerFrom(r *http.Request) caller {
	if c, ok := r.Context().Value(callerKey{}).(caller); ok {
		return c
	}
	c := caller{by: cmp.Or(oneline.First(r.Header.Get(api.OperatorHeader), api.MaxOperator), nobodyNamed), via: api.ViaAdminAPI, address: adminAddress(r)}
	c.anybody = c.by == nobodyNamed
	if door := r.Header.Get(api.ViaHeader); door == api.ViaLocalDashboard || door == api.ViaCommand {
		c.via = door
	}
	if only := r.Header.Get(api.InstanceHeader); only != "" {
		c.instances = []string{only}
	}
	return c
}

// usesDashboard reports whether a browser asks.
func (c caller) usesDashboard() bool { return c.via != api.ViaAdminAPI && c.via != api.ViaCommand }

// account is whose share of event streams and previews a caller uses. Some logins ignore case, so Alice has no other than alice.
// Those who have no name of their own are told apart by their addresses.
func (c caller) account() string {
	account := c.via + " " + strings.ToLower(c.by)
	if c.anybody {
		addr, _ := netip.ParseAddr(c.address) // all whose address is unknown share one account
		key := auth.AddressKey(addr)
		account += " " + string(key[:])
	}
	return account
}

// maySee reports whether the caller may see an instance.
func (c caller) maySee(instance string) bool {
	return c.instances == nil || slices.Contains(c.instances, instance)
}

// String says to operators who that is, in the log and in the record of a run.
func (c caller) String() string {
	if c.via == api.ViaAdminAPI && c.by == nobodyNamed {
		return callerOf("the "+c.via, c.address)
	}
	return callerOf(c.by, c.address)
}
