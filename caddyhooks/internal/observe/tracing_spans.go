package observe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// runSpans shows the runs of an instance as spans: a run is a child of the request that it came with, and turns, repairs and
// deliveries are children of the run.
//
// A run outlives the process. So its span is made when it has ended, with an id that depends on the run alone: whoever has spans
// below it, before and after a restart or on another node, knows that id.
//
// Names and attributes hold what the operator has configured, numbers, and words of this program: no text from outside. A chat id
// may be made of the payload, and is not told; neither is a digest of it, since short texts can be guessed from their digests.
type runSpans struct {
	tracer   trace.Tracer
	instance attribute.KeyValue
	agents   map[string][]attribute.KeyValue // by the name of the runner
}

// The attributes that OpenTelemetry has no names for.
const (
	spanInstance = attribute.Key("caddy.hooks.instance")
	spanHook     = attribute.Key("caddy.hooks.hook")
	spanRun      = attribute.Key("caddy.hooks.run.id")
	spanAction   = attribute.Key("caddy.hooks.action")
	spanSync     = attribute.Key("caddy.hooks.sync")
	spanTest     = attribute.Key("caddy.hooks.test")
	spanStatus   = attribute.Key("caddy.hooks.status")
	spanWait     = attribute.Key("caddy.hooks.wait_seconds")
	spanAttempts = attribute.Key("caddy.hooks.attempts")
	spanRepairs  = attribute.Key("caddy.hooks.repairs")
	spanFolded   = attribute.Key("caddy.hooks.folded")
	spanCost     = attribute.Key("caddy.hooks.cost_usd")
	spanInto     = attribute.Key("caddy.hooks.folded_into")
	spanAttempt  = attribute.Key("caddy.hooks.attempt")
	spanTry      = attribute.Key("caddy.hooks.try")
	spanRepair   = attribute.Key("caddy.hooks.repair")
	spanTier     = attribute.Key("caddy.hooks.tier")
	spanDelivery = attribute.Key("caddy.hooks.delivery.id")
	spanChannel  = attribute.Key("caddy.hooks.channel")
)

// OpenRunSpans opens the exporter, unless it is open. closeTraces ends its use.
func OpenRunSpans(instance string, runners map[string]engine.Runner) (*runSpans, error) {
	exporter, _, err := traceExporters.LoadOrNew(traceExporterKey, openTraceExporter)
	if err != nil {
		return nil, err
	}
	return newRunSpans(exporter.(*traceExporter), instance, runners), nil
}

func newRunSpans(exporter *traceExporter, instance string, runners map[string]engine.Runner) *runSpans {
	s := &runSpans{
		tracer:   exporter.provider.Tracer("github.com/caddy-hooks/caddy-hooks", trace.WithSchemaURL(semconv.SchemaURL)),
		instance: spanInstance.String(instance),
		agents:   make(map[string][]attribute.KeyValue),
	}
	for name, runner := range runners {
		agent := []attribute.KeyValue{semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name)}
		if module, ok := runner.(caddy.Module); ok {
			agent = append(agent, semconv.GenAIProviderNameKey.String(module.CaddyModule().ID.Name()))
		}
		s.agents[name] = agent
	}
	return s
}

// RunEnded makes the span of a run.
func (s *runSpans) RunEnded(run *engine.Run, end engine.TracedEnd) {
	parent := parentOf(run)
	if !parent.IsValid() {
		return
	}
	now := time.Now()
	began := run.AcceptedAt
	if began.After(now) { // by the clock of another machine
		began = now
	}
	attributes := []attribute.KeyValue{
		s.instance, spanRun.String(run.ID), spanHook.String(run.Hook), spanAction.String(string(run.Action)), spanSync.Bool(run.Sync),
		spanStatus.String(string(end.Status)), spanAttempts.Int(end.Attempts), spanRepairs.Int(end.Repairs),
		semconv.MessagingSystemKey.String("caddy_hooks"), semconv.MessagingOperationName("run"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(run.Hook), semconv.MessagingMessageID(run.ID),
	}
	if end.Waited > 0 {
		attributes = append(attributes, spanWait.Float64(end.Waited.Seconds()))
	}
	if run.Test {
		attributes = append(attributes, spanTest.Bool(true))
	}
	if end.Folded > 0 {
		attributes = append(attributes, spanFolded.Int(end.Folded))
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindConsumer)}
	if end.Leader != nil {
		attributes = append(attributes, spanInto.String(end.Leader.ID))
		options = append(options, linksTo(end.Leader))
	}
	ctx := context.WithValue(trace.ContextWithSpanContext(context.Background(), parent), runSpanKey{}, spanIDOf(run))
	_, span := s.tracer.Start(ctx, "run "+run.Hook, append(options, trace.WithAttributes(attributes...))...)
	failure := string(end.Failure)
	switch end.Status {
	case engine.TimedOut, engine.Expired:
		failure = string(end.Status)
	case engine.Cancelled:
		failure = "" // also if a newer run has taken its place
	default:
	}
	markFailed(span, failure)
	span.End(trace.WithTimestamp(now))
}

