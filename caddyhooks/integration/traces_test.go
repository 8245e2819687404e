package integration

import (
	"io"
	"net/http"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The span of a caller, and its trace.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	callersWord  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

// traced is a site with Caddy's tracing and hooks.
func traced(rn *hookstest.Runner, more string) string {
	return "tracing {\n\tspan request\n}\n" + hookstest.Hooks(rn, hookstest.WithCallbacks+more)
}

// mendingRunner answers repairs with what the schema wants, and turns with something else.
func mendingRunner(t testing.TB) *hookstest.Runner {
	return hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		answer := "no JSON"
		if tn.Text("phase") == "repair" {
			answer = `{"n":1}`
		}
		_, _ = io.WriteString(w, answer)
	})
}

const numberSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`

func TestATracedRunIsOneTree(t *testing.T) {
	t.Parallel()
	for protocol, environment := range map[string]func(*traceReceiver) []string{
		"gRPC": (*traceReceiver).overGRPC, "HTTP": (*traceReceiver).overHTTP,
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			receiver, rn := startTraceReceiver(t), mendingRunner(t)
			callbacks, chat := hookstest.StartReceiver(t), hookstest.StartReceiver(t)
			s := hookstest.StartProcess(t, traced(rn, "channel ops webhook "+chat.URL), environment(receiver)...)
			resp := s.Post("/api/hooks/agent", `{"message":"count","syncResponse":true,"responseJsonSchema":`+numberSchema+
				`,"callbackUrl":"`+callbacks.URL+`/done?key=1","deliver":true,"channel":"ops","to":"room"}`, "Traceparent", callersWord)
			if resp.Body != `{"n":1}` {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			turn, repair, callback, message := rn.Next(), rn.Next(), callbacks.Next(), chat.Next()
			spans := receiver.wantTree(callersTrace, callersSpan,
				"request",
				"  run agent",
				"    deliver callback",
				"    deliver ops",
				"    invoke_agent default",
				"    invoke_agent default")
			turns := named(spans, "invoke_agent default")
			for what, told := range map[string]struct {
				got  http.Header
				want span
			}{
				"the runner": {turn.Header, turns[0]}, "the repair": {repair.Header, turns[1]},
				"the callback": {callback.Header, named(spans, "deliver callback")[0]}, "the channel": {message.Header, named(spans, "deliver ops")[0]},
			} {
				if got := told.got.Get("Traceparent"); got != told.want.traceParent() {
					t.Errorf("%s was told %q, want %q", what, got, told.want.traceParent())
				}
			}
			run, request := named(spans, "run agent")[0], spans[0]
			runID := turn.Text("runId")
			for _, want := range []struct {
				span       span
				kind       int
				attributes string
			}{
				{run, kindConsumer, "messaging.operation.type=process messaging.message.id=" + runID + " caddy.hooks.status=completed caddy.hooks.repairs=1 caddy.hooks.attempts=1 caddy.hooks.sync=true error.type="},
				{turns[0], kindClient, "gen_ai.operation.name=invoke_agent gen_ai.agent.name=default gen_ai.provider.name=http caddy.hooks.run.id=" + runID + " caddy.hooks.repair= caddy.hooks.attempt=1"},
				{turns[1], kindClient, "gen_ai.operation.name=invoke_agent caddy.hooks.repair=1 caddy.hooks.tier=balanced"},
				{named(spans, "deliver callback")[0], kindClient, "http.request.method=POST http.response.status_code=200 server.address=127.0.0.1 caddy.hooks.attempt=1"},
				{named(spans, "deliver ops")[0], kindClient, "caddy.hooks.channel=ops http.response.status_code=200"},
				{request, kindServer, ""},
			} {
				want.span.check(t, want.kind, want.attributes)
			}
			if run.Start < request.Start || run.End < turns[1].End || turns[0].End > turns[1].Start {
				t.Errorf("the times of %+v do not go together", spans)
			}
		})
	}
}
