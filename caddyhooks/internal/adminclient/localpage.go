package adminclient

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/dashboard"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// LocalPage is the page on this machine, for the person who started it.
type LocalPage struct {
	client   *Client
	instance string // the only one to be shown, "" if these are all
	links    *dashboard.Links
}

// NewLocalPage is the page of one instance, or of all if its name is "".
func NewLocalPage(client *Client, instance string) *LocalPage {
	client.Via = api.ViaLocalDashboard
	const renew = "press Enter in the terminal of `caddy hooks dashboard`, and open the link that it prints."
	return &LocalPage{client, instance, &dashboard.Links{Renew: renew}}
}

// NewLink is the query of a link that lets one browser in.
func (p *LocalPage) NewLink() string { return p.links.New() }

func (p *LocalPage) Handler() http.Handler {
	return p.links.Handler(dashboard.Handler(dashboard.Access{
		Name: api.ViaLocalDashboard,
		Enter: func(r *http.Request) (dashboard.Operator, error) {
			return dashboard.Operator{User: p.client.Operator}, p.links.Enter(r)
		},
		Instances: func(r *http.Request) ([]string, error) {
			if p.instance != "" {
				return []string{p.instance}, nil
			}
			names, err := p.client.Instances(r.Context())
			if err != nil {
				return nil, &dashboard.Refusal{Status: http.StatusBadGateway, Sentence: err.Error()}
			}
			return names, nil
		},
		API: p.api(),
	}))
}

// Headers that are passed on to the admin endpoint, and back to the browser. Others have a meaning between browser and page:
// the cookie, for example, and the headers that Caddy's admin endpoint knows browsers by.
var (
	requestHeaders  = []string{"Accept", "Content-Type", "If-Match", "If-None-Match", "Last-Event-Id"}
	responseHeaders = []string{"Content-Type", "Content-Length", "Content-Disposition", "Etag", "Retry-After", "Allow"}
)

// api passes requests on to the admin endpoint, and streams as they come.
func (p *LocalPage) api() http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport:     p.client.Transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.Header = selected(pr.In.Header, requestHeaders)
			pr.Out.URL.Path = "/hooks" + pr.In.URL.Path
			if pr.In.URL.RawPath != "" {
				pr.Out.URL.RawPath = "/hooks" + pr.In.URL.RawPath
			}
			p.client.Sign(pr.Out)
			if p.instance != "" {
				pr.Out.Header.Set(api.InstanceHeader, p.instance)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header = selected(resp.Header, responseHeaders)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				dashboard.WriteError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", dashboard.MaxBody))
			} else {
				dashboard.WriteError(w, http.StatusBadGateway, p.client.Unreachable(err).Error())
			}
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.instance == "" || p.shows(r.URL.Path) {
			proxy.ServeHTTP(w, r)
		} else {
			dashboard.WriteError(w, http.StatusNotFound, fmt.Sprintf("this instance is not shown here: the dashboard was started with --instance %s",
				p.instance))
		}
	})
}

// shows reports whether a path is one of the instance that is shown, or one at which Caddy tells of that instance alone.
func (p *LocalPage) shows(path string) bool {
	if rest, ok := strings.CutPrefix(path, "/instances/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name == p.instance
	}
	return p.instance == "default" || slices.Contains(api.GlobalPaths, path)
}

func selected(from http.Header, names []string) http.Header {
	to := make(http.Header)
	for _, name := range names {
		if values, ok := from[name]; ok {
			to[name] = values
		}
	}
	return to
}