// RunAgain makes the span of an operator's wish: the run that is started again has no request.
func (s *runSpans) RunAgain(ctx context.Context, earlier *engine.Run) (traceParent string, end func(failure string)) {
	_, span := s.tracer.Start(ctx, "again "+earlier.Hook, trace.WithSpanKind(trace.SpanKindProducer), linksTo(earlier),
		trace.WithAttributes(s.instance, spanHook.String(earlier.Hook)))
	return parentAndEnd(span)
}

// TurnBegins begins the span of a turn or a repair. It is below the first of its runs, and has links to the others.
func (s *runSpans) TurnBegins(call engine.TracedCall) (traceParent string, end func(used []engine.Use, failure string)) {
	var parent trace.SpanContext
	first := slices.IndexFunc(call.Runs, func(run *engine.Run) bool { parent = spanOf(run); return parent.IsValid() })
	if first < 0 {
		return call.Runs[0].TraceParent, func([]engine.Use, string) {}
	}
	run := call.Runs[first]
	attributes := append([]attribute.KeyValue{
		s.instance, spanRun.String(run.ID), spanHook.String(run.Hook), spanAttempt.Int(call.Attempt), spanTry.Int(call.Try),
	}, s.agents[call.Runner]...)
	if call.Repair > 0 {
		attributes = append(attributes, spanRepair.Int(call.Repair))
	}
	if slices.Contains(engine.Tiers, call.Tier) {
		attributes = append(attributes, spanTier.String(call.Tier))
	}
	if len(call.Runs) > 1 {
		attributes = append(attributes, spanFolded.Int(len(call.Runs)))
	}
	_, span := s.tracer.Start(contextBelow(parent), "invoke_agent "+call.Runner, trace.WithSpanKind(trace.SpanKindClient),
		linksTo(call.Runs[first+1:]...), trace.WithAttributes(attributes...))
	traceParent, endSpan := parentAndEnd(span)
	return traceParent, func(used []engine.Use, failure string) {
		span.SetAttributes(usageAttributes(used)...)
		endSpan(failure)
	}
}

// usageAttributes are what a turn has used, as far as the agent told. Of several models the span names none.
func usageAttributes(used []engine.Use) (attributes []attribute.KeyValue) {
	sum := usage.Sum(used)
	if len(used) == 1 && used[0].Model != "" {
		attributes = append(attributes, semconv.GenAIResponseModel(used[0].Model))
	}
	if sum.HasTokens {
		attributes = append(attributes, semconv.GenAIUsageInputTokens(int(sum.Input)), semconv.GenAIUsageOutputTokens(int(sum.Output)))
	}
	if sum.HasCost {
		attributes = append(attributes, spanCost.Float64(sum.Dollars()))
	}
	return attributes
}

