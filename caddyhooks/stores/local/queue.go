package local

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Queue keeps unfinished runs in order, and knows who claimed which of them. It is not safe for concurrent use.
//
// Most changes return an undo function, for a store that has to write the change down as well and may fail to. Of several
// changes the last must be undone first.
//
// Its times are those of Clock.Steady, but for those that are said to be the time of day.
type Queue struct {
	nodes      *Nodes
	chatQueues ChatQueues
	claimed    map[uuid.UUID]*holding
	expired    map[uuid.UUID]*holding // of queued runs that nobody has claimed since their lease was over
	starts     map[uuid.UUID]int      // of queued runs that have been started before, how often
	requeued   map[uuid.UUID]string   // of queued runs that were put back by End, the token it had
	waits      map[uuid.UUID]*wait    // of runs that their runner did not take on, or that were interrupted
	asides     map[uuid.UUID]*aside   // of runs that are put aside, or were the last time
	waiting    timeQueue[*wait]       // those of both that are not due yet
	expiry     time.Time              // no lease is over before
}

// holding is a claimed run, with those that are folded into the claim.
type holding struct {
	Claimed
	node    *Node
	expires time.Time
	cancels []cancelWish // the first for each of the runs
}

// cancelWish is somebody's wish that a run be cancelled.
type cancelWish struct {
	id uuid.UUID
	by string
}

// Claimed is a run that was handed out.
type Claimed struct {
	ID        uuid.UUID
	Folded    []uuid.UUID // runs that were handed out with it, in their order
	Token     string
	Attempt   int
	StartedAt time.Time     // the time of day
	Waited    time.Duration // since the run was accepted
	Waits     int
	aside     *aside        // why it was put aside the last time, nil if it never was
	asideFor  time.Duration // since that was asked first
}

// Runs goes over all runs that were handed out together.
func (c *Claimed) Runs(yield func(uuid.UUID) bool) {
	if !yield(c.ID) {
		return
	}
	for _, id := range c.Folded {
		if !yield(id) {
			return
		}
	}
}

// Claim is the claim on a run.
func (c *Claimed) Claim(run *engine.Run, awaited bool) *engine.Claim {
	return &engine.Claim{Run: run, Token: c.Token, Attempt: c.Attempt, StartedAt: c.StartedAt,
		Waited: c.Waited, Waits: c.Waits, Awaited: awaited}
}

// Questions are those of the run as its claim has them. Whether the time of an open one is over is a matter of the steady clock: if
// somebody has set the clock since it was asked, Until is what that is by the clock now.
func (c *Claimed) Questions(all []*engine.Question) []*engine.Question {
	if c.aside == nil {
		return all
	}
	for i, q := range all {
		if q.Number != int(c.aside.question) || q.Until.IsZero() || q.Answer != nil {
			continue
		}
		rest := q.For - c.asideFor
		if isOver := !c.StartedAt.Before(q.Until); isOver != (rest <= 0) {
			moved := *q
			moved.Until = c.StartedAt.Add(rest)
			all[i] = &moved
		}
	}
	return all
}

// EntryOf is the entry of a run in the chat queues, which was accepted at a steady time.
func EntryOf(id uuid.UUID, run *engine.Run, accepted time.Time) Entry {
	e := Entry{ID: id, Chat: run.ChatID, Runner: run.Runner, Hook: run.Hook, Size: len(run.Message), Accepted: accepted.UnixNano()}
	if !run.Sync && run.AgainOf == "" {
		e.Fold = run.Fold
	}
	const forEver = 100 * 365 * 24 * time.Hour // its end could not be told in nanoseconds
	if run.QueueTime > 0 && run.QueueTime < forEver {
		e.Deadline = accepted.Add(run.QueueTime).UnixNano()
	}
	return e
}

// NewQueue makes an empty queue. Nodes are told when there is something to claim.
func NewQueue(nodes *Nodes) *Queue {
	return &Queue{
		nodes:    nodes,
		claimed:  make(map[uuid.UUID]*holding),
		expired:  make(map[uuid.UUID]*holding),
		starts:   make(map[uuid.UUID]int),
		requeued: make(map[uuid.UUID]string),
		waits:    make(map[uuid.UUID]*wait),
		asides:   make(map[uuid.UUID]*aside),
	}
}

// ParseID reads a run id in the one form that is given out.
func ParseID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// QueueSize is what a Queue holds.
type QueueSize struct{ Queued, Claimed, StartedBefore, Requeued, Waits, PutAside int }

// Size is what the queue holds. All of it is 0 when all runs have ended.
func (q *Queue) Size() QueueSize {
	return QueueSize{q.chatQueues.Queued(), len(q.claimed), len(q.starts), len(q.requeued), len(q.waits), len(q.asides)}
}

