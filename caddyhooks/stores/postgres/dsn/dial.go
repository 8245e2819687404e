package dsn

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// dialAgain is after how long another try to reach a server is begun beside those that nobody has answered.
const dialAgain = 250 * time.Millisecond

// dialOften dials a server again and again until a try is answered. The kernel asks again after 1 and 3 seconds if a packet was lost: so
// long a server that is back would be waited for.
func dialOften(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		type answer struct {
			conn net.Conn
			err  error
		}
		ctx, cancel := context.WithCancel(ctx)
		answers := make(chan answer)
		var tries sync.WaitGroup
		defer tries.Wait()
		defer cancel()
		again := time.NewTicker(dialAgain)
		defer again.Stop()
		for {
			tries.Go(func() {
				conn, err := dial(ctx, network, address)
				select {
				case answers <- answer{conn, err}:
				case <-ctx.Done():
					if err == nil {
						_ = conn.Close()
					}
				}
			})
			select {
			case first := <-answers:
				return first.conn, first.err
			case <-again.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}
