package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
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

// mendingRunner answers repairs with what the schema wants, and tells what they used. It answers turns with something else.
func mendingRunner(t testing.TB) *hookstest.Runner {
	return hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		answer := "no JSON"
		if tn.Text("phase") == "repair" {
			w.Header().Set("Content-Type", "application/json")
			answer = `{"text":"{\"n\":1}","usage":{"model":"some-model","inputTokens":1234,"outputTokens":0,"costUsd":0.25}}`
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
				{turns[0], kindClient, "gen_ai.operation.name=invoke_agent gen_ai.agent.name=default gen_ai.provider.name=http caddy.hooks.run.id=" + runID + " caddy.hooks.repair= caddy.hooks.attempt=1 gen_ai.usage.input_tokens= gen_ai.response.model= caddy.hooks.cost_usd="},
				{turns[1], kindClient, "gen_ai.operation.name=invoke_agent caddy.hooks.repair=1 caddy.hooks.tier=balanced gen_ai.usage.input_tokens=1234 gen_ai.usage.output_tokens=0 gen_ai.response.model=some-model caddy.hooks.cost_usd=0.25"},
				{named(spans, "deliver callback")[0], kindClient, "http.request.method=POST http.response.status_code=200 server.address=127.0.0.1 caddy.hooks.attempt=1"},
				{named(spans, "deliver ops")[0], kindClient, "caddy.hooks.channel=ops http.response.status_code=200"},
				{request, kindServer, ""},
			} {
				want.span.check(t, want.kind, want.attributes)
			}
			if run.Start < request.Start || run.End < turns[1].End || turns[0].End > turns[1].Start {
				t.Errorf("the times of %+v do not go together", spans)
			}

			const otherTrace = "0af7651916cd43dd8448eb211c80319c" // of a caller who follows the run as events
			s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`, "Traceparent", "00-"+otherTrace+"-"+callersSpan+"-01", "Accept", "text/event-stream")
			receiver.wantTree(otherTrace, callersSpan, "request", "  run agent", "    invoke_agent default")
		})
	}
}

// A run that was with its runner when Caddy was killed has one span, which is above what was done before and after.
func TestATraceGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	rn, calls := killedRunner(t)
	s := hookstest.StartProcess(t, traced(rn, ""), receiver.overGRPC()...)
	id := s.Accept(`{"message":"go"}`, "Traceparent", callersWord)
	hookstest.ReceiveWithin(t, "a call that is refused", calls)
	hookstest.ReceiveWithin(t, "a call that is held", calls)
	hookstest.Eventually(t, "the request and the refused call are exported", func() bool { return len(receiver.ofTrace(callersTrace)) == 2 })
	s.Kill()
	s.Load(traced(rn, ""))
	told := hookstest.ReceiveWithin(t, "the run starts again", calls)
	s.Ended(id)
	spans := receiver.wantTree(callersTrace, callersSpan,
		"request",
		"  run agent",
		"    invoke_agent default",
		"    invoke_agent default")
	named(spans, "run agent")[0].check(t, kindConsumer, "caddy.hooks.run.id="+id+" caddy.hooks.attempts=2 caddy.hooks.status=completed caddy.hooks.sync=false")
	turns := named(spans, "invoke_agent default")
	turns[0].check(t, kindClient, "error.type=runner_busy caddy.hooks.attempt=1")
	turns[1].check(t, kindClient, "error.type= caddy.hooks.attempt=2")
	if turns[0].Status.Code != 2 || turns[1].Status.Code != 0 || told != turns[1].traceParent() {
		t.Errorf("the turns are %+v, and the runner was told %s", turns, told)
	}
}

// killedRunner refuses the first turn, holds the second, and answers the others. Each tells its trace parent.
func killedRunner(t testing.TB) (rn *hookstest.Runner, calls chan string) {
	calls = make(chan string, 100)
	var count atomic.Int32
	return hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		n := count.Add(1)
		calls <- tn.Header.Get("Traceparent")
		switch n {
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			<-r.Context().Done()
		}
	}), calls
}

// A node that takes a run over has its spans below the same run.
func TestATraceGoesOnOnAnotherNode(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	rn, calls := killedRunner(t)
	database := pgtest.New(t, pgtest.Config{})
	site := traced(rn, "store postgres {env.HOOKS_DSN} {\n lease 3s\n }")
	environment := append(receiver.overHTTP(), "HOOKS_DSN="+database.DSN("postgres"))
	first := hookstest.StartProcess(t, site, environment...)
	id := first.Accept(`{"message":"go"}`, "Traceparent", callersWord)
	hookstest.ReceiveWithin(t, "a call that is refused", calls)
	hookstest.ReceiveWithin(t, "a call that is held", calls)
	hookstest.Eventually(t, "the request and the refused call are exported", func() bool { return len(receiver.ofTrace(callersTrace)) == 2 })
	second := hookstest.StartProcess(t, site, environment...)
	first.Kill()
	second.Ended(id)
	spans := receiver.wantTree(callersTrace, callersSpan, "request", "  run agent", "    invoke_agent default", "    invoke_agent default")
	named(spans, "run agent")[0].check(t, kindConsumer, "caddy.hooks.run.id="+id)
}

// Runs that a turn carries out together are in traces of their own. The turn is in that of the first, and links the others.
func TestATracedTurnLinksFoldedRuns(t *testing.T) {
	t.Parallel()
	receiver, rn := startTraceReceiver(t), hookstest.StartRunner(t, nil)
	s := hookstest.StartProcess(t, traced(rn, "wake_fold 1h 2"), receiver.overHTTP()...)
	const otherTrace = "0af7651916cd43dd8448eb211c80319c"
	for _, trace := range []string{callersTrace, otherTrace} {
		s.Post("/api/hooks/wake", `{"text":"hello"}`, "Traceparent", "00-"+trace+"-"+callersSpan+"-01").WantNew(t, 200)
	}
	first := receiver.wantTree(callersTrace, callersSpan, "request", "  run wake", "    invoke_agent default")
	other := receiver.wantTree(otherTrace, callersSpan, "request", "  run wake")
	turn, leader, follower := named(first, "invoke_agent default")[0], named(first, "run wake")[0], named(other, "run wake")[0]
	turn.check(t, kindClient, "caddy.hooks.folded=2")
	leader.check(t, kindConsumer, "caddy.hooks.folded=2 caddy.hooks.folded_into=")
	follower.check(t, kindConsumer, "caddy.hooks.folded= caddy.hooks.folded_into="+leader.attribute("caddy.hooks.run.id"))
	turn.wantLink(t, follower)
	follower.wantLink(t, leader)
	if got := rn.Next().Header.Get("Traceparent"); got != turn.traceParent() {
		t.Errorf("the runner was told %q", got)
	}
}

// A run that is started again has a trace of its own, which links the first run.
func TestARunAgainLinksTheFirst(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { w.WriteHeader(500) })
	s := hookstest.StartProcess(t, traced(rn, ""), receiver.overGRPC()...)
	id := s.Accept(`{"message":"go"}`, "Traceparent", callersWord)
	s.Ended(id)
	first := receiver.wantTree(callersTrace, callersSpan, "request", "  run agent", "    invoke_agent default")
	named(first, "run agent")[0].check(t, kindConsumer, "error.type=runner_failed caddy.hooks.status=failed")
	resp := s.AdminRequest("POST", "/hooks/runs/"+id+"/again", "{}")
	s.Ended(resp.Field(t, "runId").(string))
	rn.Next()
	again := strings.Split(rn.Next().Header.Get("Traceparent"), "-")[1]
	spans := receiver.wantTree(again, "", "again agent", "  run agent", "    invoke_agent default")
	named(spans, "again agent")[0].check(t, kindProducer, "error.type=")
	named(spans, "again agent")[0].wantLink(t, named(first, "run agent")[0])
}

// A configuration that is loaded in the middle of a run changes nothing in its trace. Without tracing there are no more spans.
func TestATraceOutlivesAReload(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartProcess(t, traced(rn, ""), receiver.overGRPC()...)
	id := s.Accept(`{"message":"hold"}`, "Traceparent", callersWord)
	rn.Next()
	s.Reload(traced(rn, "workers 2"))
	close(release)
	s.Ended(id)
	receiver.wantTree(callersTrace, callersSpan, "request", "  run agent", "    invoke_agent default")

	s.Reload(hookstest.Hooks(rn, hookstest.WithCallbacks))
	callbacks := hookstest.StartReceiver(t)
	const untraced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.Ended(s.Accept(`{"message":"again","callbackUrl":"`+callbacks.URL+`"}`, "Traceparent", untraced))
	if got := rn.Next().Header.Get("Traceparent"); got != untraced {
		t.Errorf("without tracing the runner was told %q", got)
	}
	if got := callbacks.Next().Header["Traceparent"]; got != nil {
		t.Errorf("without tracing the callback was told %q", got)
	}
	s.Stop()
	if strings.Contains(receiver.all(), "0af7651916cd43dd8448eb211c80319c") {
		t.Error("without tracing there are spans")
	}
}

// What is not sampled is not exported, and everybody is told so.
func TestATraceThatIsNotSampledIsNotExported(t *testing.T) {
	t.Parallel()
	receiver, rn, callbacks := startTraceReceiver(t), hookstest.StartRunner(t, nil), hookstest.StartReceiver(t)
	s := hookstest.StartProcess(t, traced(rn, ""), append(receiver.overGRPC(), "OTEL_TRACES_SAMPLER=always_off")...)
	s.Ended(s.Accept(`{"message":"go","callbackUrl":"`+callbacks.URL+`"}`, "Traceparent", callersWord))
	for what, header := range map[string]http.Header{"the runner": rn.Next().Header, "the callback": callbacks.Next().Header} {
		if got := header.Get("Traceparent"); !strings.HasPrefix(got, "00-"+callersTrace+"-") || !strings.HasSuffix(got, "-00") || strings.Contains(got, callersSpan) {
			t.Errorf("%s was told %q", what, got)
		}
	}
	s.Stop() // which exports what is left
	if got := receiver.all(); got != "" {
		t.Errorf("received %s", got)
	}
}

// No text from outside is exported: not what callers, agents and receivers say, and no secret.
func TestTracesHoldNoTextFromOutside(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	const marker = "FROM-OUTSIDE"
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		if strings.Contains(tn.Text("message"), "fail") {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, marker+" reply")
	})
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Reason", marker)
		w.WriteHeader(500)
		_, _ = io.WriteString(w, marker+" error body")
	}))
	t.Cleanup(failing.Close)
	s := hookstest.StartProcess(t, traced(rn, "channel ops webhook "+failing.URL+"/"+marker+"?key="+marker+` {
			token `+marker+`
		}
		hook alerts {
			action agent
			template "fail {text}"
			chat_id "alerts-{text}"
		}`), receiver.overHTTP()...)
	headers := []string{"Traceparent", callersWord, "X-Custom", marker, "Idempotency-Key", marker, "Baggage", "key=" + marker}
	s.Post("/api/hooks/agent", `{"message":"`+marker+`","name":"`+marker+`","chatId":"`+marker+`","metadata":{"`+marker+`":"`+marker+`"},"syncResponse":true,
		"responseJsonSchema":{"type":"object","required":["`+marker+`"]},"callbackUrl":"`+failing.URL+"/"+marker+"?key="+marker+`",
		"deliver":true,"channel":"ops","to":"`+marker+`"}`, headers...)
	s.Post("/api/hooks/alerts?note="+marker, `{"text":"`+marker+`"}`, "Traceparent", callersWord)
	hookstest.Eventually(t, "all that is done is exported", func() bool {
		spans := receiver.ofTrace(callersTrace)
		return len(named(spans, "run agent")) == 1 && len(named(spans, "run alerts")) == 1 && len(named(spans, "deliver callback")) > 0 && len(named(spans, "deliver ops")) > 0
	})
	s.Stop()
	spans := receiver.ofTrace(callersTrace)
	named(spans, "run agent")[0].check(t, kindConsumer, "error.type=schema_unmet caddy.hooks.repairs=3")
	named(spans, "run alerts")[0].check(t, kindConsumer, "error.type=runner_failed")
	named(spans, "deliver callback")[0].check(t, kindClient, "error.type=500 http.response.status_code=500")
	named(spans, "deliver ops")[0].check(t, kindClient, "error.type=500")
	for line := range strings.Lines(receiver.all()) {
		for _, secret := range []string{marker, hookstest.Token} {
			if i := strings.Index(line, secret); i >= 0 {
				t.Errorf("%s was exported: %s", secret, line[max(0, i-200):min(len(line), i+200)])
			}
		}
	}
}

// Without a receiver of traces all goes on, and the log says so once.
func TestAReceiverOfTracesThatIsUnreachableDoesNoHarm(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	d := hookstest.NewBinary(t).Deploy(t, "", traced(rn, ""))
	d.Env = append(slices.Clone(exportAtOnce), "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:"+hookstest.FreePort(t), "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
	p := d.Start(t)
	const complaint = "spans dropped; export failed"
	for n := range 3 {
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/agent", `{"message":"go","syncResponse":true}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Body != "ok" {
			t.Fatalf("request %d: %s %v", n, resp.Body, err)
		}
		hookstest.Eventually(t, "the log tells", func() bool { return strings.Contains(p.Log.All(), complaint) })
	}
	p.Terminate(t)
	p.WantCleanExit(t)
	if told := strings.Count(p.Log.All(), complaint); told != 1 {
		t.Errorf("the log has it %d times", told)
	}
	p.WantNoCrash(t) // Caddy itself logs an error if spans are left when it stops
}
