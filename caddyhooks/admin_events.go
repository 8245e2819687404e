package caddyhooks

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /events", (*instance).serveEvents, "topics")
}

// serveEvents answers with server-sent events, until the client goes or the configuration is replaced.
func (in *instance) serveEvents(w http.ResponseWriter, r *http.Request) error {
	about, err := parseTopics(r.URL.Query().Get("topics"))
	if err != nil {
		return err
	}
	who, shows := callerFrom(r), withTexts
	if who.hideTexts {
		shows = withoutTexts
	}
	stream, err := in.service.events.open(who.account(), about, shows)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		return err
	}
	defer stream.close()
	hello, err := json.Marshal(struct {
		Instance string     `json:"instance"`
		Now      *time.Time `json:"now"`
		Revision int64      `json:"revision"`
	}{in.name, text.JSONTime(time.Now()), in.active.Load().revision})
	if err != nil {
		return err
	}
	out := newEventWriter(w, in.streamEnd)
	defer out.close()
	out.begin()
	first := stream.hello(hello)
	if lastID := r.Header.Get("Last-Event-ID"); lastID != "" {
		first = append(first, stream.resume(r.Context(), lastID)...)
	}
	if out.write(first) != nil {
		return nil // the client is gone, and cannot be told
	}
	in.sendEvents(r.Context(), stream, out)
	return nil
}

// sendEvents sends frames as they are made.
func (in *instance) sendEvents(ctx context.Context, stream *eventStream, out *eventWriter) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		text, news := stream.next()
		if len(text) > 0 && out.write(text) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-in.streamEnd.over:
			_ = out.write([]byte(`event: bye` + "\n" + `data: {"reason":"` + in.streamEnd.reason + `"}` + "\n\n"))
			return
		case <-news:
		case <-ping.C:
			if out.write([]byte(": ping\n\n")) != nil {
				return
			}
		}
	}
}

// parseTopics reads the names of topics. None are all.
func parseTopics(names string) (about []topic, err error) {
	if names == "" {
		names = strings.Join(topicNames[:], ",")
	}
	for name := range strings.SplitSeq(names, ",") {
		t := topic(slices.Index(topicNames[:], strings.TrimSpace(name)))
		switch {
		case t < 0:
			return nil, apiError(http.StatusBadRequest, "there is no topic %q; use %s", text.Abridge(name), text.List(topicNames[:]))
		case !slices.Contains(about, t):
			about = append(about, t)
		}
	}
	return about, nil
}

// eventWriter writes to a stream. A client that does not read is cut off, at once when the streams are to end: a server that
// shuts down waits for it.
type eventWriter struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	end        *streamEnd
	unwatch    func()

	mu      sync.Mutex
	timer   *time.Timer // cuts off a write that takes too long; nil before the first one
	writing bool
	cut     bool
}

const (
	// writePatience is how long a client may take to read a frame.
	writePatience = 5 * time.Second
	// byePatience is the same when the streams are to end.
	byePatience = 500 * time.Millisecond
)

func newEventWriter(w http.ResponseWriter, end *streamEnd) *eventWriter {
	out := &eventWriter{w: w, controller: http.NewResponseController(w), end: end}
	// A server with a read timeout would take the stream for a request that does not arrive.
	_ = out.controller.SetReadDeadline(time.Time{})
	out.unwatch = end.whenOver(out.hurry)
	return out
}

// begin sends the headers of a stream, and those that were set before.
func (out *eventWriter) begin() {
	h := out.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // a proxy in between must not keep events
	out.w.WriteHeader(http.StatusOK)
}

// close ends the use of the writer.
func (out *eventWriter) close() { out.unwatch() }

func (out *eventWriter) patience() time.Duration {
	if out.end.isOver() {
		return byePatience
	}
	return writePatience
}

// hurry gives a write that is under way less time.
func (out *eventWriter) hurry() {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.writing {
		out.timer.Reset(out.patience())
	}
}

// cutOff ends a write that takes too long. A deadline that is set before the write would not do: Caddy has one of its own for
// each part of a write, of a minute.
func (out *eventWriter) cutOff() {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.writing {
		out.cut = true
		_ = out.controller.SetWriteDeadline(time.Now()) // all servers of Caddy can
		out.timer.Reset(out.patience())                 // if Caddy has just begun with the next part
	}
}

var errCutOff = errors.New("the client does not read")

