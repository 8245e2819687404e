package caddyhooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

// reachWarnings looks for routes on which webhooks do not reach an instance. The rest of the site answers them, often with Caddy's
// empty 200, which senders take for delivered. What is not certain is not told.
func reachWarnings(sites *caddyhttp.App, in *service.Instance) []string {
	s := reachSearch{instance: in, path: strings.ToLower(in.Path)}
	for _, server := range sites.Servers {
		s.walk(server.Routes, nil, 0)
		s.checkOtherPaths(server.Routes)
	}
	slices.Sort(s.found)
	return slices.Compact(s.found)
}

// warnAboutReach logs the warnings about the sites of an instance.
func warnAboutReach(in *service.Instance, sites *caddyhttp.App) {
	for _, text := range reachWarnings(sites, in) {
		in.Log.Warn("webhooks may not reach the hooks", zap.String("warning", text))
	}
}

// reachSearch follows requests through routes to an instance.
type reachSearch struct {
	instance *service.Instance
	path     string // of the instance, in lower case, as Caddy compares paths
	found    []string
}

// reachStep is a piece of the way to an instance.
type reachStep struct {
	matchers caddyhttp.MatcherSets // through which requests go
	strip    string                // what is taken off the path
	answered string                // the directive that answers requests which the matchers let through, or all
	unknown  bool                  // the path may be another one from here on
}

// walk looks through routes at the end of a way. It returns the way behind them.
func (s *reachSearch) walk(routes caddyhttp.RouteList, way []reachStep, depth int) []reachStep {
	if depth > observe.MaxRouteDepth {
		return append(slices.Clip(way), reachStep{unknown: true})
	}
	for _, route := range routes {
		begun := slices.Clip(way)
		always := len(route.MatcherSets) == 0
		if !always {
			begun = append(begun, reachStep{matchers: route.MatcherSets})
		}
		at := len(begun)
		inside := begun
		for _, handler := range route.Handlers {
			inside = s.follow(handler, inside, depth)
		}
		for _, step := range inside[at:] {
			switch {
			case always && route.Group == "":
				way = append(slices.Clip(way), step)
			case step.answered != "" && step.matchers == nil && route.Group == "":
				way = append(slices.Clip(way), reachStep{matchers: route.MatcherSets, answered: step.answered})
			case step.strip != "" || step.unknown:
				way = append(slices.Clip(way), reachStep{unknown: true})
			}
		}
	}
	return way
}

// follow returns the way behind a handler.
func (s *reachSearch) follow(handler caddyhttp.MiddlewareHandler, way []reachStep, depth int) []reachStep {
	step := reachStep{}
	switch handler := handler.(type) {
	case *Handler:
		if handler.instance == s.instance {
			s.check(way)
		}
		return way
	case *caddyhttp.Subroute:
		return s.walk(handler.Routes, way, depth+1)
	case *rewrite.Rewrite:
		onlyStrips := handler.URI == "" && handler.StripPathSuffix == "" && len(handler.URISubstring) == 0 && len(handler.PathRegexp) == 0
		if onlyStrips && handler.StripPathPrefix == "" {
			return way
		}
		if step.strip = strings.ToLower(handler.StripPathPrefix); !onlyStrips || strings.ContainsAny(step.strip, "{%") {
			step = reachStep{unknown: true}
		}
	case caddy.Module:
		name := handler.CaddyModule().ID.Name()
		switch {
		case alwaysAnswer[name] != "":
			step.answered = alwaysAnswer[name]
		case slices.Contains(passOn, name):
			return way
		default:
			step.unknown = true
		}
	}
	return append(slices.Clip(way), step)
}

var (
	// alwaysAnswer are the directives whose handlers call no other one, by the names of these. reverse_proxy may: forward_auth does.
	alwaysAnswer = map[string]string{"static_response": "respond or redir", "error": "error"}
	// passOn are the names of handlers that leave the path alone, and answer no request themselves, or only some.
	passOn = []string{"headers", "vars", "map", "encode", "templates", "tracing", "log_append", "request_body", "authentication", "hooks",
		"hooks_health"}
)

