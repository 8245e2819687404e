package caddyhooks_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// routedHooks is a hooks directive whose turns go through the given directives.
func routedHooks(directives string) string {
	return "hooks {\n\tenabled\n\ttoken " + hookstest.Token + "\n\trunner http /turn {\n" + directives + "\n}\n}"
}

func TestTurnsAreSpreadOverUpstreams(t *testing.T) {
	one, two := hookstest.StartRunner(t, nil), hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, routedHooks("reverse_proxy "+address(one)+" "+address(two)+" {\n lb_policy round_robin\n lb_try_duration 5s\n lb_try_interval 10ms\n fail_duration 1h\n}"))
	for range 4 {
		if resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`); resp.Status != 200 || resp.Body != "ok" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	}
	if len(one.Turns) != 2 || len(two.Turns) != 2 {
		t.Errorf("the turns went to %d and %d", len(one.Turns), len(two.Turns))
	}
	one.Close()
	var ids []string
	for range 20 {
		ids = append(ids, s.Accept(`{"message":"hello"}`))
	}
	for _, id := range ids {
		if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 {
			t.Errorf("the run is %s", r.Body)
		}
	}
	if len(two.Turns) != 22 {
		t.Errorf("%d turns went to the one that is left", len(two.Turns))
	}
}

// address is where a runner listens.
func address(rn *hookstest.Runner) string { return strings.TrimPrefix(rn.URL, "http://") }

// An upstream whose health check fails gets no turns, though it would take them.
func TestUpstreamsThatAreNotHealthyGetNoTurns(t *testing.T) {
	var ill atomic.Bool
	serve := func(name string, healthy func() bool) string {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
			if !healthy() {
				w.WriteHeader(500)
			}
		})
		mux.HandleFunc("POST /turn", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, name)
		})
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	ill.Store(true)
	first, second := serve("first", func() bool { return !ill.Load() }), serve("second", func() bool { return true })
	s := hookstest.StartSite(t, routedHooks("reverse_proxy "+first+" "+second+" {\n lb_policy first\n health_uri /healthz\n health_interval 20ms\n}"))
	ask := func() string { return s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`).Body }
	hookstest.Eventually(t, "turns go to the second one", func() bool { return ask() == "second" })
	ill.Store(false)
	hookstest.Eventually(t, "turns go to the first one again", func() bool { return ask() == "first" })
}

func TestRunsWaitUntilAnUpstreamIsBack(t *testing.T) {
	addr := "127.0.0.1:" + hookstest.FreePort(t)
	s := hookstest.StartSite(t, routedHooks("reverse_proxy 127.0.0.1:1 "+addr+" {\nlb_policy round_robin\n}"))
	id := s.Accept(`{"message":"hello"}`)
	hookstest.Eventually(t, "the run waits", func() bool { return strings.Contains(s.Run(id).Body, "waitingFor") })
	resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`)
	resp.WantError(t, 503, "The agent is not available right now")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	rn := hookstest.StartRunner(t, nil)
	back, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: rn.Config.Handler}
	go func() { _ = server.Serve(back) }()
	t.Cleanup(func() { server.Close() })
	if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 || r.Reply != "ok" {
		t.Errorf("the run is %s", r.Body)
	}
	if rn.Next().Text("message") != "hello" || len(rn.Turns) != 0 {
		t.Error("the run was sent more than once")
	}
}

// A turn that is under way goes on with the handlers that it began with.
func TestTurnsThroughRoutesSurviveAReload(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 10)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		if tn.Text("message") == "stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: delta\ndata: before \n\n")
			_ = http.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the turn was cut off")
			return
		}
		if tn.Text("message") == "stream" {
			_, _ = io.WriteString(w, "event: delta\ndata: after\n\nevent: result\ndata: {}\n\n")
			return
		}
		_, _ = io.WriteString(w, "whole")
	})
	other := hookstest.StartRunner(t, hookstest.ReplyText("other"))
	s := hookstest.StartSite(t, routedHooks("reverse_proxy "+address(rn)))
	stream, whole := s.Accept(`{"message":"stream"}`), s.Accept(`{"message":"whole"}`)
	hookstest.ReceiveWithin(t, "a turn begins", begun)
	hookstest.ReceiveWithin(t, "a turn begins", begun)
	s.Reload(routedHooks("reverse_proxy " + address(other)))
	s.Reload(routedHooks("respond changed"))
	if resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`); resp.Body != "changed" {
		t.Errorf("after the reload: %d %s", resp.Status, resp.Body)
	}
	close(release)
	if r := s.Ended(stream); r.Status != "completed" || r.Reply != "before after" || r.Attempts != 1 {
		t.Errorf("the stream ended as %s", r.Body)
	}
	if r := s.Ended(whole); r.Status != "completed" || r.Reply != "whole" || r.Attempts != 1 {
		t.Errorf("the turn ended as %s", r.Body)
	}
}

func TestCancelAndTimeoutReachUpstreams(t *testing.T) {
	rn, gone, _ := hookstest.HeldRunner(t)
	const common = "enabled\n token " + hookstest.Token + "\n store memory\n"
	s := hookstest.StartSite(t, "hooks routed {\n path /routed\n "+common+" runner http /turn {\n reverse_proxy "+address(rn)+"\n}\n}\n"+
		"hooks direct {\n path /direct\n "+common+" runner http "+rn.URL+"\n}\n")
	want := make(map[string]string) // the ends of runs
	start := func(instance, fields, end string) (path string) {
		t.Helper()
		id := acceptedRun(t, s.Post(instance+"/agent", `{"message":"hold"`+fields+`}`))
		rn.Next()
		want[id] = end
		return instance + "/runs/" + id
	}
	var paths []string
	for _, instance := range []string{"/routed", "/direct"} {
		paths = append(paths, start(instance, `,"timeoutSeconds":1`, "timed_out"))
		cancelled := start(instance, "", "cancelled")
		s.Post(cancelled+"/cancel", "").Shown(t)
		paths = append(paths, cancelled)
	}
	for range paths {
		id := hookstest.ReceiveWithin(t, "the upstream is told", gone)
		if want[id] == "" {
			t.Errorf("%s is gone", id)
		}
	}
	for _, path := range paths {
		run := s.Request("GET", path+"?wait=30s", "", "Authorization", "Bearer "+hookstest.Token).Shown(t)
		if run.Status != want[run.RunID] {
			t.Errorf("want %s, but the run is %s", want[run.RunID], run.Body)
		}
	}
}

// An answer that breaks off is never taken for a whole one.
func TestAnswersThatBreakOffFailTheRun(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		_, _ = io.WriteString(w, "half of ")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s := hookstest.StartSite(t, routedHooks("reverse_proxy "+address(rn)))
	id := s.Accept(`{"message":"hello"}`)
	if r := s.Ended(id); r.Status != "failed" || r.Attempts != 1 {
		t.Errorf("the run is %s", r.Body)
	}
	if reason := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "reason"); reason != "the runner's answer broke off" {
		t.Errorf("operators are told %v", reason)
	}
}
