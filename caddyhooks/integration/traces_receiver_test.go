package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/gotool"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// traceReceiver is the OTLP receiver of the OpenTelemetry Collector, in a process of its own.
type traceReceiver struct {
	t          testing.TB
	grpc, http string // where it listens

	mu       sync.Mutex
	received []byte // as lines of OTLP JSON
	spans    []span
}

var traceReceiverProgram = gotool.Tools("testdata/otlpreceiver")

// startTraceReceiver starts a receiver. It ends with the test.
func startTraceReceiver(t testing.TB) *traceReceiver {
	t.Helper()
	dir := traceReceiverProgram(t)
	r := &traceReceiver{t: t, grpc: "127.0.0.1:" + hookstest.FreePort(t), http: "127.0.0.1:" + hookstest.FreePort(t)}
	cmd := exec.Command(filepath.Join(dir, "otlpreceiver"), r.grpc, r.http)
	stdin, err := cmd.StdinPipe() // it ends when this is closed, also if the tests are killed
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	t.Cleanup(func() {
		stdin.Close()
		reader.Wait()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stderr).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the OTLP receiver does not start: %s %v", line, err)
	}
	reader.Go(func() {
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			r.add(line)
		}
	})
	return r
}

// overGRPC and overHTTP are the environment of a Caddy that exports to the receiver.
func (r *traceReceiver) overGRPC() []string {
	return append(slices.Clone(exportAtOnce), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+r.grpc, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
}

func (r *traceReceiver) overHTTP() []string {
	return append(slices.Clone(exportAtOnce), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+r.http, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
}

var exportAtOnce = []string{"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_SERVICE_NAME=hooks-under-test"}

// span is a span as it was received.
type span struct {
	TraceID    string `json:"traceId"`
	ID         string `json:"spanId"`
	Parent     string `json:"parentSpanId"`
	Name       string `json:"name"`
	Kind       int    `json:"kind"`
	Attributes []struct {
		Key   string
		Value map[string]any
	}
	Links []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	Status struct {
		Code    int
		Message string
	}
	Start   string `json:"startTimeUnixNano"`
	End     string `json:"endTimeUnixNano"`
	Service string `json:"-"`
}

const (
	kindServer, kindClient, kindProducer, kindConsumer = 2, 3, 4, 5
)

// attribute is the value of an attribute as text, "" if there is none.
func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			for _, value := range a.Value {
				return fmt.Sprint(value)
			}
		}
	}
	return ""
}

// check checks the kind of a span, and attributes: key=value, or key= for one that it must not have.
func (s span) check(t testing.TB, kind int, attributes string) {
	t.Helper()
	if s.Kind != kind || s.Service != "hooks-under-test" {
		t.Errorf("%s is of kind %d and of service %q, want %d", s.Name, s.Kind, s.Service, kind)
	}
	for _, want := range strings.Fields(attributes) {
		if key, value, _ := strings.Cut(want, "="); s.attribute(key) != value {
			t.Errorf("%s has the attributes %v, want %s", s.Name, s.Attributes, want)
		}
	}
}

// wantLink checks that the span has one link, to another.
func (s span) wantLink(t testing.TB, other span) {
	t.Helper()
	if len(s.Links) != 1 || s.Links[0].TraceID != other.TraceID || s.Links[0].SpanID != other.ID {
		t.Errorf("%s has the links %v, want one to %s %s", s.Name, s.Links, other.TraceID, other.ID)
	}
}

// traceParent is what others are told about the span.
func (s span) traceParent() string { return "00-" + s.TraceID + "-" + s.ID + "-01" }

func (r *traceReceiver) add(line []byte) {
	var request struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []struct {
					Key   string
					Value struct{ StringValue string }
				}
			}
			ScopeSpans []struct{ Spans []span }
		}
	}
	if err := json.Unmarshal(line, &request); err != nil {
		r.t.Errorf("the receiver printed no OTLP JSON: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received = append(r.received, line...)
	for _, resource := range request.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.StringValue
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				s.Service = service
				r.spans = append(r.spans, s)
			}
		}
	}
}

// all is what was received so far.
func (r *traceReceiver) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.received)
}

// ofTrace are the spans of a trace so far, in the order of their start.
func (r *traceReceiver) ofTrace(id string) (spans []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.TraceID == id {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return strings.Compare(a.Start, b.Start) })
	return spans
}

// wantTree waits until a trace has as many spans as a tree has lines, and compares them. A line is the name of a span, below its
// parent; root is the parent of the first. Siblings are in the order of their names.
func (r *traceReceiver) wantTree(id, root string, lines ...string) []span {
	r.t.Helper()
	var spans []span
	hookstest.Eventually(r.t, fmt.Sprintf("the trace %s has %d spans", id, len(lines)), func() bool {
		spans = r.ofTrace(id)
		return len(spans) >= len(lines)
	})
	drawn := slices.Clone(spans)
	slices.SortStableFunc(drawn, func(a, b span) int { return strings.Compare(a.Name, b.Name) })
	var got []string
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range drawn {
			if s.Parent == parent && len(indent) < 2*len(spans) {
				got = append(got, indent+s.Name)
				draw(s.ID, indent+"  ")
			}
		}
	}
	draw(root, "")
	if !slices.Equal(got, lines) || len(got) != len(spans) {
		r.t.Fatalf("the %d spans of the trace are\n%s\nwant\n%s", len(spans), strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	return spans
}

// named are the spans of a name, in their order.
func named(spans []span, name string) (found []span) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}
