package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// plainOutbox does what an outbox does in the plainest way: it looks at every letter, every time.
type plainOutbox struct {
	letters map[deliveryKey]*plainLetter
	atOnce  map[string]int
	until   map[engine.Destination]time.Time // of hosts, whose chat is "", and of chats
}

type plainLetter struct {
	to    engine.Destination
	due   time.Time
	state letterState
}

// underWay counts the letters under way to a host, or to one of its chats.
func (p *plainOutbox) underWay(host string, chat *string) (n int) {
	for _, l := range p.letters {
		if l.state == underWay && l.to.Host == host && (chat == nil || l.to.Chat == *chat) {
			n++
		}
	}
	return n
}

// first finds the letter that can be handed out first, and says when that is.
func (p *plainOutbox) first() (first deliveryKey, at time.Time) {
	order := func(l *plainLetter) []time.Time {
		inChat := l.due
		if l.to.Chat != "" {
			inChat = later(l.due, p.until[l.to])
		}
		return []time.Time{later(inChat, p.until[engine.Destination{Host: l.to.Host}]), inChat, l.due}
	}
	for key, l := range p.letters {
		share := cmp.Or(p.atOnce[l.to.Host], engine.PerHost)
		if l.state != waiting || p.underWay(l.to.Host, nil) >= share || l.to.Chat != "" && p.underWay(l.to.Host, &l.to.Chat) > 0 {
			continue
		}
		if at.IsZero() || slices.CompareFunc(order(l), order(p.letters[first]), time.Time.Compare) < 0 {
			first, at = key, order(l)[0]
		}
	}
	return first, at
}

// forgetEmpty forgets what holds for hosts and chats that have no letters.
func (p *plainOutbox) forgetEmpty() {
	hosts, chats := map[string]bool{}, map[engine.Destination]bool{}
	for _, l := range p.letters {
		hosts[l.to.Host], chats[l.to] = true, true
	}
	maps.DeleteFunc(p.atOnce, func(host string, _ int) bool { return !hosts[host] })
	maps.DeleteFunc(p.until, func(to engine.Destination, _ time.Time) bool {
		return !hosts[to.Host] || to.Chat != "" && !chats[to]
	})
}

// TestTheOutboxDoesWhatAPlainOneDoes has an outbox and a plain one do the same at random.
func TestTheOutboxDoesWhatAPlainOneDoes(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			compareOutbox(t, rand.New(rand.NewPCG(seed, 0)), 4000)
		})
	}
}

