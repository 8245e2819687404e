package caddyhooks

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

// siteURLs are URLs at which hooks of an instance are called, as far as the configuration tells. A URL that may be wrong is
// left out: of a site without a host name, or behind a matcher or a rewrite. The port is the one that Caddy listens at, also where it is
// set by http_port or https_port and another one may be forwarded to it.
func siteURLs(app *caddyhttp.App, in *service.Instance) []string {
	urls := []string{}
	for _, server := range app.Servers {
		s := siteSearch{instance: in}
		s.walk(server.Routes, nil)
		for _, listen := range server.Listen {
			origin, ok := originAt(server, listen)
			if !ok {
				continue
			}
			for _, host := range s.hosts {
				if url := origin(host) + in.Path; !slices.Contains(urls, url) {
					urls = append(urls, url)
				}
			}
		}
	}
	slices.Sort(urls)
	return urls
}

// originAt returns scheme, host and port of a server that listens at an address, for a host.
func originAt(server *caddyhttp.Server, listen string) (origin func(host string) string, ok bool) {
	address, err := caddy.ParseNetworkAddress(listen)
	if err != nil || address.IsUnixNetwork() || address.IsFdNetwork() || address.PortRangeSize() != 1 {
		return nil, false
	}
	scheme, usual := "http", caddyhttp.DefaultHTTPPort
	if len(server.TLSConnPolicies) > 0 {
		scheme, usual = "https", caddyhttp.DefaultHTTPSPort
	}
	port := int(address.StartPort)
	return func(host string) string {
		if port == usual {
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			return scheme + "://" + host
		}
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
	}, true
}

// siteSearch looks for the hosts of the routes that lead to an instance.
type siteSearch struct {
	instance *service.Instance
	hosts    []string
}

// walk looks through routes below which requests are for some hosts; nil is any. It reports whether it is known what a route
// after these gets.
func (s *siteSearch) walk(routes caddyhttp.RouteList, hosts []string) (known bool) {
	for _, route := range routes {
		below, ok := s.matched(route.MatcherSets, hosts)
		if !ok {
			continue // it is for other requests, or for nobody knows which
		}
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Handler:
				if handler.instance == s.instance {
					s.hosts = append(s.hosts, below...)
				}
			case *caddyhttp.Subroute:
				if !s.walk(handler.Routes, below) {
					return false
				}
			default:
				if module, ok := handler.(caddy.Module); ok && module.CaddyModule().ID == "http.handlers.rewrite" {
					return false
				}
			}
		}
	}
	return true
}

// matched returns the hosts of requests that matchers let through, if these include all requests to the hooks.
func (s *siteSearch) matched(sets caddyhttp.MatcherSets, hosts []string) (below []string, ok bool) {
	if len(sets) == 0 {
		return hosts, true
	}
	for _, set := range sets {
		matched := hosts
		sure := true
		for _, matcher := range set {
			switch matcher := matcher.(type) {
			case *caddyhttp.MatchHost:
				matched = slices.DeleteFunc(append([]string{}, *matcher...), func(host string) bool {
					return strings.ContainsAny(host, "*{}") || hosts != nil && !slices.Contains(hosts, host)
				})
			case *caddyhttp.MatchPath:
				sure = sure && slices.ContainsFunc(*matcher, s.lets)
			default:
				sure = false
			}
		}
		if sure {
			below = append(below, matched...)
			ok = true
		}
	}
	return below, ok
}

// lets reports whether a pattern lets all paths of the hooks through.
func (s *siteSearch) lets(pattern string) bool {
	prefix, any := strings.CutSuffix(pattern, "*")
	return any && !strings.ContainsAny(prefix, "*{}%") && strings.HasPrefix(s.instance.Path+"/", prefix)
}
