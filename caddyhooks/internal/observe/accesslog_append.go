package observe

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/logging"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// appendedField is a log_append that requests pass on their way to an instance. It adds its field when they are on their way back,
// which is after the entry of a webhook was written; so the entry gets the field here.
type appendedField struct {
	when  []caddyhttp.MatcherSets // all of them must match
	field *logging.LogAppend
}

// FindAppended finds the log_append directives before hooks. isHooks tells which handlers are meant.
func (l *AccessLog) FindAppended(sites *caddyhttp.App, isHooks func(caddyhttp.MiddlewareHandler) bool) {
	found := make(map[*caddyhttp.Server][]appendedField)
	for _, server := range sites.Servers {
		s := appendSearch{isHooks: isHooks}
		s.walk(server.Routes, nil, nil)
		if s.found != nil {
			found[server] = s.found
		}
	}
	l.appended.Store(&found)
}

type appendSearch struct {
	isHooks func(caddyhttp.MiddlewareHandler) bool
	found   []appendedField
}

// walk looks through routes that are reached under some conditions, after some fields. It returns the fields after them.
func (s *appendSearch) walk(routes caddyhttp.RouteList, when []caddyhttp.MatcherSets, before []appendedField) []appendedField {
	for _, route := range routes {
		below := when
		if len(route.MatcherSets) > 0 {
			below = append(slices.Clip(when), route.MatcherSets)
		}
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *logging.LogAppend:
				before = append(slices.Clip(before), appendedField{below, handler})
			case *caddyhttp.Subroute:
				before = s.walk(handler.Routes, below, before)
			default:
				if s.isHooks(handler) {
					s.add(before)
				}
			}
		}
	}
	return before
}

func (s *appendSearch) add(fields []appendedField) {
	for _, added := range fields {
		if !slices.ContainsFunc(s.found, func(known appendedField) bool { return known.field == added.field }) {
			s.found = append(s.found, added)
		}
	}
}

// applies reports whether the request passed the directive.
func (a *appendedField) applies(r *http.Request) bool {
	for _, sets := range a.when {
		if matched, err := sets.AnyMatchWithError(r); err != nil || !matched {
			return false
		}
	}
	return true
}

// value is the field as Caddy would log it. Bodies are left out: they are not kept.
func (a *appendedField) value(r *http.Request) (field zap.Field, ok bool) {
	text := a.field.Value
	if name, found := strings.CutPrefix(text, "{"); found && strings.HasSuffix(name, "}") && strings.Count(text, "{") == 1 {
		name = strings.TrimSuffix(name, "}")
		repl := ReplacerOf(r)
		if repl == nil || strings.HasPrefix(name, "http.request.body") || strings.HasPrefix(name, "http.response.body") {
			return field, false
		}
		value, _ := repl.Get(name)
		return zap.Any(a.field.Key, value), true
	}
	if value := caddyhttp.GetVar(r.Context(), text); value != nil {
		return zap.Any(a.field.Key, value), true
	}
	return zap.String(a.field.Key, text), true
}

// appendedTo are the fields of log_append for a request.
func (l *AccessLog) appendedTo(server *caddyhttp.Server, r *http.Request) (fields []zap.Field) {
	found := l.appended.Load()
	if found == nil { // the instance is not started yet
		return nil
	}
	for _, a := range (*found)[server] {
		if a.applies(r) {
			if field, ok := a.value(r); ok {
				fields = append(fields, field)
			}
		}
	}
	return fields
}

// identity are the fields by which Caddy lets an entry be found from elsewhere: its trace, and its uuid if something asked for it.
func identity(r *http.Request) (fields []zap.Field) {
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		fields = append(fields, zap.Stringer("traceID", span.TraceID()), zap.Stringer("spanID", span.SpanID()))
	}
	if id, ok := caddyhttp.GetVar(r.Context(), "uuid").(fmt.Stringer); ok {
		fields = append(fields, zap.Stringer("uuid", id))
	}
	return fields
}
