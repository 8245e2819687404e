package caddyhooks

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/dashboard"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/admin"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func init() {
	caddy.RegisterModule(Dashboard{})
	httpcaddyfile.RegisterHandlerDirective("hooks_dashboard", parseDashboard)
	// After everything that asks who the operator is, and before a catch-all.
	httpcaddyfile.RegisterDirectiveOrder("hooks_dashboard", httpcaddyfile.Before, "respond")
}

// Dashboard serves a page that shows runs, chats and deliveries of the hooks of this Caddy, and changes their live
// settings. It works on any site, also one without hooks.
//
// Somebody has to say who the operator is: basic_auth, forward_auth or client certificates, for example. A request without an
// operator is answered 403. A page below a path needs handle_path, which takes the path off.
type Dashboard struct {
	// Who is asking, as a placeholder. It must be one that authentication sets, and no client. A constant lets everybody in who
	// reaches the site; requests must then name localhost, 127.0.0.1, [::1] or one of hosts as their host.
	// Default: {http.auth.user.id}.
	User string `json:"user,omitempty"`

	// The users with read-only access. "*" is everybody.
	ReadOnly []string `json:"read_only,omitempty"`

	// The names of the instances to show. Default: all.
	Instances []string `json:"instances,omitempty"`

	// The host names of the page. A request for another host is answered 403. Default: any, if user is a placeholder.
	Hosts []string `json:"hosts,omitempty"`

	// Whether lists show nothing of what agents were told and answered. A single run still does.
	HideTexts bool `json:"hide_texts,omitempty"`

	constant string // the user, if it is the same for every request
	page     http.Handler
	log      *zap.Logger
}

const defaultUser = "{http.auth.user.id}"

// CaddyModule returns the Caddy module information.
func (Dashboard) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.hooks_dashboard",
		New: func() caddy.Module { return new(Dashboard) },
	}
}

// Provision fills in defaults.
func (d *Dashboard) Provision(ctx caddy.Context) error {
	d.log = ctx.Logger()
	d.User = cmp.Or(d.User, defaultUser)
	// A placeholder such as {env.OPERATOR} is the same for every request. Those of a request are unknown here.
	if user, err := caddy.NewReplacer().ReplaceOrErr(d.User, true, true); err == nil {
		d.constant = strings.TrimSpace(user)
	}
	if err := errors.Join(settings.CheckInstanceNames(d.Instances), checkDashboardHosts(d.Hosts), checkReadOnly(d.ReadOnly)); err != nil {
		return err
	}
	d.noteUserHeader()
	d.page = dashboard.Handler(dashboard.Access{
		Name:  "hooks_dashboard",
		Enter: d.enter,
		Instances: func(r *http.Request) ([]string, error) {
			return d.callerOf(r).Visible(service.Running.Names()), nil
		},
		PublicPath: publicPath,
		API:        apiHandler(d.callerOf, d.log),
	})
	return nil
}

// requestHeader matches a placeholder for a header of the request.
var requestHeader = regexp.MustCompile(`\{http\.request\.header\.([^{}]+)\}`)

// noteUserHeader logs that a request header names the operator. Whether forward_auth replaces what a client sends is not known
// here.
func (d *Dashboard) noteUserHeader() {
	if header := requestHeader.FindStringSubmatch(d.User); header != nil {
		d.log.Info("a request header names the operator of hooks_dashboard, so whoever can send the header can be anybody; "+
			"with forward_auth, copy_headers must name it, and then it replaces what clients send", zap.String("header", header[1]))
	}
}

func checkDashboardHosts(hosts []string) error {
	for _, host := range hosts {
		name := dashboard.HostName(host)
		if name == "" || host != name && host != "["+name+"]" || strings.ContainsAny(host, "*{}") {
			return fmt.Errorf("the host '%s' is refused: hosts takes names or addresses without a port, such as dashboard.example.com", host)
		}
	}
	return nil
}

// ServeHTTP serves the page, its assets and its API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	d.page.ServeHTTP(w, r)
	return nil
}

// enter tells who asks, if that is known and the request is for a host of the page.
func (d *Dashboard) enter(r *http.Request) (dashboard.Operator, error) {
	user := d.userOf(r)
	if user == "" {
		return dashboard.Operator{}, d.errNobody()
	}
	if err := d.checkHost(r); err != nil {
		return dashboard.Operator{}, err
	}
	return dashboard.Operator{User: shownUser(user), ReadOnly: d.isReadOnly(user), HideTexts: d.HideTexts}, nil
}

// userOf is the user who asks, "" if a part of the placeholders has no value.
func (d *Dashboard) userOf(r *http.Request) string {
	if d.constant != "" {
		return d.constant
	}
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	user, err := repl.ReplaceOrErr(d.User, true, true)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(user)
}

// shownUser is the name of a user as it is kept, logged and shown.
func shownUser(user string) string { return oneline.Of(user, api.MaxOperator) }

func (d *Dashboard) errNobody() error {
	sentence := "Nobody is logged in here, so the dashboard is closed. Put basic_auth or another login before hooks_dashboard on this " +
		"site, or let everybody in who reaches it by the line: user operator"
	if d.User != defaultUser {
		sentence = "Nobody is logged in here, so the dashboard is closed: the placeholder in the line user " + d.User + " of hooks_dashboard " +
			"has no value for this request."
		if header := requestHeader.FindStringSubmatch(d.User); header != nil {
			sentence += " With forward_auth, add the line: copy_headers " + header[1]
		}
	}
	return &dashboard.Refusal{Status: http.StatusForbidden, Sentence: sentence}
}

