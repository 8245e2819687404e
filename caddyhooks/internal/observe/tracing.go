package observe

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// CloseTraces ends the use of the exporter by openRunSpans.
func CloseTraces() error {
	_, err := traceExporters.Delete(traceExporterKey)
	return err
}

// traceExporters has the exporter of all instances, which outlives reloads. There is one: the environment configures it.
var traceExporters = caddy.NewUsagePool()

const traceExporterKey = "traces"

// traceExporter exports spans as Caddy's tracing does. That has a provider of its own, which is private, and which is not there
// before its first request.
type traceExporter struct {
	provider *sdktrace.TracerProvider
}

func openTraceExporter() (caddy.Destructor, error) {
	exporter, err := autoexport.NewSpanExporter(context.Background())
	if err != nil {
		return nil, fmt.Errorf("making the exporter of traces: %w", err)
	}
	version, _ := caddy.Version()
	described, err := resource.Merge(resource.Default(), resource.NewSchemaless(
		semconv.WebEngineName(caddyhttp.ServerHeader), semconv.WebEngineVersion(version)))
	if err != nil {
		return nil, fmt.Errorf("describing this service in traces: %w", err)
	}
	return &traceExporter{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter}), // which drops spans when there are too many
		sdktrace.WithResource(described),
		sdktrace.WithIDGenerator(spanIDs{}),
	)}, nil
}

// flushTimeout is how long the end of the process waits for the last spans to be exported. Tests shorten it.
var flushTimeout = 2 * time.Second

// Destruct exports what is left.
func (e *traceExporter) Destruct() error {
	ctx, stop := context.WithTimeout(context.Background(), flushTimeout)
	defer stop()
	return e.provider.Shutdown(ctx)
}

// loggedExporter tells the log when spans cannot be exported, and when they can again. OpenTelemetry would write every failure to
// the standard error.
type loggedExporter struct {
	sdktrace.SpanExporter
	lost int // since when it failed; exports come one after the other
}

// ExportSpans exports spans.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	log := caddy.Log().Named("hooks.traces")
	switch {
	case err != nil:
		if e.lost == 0 {
			log.Warn("spans dropped; export failed", zap.Error(err))
		}
		e.lost += len(spans)
	case e.lost > 0:
		log.Info("span export recovered", zap.Int("dropped", e.lost))
		e.lost = 0
	}
	return nil
}

// TraceParent is what a run of a request keeps of its trace: the span of Caddy's tracing if that handles the request, and
// otherwise what the caller sent.
func TraceParent(r *http.Request) string {
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		return formatTraceParent(span)
	}
	return CallersTraceParent(r.Header)
}

// CallersTraceParent returns the Traceparent header if it has the form of W3C Trace Context.
func CallersTraceParent(h http.Header) string {
	const length = 55 // of version 00; others may be longer
	value := h.Get("Traceparent")
	if len(value) != length || !parseTraceParent(value).IsValid() {
		return ""
	}
	return value
}

// Interface guards
var (
	_ caddy.Destructor      = (*traceExporter)(nil)
	_ sdktrace.SpanExporter = (*loggedExporter)(nil)
)
