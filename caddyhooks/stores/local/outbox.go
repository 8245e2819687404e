package local

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// DeliveryKey is the id of a run and the index of one of its deliveries.
type DeliveryKey [17]byte

// NewDeliveryKey makes the key of a delivery.
func NewDeliveryKey(run uuid.UUID, index int) (key DeliveryKey) {
	copy(key[:], run[:])
	key[16] = byte(index)
	return key
}

// ParseDeliveryID returns the key of a delivery by its id.
func ParseDeliveryID(id string) (key DeliveryKey, err error) {
	runID, index, ok := engine.ParseDeliveryID(id)
	if !ok {
		return key, engine.ErrNotFound
	}
	return NewDeliveryKey(uuid.MustParse(runID), index), nil
}

// KeyOf returns the key of a delivery.
func KeyOf(d *engine.Delivery) (key DeliveryKey, err error) {
	run, ok := ParseID(d.RunID)
	if !ok {
		return key, engine.ErrNotFound
	}
	return NewDeliveryKey(run, d.Index), nil
}

// Run is the id of the delivery's run.
func (k DeliveryKey) Run() uuid.UUID { return uuid.UUID(k[:16]) }

// Index is the delivery's index among those of its run.
func (k DeliveryKey) Index() int { return int(k[16]) }

// Outbox knows the deliveries that are pending, and hands out those that are due: the one that has been due for longest
// first, no more of one host at once than its share, and one at a time of a chat. Deliveries that cannot be handed out for
// now cost nothing, however many there are. It is safe for use by many goroutines. Its times are those of Clock.Steady.
type Outbox struct {
	mu      sync.Mutex
	pending map[DeliveryKey]*pending
	claimed map[DeliveryKey]*pending // those with a token
	hosts   map[string]*host
	counts  map[string]int   // pending, by channel
	ready   timeQueue[*host] // those with something to hand out, by when that can be
	count   uint64           // of all deliveries, chats and hosts there have been
	most    int              // pending there were
	expiry  time.Time        // no lease is over before
}

// pending is a delivery that has not arrived yet.
type pending struct {
	key     DeliveryKey
	chat    *chat
	channel string // "" of a callback
	due     time.Time
	state   state
	token   string // of the claim, unless it waits
	lapsed  string // of a claim whose lease is over, as long as nobody else has claimed it
	expires time.Time
	nth     uint64 // it is of all there have been
	at      int    // the place in its chat's queue
}

type state byte

const (
	waiting   state = iota
	underWay        // an attempt is being made
	attempted       // the attempt is over, and how it went is to be written down
	settling        // it is being written down
)

// host is where deliveries go that share a fate.
type host struct {
	name     string
	chats    map[string]*chat
	most     int                  // chats there were
	ready    timeQueue[*chat]     // those with a delivery to hand out, by when that can be
	byDue    timeQueue[chatByDue] // those with a delivery that waits, by when it is due
	underWay int
	atOnce   int       // how many may be, 0 for as many as usual
	until    time.Time // none is handed out before
	nth      uint64
	at       int
}

// chat is where deliveries to a host go one at a time. It is in no queue as long as one is under way. Callbacks all go
// to the chat "", for which that does not hold.
type chat struct {
	host     *host
	name     string
	waiting  timeQueue[*pending] // by when they are due
	pending  int                 // all there are
	underWay int
	until    time.Time // none is handed out before
	nth      uint64
	at       int // the place in the host's queue of ready chats …
	atByDue  int // … and in its queue of chats by due time
}

// chatByDue is a chat in the queue byDue of its host.
type chatByDue struct{ *chat }

func (c chatByDue) place() *int { return &c.atByDue }

func (p *pending) place() *int { return &p.at }
func (h *host) place() *int    { return &h.at }
func (c *chat) place() *int    { return &c.at }

func (p *pending) number() uint64 { return p.nth }
func (h *host) number() uint64    { return h.nth }
func (c *chat) number() uint64    { return c.nth }

// NewOutbox makes an empty outbox.
func NewOutbox() *Outbox {
	return &Outbox{pending: make(map[DeliveryKey]*pending), claimed: make(map[DeliveryKey]*pending), hosts: make(map[string]*host),
		counts: make(map[string]int)}
}

