package local

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// plainOutbox does what an Outbox does in the plainest way: it looks at every delivery, every time.
type plainOutbox struct {
	pending map[DeliveryKey]*plainDelivery
	atOnce  map[string]int
	until   map[engine.Destination]time.Time // of hosts, whose chat is "", and of chats
}

type plainDelivery struct {
	to      engine.Destination
	due     time.Time
	state   state
	token   string
	expires time.Time
}

func (d *plainDelivery) wait(due time.Time) { d.state, d.due, d.token = waiting, due, "" }

// expire lets deliveries wait whose lease is over, unless their end is being written down.
func (p *plainOutbox) expire(now time.Time) {
	for _, d := range p.pending {
		if (d.state == underWay || d.state == attempted) && !now.Before(d.expires) {
			d.wait(d.due)
		}
	}
}

// underWay counts the deliveries under way to every host, whose chat is "", and to every chat.
func (p *plainOutbox) underWay() map[engine.Destination]int {
	n := map[engine.Destination]int{}
	for _, d := range p.pending {
		if d.state == underWay {
			n[engine.Destination{Host: d.to.Host}]++
			if d.to.Chat != "" {
				n[d.to]++
			}
		}
	}
	return n
}

// first finds the delivery that can be handed out first, and says when that is.
func (p *plainOutbox) first() (first DeliveryKey, at time.Time) {
	order := func(d *plainDelivery) []time.Time {
		inChat := d.due
		if d.to.Chat != "" {
			inChat = laterTime(d.due, p.until[d.to])
		}
		return []time.Time{laterTime(inChat, p.until[engine.Destination{Host: d.to.Host}]), inChat, d.due}
	}
	underWay := p.underWay()
	for key, d := range p.pending {
		share := cmp.Or(p.atOnce[d.to.Host], engine.PerHost)
		if d.state != waiting || underWay[engine.Destination{Host: d.to.Host}] >= share || d.to.Chat != "" && underWay[d.to] > 0 {
			continue
		}
		if at.IsZero() || slices.CompareFunc(order(d), order(p.pending[first]), time.Time.Compare) < 0 {
			first, at = key, order(d)[0]
		}
	}
	return first, at
}

// forgetEmpty forgets throttles of hosts and chats that have no deliveries.
func (p *plainOutbox) forgetEmpty() {
	hosts, chats := map[string]bool{}, map[engine.Destination]bool{}
	for _, d := range p.pending {
		hosts[d.to.Host], chats[d.to] = true, true
	}
	maps.DeleteFunc(p.atOnce, func(host string, _ int) bool { return !hosts[host] })
	maps.DeleteFunc(p.until, func(to engine.Destination, _ time.Time) bool {
		return !hosts[to.Host] || to.Chat != "" && !chats[to]
	})
}

func (p *plainOutbox) throttle(t engine.Throttle, now time.Time) {
	if t.To.Chat == "" {
		p.atOnce[t.To.Host] = t.AtOnce
	}
	p.until[t.To] = time.Time{}
	if t.Pause > 0 {
		p.until[t.To] = now.Add(t.Pause)
	}
}

// TestTheOutboxDoesWhatAPlainOneDoes has an outbox and a plain one do the same at random.
func TestTheOutboxDoesWhatAPlainOneDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			c := &outboxComparison{
				t: t, rnd: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
				used: map[string]bool{},
				o:    NewOutbox(), p: &plainOutbox{pending: map[DeliveryKey]*plainDelivery{}, atOnce: map[string]int{}, until: map[engine.Destination]time.Time{}},
			}
			c.node = new(Nodes).Join(c.now)
			for range 1500 {
				c.step()
			}
			for key := range c.p.pending {
				c.o.Remove(key)
			}
			if size := c.o.Size(); size != (OutboxSize{}) {
				t.Errorf("an empty outbox still holds %+v", size)
			}
		})
	}
}

// outboxComparison does the same with an Outbox and a plain one.
type outboxComparison struct {
	t       *testing.T
	rnd     *rand.Rand
	o       *Outbox
	p       *plainOutbox
	node    *Node
	now     time.Time
	moments int
	used    map[string]bool // tokens …
	lost    []string        // … that held once
}

// pause is never the same, so that there is one right order.
func (c *outboxComparison) pause() time.Duration {
	c.moments++
	return time.Duration(c.rnd.IntN(120)-60)*time.Second + time.Duration(c.moments)
}

func (c *outboxComparison) destination() engine.Destination {
	if c.rnd.IntN(2) == 0 {
		return engine.Destination{Host: fmt.Sprint("host ", c.rnd.IntN(3))}
	}
	return engine.Destination{Host: fmt.Sprint("channel/", c.rnd.IntN(2)), Chat: fmt.Sprint(c.rnd.IntN(8))}
}

// token is the token of a delivery, or one that does not hold. It reports whether it holds.
func (c *outboxComparison) token(d *plainDelivery) (token string, holds bool) {
	if d != nil && c.rnd.IntN(8) > 0 {
		return d.token, d.token != ""
	}
	if len(c.lost) > 0 {
		token = c.lost[c.rnd.IntN(len(c.lost))]
	}
	return token, d != nil && token != "" && d.token == token
}

