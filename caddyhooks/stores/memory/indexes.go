package memory

import (
	"bytes"
	"container/list"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// indexes lead to the runs of a hook, of a status, of a chat and of a sender's request.
type indexes struct {
	hooks    map[string]*idList
	requests map[string]*idList        // by the sender's id
	notable  map[engine.Status]*idList // runs that have ended and did not complete
	chats    map[string]*chat
	active   list.List     // of *chat that somebody named, the last active first
	ahead    time.Duration // by how much ids are ahead of the time of acceptance at most
}

// chat is a chat that has runs.
type chat struct {
	id    string
	runs  idList
	turns idList // runs that later turns of their chat recall
	named int    // how many of them named it
	place *list.Element
}

func (x *indexes) init() {
	x.hooks, x.notable, x.chats = make(map[string]*idList), make(map[engine.Status]*idList), make(map[string]*chat)
	x.requests = make(map[string]*idList)
}

// add notes a run that is newer than all others.
func (x *indexes) add(id uuid.UUID, run *engine.Run) {
	x.ahead = max(x.ahead, local.IDTime(id).Sub(run.AcceptedAt))
	addTo(x.hooks, run.Hook, id)
	if run.RequestID != "" {
		addTo(x.requests, run.RequestID, id)
	}
	c := x.chats[run.ChatID]
	if c == nil {
		c = &chat{id: run.ChatID}
		x.chats[run.ChatID] = c
	}
	c.runs.add(id)
	if !local.IsNamed(run) {
		return
	}
	c.named++
	if c.place == nil {
		c.place = x.active.PushFront(c)
	} else {
		x.active.MoveToFront(c.place)
	}
}

// end notes how a run ended.
func (x *indexes) end(id uuid.UUID, record *engine.Record) {
	if record.IsPastTurn() {
		x.chats[record.Run.ChatID].turns.add(id)
	}
	if record.Status != engine.Completed {
		addTo(x.notable, record.Status, id)
	}
}

// remove forgets a run that has ended.
func (x *indexes) remove(id uuid.UUID, run *engine.Run, status engine.Status) {
	removeFrom(x.hooks, run.Hook, id)
	removeFrom(x.requests, run.RequestID, id)
	removeFrom(x.notable, status, id)
	c := x.chats[run.ChatID]
	c.runs.remove(id)
	c.turns.remove(id)
	if local.IsNamed(run) {
		c.named--
	}
	if c.place != nil && c.named == 0 {
		x.active.Remove(c.place)
		c.place = nil
	}
	if len(c.runs) == 0 {
		delete(x.chats, run.ChatID)
		return
	}
	if c.place == nil || bytes.Compare(id[:], c.last()[:]) < 0 {
		return
	}
	// It was the newest run of the chat.
	for next := c.place.Next(); next != nil && bytes.Compare(next.Value.(*chat).last()[:], c.last()[:]) > 0; next = c.place.Next() {
		x.active.MoveAfter(c.place, next)
	}
}

// last is the newest run of a chat.
func (c *chat) last() *uuid.UUID { return &c.runs[len(c.runs)-1] }

// idList are ids, the smallest first.
type idList []uuid.UUID

func (l idList) find(id uuid.UUID) (int, bool) {
	return slices.BinarySearchFunc(l, id, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// olderThan is how many of the ids are smaller than one.
func (l idList) olderThan(id uuid.UUID) int {
	n, _ := l.find(id)
	return n
}

func (l *idList) add(id uuid.UUID) {
	n, there := l.find(id)
	if !there {
		*l = slices.Insert(*l, n, id)
	}
}

func (l *idList) remove(id uuid.UUID) {
	switch n, there := l.find(id); {
	case !there:
	case n < len(*l)/2: // the oldest go first, so few are to be moved
		copy((*l)[1:n+1], (*l)[:n])
		*l = (*l)[1:]
	default:
		*l = slices.Delete(*l, n, n+1)
	}
}

func addTo[K comparable](lists map[K]*idList, key K, id uuid.UUID) {
	if lists[key] == nil {
		lists[key] = new(idList)
	}
	lists[key].add(id)
}

func removeFrom[K comparable](lists map[K]*idList, key K, id uuid.UUID) {
	if l := lists[key]; l != nil {
		l.remove(id)
		if len(*l) == 0 {
			delete(lists, key)
		}
	}
}
