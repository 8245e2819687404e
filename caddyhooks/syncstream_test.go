package caddyhooks_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const streamRequest = `{"message":"a","chatId":"my chat","syncResponse":true}`

// wantErrorEvent checks that a stream ends with an error.
func (rd *runReader) wantErrorEvent(status int, words string) {
	rd.t.Helper()
	result := rd.untilEnd()
	var got struct {
		Status       int    `json:"status"`
		ErrorMessage string `json:"errorMessage"`
	}
	dec := json.NewDecoder(strings.NewReader(result))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || got.Status != status || !strings.Contains(got.ErrorMessage, words) {
		rd.t.Errorf("the last event is %s, want status %d and %q", result, status, words)
	}
}

func TestASyncAnswerIsStreamed(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, "hook custom {\n action agent\n sync\n template \"{a}\"\n }"))
	rd := postStreaming(t, s, streamRequest)
	id := sp.Next().Text("runId")
	for name, want := range map[string]string{"X-Service-Run-Id": id, "X-Service-Chat-Id": "my%20chat", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := rd.resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	sp.say(t, "Hel")
	rd.untilText("Hel")
	other := followRun(t, s, id)
	sp.say(t, "lo")
	rd.untilText("Hello")
	sp.finish(t)
	if run := rd.ended(); run.Reply != "Hello" || run.Status != "completed" || run.Body != s.Run(id).Body || rd.text != "Hello" {
		t.Errorf("the text is %q, the run %s", rd.text, run.Body)
	}
	if run := other.ended(); run.Reply != "Hello" || other.text != "Hello" {
		t.Errorf("another reader got %q, %s", other.text, run.Body)
	}

	custom := readRun(t, http.DefaultClient, "POST", s.URL+"/api/hooks/custom", `{"a":"b"}`, "Accept", "text/plain;q=0.5, text/event-stream")
	sp.Next()
	sp.say(t, "one")
	custom.untilText("one")
	sp.finish(t)
	if run := custom.ended(); run.Reply != "one" || run.Hook != "custom" {
		t.Errorf("a custom hook's: %s", run.Body)
	}
}

func TestRunnersThatDoNotStreamAnswerStreamingCallers(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("all at once")), ""))
	for range 3 { // on the same connection
		if run := postStreaming(t, s, streamRequest).ended(); run.Reply != "all at once" {
			t.Errorf("got %s", run.Body)
		}
	}
}

func TestOthersGetPlainAnswers(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("plain")), ""))
	for _, accept := range []string{"", "*/*", "text/plain", "text/event-stream;q=0", "text/plain, text/event-stream;q=0.9", strings.Repeat("a/b,", 2500)} {
		resp := s.Post("/api/hooks/agent", streamRequest, "Accept", accept)
		if resp.Status != 200 || resp.Body != "plain" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("Accept: %.50s gets %d %v %s", accept, resp.Status, resp.Header, resp.Body)
		}
	}
	resp := s.Post("/api/hooks/agent", `{"message":"a"}`, "Accept", "text/event-stream")
	resp.WantBody(t, 202, "status", "runId", "chatId")
	s.Post("/api/hooks/wake", `{"text":"a"}`, "Accept", "text/event-stream").WantBody(t, 200, "status", "chatId")
}

func TestACheckedAnswerIsWholeForAllWhoTakeJSON(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText(`{"n":7}`)), ""))
	for _, accept := range []string{"application/json, text/event-stream", "text/event-stream, application/*;q=0.1", "text/event-stream, */*", "*/*"} {
		for _, replayed := range []string{"", "true"} {
			resp := s.Post("/api/hooks/agent", schemaRequest, "Accept", accept, "Idempotency-Key", accept)
			if resp.Status != 200 || resp.Header.Get("Idempotent-Replayed") != replayed || resp.Body != `{"n":7}` || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("Accept: %s gets %d %v %s", accept, resp.Status, resp.Header, resp.Body)
			}
		}
	}
	for _, accept := range []string{"text/event-stream", "text/event-stream, application/json;q=0", "text/event-stream, */*, application/*;q=0"} {
		s.Post("/api/hooks/agent", schemaRequest, "Accept", accept).WantError(t, 406)
		s.Post("/api/hooks/agent", schemaRequest, "Accept", accept, "Idempotency-Key", "*/*").WantError(t, 406)
	}
}