func (c *outboxComparison) step() {
	key := DeliveryKey{byte(c.rnd.IntN(120))}
	did := c.change(key, c.p.pending[key])
	c.p.forgetEmpty()
	c.now = c.now.Add(time.Duration(c.rnd.IntN(3)) * time.Second)
	c.p.expire(c.now)
	want := time.Duration(-1)
	if _, at := c.p.first(); !at.IsZero() {
		want = max(at.Sub(c.now), 0)
	}
	if taken, wait := c.o.Take(c.node, engine.DeliveryBatch{}, c.now); len(taken) > 0 || wait != want {
		c.t.Fatalf("after %s %d are taken and there is more after %v, want %v", did, len(taken), wait, want)
	}
	d := c.p.pending[key]
	if got, want := c.o.IsClaimed(key, c.now), d != nil && d.state != waiting; got != want {
		c.t.Fatalf("after %s IsClaimed(%d) is %t", did, key[0], got)
	}
	c.compareCounts(did)
}

// change does one of many things with a delivery.
func (c *outboxComparison) change(key DeliveryKey, d *plainDelivery) (did string) {
	o, p := c.o, c.p
	switch c.rnd.IntN(16) {
	case 0, 1, 2:
		to, due := c.destination(), c.now.Add(c.pause())
		if d != nil {
			to = d.to // a delivery never changes where it goes
		} else {
			d = &plainDelivery{to: to}
			p.pending[key] = d
		}
		o.Add(to, key, due)
		d.wait(due)
		return fmt.Sprint("add ", key[0], to, due)
	case 3, 4, 5, 6:
		c.take()
		return "take"
	case 7, 8:
		return "finish " + c.finish(key, d)
	case 9:
		token, holds := c.token(d)
		if got := o.BeginSettling(key, token); got != holds {
			c.t.Fatalf("settling %d with token %q: %t, want %t", key[0], token, got, holds)
		}
		if holds {
			d.state = settling
		}
		return fmt.Sprint("settling ", key[0])
	case 10:
		if token, holds := c.token(d); holds && c.now.Before(d.expires) { // otherwise it may take a second to expire
			o.UndoSettling(key, token)
			d.state = attempted
		}
		return fmt.Sprint("not settled after all ", key[0])
	case 11:
		token, holds := c.token(d)
		o.PutBack([]Taken{{key, token}}, time.Time{})
		if holds {
			d.wait(d.due)
		}
		return fmt.Sprint("put back ", key[0])
	case 12:
		o.Remove(key)
		delete(p.pending, key)
		return fmt.Sprint("remove ", key[0])
	case 13:
		waits := d != nil && d.state == waiting
		if _, got := o.RemoveWaiting(key, c.now); got != waits {
			c.t.Fatalf("removing %d if it waits: got %t", key[0], got)
		}
		if waits {
			delete(p.pending, key)
		}
		return fmt.Sprint("remove if it waits ", key[0])
	case 14:
		c.takeFrom(c.destination().Host)
		return "take from a host"
	default:
		return "renew " + c.renew(key, d)
	}
}

func (c *outboxComparison) take() {
	want, at := c.p.first()
	ready := !at.IsZero() && !at.After(c.now)
	lease := time.Duration(1+c.rnd.IntN(60)) * time.Second
	taken, _ := c.o.Take(c.node, engine.DeliveryBatch{Max: 1, Lease: lease}, c.now)
	if (len(taken) == 1) != ready || ready && taken[0].Key != want {
		c.t.Fatalf("took %v; want %d, which can be taken at %s, and it is %s", taken, want[0], at, c.now)
	}
	c.handedOut(taken, lease)
}

func (c *outboxComparison) handedOut(taken []Taken, lease time.Duration) {
	for _, t := range taken {
		if t.Token == "" || c.used[t.Token] {
			c.t.Fatalf("token %q is none or was used before", t.Token)
		}
		c.used[t.Token] = true
		c.lost = append(c.lost, t.Token)
		d := c.p.pending[t.Key]
		d.state, d.token, d.expires = underWay, t.Token, c.now.Add(lease)
	}
}

// finish ends an attempt, with a throttle now and then.
func (c *outboxComparison) finish(key DeliveryKey, d *plainDelivery) string {
	token, holds := c.token(d)
	var throttles []engine.Throttle
	if c.rnd.IntN(3) == 0 {
		throttles = append(throttles, engine.Throttle{To: c.destination(), AtOnce: c.rnd.IntN(4), Pause: max(0, c.pause())})
	}
	got, due := c.o.Finish(key, token, throttles, c.now)
	if got != holds {
		c.t.Fatalf("finishing %d with token %q: %t, want %t", key[0], token, got, holds)
	}
	if holds {
		if d.state == underWay {
			d.state = attempted
		}
		for _, throttle := range throttles {
			c.p.throttle(throttle, c.now)
		}
		c.p.forgetEmpty()
		if _, at := c.p.first(); due != (!at.IsZero() && !at.After(c.now)) {
			c.t.Fatalf("after the end of an attempt there is something to hand out: %t; want it at %v, and it is %v", due, at, c.now)
		}
	} else if c.rnd.IntN(4) == 0 && d != nil {
		c.o.Unthrottle(d.to)
		c.p.throttle(engine.Throttle{To: engine.Destination{Host: d.to.Host}}, c.now)
		c.p.throttle(engine.Throttle{To: d.to}, c.now)
	}
	return fmt.Sprint(key[0], throttles)
}

