package service

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/news"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// ExplainWaits tells of deliveries that are shown when they are tried next, and what they wait for.
func (s *Service) ExplainWaits(ctx context.Context, shown []api.DeliveryDetails, deliveries []*engine.Delivery) error {
	waits, err := s.Engine.DeliveryWaits(ctx, deliveries)
	if err != nil {
		return err
	}
	for i, wait := range waits {
		// An attempt that was just stored may be under way for the outbox still: its own schedule is told already.
		if ownSchedule := wait == (engine.DeliveryWait{}) && deliveries[i].Due.After(time.Now()); shown[i].Status == engine.Pending &&
			!ownSchedule {
			shown[i].NextAttemptAt, shown[i].WaitsFor = text.JSONTime(wait.Until), waitsFor(wait.For, deliveries[i])
		}
	}
	return nil
}

// waitsFor says what a delivery waits for besides its own schedule.
func waitsFor(obstacle engine.Obstacle, d *engine.Delivery) string {
	host := "host"
	if d.Channel != "" {
		host = "channel"
	}
	switch obstacle {
	case engine.EarlierOne:
		return "an earlier delivery to the same chat"
	case engine.PauseOfHost:
		return "the " + host + ", which is left alone until then"
	case engine.OthersOfHost:
		return "other deliveries to the same " + host
	default:
		return ""
	}
}

// serviceEvents are the events of an engine.
type serviceEvents struct{ *Service }

func (s serviceEvents) listen() (stop func()) { return s.Engine.Events().Listen() }

func (s serviceEvents) hear(ctx context.Context, t api.Topic) {
	if t == api.TopicRuns {
		s.Engine.HearNews(ctx)
	} else if _, shared := s.Store.(engine.Remote); shared {
		s.refused.Load().Hear(ctx)
	}
}

func (s serviceEvents) ring(t api.Topic) *news.Ring {
	if t == api.TopicRuns {
		return &s.Engine.Events().Runs
	}
	return &s.Engine.Events().Deliveries
}

func (s serviceEvents) count(t api.Topic) uint64 {
	switch {
	case !hasRows(t):
		return 0
	case t == api.TopicRefused:
		return s.refused.Load().Number()
	}
	return s.ring(t).Count()
}

func (s serviceEvents) changed(t api.Topic, after uint64) (ids []string, others int, count uint64) {
	if t == api.TopicRefused {
		return s.refused.Load().Changed(after, maxRows)
	}
	return s.ring(t).After(after, maxRows)
}

func (s serviceEvents) rows(ctx context.Context, t api.Topic, ids []string, v view) (rows json.RawMessage, n int) {
	switch t {
	case api.TopicRuns:
		return encodeRows(s.eventRows(ctx, ids, v))
	case api.TopicRefused:
		kinds := s.refused.Load().Named(ctx, ids)
		return encodeRows(api.ShowAll(kinds, func(kind refused.Requests) api.Refused { return kind.Shown() }))
	default:
		return encodeRows(s.eventDeliveries(ctx, ids))
	}
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
		if record, err := s.Engine.Find(ctx, id, 0); err == nil {
			rows = append(rows, api.NewRunSummary(record, v == WithoutTexts))
		}
	}
	return rows
}

// eventDeliveries shows deliveries as lists do.
func (s serviceEvents) eventDeliveries(ctx context.Context, ids []string) []api.DeliveryDetails {
	var found []*engine.Delivery
	for _, id := range ids {
		if d, err := s.Engine.Delivery(ctx, id); err == nil {
			found = append(found, d)
		}
	}
	rows := api.ShowAll(found, api.NewDeliverySummary)
	_ = s.ExplainWaits(ctx, rows, found) // rows that lack it are better than none
	return rows
}

// totals are the counts of now. Those that the store does not tell are 0.
func (s serviceEvents) totals(ctx context.Context, t api.Topic) json.RawMessage {
	var totals any
	switch t {
	case api.TopicRuns:
		backlog, _ := s.Engine.Backlog(ctx)
		type counts struct {
			Queued  int `json:"queued"`
			Running int `json:"running"`
			Waiting int `json:"waiting"`
		}
		totals = struct {
			Counts counts `json:"counts"`
		}{counts{backlog.Queued, backlog.Running, backlog.Waiting}}
	case api.TopicDeliveries:
		pending, dead, _ := s.Engine.CountUndelivered(ctx)
		totals = struct {
			Pending int `json:"pending"`
			Dead    int `json:"dead"`
		}{pending, dead}
	case api.TopicRefused:
		totals = struct {
			Number uint64 `json:"number"` // of changes on this node since it was started
		}{s.refused.Load().Number()}
	default:
		if trouble := s.StoreTrouble(); trouble != "" {
			totals = struct {
				StoreUnreachable string `json:"storeUnreachable"` // instead of figures, which nobody knows now
			}{trouble}
			break
		}
		backlog, _ := s.Engine.Backlog(ctx)
		questions, _ := s.Engine.CountQuestions(ctx)
		pending, dead, _ := s.Engine.CountUndelivered(ctx)
		totals = struct {
			Running            int     `json:"running"`
			Queued             int     `json:"queued"`
			Waiting            int     `json:"waiting"`
			Questions          int     `json:"questions"`
			OldestSeconds      float64 `json:"oldestSeconds"`
			Pending            int     `json:"pending"`
			Dead               int     `json:"dead"`
			AcceptedLastMinute int64   `json:"acceptedLastMinute"`
		}{backlog.Running, backlog.Queued, backlog.Waiting, questions, text.RoundedSeconds(backlog.Oldest), pending, dead, s.acceptedLately(ctx)}
	}
	encoded, _ := json.Marshal(totals) // which always encodes
	return encoded
}

// acceptedLately is about how many runs were accepted in the last sixty seconds: those of the minute under way, and a share
// of the one before it.
func (s serviceEvents) acceptedLately(ctx context.Context) int64 {
	now := time.Now()
	minute := now.Truncate(time.Minute)
	minutes, err := s.Engine.MinutesSince(ctx, minute.Add(-time.Minute))
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