// Backlog is how many runs wait, are carried out and are put aside, and for how long the oldest of the queued ones has waited.
func (q *Queue) Backlog(now time.Time) engine.Backlog {
	q.expire(now)
	backlog := engine.Backlog{Queued: q.chatQueues.Queued(), Running: len(q.claimed), Waiting: q.chatQueues.aside}
	if accepted, any := q.chatQueues.Oldest(); any {
		backlog.Oldest = max(now.Sub(time.Unix(0, accepted)), 0)
	}
	return backlog
}

// QueuedIn is how many runs of a chat wait.
func (q *Queue) QueuedIn(chat string) int { return q.chatQueues.QueuedIn(chat) }

// ClaimedIDs are the runs that are claimed, in any order.
func (q *Queue) ClaimedIDs() []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(q.claimed))
	for id := range q.claimed {
		ids = append(ids, id)
	}
	return ids
}

// OfHooks are the first unfinished runs of some hooks in a range, in its order, up to most. It looks at no runs of other hooks.
func (q *Queue) OfHooks(hooks []string, within *IDRange, most int) []uuid.UUID {
	return q.chatQueues.ofHooks(hooks, within, most)
}

// InChat are the unfinished runs of a chat, in any order. In rare cases there are some of another chat among them.
func (q *Queue) InChat(chat string) []uuid.UUID {
	ids := q.chatQueues.in(chat)
	if h := q.claimedIn(chat); h != nil {
		ids = slices.AppendSeq(ids, h.Runs)
	}
	return ids
}

// Beside are the unfinished runs of the hook of a run in its chat: those before it and those behind it, the last ones first, up to a number
// of each. In rare cases there are some of another chat among them.
func (q *Queue) Beside(run *engine.Run, most int) (before, behind []string) {
	var ids []uuid.UUID
	if h := q.claimedIn(run.ChatID); h != nil {
		ids = slices.AppendSeq(ids, h.Runs)
	}
	ids = append(ids, q.chatQueues.in(run.ChatID)...)
	id, _ := ParseID(run.ID)
	place := slices.Index(ids, id)
	if place < 0 {
		return nil, nil
	}
	lastOf := func(ids []uuid.UUID) (last []string) {
		for _, id := range slices.Backward(ids) {
			if len(last) < most && q.chatQueues.hookOf(id) == run.Hook {
				last = append(last, id.String())
			}
		}
		return last
	}
	return lastOf(ids[:place]), lastOf(ids[place+1:])
}

// NewestIn is the newest unfinished run of a chat, and how many it has.
func (q *Queue) NewestIn(chat string) (newest uuid.UUID, runs int) {
	newest, runs = q.chatQueues.lastIn(chat)
	if h := q.claimedIn(chat); h != nil {
		for id := range h.Runs {
			runs++
			if compareIDs(id, newest) > 0 {
				newest = id
			}
		}
	}
	return newest, runs
}

func (q *Queue) claimedIn(chat string) *holding {
	if q.chatQueues.isHeld(chat) {
		for id, h := range q.claimed {
			if q.chatQueues.isIn(id, chat) {
				return h
			}
		}
	}
	return nil
}

// Ready reports whether there is a run to claim, now that leases and waits may be over.
func (q *Queue) Ready(now time.Time) bool {
	q.expire(now)
	return q.chatQueues.Ready()
}

// ReadyFor reports whether a batch could have a run.
func (q *Queue) ReadyFor(batch engine.Batch, now time.Time) bool {
	q.expire(now)
	if batch.Max <= 0 {
		return false
	}
	next, _ := q.chatQueues.next(q.chatQueues.newBatchLimits(&batch))
	return next != 0
}

// Admit reports whether there is room for more runs, all of them.
func (q *Queue) Admit(runs []*engine.Run, limits engine.Limits) error {
	if limits.Queue > 0 && q.chatQueues.Queued()+len(runs) > limits.Queue {
		return engine.ErrQueueFull
	}
	if limits.Chat == 0 {
		return nil
	}
	if len(runs) == 1 {
		if q.chatQueues.QueuedIn(runs[0].ChatID) >= limits.Chat {
			return engine.ErrChatFull
		}
		return nil
	}
	more := make(map[string]int)
	for _, run := range runs {
		if more[run.ChatID]++; q.chatQueues.QueuedIn(run.ChatID)+more[run.ChatID] > limits.Chat {
			return engine.ErrChatFull
		}
	}
	return nil
}

// Push queues a run as the last of its chat, and tells the nodes if it can be claimed.
func (q *Queue) Push(e Entry) (undo func()) {
	if q.chatQueues.Push(e) {
		q.nodes.TellClaimable()
	}
	q.tellSooner()
	return func() { q.chatQueues.Done(e.ID) }
}

