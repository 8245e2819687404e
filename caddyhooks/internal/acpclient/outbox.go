package acpclient

import (
	"errors"
	"io"
	"sync"
)

// maxOutbox bounds what an agent has not read of what it was sent.
const maxOutbox = 32 << 20

var errOutbox = errors.New("the agent does not read what it is sent")

// outbox takes what is to be sent to an agent without waiting for the agent.
type outbox struct {
	to     io.WriteCloser
	failed func(error)

	mu      sync.Mutex
	more    sync.Cond
	waiting [][]byte
	size    int
	closed  bool
}

func newOutbox(to io.WriteCloser, failed func(error)) *outbox {
	o := &outbox{to: to, failed: failed}
	o.more.L = &o.mu
	go o.send()
	return o
}

func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, ErrClosed
	}
	if o.size+len(p) > maxOutbox {
		go o.failed(errOutbox)
		return 0, errOutbox
	}
	o.waiting = append(o.waiting, append([]byte(nil), p...))
	o.size += len(p)
	o.more.Signal()
	return len(p), nil
}

func (o *outbox) send() {
	for {
		o.mu.Lock()
		for len(o.waiting) == 0 && !o.closed {
			o.more.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return
		}
		next := o.waiting[0]
		o.waiting = o.waiting[1:]
		o.mu.Unlock()
		_, err := o.to.Write(next)
		o.mu.Lock()
		o.size -= len(next)
		o.mu.Unlock()
		if err != nil {
			o.failed(ErrClosed)
			return
		}
	}
}

// close drops what was not sent. To close a pipe ends a write to it.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed, o.waiting = true, nil
	o.more.Signal()
	o.mu.Unlock()
	_ = o.to.Close() // the agent may have closed it
}