func compareOutbox(t *testing.T, rnd *rand.Rand, steps int) {
	o := newOutbox()
	p := &plainOutbox{letters: map[deliveryKey]*plainLetter{}, atOnce: map[string]int{}, until: map[engine.Destination]time.Time{}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	moments := 0
	moment := func() time.Time { // no two are the same, so that there is one right order
		moments++
		return now.Add(time.Duration(rnd.IntN(120)-60)*time.Second + time.Duration(moments))
	}
	destination := func() engine.Destination {
		if rnd.IntN(2) == 0 {
			return engine.Destination{Host: fmt.Sprint("host ", rnd.IntN(3))}
		}
		return engine.Destination{Host: fmt.Sprint("channel/", rnd.IntN(2)), Chat: fmt.Sprint(rnd.IntN(8))}
	}
	key := func() deliveryKey { return deliveryKey{byte(rnd.IntN(120))} }
	for step := range steps {
		k := key()
		l := p.letters[k]
		var did string
		switch rnd.IntN(12) {
		case 0, 1, 2:
			to, due := destination(), moment()
			if l != nil {
				to = l.to // a delivery never changes where it goes
			}
			did = fmt.Sprint("add ", k[0], to, due)
			o.add(to, k, due)
			if l == nil {
				p.letters[k] = &plainLetter{to: to, due: due}
			} else if l.state != underWay {
				l.state, l.due = waiting, due
			}
		case 3, 4, 5:
			did = "take"
			want, at := p.first()
			got, ok := o.take(now)
			if ok != (!at.IsZero() && !at.After(now)) || ok && got != want {
				t.Fatalf("step %d: took %d, %t; want %d, which can be taken at %s, and it is %s", step, got[0], ok, want[0], at, now)
			}
			if ok {
				p.letters[got].state = underWay
			}
		case 6:
			did = fmt.Sprint("free ", k[0])
			o.free(k)
			if l != nil && l.state == underWay {
				l.state = settling
			}
		case 7:
			if l != nil && l.state == underWay {
				did = fmt.Sprint("put back ", k[0])
				o.putBack(k)
				l.state = waiting
			}
		case 8:
			did = fmt.Sprint("remove ", k[0])
			o.remove(k)
			delete(p.letters, k)
		case 9:
			did = fmt.Sprint("remove if it waits ", k[0])
			waits := l != nil && l.state == waiting
			if got := o.removeWaiting(k); got != waits {
				t.Fatalf("step %d: %s: got %t", step, did, got)
			}
			if waits {
				delete(p.letters, k)
			}
		case 10:
			to, atOnce, until := destination(), rnd.IntN(4), moment()
			if rnd.IntN(3) == 0 {
				until = time.Time{}
			}
			did = fmt.Sprint("throttle ", to, atOnce, until)
			o.throttle(to, atOnce, until)
			if to.Chat == "" {
				p.atOnce[to.Host] = atOnce
			}
			p.until[to] = until
		case 11:
			host, before, n := destination().Host, moment(), 1+rnd.IntN(4)
			did = fmt.Sprint("overdue ", host, before, n)
			comparesOverdue(t, o, p, host, before, n)
		}
		p.forgetEmpty()
		now = now.Add(time.Duration(rnd.IntN(3)) * time.Second)
		if _, at := p.first(); !o.next().Equal(at) {
			t.Fatalf("step %d: after %s the next is at %s, want %s", step, did, o.next(), at)
		}
		if got, want := o.busy(k), p.letters[k] != nil && p.letters[k].state != waiting; got != want {
			t.Fatalf("step %d: after %s busy(%d) is %t", step, did, k[0], got)
		}
		comparesCounts(t, o, p, fmt.Sprintf("step %d: after %s", step, did))
	}
	for k := range p.letters {
		o.remove(k)
	}
	if len(o.letters)+len(o.hosts)+len(o.ready.entries) > 0 {
		t.Errorf("an empty outbox still has %d letters, %d hosts, %d of them ready", len(o.letters), len(o.hosts), len(o.ready.entries))
	}
}

// comparesOverdue takes what is overdue from both, the oldest of a chat first.
func comparesOverdue(t *testing.T, o *outbox, p *plainOutbox, host string, before time.Time, n int) {
	t.Helper()
	overdue := 0
	for _, l := range p.letters {
		if l.state == waiting && l.to.Host == host && l.due.Before(before) {
			overdue++
		}
	}
	got := o.overdue(host, before, n)
	if len(got) != min(n, overdue) {
		t.Fatalf("%d of %d are overdue, want %d at most", len(got), overdue, n)
	}
	for _, k := range got {
		l := p.letters[k]
		if l == nil || l.state != waiting || l.to.Host != host || !l.due.Before(before) {
			t.Fatalf("%d is handed out as overdue: %+v", k[0], l)
		}
		for other, o := range p.letters {
			if o.state == waiting && o.to == l.to && o.due.Before(l.due) {
				t.Fatalf("%d is handed out before %d, which has been due for longer", k[0], other[0])
			}
		}
		l.state = underWay
	}
}

// comparesCounts looks for places that are taken by nobody, and for hosts and chats that nobody writes to.
func comparesCounts(t *testing.T, o *outbox, p *plainOutbox, when string) {
	t.Helper()
	if len(o.letters) != len(p.letters) {
		t.Fatalf("%s there are %d letters, want %d", when, len(o.letters), len(p.letters))
	}
	chats := map[engine.Destination]int{}
	hosts := map[string]bool{}
	for _, l := range p.letters {
		chats[l.to]++
		hosts[l.to.Host] = true
	}
	known := 0
	for name, h := range o.hosts {
		if got, want := h.underWay, p.underWay(name, nil); !hosts[name] || got != want {
			t.Fatalf("%s %d letters are under way to %q, want %d", when, got, name, want)
		}
		for chat, c := range h.chats {
			known++
			to := engine.Destination{Host: name, Chat: chat}
			if c.letters != chats[to] || c.underWay != p.underWay(name, &chat) {
				t.Fatalf("%s %d letters go to %v, %d of them under way; want %d and %d", when, c.letters, to, c.underWay, chats[to], p.underWay(name, &chat))
			}
		}
	}
	if len(o.hosts) != len(hosts) || known != len(chats) {
		t.Fatalf("%s there are %d hosts and %d chats, want %d and %d", when, len(o.hosts), known, len(hosts), len(chats))
	}
}

// sendingOut is what those who send out deliveries know about them, and must find to be so.
type sendingOut struct {
	t   *testing.T
	s   *boltStore
	ids []string

	mu       sync.Mutex
	out      map[string]bool // handed out, and not settled yet
	over     map[string]bool // delivered or dropped
	attempts map[string]int
	restarts map[string]int
}

// claim has deliveries handed out, which must be neither under way nor over, and as they were settled last.
func (o *sendingOut) claim(n int) []*engine.Delivery {
	due, _, err := o.s.ClaimDeliveries(context.Background(), time.Now(), n)
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
func (o *sendingOut) settle(d *engine.Delivery, status engine.DeliveryStatus, due time.Time) {
	d.Attempt++
	d.Status, d.Due = status, due
	o.mu.Lock()
	o.attempts[d.ID] = d.Attempt
	o.over[d.ID] = status == engine.Delivered
	delete(o.out, d.ID)
	o.mu.Unlock()
	err := errInjected
	for errors.Is(err, errInjected) {
		err = o.s.SettleDelivery(context.Background(), d)
	}
	if err != nil {
		o.t.Errorf("delivery %s is %s, which cannot be stored: %v", d.ID, status, err)
	}
}

func (o *sendingOut) retry(id string) error {
	d, err := o.s.RetryDelivery(context.Background(), id, time.Now())
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.restarts[id] = max(o.restarts[id], d.Restart)
	return nil
}

func (o *sendingOut) drop(id string) {
	err := o.s.DropDelivery(context.Background(), id)
	if errors.Is(err, errInjected) { // it may be gone nevertheless
		if _, gone := o.s.Delivery(context.Background(), id); errors.Is(gone, engine.ErrNotFound) {
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
	for seed := range uint64(4) {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, opened again %t", seed, reopen), func(t *testing.T) { sendOutAtRandom(t, seed, reopen) })
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
	s.committer.commitTx = func(tx *bolt.Tx) error {
		switch luck := disk.IntN(60); {
		case luck == 0:
			return errors.Join(errInjected, tx.Rollback())
		case luck == 1:
			return errors.Join(errInjected, tx.Commit())
		case luck < 30:
			due := o.claim(3)
			for _, d := range due {
				others.Go(func() { o.settle(d, engine.Pending, time.Now()) })
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
						o.settle(d, statuses[rnd.IntN(len(statuses))], time.Now().Add(time.Duration(rnd.IntN(4)-2)*time.Millisecond))
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
		s.committer.commitTx = func(tx *bolt.Tx) error { return errors.Join(errInjected, tx.Rollback()) }
		for _, change := range []func(string){func(id string) { _ = o.retry(id) }, o.drop} {
			if i := slices.IndexFunc(o.ids, o.waits); i >= 0 {
				change(o.ids[i])
			}
		}
		s.committer.commitTx = (*bolt.Tx).Commit
	}
	o.sendTheRest()
	if err := o.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// waits reports whether a delivery is waiting to be handed out.
func (o *sendingOut) waits(id string) bool {
	key, err := parseDeliveryID(id)
	o.s.outbox.mu.Lock()
	defer o.s.outbox.mu.Unlock()
	l := o.s.outbox.letters[key]
	return err == nil && l != nil && l.state == waiting
}

// endWithDeliveries ends a run with a callback and a message to a chat.
func endWithDeliveries(t *testing.T, s *boltStore, i int) (ids []string) {
	t.Helper()
	run := testRun("chat", "")
	if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), engine.Want{Runs: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs, %v", len(claims), err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, At: time.Now()}
	for index := range 2 {
		d := &engine.Delivery{ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, Status: engine.Pending, Due: time.Now()}
		if index == 0 {
			d.Callback = fmt.Sprintf("https://host-%d.example/", i%3)
		} else {
			d.Channel, d.To = "chats", fmt.Sprint(i%10)
		}
		end.Deliveries = append(end.Deliveries, d)
		ids = append(ids, d.ID)
	}
	if _, err := s.Finish(t.Context(), claims[0], end, engine.Want{}); err != nil {
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
		if d, err := o.s.Delivery(o.t.Context(), id); err != nil {
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
			o.settle(d, engine.Delivered, d.Due)
		}
		left = slices.DeleteFunc(left, func(id string) bool { return o.over[id] })
		if time.Now().After(deadline) {
			o.t.Fatalf("%d deliveries are never handed out", len(left))
		}
	}
	_ = o.claim(1000) // forgets what was dropped while it was retried
	box := o.s.outbox
	if len(box.letters)+len(box.hosts)+len(box.ready.entries) > 0 {
		o.t.Errorf("the outbox still has %d letters, %d hosts, %d of them ready", len(box.letters), len(box.hosts), len(box.ready.entries))
	}
}
