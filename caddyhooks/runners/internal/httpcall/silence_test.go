package httpcall

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestSilenceEndsWithEveryByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		quiet := &Silence{Limit: time.Minute, End: end}
		reader, writer := io.Pipe()
		heard := quiet.Listen(reader)
		time.Sleep(time.Hour) // virtual: it has not begun
		quiet.Heard()         // the turn is sent
		go func() {
			for range 10 {
				time.Sleep(59 * time.Second)
				_, _ = writer.Write([]byte(":"))
			}
		}()
		if _, err := io.ReadFull(heard, make([]byte, 10)); err != nil || ctx.Err() != nil {
			t.Fatalf("got %v, and the turn ended by %v", err, context.Cause(ctx))
		}
		began := time.Now()
		<-ctx.Done()
		if err := WasSilent(ctx); err == nil || err.Error() != "the runner was silent for 1m0s" || time.Since(began) != time.Minute {
			t.Errorf("ended by %v after %v", err, time.Since(began))
		}
		quiet.Stop()
	})
}

func TestSilenceAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, time.Minute} {
			ctx, end := context.WithCancelCause(t.Context())
			quiet := &Silence{Limit: limit, End: end}
			quiet.Heard()
			quiet.Stop()
			quiet.Heard()
			time.Sleep(time.Hour) // virtual
			if ctx.Err() != nil {
				t.Errorf("with the limit %v, a turn ended by %v", limit, context.Cause(ctx))
			}
			end(nil)
		}
	})
}
