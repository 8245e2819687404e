package caddyhooks

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsWaitAMomentForTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &instance{started: make(chan struct{})}
		if v := in.current(t.Context()); v != nil {
			t.Error("there is something in force before the start")
		}
		want := new(view)
		go func() {
			time.Sleep(time.Second)
			in.view.Store(want)
			close(in.started)
		}()
		begin := time.Now()
		if v := in.current(t.Context()); v != want || time.Since(begin) != time.Second {
			t.Errorf("got %v after %s", v, time.Since(begin))
		}
	})
}
