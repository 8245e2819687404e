//go:build real

package postgres

import (
	"net"
	"sync"
	"testing"
)

// link is a TCP proxy that can fall silent.
type link struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	silent   bool
	changed  *sync.Cond
	conns    []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: target}
	l.changed = sync.NewCond(&l.mu)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, from, to)
			l.mu.Unlock()
			group.Go(func() { l.forward(from, to) })
			group.Go(func() { l.forward(to, from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.setSilent(false)
		l.mu.Lock()
		for _, conn := range l.conns {
			_ = conn.Close()
		}
		l.mu.Unlock()
		group.Wait()
	})
	return l
}

func (l *link) forward(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		for l.silent {
			l.changed.Wait()
		}
		l.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) setSilent(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = silent
	l.changed.Broadcast()
}

// cut breaks all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}
