package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The entry of a webhook has what Caddy adds to those of other requests, so that it can be found by its trace or its uuid.
func TestTheEntryOfAWebhookHasItsTrace(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	const callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	s, accessLog, _ := loggedSite(t, hookstest.StartRunner(t, nil), "tracing\n header X-Request {http.request.uuid}\n respond /other other")
	answers := make(map[string]hookstest.Response) // by path
	for _, path := range []string{"/other", "/api/hooks/wake", "/api/hooks/none"} {
		answers[path] = s.Post(path, `{"text":"a"}`, "Authorization", "Bearer "+loudToken, "Traceparent", "00-"+callersTrace+"-00f067aa0ba902b7-01")
	}
	spans := make(map[string]string) // the paths
	for line := range strings.Lines(waitForLines(t, accessLog, len(answers))) {
		var entry struct {
			Request               struct{ URI string }
			TraceID, SpanID, UUID string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.TraceID != callersTrace || len(entry.SpanID) != 16 || spans[entry.SpanID] != "" {
			t.Errorf("the trace is %q, the span %q: %s", entry.TraceID, entry.SpanID, line)
		}
		spans[entry.SpanID] = entry.Request.URI
		if want := answers[entry.Request.URI].Header.Get("X-Request"); entry.UUID != want || want == "" {
			t.Errorf("the uuid is %q, want %q: %s", entry.UUID, want, line)
		}
		for _, once := range []string{`"traceID"`, `"spanID"`, `"uuid"`} {
			if strings.Count(line, once) != 1 {
				t.Errorf("%s should be there once: %s", once, line)
			}
		}
	}
	if len(spans) != len(answers) {
		t.Errorf("there are entries of %v", spans)
	}
}