// OutboxSize is what an Outbox holds.
type OutboxSize struct{ Pending, Claimed, Hosts, ReadyHosts int }

// Size is what the outbox holds. All of it is 0 when nothing is pending.
func (o *Outbox) Size() OutboxSize {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OutboxSize{len(o.pending), len(o.claimed), len(o.hosts), len(o.ready.entries)}
}

// CountByChannel is how many are pending for each channel, and as callbacks, which are under "".
func (o *Outbox) CountByChannel() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// Undelivered puts together how many deliveries are pending and how many were given up, by channel.
func Undelivered(pending, dead map[string]int) map[string]engine.Undelivered {
	counts := make(map[string]engine.Undelivered)
	for channel, n := range pending {
		counts[channel] = engine.Undelivered{Pending: n}
	}
	for channel, n := range dead {
		count := counts[channel]
		count.Dead = n
		counts[channel] = count
	}
	return counts
}

// Add takes in a delivery, or says when one that is known is due. It waits from now on.
func (o *Outbox) Add(to engine.Destination, key DeliveryKey, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pending[key]
	if p == nil {
		p = &pending{key: key, chat: o.chatOf(to), channel: to.Channel(), nth: o.nextNumber()}
		p.chat.pending++
		o.counts[p.channel]++
		o.pending[key] = p
	}
	o.leave(p)
	o.wait(p, due)
}

func (o *Outbox) wait(p *pending, due time.Time) {
	p.state, p.due, p.token, p.lapsed = waiting, due, "", ""
	delete(o.claimed, p.key)
	p.chat.waiting.set(p, due)
	o.reorder(p.chat)
}

func (o *Outbox) nextNumber() uint64 {
	o.count++
	return o.count
}

func (o *Outbox) chatOf(to engine.Destination) *chat {
	h := o.hosts[to.Host]
	if h == nil {
		h = &host{name: to.Host, chats: make(map[string]*chat), nth: o.nextNumber()}
		o.hosts[to.Host] = h
	}
	c := h.chats[to.Chat]
	if c == nil {
		c = &chat{host: h, name: to.Chat, nth: o.nextNumber()}
		h.chats[to.Chat] = c
	}
	return c
}

// reorder puts a chat and its host in their places after a change. Chats and hosts without deliveries are forgotten.
func (o *Outbox) reorder(c *chat) {
	h := c.host
	_, due, any := c.waiting.first()
	if any {
		h.byDue.set(chatByDue{c}, due)
	} else {
		h.byDue.remove(chatByDue{c})
	}
	if any && (c.name == "" || c.underWay == 0) {
		h.ready.set(c, laterTime(due, c.until))
	} else {
		h.ready.remove(c)
	}
	if c.pending == 0 {
		delete(h.chats, c.name)
		h.chats = shrunk(h.chats, &h.most)
	}
	o.reorderHost(h)
}

func (o *Outbox) reorderHost(h *host) {
	_, at, any := h.ready.first()
	if any && h.underWay < h.mostAtOnce() {
		o.ready.set(h, laterTime(at, h.until))
	} else {
		o.ready.remove(h)
	}
	if len(h.chats) == 0 {
		delete(o.hosts, h.name)
	}
}

// mostAtOnce is how many deliveries to the host may be under way.
func (h *host) mostAtOnce() int {
	if h.atOnce == 0 {
		return engine.PerHost
	}
	return h.atOnce
}

func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// A Taken delivery was handed out.
type Taken struct {
	Key   DeliveryKey
	Token string
}

// Take hands out the deliveries that a batch asks for, and says how long until there is more, negative if that is not a
// question of time.
func (o *Outbox) Take(node *Node, batch engine.DeliveryBatch, now time.Time) (taken []Taken, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire(now)
	if batch.Host != "" {
		return o.takeFrom(node, batch, now), -1
	}
	for len(taken) < batch.Max {
		h, at, any := o.ready.first()
		if !any || at.After(now) {
			break
		}
		c, _, _ := h.ready.first()
		p, _, _ := c.waiting.first()
		taken = append(taken, o.handOut(p, node, now.Add(batch.Lease)))
	}
	_, at, any := o.ready.first()
	if !any {
		return taken, -1
	}
	return taken, max(at.Sub(now), 0)
}