func TestErrorsBeforeTheRunAreOrdinary(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
	const accept, events = "Accept", "text/event-stream"
	s.Post("/api/hooks/agent", `{"syncResponse":true}`, accept, events).WantError(t, 400, "message")
	s.Post("/api/hooks/agent", `{`, accept, events).WantError(t, 400)
	s.Request("POST", "/api/hooks/agent", streamRequest, accept, events).WantError(t, 401)
	s.Post("/api/hooks/agent", `{"message":"`+strings.Repeat("a", 1<<20)+`","syncResponse":true}`, accept, events).WantError(t, 413)
	s.Post("/api/hooks/agent", schemaRequest, accept, events).WantError(t, 406, "responseJsonSchema", "application/json")
	refused := s.AdminRequest("GET", "/hooks/refused", "")
	if !strings.Contains(refused.Body, `"an answer with a schema cannot be streamed"`) || !strings.Contains(refused.Body, `406`) {
		t.Errorf("refused requests are %s", refused.Body)
	}
	rn.WantNoTurn(s)
}

func TestAStreamTellsAsAnErrorWhatIsNoAnswer(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	begin := func(body string) *runReader {
		rd := postStreaming(t, s, body)
		sp.Next()
		sp.say(t, "half")
		rd.untilText("half")
		return rd
	}
	failed := begin(streamRequest)
	sp.send(t, "error", "no more")
	sp.frame(t, "end")
	failed.wantErrorEvent(502, "failed to answer")
	begin(`{"message":"a","syncResponse":true,"timeoutSeconds":1}`).wantErrorEvent(504, "within 1 seconds")
	cancelled := begin(streamRequest)
	s.CancelRun(cancelled.resp.Header.Get("X-Service-Run-Id"))
	cancelled.wantErrorEvent(502, "cancelled")
	if refused := s.AdminRequest("GET", "/hooks/refused", ""); strings.Contains(refused.Body, "half") || strings.Contains(refused.Body, "50") {
		t.Errorf("runs that failed are among the refused requests: %s", refused.Body)
	}
}

func TestAnAgentThatIsNotThereIsAnErrorEvent(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n token "+hookstest.Token+"\n runner http http://127.0.0.1:"+hookstest.FreePort(t)+"\n}")
	postStreaming(t, s, streamRequest).wantErrorEvent(503, "not available")
}

func TestACallerWhoLeavesItsStreamCancelsTheRun(t *testing.T) {
	sp := startSpeaker(t)
	rc := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, hookstest.WithCallbacks))
	rd := postStreaming(t, s, streamRequest)
	id := sp.Next().Text("runId")
	sp.say(t, "half")
	rd.untilText("half")
	rd.close()
	if gone := hookstest.ReceiveWithin(t, "the turn is cancelled", sp.gone); gone != id {
		t.Errorf("the turn of %s is cancelled", gone)
	}
	if run := s.Ended(id); run.Status != "cancelled" {
		t.Errorf("the run is %s", run.Body)
	}

	rd = postStreaming(t, s, `{"message":"a","syncResponse":true,"callbackUrl":"`+rc.URL+`"}`)
	id = sp.Next().Text("runId")
	sp.say(t, "one")
	rd.untilText("one")
	rd.close()
	hookstest.Eventually(t, "the stream is over", func() bool { return hookstest.GoroutinesIn(s, "submitStreaming(") == 0 })
	sp.say(t, "two")
	sp.finish(t)
	rc.Next()
	if run := s.Ended(id); run.Reply != "onetwo" {
		t.Errorf("the run is %s", run.Body)
	}
}

