package bolt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// sendingOut is what is known about deliveries by those who send them out, and must be so.
type sendingOut struct {
	t   *testing.T
	s   *store
	ids []string

	mu       sync.Mutex
	out      map[string]bool // handed out, and not settled yet
	over     map[string]bool // delivered or dropped
	attempts map[string]int
	restarts map[string]int
}

// claim has deliveries handed out, which must be neither under way nor over, and as they were settled last.
func (o *sendingOut) claim(n int) []*engine.Delivery {
	due, _, err := o.s.Deliveries().Claim(context.Background(), engine.DeliveryBatch{Max: n, Lease: time.Hour})
	if err != nil {
		o.t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range due {
		if o.out[d.ID] || o.over[d.ID] {
			o.t.Errorf("delivery %s is handed out: it is under way %t, or over %t", d.ID, o.out[d.ID], o.over[d.ID])
		}
		if d.Attempt != o.attempts[d.ID] || d.Restart < o.restarts[d.ID] {
			o.t.Errorf("delivery %s is handed out after attempt %d, begun anew after %d; want %d and %d",
				d.ID, d.Attempt, d.Restart, o.attempts[d.ID], o.restarts[d.ID])
		}
		o.out[d.ID] = true
	}
	return due
}

// settle ends an attempt, and insists on it as the engine does.
func (o *sendingOut) settle(d *engine.Delivery, status engine.DeliveryStatus, pause time.Duration) {
	d.Attempt++
	d.Status = status
	o.mu.Lock()
	o.attempts[d.ID] = d.Attempt
	o.over[d.ID] = status == engine.Delivered
	delete(o.out, d.ID)
	o.mu.Unlock()
	err := errInjected
	for errors.Is(err, errInjected) {
		err = o.s.Deliveries().Settle(context.Background(), d, pause)
	}
	if err != nil {
		o.t.Errorf("delivery %s is %s, which cannot be stored: %v", d.ID, status, err)
	}
}

func (o *sendingOut) retry(id string) error {
	d, err := o.s.Deliveries().Retry(context.Background(), id, nil)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.restarts[id] = max(o.restarts[id], d.Restart)
	return nil
}

func (o *sendingOut) drop(id string) {
	err := o.s.Deliveries().Drop(context.Background(), id)
	if errors.Is(err, errInjected) { // it may be gone nevertheless
		if _, gone := o.s.Deliveries().Get(context.Background(), id); errors.Is(gone, engine.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out[id] {
		o.t.Errorf("delivery %s is dropped although it is under way", id)
	}
	o.over[id] = true
}

var errInjected = errors.New("the disk failed on purpose")

// TestDeliveriesAreHandedOutOnceWhateverTheDiskDoes has many send out, retry and drop deliveries at random, while others
// do so in the middle of transactions, and some transactions fail, also such that are in effect nevertheless. What is left
// in the end must be there to be sent out.
func TestDeliveriesAreHandedOutOnceWhateverTheDiskDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, opened again %t", seed, reopen), func(t *testing.T) {
				t.Parallel()
				sendOutAtRandom(t, seed, reopen)
			})
		}
	}
}

