package runners

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

const (
	replyURL   = "https://hooks.example.com/api/hooks/replies/q_1_0"
	replyToken = "reply-token-of-the-question"
)

// turnForLater is a turn that can be answered later.
func turnForLater() engine.Turn {
	turn := runnertest.ExampleTurn()
	turn.Later = &engine.Later{URL: replyURL, Token: replyToken}
	return turn
}

// seenRequest is a request that an agent got.
type seenRequest struct {
	method, path, body string
	header             http.Header
}

// laterAgent answers with a status and a Location, and tells what it was asked.
func laterAgent(t *testing.T, status int, location, body string) (*httptest.Server, <-chan seenRequest) {
	t.Helper()
	seen := make(chan seenRequest, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		seen <- seenRequest{r.Method, r.RequestURI, string(data), r.Header}
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server, seen
}

func newAsyncHTTP(t *testing.T, url string) *HTTP {
	t.Helper()
	h := newHTTP(t, url, "runner-token")
	h.Async = caddy.Duration(24 * time.Hour)
	return h
}

func wantTakenOn(t *testing.T, err error) *engine.TakenOnError {
	t.Helper()
	var taken *engine.TakenOnError
	if !errors.As(err, &taken) {
		t.Fatalf("the turn was not taken on: %v", err)
	}
	return taken
}

func TestAgentThatAnswersLater(t *testing.T) {
	t.Parallel()
	server, seen := laterAgent(t, 202, "jobs/7?of=me", "working on it")
	h := newAsyncHTTP(t, strings.Replace(server.URL, "http://", "http://me:secret@", 1)+"/turn")
	h.token, h.headers = "", map[string]string{"X-Api-Key": "key"}
	reply, err := h.Run(t.Context(), turnForLater())
	taken := wantTakenOn(t, err)
	if reply.Text != "" || taken.For != 24*time.Hour || taken.Again != 0 || taken.Ask != nil || taken.State != server.URL+"/jobs/7?of=me" {
		t.Errorf("got %+v, %+v", reply, taken)
	}
	turn := <-seen
	var body struct {
		Reply struct{ URL, Token, Until string }
	}
	if err := json.Unmarshal([]byte(turn.body), &body); err != nil {
		t.Fatal(err)
	}
	until, err := time.Parse(time.RFC3339, body.Reply.Until)
	if body.Reply.URL != replyURL || body.Reply.Token != replyToken || err != nil || time.Until(until).Round(time.Hour) != 24*time.Hour {
		t.Errorf("the agent got %+v", body.Reply)
	}
	if got := turn.header.Get("Idempotency-Key"); got != "run:turn" {
		t.Errorf("the turn has the key %q", got)
	}

	again := turnForLater()
	again.TakenOn = taken.State
	_, err = h.Run(t.Context(), again)
	if still := wantTakenOn(t, err); still.State != taken.State || still.For != taken.For {
		t.Errorf("a look at the turn gave %+v", still)
	}
	if err := h.Abandon(t.Context(), taken.State); err != nil {
		t.Fatal(err)
	}
	given := <-seen
	if given.method != "DELETE" || given.path != "/jobs/7?of=me" || given.body != "" {
		t.Errorf("the turn was given up by %+v", given)
	}
	if user, password, _ := (&http.Request{Header: given.header}).BasicAuth(); user != "me" || password != "secret" || given.header.Get("X-Api-Key") != "key" {
		t.Errorf("the DELETE has the headers %v", given.header)
	}
	if len(seen) > 0 {
		t.Errorf("a look at the turn sent %+v", <-seen)
	}
	h.Async = 0 // by a reload
	if _, err := h.Run(t.Context(), again); err == nil || !strings.Contains(err.Error(), "async is not set any more") {
		t.Errorf("without async: %v", err)
	}
}

func TestRepairIsAnsweredLater(t *testing.T) {
	t.Parallel()
	server, seen := laterAgent(t, 202, "", "")
	turn := turnForLater()
	turn.Repair = 2
	h := newAsyncHTTP(t, server.URL)
	_, err := h.Run(t.Context(), turn)
	state := wantTakenOn(t, err).State
	if asked := <-seen; asked.header.Get("Idempotency-Key") != "run:repair-2" || !strings.Contains(asked.body, `"reply":{"url":"`+replyURL) {
		t.Errorf("the repair was %+v", asked)
	}
	if state == "" {
		t.Error("a turn that was taken on looks like one that was not")
	}
	if err := h.Abandon(t.Context(), state); err != nil || len(seen) > 0 {
		t.Errorf("an agent without a Location was told to give up: %v", err)
	}
}

func TestAnswersAtOnceOfAnAgentThatMayAnswerLater(t *testing.T) {
	t.Parallel()
	server, _ := laterAgent(t, 200, "", "done")
	if reply, err := newAsyncHTTP(t, server.URL).Run(t.Context(), turnForLater()); err != nil || reply.Text != "done" {
		t.Errorf("got %+v, %v", reply, err)
	}
	for _, status := range []int{201, 204, 303} {
		server, _ := laterAgent(t, status, "/jobs/7", "")
		var taken *engine.TakenOnError
		if _, err := newAsyncHTTP(t, server.URL).Run(t.Context(), turnForLater()); err == nil || errors.As(err, &taken) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestTurnsThatCannotBeAnsweredLater(t *testing.T) {
	t.Parallel()
	server, seen := laterAgent(t, 202, "/jobs/7", "I was asked: "+replyToken)
	for want, change := range map[string]func(*HTTP, *engine.Turn){
		"it must answer 200, unless there is a line such as: async 24h": func(h *HTTP, _ *engine.Turn) { h.Async = 0 },
		"it must answer 200: this turn cannot be answered later":        func(_ *HTTP, turn *engine.Turn) { turn.Later = nil },
		"it must answer 200: a turn of several runs cannot be answered later": func(_ *HTTP, turn *engine.Turn) {
			turn.Later, turn.Folded = nil, []engine.FoldedRun{{RunID: "run"}, {RunID: "other"}}
		},
		"since public_url is not set": func(_ *HTTP, turn *engine.Turn) { turn.Later.URL = "" },
	} {
		h, turn := newAsyncHTTP(t, server.URL), turnForLater()
		change(h, &turn)
		_, err := h.Run(t.Context(), turn)
		if err == nil || !strings.Contains(err.Error(), "the runner answered 202") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if asked := <-seen; strings.Contains(asked.body, `"reply"`) {
			t.Errorf("%s: the agent got %s", want, asked.body)
		}
		if turn.Later != nil && strings.Contains(err.Error(), replyToken) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

func TestReplyTokenIsInNoError(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 500, 503} {
		server, _ := laterAgent(t, status, "", "first line\nyou sent "+replyToken+" to me, "+replyToken[:12])
		_, err := newAsyncHTTP(t, server.URL).Run(t.Context(), turnForLater())
		var answer engine.AnswerError
		if !errors.As(err, &answer) || !strings.Contains(answer.Answer(), "you sent REDACTED to me, REDACTED") || strings.Contains(err.Error(), replyToken) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestTurnsAreGivenUpAtTheSamePlaceAlone(t *testing.T) {
	t.Parallel()
	requested, err := url.Parse("https://me:secret@agent.example.com/a/turn?key=k")
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"":                                     noPlace,
		"/jobs/7":                              "https://agent.example.com/jobs/7",
		"jobs/7?x=1#top":                       "https://agent.example.com/a/jobs/7?x=1",
		"?job=7":                               "https://agent.example.com/a/turn?job=7",
		"https://AGENT.example.com:443/jobs/7": "https://AGENT.example.com:443/jobs/7",
		"//agent.example.com/jobs/7":           "https://agent.example.com/jobs/7",
		"../../../x":                           "https://agent.example.com/x",
	} {
		if got, ok := cancelPlace(requested, location); !ok || got != want {
			t.Errorf("%s: %s (%v), want %s", location, got, ok, want)
		}
	}
	for _, location := range []string{
		"http://agent.example.com/jobs/7", "https://agent.example.com:8443/", "https://evil.example/jobs/7", "//evil.example", "mailto:me@a",
		"javascript:alert(1)", "https://you:x@agent.example.com/", "://", "/\x7f", "%zz", "/" + strings.Repeat("a", maxLocation),
		"https:/jobs/7", "https:jobs",
	} {
		if got, ok := cancelPlace(requested, location); ok || got != noPlace {
			t.Errorf("%.60q can be used as %s", location, got)
		}
	}
	server, seen := laterAgent(t, 202, "http://127.0.0.1:1/jobs/7", "")
	h := newAsyncHTTP(t, server.URL)
	_, err = h.Run(t.Context(), turnForLater())
	if state := wantTakenOn(t, err).State; state != noPlace {
		t.Errorf("the turn would be given up at %s", state)
	}
	<-seen
	if err := h.Abandon(t.Context(), "https://elsewhere.example/jobs/7"); err == nil || !strings.Contains(err.Error(), "at another URL") {
		t.Errorf("got %v", err)
	}
}

func TestAgentsThatDoNotGiveUp(t *testing.T) {
	t.Parallel()
	for status, ok := range map[int]bool{200: true, 202: true, 204: true, 404: true, 409: true, 410: true, 401: false, 405: false, 500: false, 302: false} {
		server, _ := laterAgent(t, status, "", "no: runner-token")
		err := newAsyncHTTP(t, server.URL).Abandon(t.Context(), server.URL+"/jobs/7")
		if ok != (err == nil) {
			t.Errorf("%d: %v", status, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "to DELETE: no: REDACTED") || strings.Contains(err.Error(), "runner-token")) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestAgentBehindRoutesAnswersLater(t *testing.T) {
	t.Parallel()
	server, seen := laterAgent(t, 202, "http://localhost/jobs/7?x=1", "")
	h := newRouted(t, "http /turn {\n token runner-token\n async 1h\n reverse_proxy "+server.Listener.Addr().String()+"\n}")
	_, err := h.Run(t.Context(), turnForLater())
	state := wantTakenOn(t, err).State
	if asked := <-seen; asked.path != "/turn" || !strings.Contains(asked.body, `"reply":{`) {
		t.Errorf("the agent got %+v", asked)
	}
	if err := h.Abandon(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if given := <-seen; given.method != "DELETE" || given.path != "/jobs/7?x=1" || given.header.Get("Authorization") != "Bearer runner-token" {
		t.Errorf("the turn was given up by %+v", given)
	}
}

func FuzzCancelPlace(f *testing.F) {
	for _, location := range []string{"", "/jobs/7", "jobs/7?x=1#top", "//evil.example", "https://agent.example.com:443/a", "https:/x", "/%2e%2e/"} {
		f.Add("https://me:secret@agent.example.com/a/turn?key=k", location)
	}
	f.Fuzz(func(t *testing.T, agent, location string) {
		requested, err := url.Parse(agent)
		if err != nil || checkURL(agent) != nil {
			return
		}
		place, ok := cancelPlace(requested, location)
		if place == noPlace {
			return
		}
		to, err := url.Parse(place)
		if !ok || err != nil || len(place) > engine.MaxTakenOn {
			t.Fatalf("%q: %q, %v (%v)", location, place, ok, err)
		}
		if to.User != nil || to.Scheme != requested.Scheme || !strings.EqualFold(to.Hostname(), requested.Hostname()) {
			t.Fatalf("%q leads from %q to %q", location, agent, place)
		}
	})
}
