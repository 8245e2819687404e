package stream

import (
	"sync/atomic"
	"time"
)

// Writer takes what is said in a turn that is carried out here.
type Writer struct {
	stream *stream
	began  time.Time     // when it was claimed …
	waited time.Duration // … and how long after its acceptance that was

	// A turn for several runs has a writer for each, with positions of its own. That of the first has the others. Those have no text
	// before somebody listens to them.
	first     *Writer
	others    []*Writer
	listened  bool         // of one of the others; under the lock of its stream
	listeners atomic.Int32 // of the first: to how many others somebody listens
}

// Run is one that a turn is for.
type Run struct {
	ID     string
	Waited time.Duration // from its acceptance until it was claimed
}

// Begin lets a turn for some runs be followed until it is over.
func (h *Hub) Begin(claimedAt time.Time, runs ...Run) *Writer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first *Writer
	for _, run := range runs {
		w := &Writer{began: claimedAt, waited: run.Waited, first: first}
		h.add(w, run.ID)
		if first == nil {
			first = w
		} else {
			first.others = append(first.others, w)
		}
	}
	return first
}

// add makes a writer that of a run. It is called under the lock.
func (h *Hub) add(w *Writer, id string) {
	s := h.get(id)
	w.stream = s
	s.writers++
	s.mu.Lock()
	s.writer = w
	s.begin(w.next())
	s.mu.Unlock()
	if s.unwatch != nil {
		signal(s.look) // other nodes need not tell any more
	}
	if s.followers > 0 {
		w.listen()
	}
	if asked, wanted := h.wanted[s.id]; wanted {
		h.build(w, asked)
	}
}

// listen has a writer repeat what the first one of its turn has said so far, and then what it says.
func (w *Writer) listen() {
	if w.first == nil {
		return
	}
	said, s := w.first.stream, w.stream
	said.mu.Lock() // always before that of the others
	defer said.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if said.writer == w.first && s.writer == w && !w.listened {
		w.listened = true
		w.first.listeners.Add(1)
		s.add(said.text.String())
	}
}

// pass has the others do something to whom somebody listens. It is called under the lock of the first one's stream.
func (w *Writer) pass(do func(other *Writer)) {
	if w.listeners.Load() == 0 {
		return
	}
	for _, other := range w.others {
		other.stream.mu.Lock()
		if other.listened && other.stream.writer == other {
			do(other)
		}
		other.stream.mu.Unlock()
	}
}

// again begins the turn again if something was said. It is called under the lock of the stream.
func (w *Writer) again() {
	if w.stream.text.Len() > 0 {
		w.stream.begin(w.next())
	}
}

// next is where the next turn of the run begins. Ids are exact in JavaScript for nine years. It is called under the lock of the
// stream.
func (w *Writer) next() int64 {
	const unit = 32 * time.Nanosecond // shorter than a runner takes for a byte
	since := int64((w.waited + time.Since(w.began)) / unit)
	return min(max(w.stream.last+1, since, 1), 1<<52)
}

// Open returns what a runner calls with parts of its answer, and a function after which that has no effect. Another call
// begins the turn again if something was said.
func (w *Writer) Open() (write func(text string), shut func()) {
	s := w.stream
	s.mu.Lock()
	if s.writer == w {
		w.again()
		w.pass((*Writer).again)
	}
	s.mu.Unlock()
	closed := false // under the lock of the stream
	write = func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.writer == w && !closed {
			s.add(text)
			w.pass(func(other *Writer) { other.stream.add(text) })
		}
	}
	return write, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		closed = true
	}
}

// Done says that the turn is over. Unless its runs have ended, they will be carried out again, here or elsewhere.
func (w *Writer) Done() {
	w.leave()
	for _, other := range w.others {
		other.leave()
	}
}

func (w *Writer) leave() {
	s := w.stream
	s.mu.Lock()
	if s.writer == w {
		s.writer = nil
		if s.over == nil {
			s.forgetTurn()
			s.wake() // bridges
			signal(s.look)
		}
	}
	s.mu.Unlock()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.writers--
	h.release(s)
}
