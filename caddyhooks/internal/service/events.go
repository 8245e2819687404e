package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// eventHub makes the frames of event streams, once for all streams of an instance. It outlives reloads.
//
// A frame is made of what has changed since the one before it, four times a second at most over all topics. No stream has a
// queue: one that is too slow for a frame gets the next one, with the number of rows that it missed. Frames are numbered, and
// of the last 256 the hub remembers which runs and deliveries they were about, so that a page whose stream broke off hears
// about them. After a minute without streams it stops listening, and forgets.
type eventHub struct {
	source eventSource

	mu      sync.Mutex
	closed  bool
	streams int
	shares  map[string]int          // streams by account
	wanted  [api.Topics]int         // streams by topic
	views   [views]int              // streams by view
	epoch   string                  // names the numbering; another one begins when frames may have been missed
	last    uint64                  // the number of the last frame
	latest  [api.Topics]*eventFrame // the last frame of each topic, nil if there was none
	missed  [api.Topics]int         // rows and skipped rows of all frames so far
	recent  []rememberedFrame       // the last ones, the oldest first
	news    chan struct{}           // closed when there is another frame
	setting json.RawMessage         // the change of the settings that is in no frame yet
	taken   [api.Topics]uint64      // how many events of the source are in frames
	makers  sync.WaitGroup          // the goroutine that makes frames
	wake    chan struct{}           // ends the wait of that goroutine
	stop    context.CancelFunc      // ends that goroutine; nil if there is none
}

// eventSource is what frames are made of.
type eventSource interface {
	// listen has events remembered until stop is called.
	listen() (stop func())
	// hear has events of a topic on other nodes remembered, too, as far as they are known.
	hear(ctx context.Context, t api.Topic)
	// count is how many events of a topic there have been.
	count(t api.Topic) uint64
	// changed returns what events after the first so many were about, up to maxRows, and how many others there are.
	changed(t api.Topic, after uint64) (ids []string, others int, count uint64)
	// rows shows runs or deliveries, in JSON, and how many of them there are. Those that are gone are left out.
	rows(ctx context.Context, t api.Topic, ids []string, v view) (rows json.RawMessage, n int)
	// totals are the other members of a frame of a topic.
	totals(ctx context.Context, t api.Topic) json.RawMessage
}

// hasRows reports whether the frames of a topic have rows.
func hasRows(t api.Topic) bool {
	return t == api.TopicRuns || t == api.TopicDeliveries || t == api.TopicRefused
}

const (
	// maxRows bounds the rows of a frame.
	maxRows = 50
	// frameEvery is the time between two frames.
	frameEvery = 250 * time.Millisecond
	// hearEvery is how often other nodes are asked about.
	hearEvery = time.Second
	// overviewEvery is the time between two frames of the overview.
	overviewEvery = 5 * time.Second
	// rememberedFrames is how many frames a page may have missed.
	rememberedFrames = 256
	// maxStreams bounds the streams of an instance.
	maxStreams = 64
	// maxStreamShare bounds the streams of one account.
	maxStreamShare = maxStreams / 4
	// eventLinger is how long events are remembered without any stream.
	eventLinger = time.Minute
	// framePatience is how long the store is waited for when a frame is made.
	framePatience = 2 * time.Second
)

// view is what a stream may show: rows with texts of runs, or without.
type view int

const (
	WithTexts view = iota
	WithoutTexts
	views
)

// eventFrame is a frame without its rows, and its rows by view.
type eventFrame struct {
	number  uint64
	rows    [views]json.RawMessage // nil if no stream has the view
	skipped int
	before  int // rows and skipped rows in the frames of the topic before this one
	totals  json.RawMessage
}

// rememberedFrame is what is known of a frame that is gone.
type rememberedFrame struct {
	number  uint64
	topic   api.Topic
	ids     []string
	skipped int
}