func (out *eventWriter) write(text []byte) error {
	out.mu.Lock()
	out.writing = true
	if out.timer == nil {
		out.timer = time.AfterFunc(out.patience(), out.cutOff)
	} else {
		out.timer.Reset(out.patience())
	}
	out.mu.Unlock()
	_, err := out.w.Write(text) //nolint:gosec // a stream of events is not markup
	if err == nil {
		err = out.controller.Flush()
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	out.writing = false
	out.timer.Stop()
	if out.cut {
		return errCutOff
	}
	return err
}

// endStreams ends the event streams of the instance.
func (in *instance) endStreams() {
	if caddy.Exiting() {
		in.streamEnd.end("shutdown")
	} else {
		in.streamEnd.end("reload")
	}
}

// serviceEvents are the events of an engine.
type serviceEvents struct{ *service }

func (s serviceEvents) listen() (stop func()) { return s.engine.Events().Listen() }

func (s serviceEvents) hear(ctx context.Context) { s.engine.HearNews(ctx) }

func (s serviceEvents) ring(t topic) *engine.Ring {
	if t == topicRuns {
		return &s.engine.Events().Runs
	}
	return &s.engine.Events().Deliveries
}

func (s serviceEvents) count(t topic) uint64 {
	if !t.hasRows() {
		return 0
	}
	return s.ring(t).Count()
}

func (s serviceEvents) changed(t topic, after uint64) (ids []string, others int, count uint64) {
	return s.ring(t).After(after, maxRows)
}

func (s serviceEvents) rows(ctx context.Context, t topic, ids []string, v view) (rows json.RawMessage, n int) {
	if t == topicRuns {
		return encodeRows(s.eventRows(ctx, ids, v))
	}
	return encodeRows(s.eventDeliveries(ctx, ids))
}

func encodeRows[T any](shown []T) (rows json.RawMessage, n int) {
	rows, err := json.Marshal(shown)
	if err != nil {
		return json.RawMessage("[]"), 0
	}
	return rows, len(shown)
}

// eventRows shows runs as lists do.
func (s serviceEvents) eventRows(ctx context.Context, ids []string, v view) []runSummary {
	rows := []runSummary{}
	for _, id := range ids {
		if record, err := s.engine.Find(ctx, id, 0); err == nil {
			rows = append(rows, newRunSummary(record, v == withoutTexts))
		}
	}
	return rows
}

// eventDeliveries shows deliveries as lists do.
func (s serviceEvents) eventDeliveries(ctx context.Context, ids []string) []deliveryDetails {
	var found []*engine.Delivery
	for _, id := range ids {
		if d, err := s.engine.Delivery(ctx, id); err == nil {
			found = append(found, d)
		}
	}
	rows := showAll(found, newDeliverySummary)
	_ = s.explainWaits(ctx, rows, found) // rows that lack it are better than none
	return rows
}

// totals are the counts of now. Those that the store does not tell are 0.
func (s serviceEvents) totals(ctx context.Context, t topic) json.RawMessage {
	var totals any
	switch t {
	case topicRuns:
		backlog, _ := s.engine.Backlog(ctx)
		type counts struct {
			Queued  int `json:"queued"`
			Running int `json:"running"`
		}
		totals = struct {
			Counts counts `json:"counts"`
		}{counts{backlog.Queued, backlog.Running}}
	case topicDeliveries:
		pending, dead, _ := s.engine.CountUndelivered(ctx)
		totals = struct {
			Pending int `json:"pending"`
			Dead    int `json:"dead"`
		}{pending, dead}
	default:
		backlog, _ := s.engine.Backlog(ctx)
		pending, dead, _ := s.engine.CountUndelivered(ctx)
		totals = struct {
			Running            int     `json:"running"`
			Queued             int     `json:"queued"`
			OldestSeconds      float64 `json:"oldestSeconds"`
			Pending            int     `json:"pending"`
			Dead               int     `json:"dead"`
			AcceptedLastMinute int64   `json:"acceptedLastMinute"`
		}{backlog.Running, backlog.Queued, inSeconds(backlog.Oldest), pending, dead, s.acceptedLately(ctx)}
	}
	encoded, _ := json.Marshal(totals) // which always encodes
	return encoded
}

// acceptedLately is about how many runs were accepted in the last sixty seconds: those of the minute under way, and a share
// of the one before it.
func (s serviceEvents) acceptedLately(ctx context.Context) int64 {
	now := time.Now()
	minute := now.Truncate(time.Minute)
	minutes, err := s.engine.MinutesSince(ctx, minute.Add(-time.Minute))
	if err != nil {
		return 0
	}
	accepted := 0.0
	for i := range minutes {
		share := 1.0
		if minutes[i].At.Before(minute) {
			share = 1 - now.Sub(minute).Minutes()
		}
		accepted += share * float64(minutes[i].Accepted)
	}
	return int64(math.Round(accepted))
}
