package caddyhooks_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Caddy stops its apps in any order. Here it stops the hooks first, and the web server serves on for shutdown_delay.
func TestHooksAcceptUntilTheWebServerStops(t *testing.T) {
	s := hookstest.NewServer(t)
	rn := hookstest.StartRunner(t, nil)
	config := hookstest.Hooks(rn, "health /healthz")
	var ids []string
	whileCaddyStops(t, s, config, func() {
		app, err := caddy.ActiveContext().App("hooks")
		if err != nil {
			t.Fatal(err)
		}
		if err := app.(caddy.App).Stop(); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Accept(`{"message":"the web server is not stopped yet"}`))
	}, func() error {
		authorized := []string{"Authorization", "Bearer " + hookstest.Token}
		resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"message":"the web server is about to stop"}`, authorized...)
		if err != nil {
			return err
		}
		ids = append(ids, acceptedRun(t, resp))
		if resp, err = hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"message":"I wait","syncResponse":true}`, authorized...); err == nil && resp.Status != 200 {
			t.Errorf("a caller who waits got %d %s", resp.Status, resp.Body)
		}
		return err
	})
	s.Load(config)
	for _, id := range ids {
		if run := s.Ended(id); run.Status != "completed" || run.Attempts != 1 {
			t.Errorf("got %s", run.Body)
		}
	}
}

// whileCaddyStops serves a configuration, has it stopped after first, and calls then once the site says that it is about to stop. An error of then
// says that the server stopped meanwhile: a busy machine gets more time for all of it.
func whileCaddyStops(t *testing.T, s *hookstest.Server, config string, first func(), then func() error) {
	t.Helper()
	for delay := time.Second; ; delay *= 5 {
		s.Globals = fmt.Sprintf("shutdown_delay %v\n", delay)
		s.Load(config)
		first()
		stopped := make(chan error, 1)
		go func() { stopped <- caddy.Stop() }()
		var health hookstest.Response
		var err error
		for health.Status != 503 && err == nil {
			health, err = hookstest.TryRequest("GET", s.URL+"/healthz", "", "Connection", "close")
		}
		if err == nil {
			err = then()
		}
		s.Globals = ""
		if err := hookstest.ReceiveWithin(t, "Caddy stops", stopped); err != nil {
			t.Error(err)
		}
		if err == nil {
			return
		}
		if delay > 20*time.Second {
			t.Fatal(err)
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
		s.Reload(hookstest.Hooks(rn, ""))
		if run := s.Ended(s.Accept(`{"message":"a"}`)); run.Status != "completed" {
			t.Errorf("got %s", run.Body)
		}
		s.Stop()
	}
}
