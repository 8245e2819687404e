package engine

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Event is a piece of news of a run that has not ended.
type Event struct {
	// ID is a position in what the run says: whoever comes back with it goes on from there. Ids count up over all turns of the
	// run, on whatever node. It is 0 for the status Queued, which has no position: the one before it still counts.
	ID     int64
	Kind   EventKind
	Text   string // of a delta: more of the answer. Of a reset: what the answer begins with now.
	Status Status // of a status: Queued or Running
}

// EventKind tells events apart.
type EventKind string

const (
	EventStatus EventKind = "status"
	EventDelta  EventKind = "delta"
	EventReset  EventKind = "reset" // the text so far does not count any more
)

const (
	// maxStreamText is how much of what a turn says can be followed. A runner that says more fails.
	maxStreamText = 1 << 20
	// maxEventText bounds the text of one event. More comes as several.
	maxEventText = 32 << 10
)

// What was said in a run that has ended is kept for a moment, for followers that are away just then.
const (
	keepSaid      = 10 * time.Second // after the end, and for those who followed it so long before it was let go
	maxKept       = 256              // streams
	maxKeptMemory = 8 << 20          // of their texts
)

// streams holds what is said in turns that are carried out here, and news of runs that somebody follows. Nothing of it is
// stored.
type streams struct {
	engine    *Engine
	followers atomic.Int64 // of all runs
	pace      pacer

	mu       sync.Mutex
	runs     map[string]*stream
	kept     []*stream   // of runs that have ended, the oldest first
	keptMem  int         // of their texts
	sweeper  *time.Timer // forgets them; nil before the first one
	stopped  bool
	wanted   map[string]uint64  // the runs that other nodes follow, see Streams
	bridges  map[string]*bridge // to them, by run
	watchers sync.WaitGroup     // all goroutines that are started for followers and other nodes
}

// stream is the news of one run. There is one while the run is carried out here, or is followed, or was a moment ago.
//
// A turn begins at a position. The status at its beginning counts one, that earlier texts do not count any more counts one,
// and each byte of its text. Turns begin at the time since the acceptance of the run, by the clock of the store, so that
// positions count up wherever the run is carried out.
type stream struct {
	streams *streams
	id      string

	// Under the lock of streams.
	followers int
	voices    int                // turns that are carried out here
	unwatch   context.CancelFunc // while somebody follows
	followed  time.Time          // when the last follower went, zero if there was none
	keptUntil time.Time          // zero if it is not kept

	look chan struct{} // the run has to be looked at again

	mu     sync.Mutex
	queued bool   // it waits to be carried out
	voice  *voice // whose turn it is, if the run is carried out here
	turn   int64  // where the present turn began, 0 if that is not known
	last   int64  // the last position of all turns
	text   strings.Builder
	full   bool
	said   int           // how long the text was on another node, of which the rest is on its way
	told   int           // how much of the text followers may be told by now
	over   error         // why there is nothing more: io.EOF after the end of the run
	news   chan struct{} // closed when there is news; nil if nobody waits
	noted  bool          // the pacer knows that there is news
}

// Follow tells news of a run until it has ended. after is the ID of the last event that is known, 0 to begin with. A follower
// that comes back a moment after the end is told what it missed, if that is still known. It has to be closed.
func (e *Engine) Follow(id string, after int64) *Follower {
	all := &e.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.get(id)
	s.followers++
	all.followers.Add(1)
	f := &Follower{stream: s, after: after, clean: after == 0, closed: make(chan struct{})}
	if v := s.speaker(); v != nil {
		v.listen()
	}
	switch {
	case all.stopped:
		s.end(ErrStopping)
	case s.unwatch == nil && !s.isOver():
		ctx, cancel := context.WithCancel(context.Background())
		s.unwatch = cancel
		all.watchers.Go(func() {
			err := errors.New("the store panicked")
			e.protect("following a run", func() { e.watchRun(ctx, s); err = nil })
			if err != nil {
				s.end(err)
			}
		})
	}
	return f
}

// get returns the stream of a run, which is made if there is none. It is called under the lock.
func (all *streams) get(id string) *stream {
	s := all.runs[id]
	if s == nil {
		s = &stream{streams: all, id: id, look: make(chan struct{}, 1)}
		all.runs[id] = s
	}
	return s
}

// release forgets a stream that nobody needs. It is called under the lock.
func (all *streams) release(s *stream) {
	if s.followers == 0 && s.unwatch != nil {
		s.unwatch()
		s.unwatch = nil
	}
	if s.followers == 0 && s.voices == 0 && all.runs[s.id] == s && !all.keep(s) {
		delete(all.runs, s.id)
	}
}

