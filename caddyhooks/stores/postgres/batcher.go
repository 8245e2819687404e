package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// batcher gathers calls of many goroutines, which go to the database together: while a batch is under way the next one is gathered.
// So there is one batch at a time, and a call that comes alone does not wait.
type batcher[C any] struct {
	most int                                         // calls of a batch
	run  func(ctx context.Context, calls []*C) error // an error is that of all calls; others are in the calls

	mu      sync.Mutex
	waiting []*batched[C]
	busy    bool
}

type batched[C any] struct {
	call *C
	done chan error
}

func newBatcher[C any](most int, run func(ctx context.Context, calls []*C) error) *batcher[C] {
	return &batcher[C]{most: most, run: run}
}

// do has a call go to the database, and waits until it did or ctx is done. With errAnswerUnknown the call may still go there: nobody
// may touch it any more.
func (b *batcher[C]) do(ctx context.Context, call *C) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	own := &batched[C]{call, make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, own)
	if !b.busy {
		b.busy = true
		go b.work()
	}
	b.mu.Unlock()
	select {
	case err := <-own.done:
		return err
	case <-ctx.Done():
	}
	if b.withdraw(own) {
		return ctx.Err()
	}
	// It is on its way, and whoever asked would rather know what became of it.
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	select {
	case err := <-own.done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: %w", errAnswerUnknown, ctx.Err())
	}
}

// lastWait is how long a call that is on its way is waited for when its time is up.
const lastWait = 3 * time.Second

// withdraw takes back a call, and reports false if it is on its way already.
func (b *batcher[C]) withdraw(own *batched[C]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, own)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

func (b *batcher[C]) work() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), b.most)
		if n == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		batch := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		b.mu.Unlock()
		calls := make([]*C, n)
		for i := range batch {
			calls[i] = batch[i].call
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		err := b.run(ctx, calls)
		cancel()
		for i := range batch {
			batch[i].done <- err
		}
	}
}