func (c *outboxComparison) renew(key DeliveryKey, d *plainDelivery) string {
	token, holds := c.token(d)
	held := []*engine.Delivery{{RunID: key.Run().String(), Index: key.Index(), Token: token}}
	expires := c.now.Add(time.Duration(1+c.rnd.IntN(60)) * time.Second)
	if lost := c.o.Renew(held, expires); (len(lost) == 0) != holds {
		c.t.Fatalf("renewing %d with token %q: %d are lost, and it holds: %t", key[0], token, len(lost), holds)
	}
	if holds {
		d.expires = expires
	}
	return fmt.Sprint(key[0])
}

// takeFrom takes overdue deliveries from both, the oldest of a chat first.
func (c *outboxComparison) takeFrom(host string) {
	batch := engine.DeliveryBatch{Max: 1 + c.rnd.IntN(4), Lease: time.Minute, Host: host, DueFor: max(0, c.pause())}
	isOverdue := func(d *plainDelivery) bool {
		return d.state == waiting && d.to.Host == host && !d.due.After(c.now.Add(-batch.DueFor))
	}
	overdue := 0
	for _, d := range c.p.pending {
		if isOverdue(d) {
			overdue++
		}
	}
	taken, _ := c.o.Take(c.node, batch, c.now)
	if len(taken) != min(batch.Max, overdue) {
		c.t.Fatalf("%d of %d are taken, want %d at most", len(taken), overdue, batch.Max)
	}
	for i, t := range taken {
		d := c.p.pending[t.Key]
		if d == nil || !isOverdue(d) {
			c.t.Fatalf("%d is handed out as overdue: %+v", t.Key[0], d)
		}
		for other, o := range c.p.pending {
			if o.state == waiting && o.to == d.to && o.due.Before(d.due) {
				c.t.Fatalf("%d is handed out before %d, which has been due for longer", t.Key[0], other[0])
			}
		}
		c.handedOut(taken[i:i+1], batch.Lease)
	}
}

// compareCounts looks for room that is taken by nobody, and for hosts and chats to which nothing is sent.
func (c *outboxComparison) compareCounts(did string) {
	o, p := c.o, c.p
	if len(o.pending) != len(p.pending) {
		c.t.Fatalf("after %s there are %d deliveries, want %d", did, len(o.pending), len(p.pending))
	}
	chats := map[engine.Destination]int{}
	hosts := map[string]bool{}
	for _, d := range p.pending {
		chats[d.to]++
		hosts[d.to.Host] = true
	}
	known, underWay := 0, p.underWay()
	for name, h := range o.hosts {
		if got, want := h.underWay, underWay[engine.Destination{Host: name}]; !hosts[name] || got != want {
			c.t.Fatalf("after %s %d deliveries are under way to %q, want %d", did, got, name, want)
		}
		for chat, ch := range h.chats {
			known++
			to := engine.Destination{Host: name, Chat: chat}
			if ch.pending != chats[to] || ch.underWay != underWay[to] {
				c.t.Fatalf("after %s %d deliveries go to %v, %d of them under way; want %d and %d",
					did, ch.pending, to, ch.underWay, chats[to], underWay[to])
			}
		}
	}
	if len(o.hosts) != len(hosts) || known != len(chats) {
		c.t.Fatalf("after %s there are %d hosts and %d chats, want %d and %d", did, len(o.hosts), known, len(hosts), len(chats))
	}
}

// A receiver may have been unreachable while a million deliveries to it came together.
func TestOutboxGivesBackMemoryThoughSomeDeliveriesStay(t *testing.T) {
	o := NewOutbox()
	var ids IDs
	now := time.Now()
	var keys []DeliveryKey
	for i := range 10 * shrinkAbove {
		id, err := ids.Next(now)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, NewDeliveryKey(id, 0))
		o.Add(engine.Destination{Host: "channel/chats", Chat: fmt.Sprint(i)}, keys[i], now)
	}
	for _, key := range keys[1:] {
		o.Remove(key)
	}
	h := o.hosts["channel/chats"]
	if o.most > 2*shrinkAbove || h.most > 2*shrinkAbove || cap(h.ready.entries) > 2*shrinkAbove || cap(h.byDue.entries) > 2*shrinkAbove {
		t.Errorf("one delivery takes the place of %d, %d, %d and %d", o.most, h.most, cap(h.ready.entries), cap(h.byDue.entries))
	}
	taken, _ := o.Take(new(Nodes).Join(now), engine.DeliveryBatch{Max: 10, Lease: time.Minute}, now)
	if len(taken) != 1 || taken[0].Key != keys[0] {
		t.Errorf("handed out are %v", taken)
	}
}