// takeFrom hands out deliveries to one host that have been due for long, whether they could be sent now or not.
func (o *Outbox) takeFrom(node *Node, batch engine.DeliveryBatch, now time.Time) (taken []Taken) {
	h := o.hosts[batch.Host]
	if h == nil {
		return nil
	}
	before := now.Add(-batch.DueFor)
	for len(taken) < batch.Max {
		c, due, any := h.byDue.first()
		if !any || due.After(before) {
			break
		}
		p, _, _ := c.waiting.first()
		taken = append(taken, o.handOut(p, node, now.Add(batch.Lease)))
	}
	return taken
}

func (o *Outbox) handOut(p *pending, node *Node, expires time.Time) Taken {
	p.token, p.lapsed = node.NewToken(), ""
	o.begin(p, expires)
	return Taken{p.key, p.token}
}

// begin notes that an attempt is being made with a delivery.
func (o *Outbox) begin(p *pending, expires time.Time) {
	c := p.chat
	c.waiting.remove(p)
	p.state, p.expires = underWay, expires
	o.claimed[p.key] = p
	o.expectExpiry(expires)
	c.underWay++
	c.host.underWay++
	o.reorder(c)
}

// heldBy returns the delivery that is claimed with a token, nil if the token does not hold. A lease that is over is taken
// up again if nobody else has claimed the delivery.
func (o *Outbox) heldBy(key DeliveryKey, token string) *pending {
	p := o.pending[key]
	switch {
	case p == nil || token == "":
		return nil
	case p.token == token:
		return p
	case p.lapsed == token:
		p.token, p.lapsed = token, ""
		o.begin(p, p.expires)
		return p
	default:
		return nil
	}
}

func (o *Outbox) expectExpiry(at time.Time) {
	if o.expiry.IsZero() || at.Before(o.expiry) {
		o.expiry = at
	}
}

// expire lets deliveries wait again whose lease is over, as due as before.
func (o *Outbox) expire(now time.Time) {
	if o.expiry.IsZero() || now.Before(o.expiry) {
		return
	}
	o.expiry = time.Time{}
	for _, p := range o.claimed {
		switch {
		case now.Before(p.expires):
			o.expectExpiry(p.expires)
		case p.state == settling: // its end is about to be known
			o.expectExpiry(now.Add(time.Second))
		default:
			lapsed := p.token
			o.leave(p)
			o.wait(p, p.due)
			p.lapsed = lapsed
		}
	}
}

// Renew lets claimed deliveries stay with their node until a time, and returns those that are lost.
func (o *Outbox) Renew(held []*engine.Delivery, expires time.Time) (lost []*engine.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range held {
		key, err := KeyOf(d)
		p := o.heldBy(key, d.Token)
		if err != nil || p == nil {
			lost = append(lost, d)
			continue
		}
		p.expires = expires
		o.expectExpiry(expires)
	}
	return lost
}

// Finish makes room for the next delivery when the attempt under a token is over, throttles destinations, and reports
// whether the token holds and whether there is something to hand out now. How the attempt went is told by Add or Remove.
func (o *Outbox) Finish(key DeliveryKey, token string, throttles []engine.Throttle, now time.Time) (holds, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.heldBy(key, token)
	if p == nil {
		return false, false
	}
	for _, t := range throttles {
		o.throttle(t, now)
	}
	o.leave(p)
	_, at, any := o.ready.first()
	return true, any && !at.After(now)
}

// leave ends the attempt that is being made with a delivery, if there is one.
func (o *Outbox) leave(p *pending) {
	if p.state == underWay {
		p.state = attempted
		p.chat.underWay--
		p.chat.host.underWay--
		o.reorder(p.chat)
	}
}

// BeginSettling keeps the delivery under a token from being handed out again while the end of its attempt is written down.
// It reports whether the token holds.
func (o *Outbox) BeginSettling(key DeliveryKey, token string) bool {
	return o.setState(key, token, settling)
}

// UndoSettling is for when writing it down has failed.
func (o *Outbox) UndoSettling(key DeliveryKey, token string) { o.setState(key, token, attempted) }

func (o *Outbox) setState(key DeliveryKey, token string, state state) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.heldBy(key, token)
	if p == nil {
		return false
	}
	o.leave(p)
	p.state = state
	return true
}