func sendOutAtRandom(t *testing.T, seed uint64, reopen bool) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	s.db.NoSync = true // it is about what is in memory
	o := &sendingOut{t: t, s: s, out: map[string]bool{}, over: map[string]bool{}, attempts: map[string]int{}, restarts: map[string]int{}}
	for i := range 60 {
		o.ids = append(o.ids, endWithDeliveries(t, s, i)...)
	}

	var others sync.WaitGroup
	disk := rand.New(rand.NewPCG(seed, 0))
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		switch luck := disk.IntN(60); {
		case luck == 0:
			return errors.Join(errInjected, tx.Rollback())
		case luck == 1:
			return errors.Join(errInjected, tx.Commit())
		case luck < 30:
			due := o.claim(3)
			for _, d := range due {
				others.Go(func() { o.settle(d, engine.Pending, 0) })
			}
			for waiting := 0; waiting < len(due); runtime.Gosched() { // until their attempts are over
				s.committer.mu.Lock()
				waiting = len(s.committer.waiting)
				s.committer.mu.Unlock()
			}
		}
		return tx.Commit()
	}
	var group sync.WaitGroup
	for g := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1+g))
		group.Go(func() {
			for range 200 {
				switch id := o.ids[rnd.IntN(len(o.ids))]; rnd.IntN(20) {
				default:
					for _, d := range o.claim(1 + rnd.IntN(4)) {
						statuses := []engine.DeliveryStatus{engine.Pending, engine.Pending, engine.Dead, engine.Dead, engine.Delivered}
						o.settle(d, statuses[rnd.IntN(len(statuses))], time.Duration(rnd.IntN(3))*time.Millisecond)
					}
				case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
					_ = o.retry(id) // which may be under way, over, or not be stored
				case 10:
					o.drop(id)
				}
			}
		})
	}
	group.Wait()
	others.Wait()

	if reopen {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		o.s = newBolt(t, path)
	} else {
		// What was not retried or dropped after all waits as before.
		s.committer.commitTx = func(tx *bbolt.Tx) error { return errors.Join(errInjected, tx.Rollback()) }
		for _, change := range []func(string){func(id string) { _ = o.retry(id) }, o.drop} {
			if i := slices.IndexFunc(o.ids, o.waits); i >= 0 {
				change(o.ids[i])
			}
		}
		s.committer.commitTx = (*bbolt.Tx).Commit
	}
	o.sendTheRest()
	if err := o.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// waits reports whether a delivery is waiting to be handed out.
func (o *sendingOut) waits(id string) bool {
	d, err := o.s.Deliveries().Get(o.t.Context(), id)
	if err != nil || d.Status != engine.Pending {
		return false
	}
	key, err := local.KeyOf(d)
	return err == nil && !o.s.outbox.IsClaimed(key, time.Now())
}

// endWithDeliveries ends a run with a callback and a message to a chat.
func endWithDeliveries(t *testing.T, s *store, i int) (ids []string) {
	t.Helper()
	run := testRun("chat", "")
	if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs, %v", len(claims), err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	for index := range 2 {
		d := &engine.Delivery{ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, Status: engine.Pending}
		if index == 0 {
			d.Callback = fmt.Sprintf("https://host-%d.example/", i%3)
		} else {
			d.Channel, d.To = "chats", fmt.Sprint(i%10)
		}
		end.Deliveries = append(end.Deliveries, d)
		ids = append(ids, d.ID)
	}
	if _, err := s.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	return ids
}

// sendTheRest retries what was given up and sends out all there is, which must be all that is not over.
func (o *sendingOut) sendTheRest() {
	o.t.Helper()
	var left []string
	for _, id := range o.ids {
		if o.over[id] {
			continue
		}
		left = append(left, id)
		if d, err := o.s.Deliveries().Get(o.t.Context(), id); err != nil {
			o.t.Fatalf("delivery %s is lost: %v", id, err)
		} else if d.Status != engine.Dead {
			continue
		}
		if err := o.retry(id); err != nil {
			o.t.Errorf("delivery %s cannot be retried: %v", id, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); len(left) > 0; runtime.Gosched() {
		for _, d := range o.claim(1000) {
			o.settle(d, engine.Delivered, 0)
		}
		left = slices.DeleteFunc(left, func(id string) bool { return o.over[id] })
		if time.Now().After(deadline) {
			o.t.Fatalf("%d deliveries are never handed out", len(left))
		}
	}
	_ = o.claim(1000) // forgets what was dropped while it was retried
	if size := o.s.outbox.Size(); size != (local.OutboxSize{}) {
		o.t.Errorf("the outbox still holds %+v", size)
	}
}