// DeliveryBegins begins the span of an attempt at a delivery.
func (s *runSpans) DeliveryBegins(run *engine.Run, d *engine.Delivery) (traceParent string, end func(failure string)) {
	parent := spanOf(run)
	if !parent.IsValid() {
		return "", func(string) {}
	}
	attributes := []attribute.KeyValue{
		s.instance, spanRun.String(run.ID), spanHook.String(run.Hook), spanDelivery.String(d.ID), spanAttempt.Int(d.Attempt),
	}
	name := "deliver callback"
	if d.Channel != "" {
		name = "deliver " + d.Channel
		attributes = append(attributes, spanChannel.String(d.Channel))
	} else {
		attributes = append(attributes, semconv.HTTPRequestMethodPost)
		if d.Attempt > 1 {
			attributes = append(attributes, semconv.HTTPRequestResendCount(d.Attempt-1))
		}
		if host, port, err := net.SplitHostPort(d.CallbackHost()); err == nil {
			number, _ := strconv.Atoi(port)
			attributes = append(attributes, semconv.ServerAddress(host), semconv.ServerPort(number))
		}
	}
	_, span := s.tracer.Start(contextBelow(parent), name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	traceParent, endSpan := parentAndEnd(span)
	return traceParent, func(failure string) {
		if d.LastStatus != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(d.LastStatus))
		}
		endSpan(failure)
	}
}

// parentAndEnd returns what others are told about a span, and a function that ends it.
func parentAndEnd(span trace.Span) (traceParent string, end func(failure string)) {
	return formatTraceParent(span.SpanContext()), func(failure string) {
		markFailed(span, failure)
		span.End()
	}
}

// markFailed marks a span as failed, unless failure is "".
func markFailed(span trace.Span, failure string) {
	if failure != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		span.SetStatus(codes.Error, "")
	}
}

// parentOf is the span that the run is a child of. It is not valid if the caller sent something else.
func parentOf(run *engine.Run) trace.SpanContext { return parseTraceParent(run.TraceParent) }

// parseTraceParent reads a span in the form of W3C Trace Context. It is not valid if the text is something else.
func parseTraceParent(text string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), traceParentCarrier(text)))
}

// spanOf is the span of a run, which need not be there yet. It is not valid if the run has no parent.
func spanOf(run *engine.Run) trace.SpanContext {
	parent := parentOf(run)
	if !parent.IsValid() {
		return trace.SpanContext{}
	}
	return parent.WithSpanID(spanIDOf(run)).WithRemote(false)
}

// contextBelow is the context of spans below another.
func contextBelow(parent trace.SpanContext) context.Context {
	return trace.ContextWithSpanContext(context.Background(), parent)
}

// traceParentCarrier is a request with a traceparent alone, as OpenTelemetry reads it.
type traceParentCarrier string

// Get returns the value of a header.
func (c traceParentCarrier) Get(name string) string {
	if name == "traceparent" {
		return string(c)
	}
	return ""
}

// Set is for requests that are written.
func (traceParentCarrier) Set(string, string) {}

// Keys are the names of the headers.
func (traceParentCarrier) Keys() []string { return []string{"traceparent"} }

// linksTo links the spans of runs that have one.
func linksTo(runs ...*engine.Run) trace.SpanStartOption {
	var links []trace.Link
	for _, run := range runs {
		if span := spanOf(run); span.IsValid() {
			links = append(links, trace.Link{SpanContext: span})
		}
	}
	return trace.WithLinks(links...)
}

// formatTraceParent writes a span as W3C Trace Context has it.
func formatTraceParent(span trace.SpanContext) string {
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
}

// spanIDOf is the id of the span of a run.
func spanIDOf(run *engine.Run) (id trace.SpanID) {
	digest := sha256.Sum256([]byte("caddyhooks run " + run.ID))
	copy(id[:], digest[:])
	if !id.IsValid() { // which 0 is not
		id[0] = 1
	}
	return id
}

// runSpanKey is for the id of a span in a context.
type runSpanKey struct{}

// spanIDs gives the span of a run its own id, and others random ones.
type spanIDs struct{}

// NewSpanID makes the id of a span in a trace.
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if id, ok := ctx.Value(runSpanKey{}).(trace.SpanID); ok {
		return id
	}
	binary.NativeEndian.PutUint64(id[:], randomID())
	return id
}

// NewIDs makes the ids of the first span of a trace.
func (s spanIDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:8], randomID())
	binary.NativeEndian.PutUint64(id[8:], randomID())
	return id, s.NewSpanID(ctx, id)
}

// randomID is not 0.
func randomID() uint64 {
	return max(rand.Uint64(), 1) //nolint:gosec // OpenTelemetry's own ids are no secrets either
}

// Interface guards
var (
	_ engine.Traces        = (*runSpans)(nil)
	_ sdktrace.IDGenerator = spanIDs{}
)
