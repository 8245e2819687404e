package dsn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

func TestAServerThatDoesNotAnswerIsDialledAgainMeanwhile(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var dialled, over atomic.Int32
	dial := dialOften(func(ctx context.Context, network, address string) (net.Conn, error) {
		defer over.Add(1)
		if dialled.Add(1) < 3 { // whose packets are lost
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := dial(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil || dialled.Load() != over.Load() {
		t.Errorf("%d of %d tries are over: %v", over.Load(), dialled.Load(), ctx.Err())
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Errorf("the connection is of no use: %v", err)
	}
	_ = conn.Close()
	_ = listener.Close()
	dialled.Store(3)
	if _, err := dial(ctx, "tcp", listener.Addr().String()); err == nil || dialled.Load() != 4 {
		t.Errorf("a server that refuses is dialled %d times: %v", dialled.Load()-3, err)
	}
	cancel()
	if _, err := dial(ctx, "tcp", listener.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}
