package caddyhooks

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /events", (*instance).serveEvents, "topics")
}

// serveEvents answers with server-sent events, until the client goes or the configuration is replaced.
func (in *instance) serveEvents(w http.ResponseWriter, r *http.Request) error {
	about, err := api.ParseTopics(r.URL.Query().Get("topics"))
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
	}{in.name, text.JSONTime(time.Now()), in.active.Load().Revision})
	if err != nil {
		return err
	}
	out := sse.NewEventWriter(w, in.streamEnd)
	defer out.Close()
	out.Begin()
	first := stream.hello(hello)
	if lastID := r.Header.Get("Last-Event-ID"); lastID != "" {
		first = append(first, stream.resume(r.Context(), lastID)...)
	}
	if out.Write(first) != nil {
		return nil // the client is gone, and cannot be told
	}
	in.sendEvents(r.Context(), stream, out)
	return nil
}

// sendEvents sends frames as they are made.
func (in *instance) sendEvents(ctx context.Context, stream *eventStream, out *sse.EventWriter) {
	ping := time.NewTicker(api.PingEvery)
	defer ping.Stop()
	for {
		text, news := stream.next()
		if len(text) > 0 && out.Write(text) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-in.streamEnd.Over:
			_ = out.Write([]byte(`event: bye` + "\n" + `data: {"reason":"` + in.streamEnd.Reason + `"}` + "\n\n"))
			return
		case <-news:
		case <-ping.C:
			if out.Write([]byte(": ping\n\n")) != nil {
				return
			}
		}
	}
}

// endStreams ends the event streams of the instance.
func (in *instance) endStreams() {
	if caddy.Exiting() {
		in.streamEnd.End("shutdown")
	} else {
		in.streamEnd.End("reload")
	}
}

// serviceEvents are the events of an engine.
type serviceEvents struct{ *service }

func (s serviceEvents) listen() (stop func()) { return s.engine.Events().Listen() }

func (s serviceEvents) hear(ctx context.Context) { s.engine.HearNews(ctx) }

func (s serviceEvents) ring(t api.Topic) *engine.Ring {
	if t == api.TopicRuns {
		return &s.engine.Events().Runs
	}
	return &s.engine.Events().Deliveries
}

func (s serviceEvents) count(t api.Topic) uint64 {
	if !hasRows(t) {
		return 0
	}
	return s.ring(t).Count()
}

func (s serviceEvents) changed(t api.Topic, after uint64) (ids []string, others int, count uint64) {
	return s.ring(t).After(after, api.MaxRows)
}

func (s serviceEvents) rows(ctx context.Context, t api.Topic, ids []string, v view) (rows json.RawMessage, n int) {
	if t == api.TopicRuns {
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
func (s serviceEvents) eventRows(ctx context.Context, ids []string, v view) []api.RunSummary {
	rows := []api.RunSummary{}
	for _, id := range ids {
		if record, err := s.engine.Find(ctx, id, 0); err == nil {
			rows = append(rows, api.NewRunSummary(record, v == withoutTexts))
		}
	}
	return rows
}

// eventDeliveries shows deliveries as lists do.
func (s serviceEvents) eventDeliveries(ctx context.Context, ids []string) []api.DeliveryDetails {
	var found []*engine.Delivery
	for _, id := range ids {
		if d, err := s.engine.Delivery(ctx, id); err == nil {
			found = append(found, d)
		}
	}
	rows := api.ShowAll(found, api.NewDeliverySummary)
	_ = s.explainWaits(ctx, rows, found) // rows that lack it are better than none
	return rows
}

// totals are the counts of now. Those that the store does not tell are 0.
func (s serviceEvents) totals(ctx context.Context, t api.Topic) json.RawMessage {
	var totals any
	switch t {
	case api.TopicRuns:
		backlog, _ := s.engine.Backlog(ctx)
		type counts struct {
			Queued  int `json:"queued"`
			Running int `json:"running"`
		}
		totals = struct {
			Counts counts `json:"counts"`
		}{counts{backlog.Queued, backlog.Running}}
	case api.TopicDeliveries:
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
		}{backlog.Running, backlog.Queued, text.RoundedSeconds(backlog.Oldest), pending, dead, s.acceptedLately(ctx)}
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
