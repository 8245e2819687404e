package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// streams implements engine.Streams. What nodes follow is in a table, and frames go through another one, which their readers empty.
type streams struct {
	*store
	asked chan struct{}

	mu       sync.Mutex
	feeds    map[string][]*feed // by run id
	wanted   map[string]uint64  // by other nodes
	unstored bool               // the table may not have what this node follows
	isClosed bool

	changes *batcher[string]    // of what this node follows, by run id
	frames  *batcher[sentFrame] // to other nodes
}

// feed is a run that this node follows.
type feed struct {
	streams *streams
	id      string
	frames  chan engine.Frame
}

// sentFrame is a frame on its way.
type sentFrame struct {
	run    string
	frame  engine.Frame
	isBusy bool // a node has too much to read, so the frame was not sent
}

const (
	// feedLength is how many frames wait for somebody who follows a run. Those that come then are lost, and have to be asked for.
	feedLength = 256
	// busyPause is after how long a frame is sent again to a node that had too much to read.
	busyPause = 20 * time.Millisecond
)

func newStreams(s *store) *streams {
	own := &streams{store: s, asked: make(chan struct{}, 1), feeds: make(map[string][]*feed)}
	own.changes = newBatcher(1000, own.storeChanges)
	own.frames = newBatcher(64, own.sendFrames)
	return own
}

func (s *streams) Follow(id string) engine.Feed {
	f := &feed{s, id, make(chan engine.Frame, feedLength)}
	if _, ok := local.ParseID(id); !ok {
		return f // nobody says anything in it
	}
	s.mu.Lock()
	if s.isClosed {
		s.mu.Unlock()
		return f
	}
	s.feeds[id] = append(s.feeds[id], f)
	s.mu.Unlock()
	s.change(id)
	return f
}

func (f *feed) Frames() <-chan engine.Frame { return f.frames }

func (f *feed) Ask() {
	f.streams.mu.Lock()
	follows := slices.Contains(f.streams.feeds[f.id], f)
	f.streams.mu.Unlock()
	if follows {
		f.streams.change(f.id)
	}
}

func (f *feed) Close() {
	s := f.streams
	s.mu.Lock()
	before := len(s.feeds[f.id])
	left := slices.DeleteFunc(s.feeds[f.id], func(other *feed) bool { return other == f })
	if len(left) == 0 {
		delete(s.feeds, f.id)
	} else {
		s.feeds[f.id] = left
	}
	s.mu.Unlock()
	if before > 0 && len(left) == 0 {
		s.change(f.id)
	}
}

// change has the table say of a run whether this node follows it, and asks for it again. If that fails a later pulse does it.
func (s *streams) change(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if s.changes.do(ctx, &id) != nil {
		s.mustStore()
		return
	}
	s.watch.tellOthers("f")
}

// everyRun stands for all of them in a change.
const everyRun = ""

// storeChanges stores whether this node follows some runs, as it is now: so what was changed last is what stays.
func (s *streams) storeChanges(ctx context.Context, ids []*string) error {
	followed, gone, all := []string{}, []string{}, false
	s.mu.Lock()
	for _, id := range ids {
		into := &gone
		switch {
		case *id == everyRun:
			all = true
			continue
		case len(s.feeds[*id]) > 0:
			into = &followed
		}
		if !slices.Contains(*into, *id) {
			*into = append(*into, *id)
		}
	}
	if all {
		followed = slices.AppendSeq([]string{}, maps.Keys(s.feeds))
	}
	s.mu.Unlock()
	return s.on(watchCalls).exec(ctx, "SELECT @.follow_1($1, $2, $3, $4)", s.node, followed, gone, all)
}

// mustStore has the next full pulse store all that this node follows.
func (s *streams) mustStore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unstored = s.unstored || !s.isClosed
}

// catchUp stores what could not be stored before.
func (s *streams) catchUp() {
	s.mu.Lock()
	unstored := s.unstored
	s.unstored = false
	s.mu.Unlock()
	if unstored {
		s.change(everyRun)
	}
}

// isFollowing reports whether there may be frames for this node.
func (s *streams) isFollowing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.feeds) > 0
}

// receive gives a frame to those who follow its run here, and are not too slow.
func (s *streams) receive(run string, frame engine.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds[run] {
		select {
		case f.frames <- frame:
		default:
		}
	}
}

// setWanted notes what other nodes follow.
func (s *streams) setWanted(runs []string, numbers []int64) {
	wanted := make(map[string]uint64, len(runs))
	for i, run := range runs {
		wanted[run] = max(wanted[run], uint64(numbers[i]))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(wanted, s.wanted) {
		s.wanted = wanted
		signal(s.asked)
	}
}

func (s *streams) Asked() <-chan struct{} { return s.asked }

func (s *streams) Wanted() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[string]uint64, len(s.wanted))
	maps.Copy(wanted, s.wanted)
	return wanted
}

func (s *streams) Send(ctx context.Context, id string, frame engine.Frame) error {
	for {
		s.mu.Lock()
		_, wanted := s.wanted[id]
		s.mu.Unlock()
		if !wanted {
			return nil
		}
		sent := &sentFrame{run: id, frame: frame}
		if err := s.frames.do(ctx, sent); err != nil {
			return err
		}
		if !sent.isBusy {
			return nil
		}
		if !sleepUnlessDone(ctx, busyPause) {
			return ctx.Err()
		}
	}
}

func (s *streams) sendFrames(ctx context.Context, sent []*sentFrame) error {
	var (
		runs              []string
		turns, ats, saids []int64
		texts             [][]byte
		overs             []bool
		readers           []string
	)
	for _, one := range sent {
		f := &one.frame
		runs, turns, ats, saids = append(runs, one.run), append(turns, f.Turn), append(ats, int64(f.At)), append(saids, int64(f.Said))
		texts, overs = append(texts, []byte(f.Text)), append(overs, f.Over)
	}
	err := s.on(watchCalls).query(ctx, func(rows pgx.Rows) error {
		var index int
		var reader *string
		if err := rows.Scan(&index, &reader); err != nil {
			return err
		}
		if reader == nil {
			sent[index-1].isBusy = true
		} else if !slices.Contains(readers, *reader) {
			readers = append(readers, *reader)
		}
		return nil
	}, "SELECT * FROM @.send_frames_1($1, $2, $3, $4, $5, $6, $7)", s.node, runs, turns, ats, saids, texts, overs)
	if err == nil && len(readers) > 0 {
		s.watch.tellLater(word{nodes: readers})
	}
	return err
}

// close forgets what this node follows: it is about to leave.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed, s.unstored = true, false
	clear(s.feeds)
}

// Interface guards
var (
	_ engine.Streams = (*streams)(nil)
	_ engine.Feed    = (*feed)(nil)
)