// PutBack lets deliveries wait again as before, but not before a time.
func (o *Outbox) PutBack(taken []Taken, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range taken {
		if p := o.claimed[t.Key]; p != nil && p.token == t.Token {
			o.leave(p)
			o.wait(p, laterTime(p.due, until))
		}
	}
}

// Remove forgets a delivery.
func (o *Outbox) Remove(key DeliveryKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pending[key]; p != nil {
		o.forget(p)
	}
}

func (o *Outbox) forget(p *pending) {
	o.leave(p)
	delete(o.pending, p.key)
	o.pending = shrunk(o.pending, &o.most)
	delete(o.claimed, p.key)
	p.chat.pending--
	if o.counts[p.channel]--; o.counts[p.channel] == 0 {
		delete(o.counts, p.channel)
	}
	p.chat.waiting.remove(p)
	o.reorder(p.chat)
}

// RemoveWaiting forgets a delivery unless it is claimed, and reports when it was due and whether it was there.
func (o *Outbox) RemoveWaiting(key DeliveryKey, now time.Time) (due time.Time, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire(now)
	p := o.pending[key]
	if p == nil || p.state != waiting {
		return due, false
	}
	o.forget(p)
	return p.due, true
}

// IsClaimed reports whether a delivery is with a node.
func (o *Outbox) IsClaimed(key DeliveryKey, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire(now)
	return o.claimed[key] != nil
}

// Unthrottle lifts the throttles of a host and of its chat.
func (o *Outbox) Unthrottle(to engine.Destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.throttle(engine.Throttle{To: engine.Destination{Host: to.Host}}, time.Time{})
	if to.Chat != "" {
		o.throttle(engine.Throttle{To: to}, time.Time{})
	}
}

func (o *Outbox) throttle(t engine.Throttle, now time.Time) {
	h := o.hosts[t.To.Host]
	if h == nil {
		return
	}
	var until time.Time
	if t.Pause > 0 {
		until = now.Add(t.Pause)
	}
	if t.To.Chat == "" {
		if h.atOnce != t.AtOnce || !h.until.Equal(until) {
			h.atOnce, h.until = t.AtOnce, until
			o.reorderHost(h)
		}
	} else if c := h.chats[t.To.Chat]; c != nil && !c.until.Equal(until) {
		c.until = until
		o.reorder(c)
	}
}

// Paused returns the hosts to which none is handed out for now, up to a number, the one whose pause is over first before the
// others.
func (o *Outbox) Paused(most int, clock *Clock) (paused []engine.PausedHost) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, today := clock.Steady(), clock.Now()
	for _, h := range o.hosts {
		if rest := h.until.Sub(now); rest > 0 {
			paused = append(paused, engine.PausedHost{Host: h.name, Until: today.Add(rest)})
		}
	}
	slices.SortFunc(paused, func(a, b engine.PausedHost) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Host, b.Host))
	})
	return paused[:min(len(paused), most)]
}

// Waits tells of each of some deliveries what it waits for.
func (o *Outbox) Waits(of []*engine.Delivery, clock *Clock) []engine.DeliveryWait {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, today := clock.Steady(), clock.Now()
	o.expire(now)
	waits := make([]engine.DeliveryWait, len(of))
	for i, d := range of {
		key, err := KeyOf(d)
		p := o.pending[key]
		if err != nil || p == nil || p.state != waiting {
			continue
		}
		until, obstacle := p.wait(now)
		waits[i].For = obstacle
		if rest := until.Sub(now); rest > 0 {
			waits[i].Until = today.Add(rest)
		}
	}
	return waits
}

// wait is why the delivery is not handed out now, and until when at least, as far as that is a question of time.
func (p *pending) wait(now time.Time) (until time.Time, obstacle engine.Obstacle) {
	c, h := p.chat, p.chat.host
	until = laterTime(p.due, c.until)
	first, _, _ := c.waiting.first()
	switch {
	case c.name != "" && !p.due.After(now) && (c.underWay > 0 || first != p):
		return time.Time{}, engine.EarlierOne
	case h.until.After(until) && h.until.After(now):
		return h.until, engine.PauseOfHost
	case !until.After(now) && h.underWay >= h.mostAtOnce():
		return time.Time{}, engine.OthersOfHost
	default:
		return until, engine.NoObstacle
	}
}