// keep reports whether a stream that nobody needs may still be asked for: its run has ended, and somebody who followed it
// lately may not have got all that was said. It is called under the lock.
func (all *streams) keep(s *stream) bool {
	if !s.keptUntil.IsZero() {
		return true // the sweeper forgets it
	}
	s.mu.Lock()
	memory := s.text.Cap()
	ended := errors.Is(s.over, io.EOF) && s.text.Len() > 0
	s.mu.Unlock()
	if !ended || all.stopped || s.followed.IsZero() || time.Since(s.followed) > keepSaid {
		return false
	}
	s.keptUntil = time.Now().Add(keepSaid)
	all.kept = append(all.kept, s)
	all.keptMem += memory
	for len(all.kept) > maxKept || all.keptMem > maxKeptMemory {
		all.forgetOldest()
	}
	switch {
	case all.sweeper == nil:
		all.sweeper = time.AfterFunc(keepSaid, all.sweep)
	case len(all.kept) == 1:
		all.sweeper.Reset(keepSaid)
	}
	return true
}

// forgetOldest lets go of the stream that was kept for longest. It is called under the lock.
func (all *streams) forgetOldest() {
	s := all.kept[0]
	all.kept[0] = nil
	all.kept = all.kept[1:]
	s.mu.Lock()
	all.keptMem -= s.text.Cap()
	s.mu.Unlock()
	if all.runs[s.id] == s {
		delete(all.runs, s.id) // those who follow it still have it
	}
}

// sweep forgets streams that were kept long enough.
func (all *streams) sweep() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for len(all.kept) > 0 {
		if rest := time.Until(all.kept[0].keptUntil); rest > 0 {
			all.sweeper.Reset(rest)
			return
		}
		all.forgetOldest()
	}
}

// end tells those who follow a run that it has ended.
func (all *streams) end(id string) {
	all.mu.Lock()
	s := all.runs[id]
	all.mu.Unlock()
	if s != nil {
		s.end(io.EOF)
	}
}

// stop lets all followers go, and waits for what was started for them.
func (all *streams) stop() {
	all.mu.Lock()
	all.stopped = true
	for len(all.kept) > 0 {
		all.forgetOldest()
	}
	if all.sweeper != nil {
		all.sweeper.Stop()
	}
	for _, s := range all.runs {
		s.end(ErrStopping)
		if s.unwatch != nil {
			s.unwatch()
		}
	}
	bridges := slices.Collect(maps.Values(all.bridges))
	all.mu.Unlock()
	// Those whose turn is over have a moment for what other nodes were not told yet.
	cut := time.AfterFunc(bridgePatience, func() {
		for _, b := range bridges {
			b.cancel()
		}
	})
	defer cut.Stop()
	all.watchers.Wait()
}

// watchRun tells a stream how its run is, if that is not known here, and that it has ended.
func (e *Engine) watchRun(ctx context.Context, s *stream) {
	ended, unwatch := e.store.Watch().Ended(s.id)
	defer unwatch()
	again := time.NewTimer(0)
	defer again.Stop()
	var feed Feed // from other nodes, unless the run is carried out here
	var frames <-chan Frame
	closeFeed := func() {
		if feed != nil {
			feed.Close()
			feed, frames = nil, nil
		}
	}
	defer closeFeed()
	var asked time.Time
	stopping := e.stopping
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			s.receiveRest(ctx, frames)
			s.end(io.EOF)
			return
		case frame := <-frames:
			if s.receive(frame) && time.Since(asked) > bridgePatience {
				feed.Ask()
				asked = time.Now()
			}
			if !frame.Over {
				continue
			}
		case <-stopping:
			stopping = nil
		case <-s.look:
		case <-again.C:
		}
		here := s.isHere()
		if here {
			closeFeed()
		} else if feed == nil {
			feed = e.store.Streams().Follow(s.id)
			frames = feed.Frames()
		}
		var err error
		if !here {
			err = e.lookAt(ctx, s)
		}
		if err == nil && stopping == nil && !s.isHere() {
			err = ErrStopping // a turn that is under way here has the drain time to end in
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrStopping), e.noteBroken(err):
			s.end(err)
			return
		case ctx.Err() == nil:
			again.Reset(time.Second)
		}
	}
}

// lookAt asks the store how a run is.
func (e *Engine) lookAt(ctx context.Context, s *stream) error {
	record, err := e.get(ctx, s.id)
	if err != nil {
		return err
	}
	if record.Status.Ended() {
		s.end(io.EOF)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.voice != nil || s.over != nil {
		return nil
	}
	if record.Status == Queued { // otherwise the node that carries it out tells
		s.forgetTurn()
		s.queued = true
		s.changed()
	}
	return nil
}

func (s *stream) isHere() bool { return s.speaker() != nil }

// speaker is the voice of the turn that is carried out here, if there is one.
func (s *stream) speaker() *voice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.voice
}

func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over != nil
}

// voice is a turn of this engine that can be followed.
type voice struct {
	stream *stream
	began  time.Time     // when it was claimed …
	waited time.Duration // … and how long after its acceptance that was

	// A turn for several runs has a voice for each, with positions of its own. That of the first has the others. Those have no text
	// before somebody listens to them.
	first     *voice
	others    []*voice
	listened  bool         // of one of the others; under the lock of its stream
	listeners atomic.Int32 // of the first: to how many others somebody listens
}

