// Package admin has the endpoints of the operator: runs, chats, deliveries, settings, overview, export, backup and events. Caddy's admin
// endpoint and dashboards serve the same table of them. To add an endpoint, write a file like runs.go. It imports service and all
// that service imports, and not ingress.
package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// endpoint serves one method of one path.
type endpoint struct {
	Method     string
	serve      handlerFunc
	Parameters []string // of the query
	looksOnly  bool     // changes nothing, so that read-only operators may use it
	secret     bool     // is for those alone who may do everything
}

// handlerFunc serves a request about an instance. An error is answered in the shape of Caddy's admin errors.
type handlerFunc func(in *service.Instance, w http.ResponseWriter, r *http.Request) error

// Endpoints are endpoints by the pattern of their path.
type Endpoints map[string][]endpoint

// Each resource adds its endpoints in the init function of its file.
var (
	InstanceEndpoints = make(Endpoints) // below /hooks and below /hooks/instances/{instance}
	GlobalEndpoints   = make(Endpoints) // below /hooks alone, and served without an instance
)

// postsThatLookOnly are the endpoints that change nothing and get what they look at in a body.
var postsThatLookOnly = []string{"POST /preview"}

// endpointsWithSecrets answer with secrets. Dashboards do not have them.
var endpointsWithSecrets = []string{"GET /backup"}

// Handle adds an endpoint. Its pattern has a method and a path, as in "POST /runs/{id}/cancel". A query may have the named
// parameters, each once: a request with any other is answered 400 and does not reach serve.
func (e Endpoints) Handle(pattern string, serve handlerFunc, parameters ...string) {
	method, path, _ := strings.Cut(pattern, " ")
	looksOnly := method == http.MethodGet || slices.Contains(postsThatLookOnly, pattern)
	secret := slices.Contains(endpointsWithSecrets, pattern)
	e[path] = append(e[path], endpoint{method, serve, parameters, looksOnly, secret})
}

// Routes are the routes of all endpoints below a path, which may be "".
func Routes(base string) []caddy.AdminRoute {
	routes := []caddy.AdminRoute{
		{Pattern: base + "/", Handler: forInstance(noEndpoint)},
		{Pattern: base + "/instances/{instance}", Handler: forInstance(noEndpoint)},
		{Pattern: base + "/instances/{instance}/", Handler: forInstance(noEndpoint)},
	}
	for path, methods := range GlobalEndpoints {
		routes = append(routes, caddy.AdminRoute{Pattern: base + path, Handler: withoutInstance(byMethod(methods))})
	}
	for path, methods := range InstanceEndpoints {
		handler := forInstance(byMethod(methods))
		routes = append(routes,
			caddy.AdminRoute{Pattern: base + path, Handler: handler},
			caddy.AdminRoute{Pattern: base + "/instances/{instance}" + path, Handler: handler})
	}
	return routes
}

// forInstance finds the instance that the path names.
func forInstance(serve handlerFunc) caddy.AdminHandler {
	return caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		name := cmp.Or(r.PathValue("instance"), "default")
		who := callerFrom(r)
		in := service.Running.Find(name)
		switch {
		case in == nil && service.Waiting.Find(name) != nil && who.maySee(name):
			return api.Errorf(http.StatusServiceUnavailable, "the hooks instance %q waits for its store: %v", name,
				service.Waiting.Find(name).NotReady())
		case len(service.Running.Names()) == 0:
			return api.Errorf(http.StatusNotFound, "there is no hooks instance %q, nor any other; add a line with the word hooks to a site in "+
				"the Caddyfile", text.Abridge(name))
		case in == nil:
			return api.Errorf(http.StatusNotFound, "there is no hooks instance %q", text.Abridge(name))
		case !who.maySee(name):
			return api.Errorf(http.StatusNotFound, "the hooks instance %q is not shown here; hooks_dashboard shows %s", name,
				text.List(who.Instances))
		}
		if strings.Count(r.URL.Path, "/") != strings.Count(r.URL.EscapedPath(), "/") {
			return noEndpoint(in, w, r) // no name or id has a slash in it
		}
		in.UpToDate(r.Context(), in.Active.Load()) // another node may have changed the settings
		return answerError(in, r, serve(in, w, r))
	})
}

// answerError is the answer to a request that failed. A panic is told in the log, with its stack. Other errors tell an
// operator what to do, as in "no space left on device".
func answerError(in *service.Instance, r *http.Request, err error) error {
	var answer caddy.APIError
	var panicked *panics.Error
	if errors.Is(err, engine.ErrUnreachable) {
		return api.Errorf(http.StatusServiceUnavailable, "%v", err)
	}
	if err == nil || errors.As(err, &answer) || !errors.As(err, &panicked) && !strings.Contains(err.Error(), "\n") {
		return err
	}
	in.Log.Error("an admin request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), panics.Field(err))
	return api.Errorf(http.StatusInternalServerError, "the request failed because of an error inside; Caddy's log tells more")
}

func withoutInstance(serve handlerFunc) caddy.AdminHandler {
	return caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return serve(nil, w, r) })
}