// tellSooner tells the nodes if a window was opened that is over before those that they know of.
func (q *Queue) tellSooner() {
	if q.chatQueues.sooner {
		q.chatQueues.sooner = false
		q.nodes.TellClaimable()
	}
}

// SetStarts notes how often a queued run has been started before.
func (q *Queue) SetStarts(id uuid.UUID, starts int) {
	if starts > 0 {
		q.starts[id] = starts
	}
	q.chatQueues.setStarts(id, starts)
	q.setDeadline(id)
}

// Claim hands out runs to a node. They are started at a time of day.
func (q *Queue) Claim(node *Node, batch engine.Batch, now, startedAt time.Time) (claims []Claimed, undo func()) {
	q.expire(now)
	batchLimits := q.chatQueues.newBatchLimits(&batch)
	for len(claims) < batch.Max {
		popped, ok := q.chatQueues.Pop(batchLimits)
		if !ok {
			break
		}
		batchLimits.take(popped.Runner, popped.Hook)
		id := popped.ID
		h := &holding{
			Claimed: Claimed{ID: id, Folded: popped.Folded, Token: node.NewToken(), Attempt: q.starts[id] + 1, StartedAt: startedAt,
				Waited: now.Sub(q.chatQueues.accepted(id)), Waits: q.waits[id].count()},
			node: node, expires: now.Add(batch.Lease),
		}
		if a := q.asides[id]; a != nil {
			h.aside, h.asideFor = a, now.Sub(time.Unix(0, a.asked))
		}
		q.hold(h)
		claims = append(claims, h.Claimed)
	}
	return claims, func() {
		for i := len(claims) - 1; i >= 0; i-- {
			if h := q.claimed[claims[i].ID]; h != nil { // unless the lease was over before the attempt to write it down
				q.putBack(h, h.Attempt-1)
			}
		}
	}
}

// hold notes that runs are claimed.
func (q *Queue) hold(h *holding) {
	q.holdOne(h.ID, h)
	for _, id := range h.Folded {
		q.holdOne(id, h)
	}
	q.expectExpiry(h.expires)
}

func (q *Queue) holdOne(id uuid.UUID, h *holding) {
	delete(q.starts, id)
	delete(q.requeued, id)
	delete(q.expired, id)
	q.claimed[id] = h
}

func (q *Queue) expectExpiry(at time.Time) {
	if q.expiry.IsZero() || at.Before(q.expiry) {
		q.expiry = at
	}
}

// expire puts runs back whose lease is over. Their start counts. Runs that have waited long enough can be claimed.
func (q *Queue) expire(now time.Time) {
	q.wakeDue(now)
	if q.expiry.IsZero() || now.Before(q.expiry) {
		return
	}
	q.expiry = time.Time{}
	for _, h := range q.claimed {
		if now.Before(h.expires) {
			q.expectExpiry(h.expires)
		} else {
			q.putBack(h, h.Attempt)
			q.expired[h.ID] = h
			q.nodes.TellClaimable()
		}
	}
}

// takeBack lets a claim hold again whose lease was over, if nobody has claimed the run since.
func (q *Queue) takeBack(id uuid.UUID, token string) *holding {
	h := q.expired[id]
	if h == nil || h.Token != token || !q.chatQueues.Hold(id, h.Folded...) {
		return nil
	}
	q.hold(h)
	return h
}

// putBack puts runs back that were claimed together, in their order.
func (q *Queue) putBack(h *holding, starts int) {
	q.chatQueues.setStarts(h.ID, starts) // before they are in the queue, where those that were started as often are folded
	for _, id := range h.Folded {
		q.chatQueues.setStarts(id, starts)
	}
	for i := len(h.Folded); i >= 0; i-- {
		id := h.ID
		if i > 0 {
			id = h.Folded[i-1]
		}
		delete(q.claimed, id)
		q.chatQueues.Return(id, false)
		q.SetStarts(id, starts)
	}
	q.tellSooner()
}

// Holds reports whether a claim is in force, and returns the id of its run. A claim whose lease is over is in force until
// somebody else claims the run. A claim without a token is in force as long as the run is queued. A claim that others are folded
// into has all of them.
func (q *Queue) Holds(claim *engine.Claim) (uuid.UUID, bool) {
	id, ok := ParseID(claim.Run.ID)
	if !ok {
		return id, false
	}
	if claim.Token == "" {
		_, queued := q.chatQueues.Has(id)
		return id, queued
	}
	h := q.claimed[id]
	if h == nil {
		h = q.takeBack(id, claim.Token)
	}
	return id, h != nil && h.Token == claim.Token && h.ID == id && len(h.Folded) == len(claim.Folded)
}