// check goes a way back from the hooks.
func (s *reachSearch) check(way []reachStep) {
	paths := []string{s.path} // that requests to the hooks may have
	for _, step := range slices.Backward(way) {
		switch {
		case step.unknown:
			return
		case step.strip != "" && isAtOrBelow(s.path, step.strip):
			s.found = append(s.found, fmt.Sprintf("handle_path or uri strip_prefix takes %s off the path, so the hooks are at %s%s alone: use "+
				"handle, which leaves the path as it is",
				step.strip, step.strip, s.path))
			return
		case step.strip != "":
			paths = append(paths, step.strip+paths[0])
		case step.answered != "" && everyOf(paths, func(path string) bool { return letAllThrough(step.matchers, path) }):
			s.found = append(s.found, fmt.Sprintf("%s comes before the hooks and answers requests to %s: put hooks above it, or outside of the "+
				"route block",
				step.answered, s.instance.Path))
			return
		case step.answered == "" && everyOf(paths, func(path string) bool { return letNoneThrough(step.matchers, path) }):
			s.found = append(s.found, fmt.Sprintf("the hooks are at %s, and stand in a block for other paths: put hooks outside of it, or write "+
				"path with the path of the block",
				s.instance.Path))
			return
		}
	}
}

func everyOf(paths []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(paths, func(path string) bool { return !holds(path) })
}

// letAllThrough reports whether matchers let all requests below a path through.
func letAllThrough(sets caddyhttp.MatcherSets, path string) bool {
	return len(sets) == 0 || slices.ContainsFunc(sets, func(set caddyhttp.MatcherSet) bool {
		return !slices.ContainsFunc(set, func(matcher any) bool {
			patterns, ok := matcher.(*caddyhttp.MatchPath)
			return !ok || !slices.ContainsFunc(*patterns, func(pattern string) bool {
				prefix, any := strings.CutSuffix(pattern, "*")
				return any && !strings.ContainsAny(prefix, `*?[\{%`) && strings.HasPrefix(path+"/", prefix)
			})
		})
	})
}

// letNoneThrough reports whether matchers let no request below a path through.
func letNoneThrough(sets caddyhttp.MatcherSets, path string) bool {
	return !slices.ContainsFunc(sets, func(set caddyhttp.MatcherSet) bool {
		return !slices.ContainsFunc(set, func(matcher any) bool {
			patterns, ok := matcher.(*caddyhttp.MatchPath)
			return ok && arePathsElsewhere(*patterns, path)
		})
	})
}

// arePathsElsewhere reports whether no path below another one, which is in lower case, matches any of some patterns. A pattern that
// may match counts as one that does.
func arePathsElsewhere(patterns []string, path string) bool {
	return !slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, any := strings.CutSuffix(strings.ToLower(pattern), "*")
		if strings.ContainsAny(prefix, `*?[\{%`) {
			return true
		}
		return strings.HasPrefix(prefix, path+"/") || any && strings.HasPrefix(path+"/", prefix)
	})
}

// checkOtherPaths looks for sites that have hooks, and nothing that answers other requests.
func (s *reachSearch) checkOtherPaths(routes caddyhttp.RouteList) {
	for _, route := range routes {
		site := routes
		if route.Terminal {
			site = caddyhttp.RouteList{route}
		}
		if has, others := s.answersIn(caddyhttp.RouteList{route}, 0); has && !others {
			if _, others = s.answersIn(site, 0); !others {
				s.found = append(s.found, "other paths of the site, /hooks/wake for example, are answered with an empty 200, which senders take for "+
					"delivered: write respond 404 below the hooks block")
			}
		}
	}
}

// answersIn reports whether routes have the instance, and whether they have handlers that may answer other requests.
func (s *reachSearch) answersIn(routes caddyhttp.RouteList, depth int) (has, others bool) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Handler:
				has = has || handler.instance == s.instance
			case *caddyhttp.Subroute:
				below, more := false, true
				if depth < observe.MaxRouteDepth {
					below, more = s.answersIn(handler.Routes, depth+1)
				}
				has, others = has || below, others || more
			case *rewrite.Rewrite:
			case caddy.Module:
				others = others || !slices.Contains(passOn, handler.CaddyModule().ID.Name())
			default:
				others = true
			}
		}
	}
	return has, others
}

// checkMatcher refuses a matcher of the hooks block itself that lets no webhook through.
func (h *Handler) checkMatcher(matcher caddy.ModuleMap) error {
	path := cmp.Or(h.Path, service.DefaultPath)
	patterns := []string{"*"}
	if raw, ok := matcher["path"]; ok {
		if err := json.Unmarshal(raw, &patterns); err != nil {
			return err
		}
	}
	if !arePathsElsewhere(patterns, strings.ToLower(path)) {
		return nil
	}
	meant := strings.TrimRight(patterns[0], "*/")
	if meant == path { // without /*, it lets through this path alone
		return fmt.Errorf("the matcher of hooks lets no webhook through: they are below %s; leave it out, or write %s/*", path, path)
	}
	return fmt.Errorf("the matcher of hooks lets no webhook through: they are below %s; leave it out, and write 'path %s' in the block to "+
		"have them there", path, meant)
}
