package observe

import (
	"net"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/tracing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestHooksAreTracedIfTracingComesBefore(t *testing.T) {
	t.Parallel()
	type handlers = []caddyhttp.MiddlewareHandler
	hooks, other, traces := new(caddyhttp.StaticResponse), new(caddyhttp.StaticResponse), new(tracing.Tracing)
	route := func(h ...caddyhttp.MiddlewareHandler) caddyhttp.Route { return caddyhttp.Route{Handlers: h} }
	sub := func(routes ...caddyhttp.Route) *caddyhttp.Subroute { return &caddyhttp.Subroute{Routes: routes} }
	terminal := func(r caddyhttp.Route) caddyhttp.Route { r.Terminal = true; return r }
	oneOf := func(r caddyhttp.Route) caddyhttp.Route { r.Group = "group"; return r }
	invoke := &caddyhttp.Invoke{Name: "named"}
	for name, test := range map[string]struct {
		routes caddyhttp.RouteList
		named  handlers
		want   bool
	}{
		"nothing":                        {},
		"no tracing":                     {routes: caddyhttp.RouteList{route(hooks)}},
		"before":                         {routes: caddyhttp.RouteList{route(traces), route(hooks)}, want: true},
		"before, of another instance":    {routes: caddyhttp.RouteList{route(traces), route(other)}},
		"after":                          {routes: caddyhttp.RouteList{route(hooks), route(traces)}},
		"in the same route":              {routes: caddyhttp.RouteList{route(traces, hooks)}, want: true},
		"above":                          {routes: caddyhttp.RouteList{route(traces, sub(route(sub(route(hooks)))))}, want: true},
		"in a site":                      {routes: caddyhttp.RouteList{terminal(route(sub(route(traces), route(sub(route(hooks))))))}, want: true},
		"in another site":                {routes: caddyhttp.RouteList{terminal(route(sub(route(traces)))), terminal(route(sub(route(hooks))))}},
		"in a subroute that goes on":     {routes: caddyhttp.RouteList{route(sub(route(traces))), route(hooks)}, want: true},
		"in another one of a group":      {routes: caddyhttp.RouteList{oneOf(route(traces)), oneOf(route(hooks))}},
		"in this one of a group":         {routes: caddyhttp.RouteList{oneOf(route()), oneOf(route(traces, hooks))}, want: true},
		"before a group":                 {routes: caddyhttp.RouteList{route(traces), oneOf(route()), oneOf(route(hooks))}, want: true},
		"after a group":                  {routes: caddyhttp.RouteList{oneOf(route(traces)), oneOf(route()), route(hooks)}, want: true},
		"before a named route":           {routes: caddyhttp.RouteList{route(traces, invoke)}, named: handlers{hooks}, want: true},
		"in a named route":               {routes: caddyhttp.RouteList{route(invoke, hooks)}, named: handlers{traces}, want: true},
		"with a named route that is not": {routes: caddyhttp.RouteList{route(&caddyhttp.Invoke{Name: "none"}, hooks)}},
		"in a named route for ever":      {routes: caddyhttp.RouteList{route(invoke)}, named: handlers{invoke, hooks}},
	} {
		server := &caddyhttp.Server{Routes: test.routes, NamedRoutes: map[string]*caddyhttp.Route{"named": {Handlers: test.named}}}
		app := &caddyhttp.App{Servers: map[string]*caddyhttp.Server{"srv0": server}}
		if got := IsTraced(app, func(handler caddyhttp.MiddlewareHandler) bool { return handler == hooks }); got != test.want {
			t.Errorf("tracing %s: got %v", name, got)
		}
	}
}

// A receiver that takes connections and says nothing must not hold the end of the process.
func TestASilentReceiverOfTracesDoesNotHoldTheEnd(t *testing.T) {
	before := flushTimeout
	flushTimeout = 100 * time.Millisecond
	t.Cleanup(func() { flushTimeout = before })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const hour = "3600000" // in milliseconds
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + silent.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_EXPORTER_OTLP_TIMEOUT": hour, "OTEL_BSP_EXPORT_TIMEOUT": hour, "OTEL_BSP_SCHEDULE_DELAY": hour,
	} {
		t.Setenv(name, value)
	}
	exporter, err := openTraceExporter()
	if err != nil {
		t.Fatal(err)
	}
	run := &engine.Run{ID: "1", Hook: "wake", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", AcceptedAt: time.Now()}
	newRunSpans(exporter.(*traceExporter), "default", nil).RunEnded(run, engine.TracedEnd{Status: engine.Completed})
	ended := make(chan error, 1)
	go func() { ended <- exporter.Destruct() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a span that was not exported is not told about")
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// What a caller sends is a trace parent only if it is one. Otherwise there are no spans, and the runner is told what the caller sent.
func TestRunsWithoutATraceHaveNoSpans(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	exporter, err := openTraceExporter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exporter.Destruct() })
	spans := newRunSpans(exporter.(*traceExporter), "default", nil)
	const zero = "00-00000000000000000000000000000000-0000000000000000-01"
	for _, sent := range []string{zero, "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"} {
		run := &engine.Run{ID: "1", Hook: "wake", TraceParent: sent}
		spans.RunEnded(run, engine.TracedEnd{Status: engine.Completed})
		got, end := spans.TurnBegins(engine.TracedCall{Runs: []*engine.Run{run}})
		end(nil, "")
		if got != sent {
			t.Errorf("the runner got %q, want %q", got, sent)
		}
		got, endDelivery := spans.DeliveryBegins(run, new(engine.Delivery))
		if got != "" {
			t.Errorf("a receiver got %q", got)
		}
		endDelivery("")
	}
}

// BenchmarkRunSpans measures the spans of a run with one turn, and what they cost where nothing is sampled.
func BenchmarkRunSpans(b *testing.B) {
	b.Setenv("OTEL_TRACES_EXPORTER", "none")
	exporter, err := openTraceExporter()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = exporter.Destruct() }()
	spans := newRunSpans(exporter.(*traceExporter), "default", nil)
	for name, flags := range map[string]string{"sampled": "01", "unsampled": "00"} {
		run := &engine.Run{ID: "01a1e597-8758-7f65-a47a-ada3f8a6e0d1", Hook: "agent", AcceptedAt: time.Now(),
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, end := spans.TurnBegins(engine.TracedCall{Runs: []*engine.Run{run}, Runner: "default", Attempt: 1, Try: 1})
				end(nil, "")
				spans.RunEnded(run, engine.TracedEnd{Status: engine.Completed, Attempts: 1})
			}
		})
	}
}