func newEventHub(source eventSource) *eventHub {
	return &eventHub{source: source, shares: make(map[string]int), news: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// EventStream is a stream, as far as the hub knows it.
type EventStream struct {
	hub     *eventHub
	account string // that has the stream
	topics  []api.Topic
	view    view
	seen    uint64          // the number of the last frame that it has, or need not have
	missed  [api.Topics]int // rows and skipped rows that were in frames up to that one
}

// Open begins a stream of an account, unless there are too many. The error is for the caller.
func (h *eventHub) Open(account string, about []api.Topic, v view) (*EventStream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shares[account] == maxStreamShare {
		return nil, errStreamShare
	}
	if h.streams == maxStreams || h.closed {
		return nil, errManyStreams
	}
	h.streams++
	h.shares[account]++
	h.views[v]++
	for _, t := range about {
		h.wanted[t]++
	}
	if h.stop == nil {
		h.begin()
	}
	return &EventStream{hub: h, account: account, topics: about, view: v, seen: h.last, missed: h.missed}, nil
}

var (
	errManyStreams = api.Errorf(http.StatusServiceUnavailable, "there are %d event streams of this instance already; close one of them",
		maxStreams)
	errStreamShare = api.Errorf(http.StatusTooManyRequests,
		"you have %d event streams of this instance open, and others need some, too; close a tab of the dashboard, or another program that "+
			"follows events", maxStreamShare)
)

// Close ends a stream.
func (s *EventStream) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	if h.shares[s.account]--; h.shares[s.account] == 0 {
		delete(h.shares, s.account)
	}
	h.views[s.view]--
	for _, t := range s.topics {
		h.wanted[t]--
	}
	signalNews(h.wake)
}

// signalNews leaves word in a channel of capacity 1 if there is none yet.
func signalNews(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// begin listens to events and makes frames of them. What happened before is not known.
func (h *eventHub) begin() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.epoch, h.recent, h.setting = uuid.NewString()[:8], nil, nil
	unlisten := h.source.listen()
	for t := range api.Topics {
		h.taken[t] = h.source.count(t)
	}
	h.makers.Go(func() {
		defer unlisten()
		h.makeFrames(ctx)
	})
}

// shut ends all of it, for good.
func (h *eventHub) shut() {
	h.mu.Lock()
	h.closed = true
	if h.stop != nil {
		h.stop()
	}
	h.mu.Unlock()
	h.makers.Wait()
}

// settingsChanged has streams told of a change of the settings.
func (h *eventHub) settingsChanged(revision int64, by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil {
		h.setting, _ = json.Marshal(struct { // which always encodes
			Revision int64  `json:"revision"`
			By       string `json:"by"`
		}{revision, by})
	}
}

// listening reports whether there are streams, or were a moment ago.
func (h *eventHub) listening() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop != nil
}

// makeFrames makes a frame whenever it is time for one, until ctx is done or there was no stream for a while.
func (h *eventHub) makeFrames(ctx context.Context) {
	tick := time.NewTimer(frameEvery)
	defer tick.Stop()
	var overviewAt, idleSince, heardAt time.Time
	for last := api.Topics - 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-h.wake: // the last stream may be gone
			if h.anyStream() {
				continue // it is no time for a frame yet, however many streams come and go
			}
		case <-tick.C:
			tick.Reset(frameEvery)
		}
		switch now := time.Now(); {
		case h.anyStream():
			idleSince = time.Time{}
		case idleSince.IsZero():
			idleSince = now
			continue
		default:
			if now.Sub(idleSince) >= eventLinger && h.end() {
				return
			}
			continue
		}
		if time.Since(heardAt) >= hearEvery {
			heardAt = time.Now()
			h.hear(ctx)
		}
		// Topics take turns, so that a busy one is not in the way of the others.
		for i := range api.Topics {
			t := (last + 1 + i) % api.Topics
			if h.isDue(t, overviewAt) {
				h.makeFrame(ctx, t)
				if last = t; t == api.TopicOverview {
					overviewAt = time.Now()
				}
				break
			}
		}
	}
}

func (h *eventHub) hear(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, framePatience)
	defer stop()
	for _, t := range []api.Topic{api.TopicRuns, api.TopicRefused} {
		if h.isWanted(t) {
			h.source.hear(ctx, t)
		}
	}
}

func (h *eventHub) isWanted(t api.Topic) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted[t] > 0
}

// streamCount is how many streams are open.
func (h *eventHub) streamCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams
}

func (h *eventHub) anyStream() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams > 0
}

// end lets the goroutine that makes frames go, unless there is a stream again.
func (h *eventHub) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams > 0 {
		return false
	}
	h.stop()
	h.stop = nil
	return true
}

// isDue reports whether there is something to tell about a topic.
func (h *eventHub) isDue(t api.Topic, overviewAt time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.wanted[t] == 0:
		return false
	case t == api.TopicOverview:
		return time.Since(overviewAt) >= overviewEvery
	case t == api.TopicSettings:
		return h.setting != nil
	default:
		return h.source.count(t) > h.taken[t]
	}
}