// byMethod chooses among the endpoints of a path.
func byMethod(endpoints []endpoint) handlerFunc {
	return func(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
		var allowed []string
		for _, e := range endpoints {
			if e.Method == r.Method {
				if e.secret && callerFrom(r).usesDashboard() {
					return api.Errorf(http.StatusNotFound, "a dashboard does not pass this on, since there are secrets in it; ask the admin endpoint, "+
						"as `caddy hooks backup` does")
				}
				if callerFrom(r).ReadOnly && !e.looksOnly {
					return api.Errorf(http.StatusForbidden, "read-only access; read_only of hooks_dashboard names the users")
				}
				if err := checkParameters(r.URL.RawQuery, e.Parameters); err != nil {
					return err
				}
				return e.serve(in, w, r)
			}
			allowed = append(allowed, e.Method)
		}
		methods := strings.Join(allowed, ", ")
		w.Header().Set("Allow", methods)
		return api.Errorf(http.StatusMethodNotAllowed, "method not allowed; use %s", methods)
	}
}

// checkParameters refuses a query with unknown or repeated parameters. If a misspelt filter were ignored, more would be
// shown, dropped or started again than was meant.
func checkParameters(rawQuery string, known []string) error {
	sent, err := url.ParseQuery(rawQuery)
	if err != nil {
		return api.Errorf(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		switch {
		case len(known) == 0:
			return api.Errorf(http.StatusBadRequest, "there is no parameter %q: this endpoint takes none", text.Abridge(name))
		case !slices.Contains(known, name):
			return api.Errorf(http.StatusBadRequest, "there is no parameter %q; use %s", text.Abridge(name), text.List(known))
		case len(sent[name]) != 1:
			return api.Errorf(http.StatusBadRequest, "%s must be given once", name)
		}
	}
	return nil
}

// addressOf is where a request to the admin API came from, without its port, which tells nothing later.
func addressOf(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(local.Network(), "unix") {
		return "unix socket"
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

func noEndpoint(_ *service.Instance, _ http.ResponseWriter, r *http.Request) error {
	base := "/hooks"
	if !strings.HasPrefix(r.URL.Path, "/hooks/") { // a dashboard took off what is in front
		base = "api"
	}
	var paths []string
	for path := range InstanceEndpoints {
		if strings.Count(path, "/") == 1 {
			paths = append(paths, base+path)
		}
	}
	for path := range GlobalEndpoints {
		paths = append(paths, base+path)
	}
	slices.Sort(paths)
	return api.Errorf(http.StatusNotFound, "there is no such endpoint; try %s", strings.Join(paths, ", "))
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, api.MaxBody+1))
	if err != nil {
		return nil, api.Errorf(http.StatusBadRequest, "the body broke off before its end")
	}
	if len(body) > api.MaxBody {
		return nil, api.Errorf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", api.MaxBody)
	}
	return body, nil
}

func writeJSON(w http.ResponseWriter, status int, value any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

func listError(err error) error {
	if errors.Is(err, engine.ErrCursor) {
		return api.Errorf(http.StatusBadRequest, "cursor must come from an earlier page")
	}
	return err
}

func parseLimit(params url.Values) (int, error) {
	if !params.Has("limit") {
		return 100, nil
	}
	n, err := strconv.Atoi(params.Get("limit"))
	if err != nil || n < 1 || n > api.MaxPage {
		return 0, api.Errorf(http.StatusBadRequest, "limit must be from 1 to %d", api.MaxPage)
	}
	return n, nil
}

// parseList reads a parameter with several values, separated by commas.
func parseList(params url.Values, name string) ([]string, error) {
	text := params.Get(name)
	if text == "" {
		return nil, nil
	}
	if len(text) > maxList {
		return nil, api.Errorf(http.StatusBadRequest, "%s must not be longer than %d bytes", name, maxList)
	}
	values := strings.Split(text, ",")
	for i, value := range values {
		if values[i] = strings.TrimSpace(value); values[i] == "" {
			return nil, api.Errorf(http.StatusBadRequest, "%s must be one value, or several with a comma between them", name)
		}
	}
	return values, nil
}

// maxList bounds a parameter with several values.
const maxList = 8 << 10

// parseOneOf is parseList for values of which all are known.
func parseOneOf[T ~string](params url.Values, name string, known ...T) ([]T, error) {
	texts, err := parseList(params, name)
	if err != nil {
		return nil, err
	}
	var values []T
	for _, value := range texts {
		if !slices.Contains(known, T(value)) {
			words := make([]string, len(known))
			for i, value := range known {
				words[i] = string(value)
			}
			return nil, api.Errorf(http.StatusBadRequest, "%s must be one of %s, or several with commas between them", name, text.List(words))
		}
		values = append(values, T(value))
	}
	return values, nil
}

// changeError is the answer to a change of settings that was refused or that failed.
func changeError(err error) error {
	var api caddy.APIError
	var field *settings.FieldError
	var pinned *settings.PinnedHookError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &field):
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	case errors.As(err, &pinned):
		return caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	default:
		return err
	}
}