// WasRequeued reports whether the run of a claim is queued because it was requeued under this very claim.
func (q *Queue) WasRequeued(claim *engine.Claim) bool {
	id, ok := ParseID(claim.Run.ID)
	return ok && claim.Token != "" && q.requeued[id] == claim.Token
}

// Renew lets claims hold until a time. It returns claims that do not hold any more, and those to be cancelled.
func (q *Queue) Renew(claims []*engine.Claim, expires time.Time) (lost []*engine.Claim, cancelled []engine.Cancellation) {
	for _, claim := range claims {
		id, holds := q.Holds(claim)
		h := q.claimed[id]
		if !holds || h == nil {
			lost = append(lost, claim)
			continue
		}
		h.expires = expires
		q.expectExpiry(expires)
		for _, wish := range h.cancels {
			cancelled = append(cancelled, engine.Cancellation{Claim: claim, RunID: wish.id.String(), By: wish.by})
		}
	}
	return lost, cancelled
}

// Cancel tells the node that carries out a run, and reports whether there is one.
func (q *Queue) Cancel(id uuid.UUID, by string) bool {
	h := q.claimed[id]
	if h == nil {
		return false
	}
	if !slices.ContainsFunc(h.cancels, func(wish cancelWish) bool { return wish.id == id }) {
		h.cancels = append(h.cancels, cancelWish{id, by})
	}
	signal(h.node.cancelled)
	return true
}

// Requeue puts a claimed run back as if it had not been started, or as one that was interrupted, with those that are folded into
// the claim. If end has a reason for it to wait, it is not handed out before its pause is over.
func (q *Queue) Requeue(id uuid.UUID, end engine.End, now time.Time) (undo func()) {
	h := q.claimed[id]
	q.requeued[id] = h.Token
	before := q.waits[id]
	starts, waits := h.Attempt-1, before.count()+1
	switch {
	case end.Interrupted:
		starts, waits = h.Attempt, 0
		q.dropWait(id)
	case end.Held:
		waits = max(before.count(), 1)
	}
	q.putBack(h, starts)
	if end.WaitingFor != "" {
		q.SetWait(id, Wait{Due: now.Add(end.Pause), Times: waits, For: end.WaitingFor})
	}
	q.nodes.TellClaimable()
	return func() {
		if end.WaitingFor != "" || end.Interrupted {
			q.dropWait(id)
			if before != nil {
				q.waits[id] = before
			}
		}
		if q.chatQueues.Hold(id, h.Folded...) {
			q.hold(h)
		}
	}
}

// Unclaim takes claims back that nobody heard of. The next claim of such a run counts like this one.
func (q *Queue) Unclaim(claims []Claimed) {
	for _, c := range claims {
		if h := q.claimed[c.ID]; h != nil && h.Token == c.Token {
			q.putBack(h, c.Attempt-1)
		}
	}
}

// Remove takes a run out for good, claimed or queued.
func (q *Queue) Remove(id uuid.UUID) (undo func()) {
	h, expired, starts, requeued, waits, aside := q.claimed[id], q.expired[id], q.starts[id], q.requeued[id], q.waits[id], q.asides[id]
	removed := q.chatQueues.Done(id)
	q.dropWait(id)
	q.dropAside(id)
	q.tellSooner()
	delete(q.claimed, id)
	delete(q.expired, id)
	delete(q.starts, id)
	delete(q.requeued, id)
	return func() {
		if h != nil {
			q.claimed[id] = h
			q.expectExpiry(h.expires)
		}
		if expired != nil {
			q.expired[id] = expired
		}
		if starts > 0 {
			q.starts[id] = starts
		}
		if requeued != "" {
			q.requeued[id] = requeued
		}
		q.chatQueues.Undo(removed)
		if waits != nil {
			q.waits[id] = waits
			if removed.waiting && !removed.aside {
				q.waiting.set(waits, waits.Due)
			}
		}
		if aside != nil {
			q.keepAside(aside, removed.aside)
		}
	}
}

// Has reports whether a run is unfinished.
func (q *Queue) Has(id uuid.UUID) bool {
	here, _ := q.chatQueues.Has(id)
	return here
}

// Describe fills in where an unfinished run is.
func (q *Queue) Describe(id uuid.UUID, record *engine.Record) {
	record.Status, record.Attempts, record.StartedAt, record.WaitingFor = engine.Queued, q.starts[id], time.Time{}, ""
	if h := q.claimed[id]; h != nil {
		record.Status, record.Attempts, record.StartedAt = engine.Running, h.Attempt, h.StartedAt
	} else if q.chatQueues.isAside(id) {
		record.Status, record.WaitingFor = engine.Waiting, q.asides[id].For
	} else if q.chatQueues.Waits(id) {
		record.WaitingFor = q.waits[id].For
	}
}