// begin lets a turn be followed until it is over.
func (all *streams) begin(claim *Claim, claimedAt time.Time) *voice {
	all.mu.Lock()
	defer all.mu.Unlock()
	v := &voice{began: claimedAt, waited: claim.Waited}
	all.give(v, claim.Run.ID)
	for _, run := range claim.Folded {
		other := &voice{began: claimedAt, waited: claim.waitedOf(run), first: v}
		all.give(other, run.ID)
		v.others = append(v.others, other)
	}
	return v
}

// give gives a run a voice. It is called under the lock.
func (all *streams) give(v *voice, id string) {
	s := all.get(id)
	v.stream = s
	s.voices++
	s.mu.Lock()
	s.voice = v
	s.begin(v.next())
	s.mu.Unlock()
	if s.unwatch != nil {
		signal(s.look) // other nodes need not tell any more
	}
	if s.followers > 0 {
		v.listen()
	}
	if asked, wanted := all.wanted[s.id]; wanted {
		all.build(v, asked)
	}
}

// listen has a voice say what the first one of its turn has said so far, and then what it says.
func (v *voice) listen() {
	if v.first == nil {
		return
	}
	said, s := v.first.stream, v.stream
	said.mu.Lock() // always before that of the others
	defer said.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if said.voice == v.first && s.voice == v && !v.listened {
		v.listened = true
		v.first.listeners.Add(1)
		s.add(said.text.String())
	}
}

// pass has the others do something to whom somebody listens. It is called under the lock of the first one's stream.
func (v *voice) pass(do func(other *voice)) {
	if v.listeners.Load() == 0 {
		return
	}
	for _, other := range v.others {
		other.stream.mu.Lock()
		if other.listened && other.stream.voice == other {
			do(other)
		}
		other.stream.mu.Unlock()
	}
}

// again begins the turn again if something was said. It is called under the lock of the stream.
func (v *voice) again() {
	if v.stream.text.Len() > 0 {
		v.stream.begin(v.next())
	}
}

// next is where the next turn of the run begins. Ids are exact in JavaScript for nine years. It is called under the lock of the
// stream.
func (v *voice) next() int64 {
	const unit = 32 * time.Nanosecond // shorter than a runner takes for a byte
	since := int64((v.waited + time.Since(v.began)) / unit)
	return min(max(v.stream.last+1, since, 1), 1<<52)
}

// begin is called under the lock.
func (s *stream) begin(turn int64) {
	s.forgetTurn()
	s.turn, s.last = turn, turn+1
	s.changed()
}

// forgetTurn is called under the lock.
func (s *stream) forgetTurn() {
	s.turn, s.told, s.said, s.full, s.queued = 0, 0, 0, false, false
	s.text.Reset()
}

// speak returns what a runner calls with parts of its answer, and a function after which that has no effect. Another call
// begins the turn again if something was said.
func (v *voice) speak() (emit func(Progress), hush func()) {
	s := v.stream
	s.mu.Lock()
	if s.voice == v {
		v.again()
		v.pass((*voice).again)
	}
	s.mu.Unlock()
	hushed := false // under the lock of the stream
	emit = func(said Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.voice == v && !hushed {
			s.add(said.Text)
			v.pass(func(other *voice) { other.stream.add(said.Text) })
		}
	}
	return emit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		hushed = true
	}
}

// add is called under the lock.
func (s *stream) add(text string) {
	if s.over != nil || s.full || text == "" {
		return
	}
	if room := maxStreamText - s.text.Len(); len(text) > room {
		text, s.full = text[:room], true
	}
	s.text.WriteString(text)
	s.last = s.turn + 1 + int64(s.text.Len())
	s.changed()
}

// done says that the turn is over. Unless its runs have ended, they will be carried out again, here or elsewhere.
func (v *voice) done() {
	v.fallSilent()
	for _, other := range v.others {
		other.fallSilent()
	}
}

func (v *voice) fallSilent() {
	s := v.stream
	s.mu.Lock()
	if s.voice == v {
		s.voice = nil
		if s.over == nil {
			s.forgetTurn()
			s.wake() // bridges
			signal(s.look)
		}
	}
	s.mu.Unlock()
	all := s.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	s.voices--
	all.release(s)
}

// end says that there will be no more news, and why.
func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = why
		s.publish()
	}
}

// changed has those who wait told in time. It is called under the lock.
func (s *stream) changed() {
	if s.news != nil && !s.noted {
		s.noted = true
		s.streams.pace.note(s, s.streams.followers.Load())
	}
}

// publish lets followers have all there is. It is called under the lock.
func (s *stream) publish() {
	s.told, s.noted = s.text.Len(), false
	s.wake()
}

// wake has those who wait look again. It is called under the lock.
func (s *stream) wake() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// wait returns what is closed when there is news. It is called under the lock.
func (s *stream) wait() <-chan struct{} {
	if s.news == nil {
		s.news = make(chan struct{})
	}
	if s.told < s.text.Len() {
		s.changed()
	}
	return s.news
}
