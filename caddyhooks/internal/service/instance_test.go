package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func TestRequestsWaitAMomentForTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &Instance{Started: make(chan struct{})}
		if active := in.Current(t.Context()); active != nil {
			t.Error("there is something in force before the start")
		}
		want := new(settings.Active)
		go func() {
			time.Sleep(time.Second)
			in.Active.Store(want)
			close(in.Started)
		}()
		begin := time.Now()
		if active := in.Current(t.Context()); active != want || time.Since(begin) != time.Second {
			t.Errorf("got %v after %s", active, time.Since(begin))
		}
	})
}