// makeFrame makes a frame, and tells all streams.
func (h *eventHub) makeFrame(ctx context.Context, t api.Topic) {
	ctx, stop := context.WithTimeout(ctx, framePatience)
	defer stop()
	h.mu.Lock()
	shown, after := h.views, h.taken[t]
	frame, remembered := &eventFrame{totals: h.setting}, rememberedFrame{topic: t}
	if t == api.TopicSettings {
		h.setting = nil
	}
	h.mu.Unlock()
	if t != api.TopicSettings {
		frame.totals = h.source.totals(ctx, t)
	}
	count, rows := after, 0
	if hasRows(t) {
		remembered.ids, remembered.skipped, count = h.source.changed(t, after)
		frame.skipped = remembered.skipped
		for v := range views {
			if shown[v] > 0 {
				frame.rows[v], rows = h.source.rows(ctx, t, remembered.ids, v)
			}
		}
		frame.skipped += len(remembered.ids) - rows // a page that fetches its list again sees that they are gone
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[t] = count
	h.last++
	frame.number, remembered.number, frame.before = h.last, h.last, h.missed[t]
	h.missed[t] += rows + frame.skipped
	h.latest[t] = frame
	h.recent = append(h.recent, remembered)
	h.recent = slices.Delete(h.recent, 0, max(0, len(h.recent)-rememberedFrames))
	close(h.news)
	h.news = make(chan struct{})
}

// Next returns the frames that the stream has yet to send, ready to be written, and a channel that is closed when there is
// another one.
func (s *EventStream) Next() (text []byte, news <-chan struct{}) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	var pending []api.Topic
	for _, t := range s.topics {
		if frame := h.latest[t]; frame != nil && frame.number > s.seen {
			pending = append(pending, t)
		}
	}
	slices.SortFunc(pending, func(a, b api.Topic) int { return int(h.latest[a].number) - int(h.latest[b].number) })
	for _, t := range pending {
		frame := h.latest[t]
		skipped := frame.skipped + frame.before - s.missed[t]
		rows := frame.rows[s.view]
		if rows == nil && hasRows(t) { // no stream had this view when it was made
			rows, skipped = json.RawMessage("[]"), skipped+1
		}
		text = append(text, h.encode(t, frame.number, rows, skipped, frame.totals)...)
	}
	s.seen, s.missed = h.last, h.missed
	return text, h.news
}

// encode writes a frame of a topic.
func (h *eventHub) encode(t api.Topic, number uint64, rows json.RawMessage, skipped int, totals json.RawMessage) []byte {
	var data bytes.Buffer
	if hasRows(t) {
		fmt.Fprintf(&data, `{"%s":%s,"skipped":%d,`, api.TopicNames[t], rows, skipped)
		data.Write(totals[1:])
	} else {
		data.Write(totals)
	}
	return h.event(api.TopicNames[t], number, data.Bytes())
}

// event is an event as it is sent. JSON has no line breaks.
func (h *eventHub) event(name string, number uint64, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\nid: %s-%d\ndata: %s\n\n", name, h.epoch, number, data)
}

// Hello is the first event of a stream.
func (s *EventStream) Hello(data []byte) []byte {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.event("hello", s.seen, data)
}

// Resume returns what a page has missed that had a stream before, up to the event of an id: a frame for each topic, or a
// reset if that is not known any more.
func (s *EventStream) Resume(ctx context.Context, lastID string) []byte {
	ctx, stop := context.WithTimeout(ctx, framePatience)
	defer stop()
	h := s.hub
	epoch, number, _ := strings.Cut(lastID, "-")
	after, err := strconv.ParseUint(number, 10, 64)
	h.mu.Lock()
	if err != nil || epoch != h.epoch || after > s.seen || s.seen-after > uint64(len(h.recent)) {
		defer h.mu.Unlock()
		return h.event("reset", s.seen, []byte("{}"))
	}
	var missed []rememberedFrame
	for _, frame := range h.recent {
		if frame.number > after && frame.number <= s.seen && slices.Contains(s.topics, frame.topic) {
			missed = append(missed, frame)
		}
	}
	settings := h.latest[api.TopicSettings]
	h.mu.Unlock()
	var text []byte
	for _, t := range s.topics {
		ids, skipped, any := mergeFrames(missed, t)
		switch {
		case !any:
		case hasRows(t):
			rows, n := h.source.rows(ctx, t, ids, s.view)
			text = append(text, h.encode(t, s.seen, rows, skipped+len(ids)-n, h.source.totals(ctx, t))...)
		case t == api.TopicSettings:
			text = append(text, h.encode(t, s.seen, nil, 0, settings.totals)...)
		default:
			text = append(text, h.encode(t, s.seen, nil, 0, h.source.totals(ctx, t))...)
		}
	}
	return text
}

// mergeFrames returns what frames of a topic were about, each once, and how many others there were.
func mergeFrames(frames []rememberedFrame, t api.Topic) (ids []string, skipped int, any bool) {
	seen := make(map[string]bool)
	for _, frame := range slices.Backward(frames) {
		if frame.topic != t {
			continue
		}
		any = true
		skipped += frame.skipped
		for _, id := range slices.Backward(frame.ids) {
			switch {
			case seen[id]:
				continue
			case len(ids) < maxRows:
				ids = append(ids, id)
			default:
				skipped++
			}
			seen[id] = true
		}
	}
	slices.Reverse(ids)
	return ids, skipped, any
}
