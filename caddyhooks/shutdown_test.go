package caddyhooks_test

import (
	"net"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Caddy stops its apps in any order. Here it stops the hooks first, and the web server serves on for shutdown_delay.
func TestHooksAcceptUntilTheWebServerStops(t *testing.T) {
	s := hookstest.NewServer(t)
	s.Globals = "shutdown_delay 2s\n"
	rn := hookstest.StartRunner(t, nil)
	config := hookstest.Hooks(rn, "health /healthz")
	s.Load(config)
	app, err := caddy.ActiveContext().App("hooks")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(caddy.App).Stop(); err != nil {
		t.Fatal(err)
	}
	ids := []string{s.Accept(`{"message":"the web server is not stopped yet"}`)}
	stopped := make(chan error, 1)
	go func() { stopped <- caddy.Stop() }()
	eventuallyHealth(t, s, 503)
	ids = append(ids, s.Accept(`{"message":"the web server is about to stop"}`))
	if resp := s.Post("/api/hooks/agent", `{"message":"I wait","syncResponse":true}`); resp.Status != 200 {
		t.Errorf("a caller who waits got %d %s", resp.Status, resp.Body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	s.Load(config)
	for _, id := range ids {
		if run := s.Ended(id); run.Status != "completed" || run.Attempts != 1 {
			t.Errorf("got %s", run.Body)
		}
	}
}

// The stores are closed if another app cannot be started, whichever was started first.
func TestConfigurationThatCannotBeStartedLeavesNothingBehind(t *testing.T) {
	s := hookstest.NewServer(t)
	s.Globals = "shutdown_delay 10ms\n"
	rn := hookstest.StartRunner(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	site := s.Site
	for range 5 {
		s.Site = site + ", http://" + taken.Addr().String()
		if err := s.TryLoad(hookstest.Hooks(rn, "")); err == nil {
			t.Fatal("Caddy listens where somebody else does")
		}
		s.Site = site
		s.Load(hookstest.Hooks(rn, ""))
		if run := s.Ended(s.Accept(`{"message":"a"}`)); run.Status != "completed" {
			t.Errorf("got %s", run.Body)
		}
		s.Stop()
	}
}