func TestACallerWhoDoesNotReadItsStreamHasLeft(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.WritePatience, 200*time.Millisecond)
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	request := "POST /api/hooks/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + hookstest.Token +
		"\r\nContent-Length: "
	body := `{"message":"a","syncResponse":true}`
	unreadRequest(t, s, request+"35\r\n\r\n"+body)
	id := sp.Next().Text("runId")
	part := "event: delta\ndata: " + strings.Repeat("\x01", 30<<10) + "\n\n" // six times as long in JSON
	for range 32 {
		sp.frame(t, part)
	}
	if gone := hookstest.ReceiveWithin(t, "the turn is cancelled", sp.gone); gone != id {
		t.Errorf("the turn of %s is cancelled", gone)
	}
	if run := s.Ended(id); run.Status != "cancelled" {
		t.Errorf("the run is %s", run.Status)
	}
}

func TestAReloadDoesNotCutAStreamedAnswer(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	rd := postStreaming(t, s, streamRequest)
	sp.Next()
	sp.say(t, "one ")
	rd.untilText("one ")
	s.Reload(hookstest.Hooks(sp.Runner, "workers 3"))
	sp.say(t, "two")
	rd.untilText("one two")
	sp.finish(t)
	if run := rd.ended(); run.Reply != "one two" {
		t.Errorf("got %s", run.Body)
	}
}

func TestAtShutdownAStreamedAnswerEndsWithAnError(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, "drain_timeout 10ms"))
	rd := postStreaming(t, s, streamRequest)
	sp.Next()
	sp.say(t, "one ")
	rd.untilText("one ")
	s.Stop()
	rd.wantErrorEvent(503, "shutting down")
}

func TestARepeatedRequestIsStreamedTheFirstRun(t *testing.T) {
	sp := startSpeaker(t)
	s := hookstest.StartSite(t, hookstest.Hooks(sp.Runner, ""))
	first := postStreaming(t, s, streamRequest, hookstest.Key("k")...)
	id := sp.Next().Text("runId")
	sp.say(t, "one ")
	first.untilText("one ")
	second := postStreaming(t, s, streamRequest, hookstest.Key("k")...)
	second.untilText("one ")
	s.Post("/api/hooks/agent", streamRequest, hookstest.Key("k")...).WantError(t, 409)
	left := postStreaming(t, s, streamRequest, hookstest.Key("k")...)
	left.untilText("one ")
	left.close()
	sp.say(t, "two")
	sp.finish(t)
	want := first.ended().Body
	third := postStreaming(t, s, streamRequest, hookstest.Key("k")...)
	for _, rd := range []*runReader{second, third} {
		if run := rd.ended(); run.Body != want || rd.resp.Header.Get("Idempotent-Replayed") != "true" || rd.resp.Header.Get("X-Service-Run-Id") != id {
			t.Errorf("repeated: %v %s, want %s", rd.resp.Header, run.Body, want)
		}
	}
	if resp := s.Post("/api/hooks/agent", streamRequest, hookstest.Key("k")...); resp.Body != "one two" {
		t.Errorf("a plain one: %d %s", resp.Status, resp.Body)
	}

	failing := postStreaming(t, s, streamRequest, hookstest.Key("f")...)
	sp.Next()
	sp.send(t, "error", "no")
	sp.frame(t, "end")
	failing.wantErrorEvent(502, "failed")
	postStreaming(t, s, streamRequest, hookstest.Key("f")...).wantErrorEvent(502, "failed")

	ctx, cancel := context.WithCancel(t.Context())
	gone := s.Hold(ctx, streamRequest, hookstest.Key("c")...)
	cancelled := sp.Next().Text("runId")
	cancel()
	hookstest.ReceiveWithin(t, "the turn is cancelled", gone)
	s.Ended(cancelled)
	again := postStreaming(t, s, streamRequest, hookstest.Key("c")...)
	if turn := sp.Next().Text("runId"); again.resp.Header.Get("X-Service-Run-Id") != turn || turn == cancelled {
		t.Errorf("after a run that came to nothing: %v, and a turn of %s", again.resp.Header, turn)
	}
	sp.finish(t)
	again.ended()
}