// checkHost refuses hosts that are not those of the page. See dashboard.HostIn.
func (d *Dashboard) checkHost(r *http.Request) error {
	allowed := len(d.Hosts) == 0 && d.constant == "" || dashboard.HostIn(r, d.plainHosts()) || d.constant != "" && dashboard.IsLoopback(r)
	if allowed {
		return nil
	}
	name := dashboard.HostName(r.Host)
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	const longest = 253 // of names in the DNS
	if len(name) > longest || checkDashboardHosts([]string{name}) != nil {
		return &dashboard.Refusal{Status: http.StatusForbidden, Sentence: "The request names no host that the dashboard could have."}
	}
	line := strings.Join(slices.Concat([]string{"hosts"}, d.Hosts, []string{oneline.Of(name, longest)}), " ")
	return &dashboard.Refusal{Status: http.StatusForbidden,
		Sentence: "The dashboard is not open under this host name. If the name is yours, hooks_dashboard needs the line: " + line}
}

// plainHosts are the hosts without brackets.
func (d *Dashboard) plainHosts() []string {
	plain := make([]string, len(d.Hosts))
	for i, host := range d.Hosts {
		plain[i] = dashboard.HostName(host)
	}
	return plain
}

// isReadOnly ignores case, since some logins do: Alice must not get round a line for alice.
func (d *Dashboard) isReadOnly(user string) bool {
	return slices.ContainsFunc(d.ReadOnly, func(name string) bool { return name == "*" || strings.EqualFold(name, user) })
}

// callerOf is the caller of the API that an operator of the page is.
func (d *Dashboard) callerOf(r *http.Request) admin.Caller {
	operator := dashboard.OperatorFrom(r.Context())
	return admin.Caller{By: operator.User, Via: "dashboard", Address: intake.ClientAddress(r),
		HideTexts: operator.HideTexts, ReadOnly: operator.ReadOnly, Anybody: d.constant != "", Instances: d.Instances}
}

// publicPath is the path that Caddy was asked for, before handle_path took something off.
func publicPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.EscapedPath()
	}
	return ""
}

// apiHandler serves the endpoints of the admin API to callers that a dashboard knows. Errors have the same shape as on Caddy's
// admin endpoint.
func apiHandler(callerOf func(*http.Request) admin.Caller, log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	for _, route := range admin.Routes("") {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := route.Handler.ServeHTTP(w, r); err != nil {
				writeAPIError(w, r, err, log)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, admin.WithCaller(r, callerOf(r)))
	})
}

func writeAPIError(w http.ResponseWriter, r *http.Request, err error, log *zap.Logger) {
	status := http.StatusInternalServerError
	var api caddy.APIError
	if errors.As(err, &api) && api.HTTPStatus != 0 {
		status = api.HTTPStatus
	}
	if status >= http.StatusInternalServerError {
		log.Error("an API request of the dashboard failed", zap.String("method", r.Method), zap.String("path", oneline.Of(r.URL.Path, 256)),
			zap.Int("status", status), zap.Error(err))
	}
	dashboard.WriteError(w, status, err.Error())
}

func parseDashboard(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	d := new(Dashboard)
	return d, d.UnmarshalCaddyfile(helper.Dispenser)
}

// UnmarshalCaddyfile parses:
//
//	hooks_dashboard [<matcher>] {
//		user       <placeholder>|<name>
//		read_only  <user>...|*
//		instance   <name>...
//		hosts      <name>...
//		hide_texts
//	}
func (d *Dashboard) UnmarshalCaddyfile(dispenser *caddyfile.Dispenser) error {
	dispenser.Next()
	if dispenser.NextArg() {
		return dispenser.ArgErr()
	}
	return caddyconf.ReadBlock(dispenser, "hooks_dashboard",
		caddyconf.Set("user", &d.User, placeholders),
		caddyconf.Set("read_only", &d.ReadOnly, caddyconf.Checked(caddyconf.List, checkReadOnly)),
		caddyconf.Set("instance", &d.Instances, caddyconf.Checked(caddyconf.List, settings.CheckInstanceNames)),
		caddyconf.Set("hosts", &d.Hosts, caddyconf.Checked(caddyconf.List, checkDashboardHosts)),
		caddyconf.Set("hide_texts", &d.HideTexts, caddyconf.Present),
	)
}

// placeholders reads one word, in which Caddy's shorthands for placeholders mean what they do everywhere else.
func placeholders(d *caddyfile.Dispenser) (string, error) {
	before := *d
	if _, err := caddyconf.Word(&before); err != nil {
		return "", err
	}
	d.NextArg()
	return d.Val(), nil
}

func checkReadOnly(users []string) error {
	if len(users) > 1 && slices.Contains(users, "*") {
		return errors.New("read_only takes names of users, or a single *")
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Dashboard)(nil)
	_ caddyhttp.MiddlewareHandler = (*Dashboard)(nil)
	_ caddyfile.Unmarshaler       = (*Dashboard)(nil)
)
