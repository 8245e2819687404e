package stores

import (
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// outbox knows the deliveries that are pending, and hands out those that are due: the one that has been due for longest
// first, no more of one host at once than its share, and one at a time of a chat. What cannot be handed out for now is
// not looked at, however much of it there is. It is safe for use by many goroutines.
type outbox struct {
	mu      sync.Mutex
	letters map[deliveryKey]*letter
	hosts   map[string]*host
	ready   ranking[*host] // those with something to hand out, by when that can be
	count   uint64         // of all letters, chats and hosts there have been
}

// letter is a delivery that is pending.
type letter struct {
	key   deliveryKey
	chat  *chat
	due   time.Time
	state letterState
	nth   uint64 // it is of all there have been
	at    int    // the place in its chat's ranking
}

type letterState byte

const (
	waiting  letterState = iota
	underWay             // an attempt is being made
	settling             // an attempt is over, and is being written down
)

// host is where letters go that share a fate.
type host struct {
	name     string
	chats    map[string]*chat
	ready    ranking[*chat] // those with a letter to hand out, by when that can be
	underWay int
	atOnce   int       // how many may be, 0 for as many as usual
	until    time.Time // none is handed out before
	nth      uint64
	at       int
}

// chat is where letters to a host go one at a time, and in no ranking as long as there is one under way. Callbacks all go
// to the chat "", which does not mind.
type chat struct {
	host     *host
	name     string
	waiting  ranking[*letter] // by when they are due
	letters  int              // all there are
	underWay int
	until    time.Time // none is handed out before
	nth      uint64
	at       int
}

func (l *letter) place() *int { return &l.at }
func (h *host) place() *int   { return &h.at }
func (c *chat) place() *int   { return &c.at }

func (l *letter) number() uint64 { return l.nth }
func (h *host) number() uint64   { return h.nth }
func (c *chat) number() uint64   { return c.nth }

func newOutbox() *outbox {
	return &outbox{letters: make(map[deliveryKey]*letter), hosts: make(map[string]*host)}
}

// add takes in a letter, or says when one that waits is due.
func (o *outbox) add(to engine.Destination, key deliveryKey, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.letters[key]
	if l == nil {
		l = &letter{key: key, chat: o.chatOf(to), nth: o.nextNumber()}
		l.chat.letters++
		o.letters[key] = l
	}
	if l.state != underWay {
		o.wait(l, due)
	}
}

func (o *outbox) wait(l *letter, due time.Time) {
	l.state, l.due = waiting, due
	l.chat.waiting.set(l, due)
	o.rank(l.chat)
}

func (o *outbox) nextNumber() uint64 {
	o.count++
	return o.count
}

func (o *outbox) chatOf(to engine.Destination) *chat {
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

// rank puts a chat and its host where they belong after something about them has changed. Those that have no letters are
// forgotten.
func (o *outbox) rank(c *chat) {
	h := c.host
	_, due, any := c.waiting.first()
	if any && (c.name == "" || c.underWay == 0) {
		h.ready.set(c, later(due, c.until))
	} else {
		h.ready.remove(c)
	}
	if c.letters == 0 {
		delete(h.chats, c.name)
	}
	o.rankHost(h)
}

func (o *outbox) rankHost(h *host) {
	_, at, any := h.ready.first()
	atOnce := h.atOnce
	if atOnce == 0 {
		atOnce = engine.PerHost
	}
	if any && h.underWay < atOnce {
		o.ready.set(h, later(at, h.until))
	} else {
		o.ready.remove(h)
	}
	if len(h.chats) == 0 {
		delete(o.hosts, h.name)
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// take hands out the letter that has been due for longest, if there is one.
func (o *outbox) take(now time.Time) (key deliveryKey, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h, at, any := o.ready.first()
	if !any || at.After(now) {
		return key, false
	}
	c, _, _ := h.ready.first()
	l, _, _ := c.waiting.first()
	o.handOut(l)
	return l.key, true
}

func (o *outbox) handOut(l *letter) {
	c := l.chat
	c.waiting.remove(l)
	l.state = underWay
	c.underWay++
	c.host.underWay++
	o.rank(c)
}

// next says when there will be something to take, the zero time if that is not a question of time.
func (o *outbox) next() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, at, _ := o.ready.first()
	return at
}

// overdue hands out letters to a host that were due before the given time, whether they could be sent now or not.
func (o *outbox) overdue(name string, before time.Time, n int) (keys []deliveryKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.hosts[name]
	if h == nil {
		return nil
	}
	for _, c := range h.chats {
		if len(keys) == n {
			break
		}
		for len(keys) < n {
			l, due, any := c.waiting.first()
			if !any || !due.Before(before) {
				break
			}
			o.handOut(l)
			keys = append(keys, l.key)
		}
	}
	return keys
}

// free makes room for the next letter when an attempt is over. What became of the attempt is told by add or remove.
func (o *outbox) free(key deliveryKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.letters[key]; l != nil {
		o.leave(l)
	}
}

// leave ends the attempt that is being made with a letter, if there is one.
func (o *outbox) leave(l *letter) {
	if l.state == underWay {
		l.state = settling
		l.chat.underWay--
		l.chat.host.underWay--
		o.rank(l.chat)
	}
}

// putBack lets a letter that was handed out wait again as before.
func (o *outbox) putBack(key deliveryKey) { o.putOff(key, time.Time{}) }

// putOff is putBack for a letter that is to be left alone until a time.
func (o *outbox) putOff(key deliveryKey, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.letters[key]; l != nil {
		o.leave(l)
		o.wait(l, later(l.due, until))
	}
}

// remove forgets a letter.
func (o *outbox) remove(key deliveryKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.letters[key]; l != nil {
		o.forget(l)
	}
}

func (o *outbox) forget(l *letter) {
	o.leave(l)
	delete(o.letters, l.key)
	l.chat.letters--
	l.chat.waiting.remove(l)
	o.rank(l.chat)
}

// removeWaiting forgets a letter unless an attempt is being made, and reports whether it was there.
func (o *outbox) removeWaiting(key deliveryKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.letters[key]
	if l == nil || l.state != waiting {
		return false
	}
	o.forget(l)
	return true
}

// busy reports whether an attempt with a letter is being made, or written down.
func (o *outbox) busy(key deliveryKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.letters[key]
	return l != nil && l.state != waiting
}

// throttle bounds how many letters to a host are handed out at once, 0 for as usual, and lets none go before a time. Where
// there is a chat, that goes for the chat alone, which has but one at once anyway.
func (o *outbox) throttle(to engine.Destination, atOnce int, until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.hosts[to.Host]
	if h == nil {
		return
	}
	if to.Chat == "" {
		h.atOnce, h.until = atOnce, until
		o.rankHost(h)
	} else if c := h.chats[to.Chat]; c != nil {
		c.until = until
		o.rank(c)
	}
}
