package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var deliveryActions = []action{
	{"claim deliveries", func(w *world, chance *rand.Rand) any {
		batch := engine.DeliveryBatch{Max: 1000, Lease: modelLease} // of those that are due at the same moment, which comes first is not said
		if chance.IntN(5) == 0 {
			batch.Host = oneOf(chance, "channel/log", "channel/ops", "https://x.example.com:443")
			batch.DueFor = oneOf(chance, time.Minute, time.Hour)
		}
		due, wait, err := w.s.Deliveries().Claim(w.t.Context(), batch)
		slices.SortFunc(due, func(a, b *engine.Delivery) int { return cmp.Or(w.compare(a.RunID, b.RunID), a.Index-b.Index) })
		w.held = append(w.held, due...)
		return []any{due, wait, err}
	}},
	{"settle", (*world).settle},
	{"retry or drop", func(w *world, chance *rand.Rand) any {
		if len(w.runs) == 0 {
			return nil
		}
		id := engine.DeliveryID(oneOf(chance, w.runs...).ID, chance.IntN(3))
		if chance.IntN(2) == 0 {
			return w.s.Deliveries().Drop(w.t.Context(), id)
		}
		body := "once more"
		d, err := w.s.Deliveries().Retry(w.t.Context(), id, oneOf(chance, nil, &body))
		return []any{d, err}
	}},
	{"waits of deliveries", func(w *world, chance *rand.Rand) any {
		page, _, _ := w.s.Deliveries().List(w.t.Context(), engine.DeliveryQuery{Limit: 100})
		waits, err := w.s.Deliveries().Waits(w.t.Context(), page)
		paused, pausedErr := w.s.Deliveries().Paused(w.t.Context(), oneOf(chance, 1, 10))
		return []any{waits, err, paused, pausedErr}
	}},
	{"list deliveries", func(w *world, chance *rand.Rand) any {
		return w.listDeliveries(engine.DeliveryQuery{Limit: 1 + chance.IntN(4),
			Channel: oneOf(chance, "", "log", "ops"), Host: oneOf(chance, "", "", "x.example.com", "y.example.com:81", "y.example.com:80"),
			Statuses: oneOf(chance, nil, []engine.DeliveryStatus{engine.Dead}, []engine.DeliveryStatus{engine.Pending, engine.Delivered})})
	}},
}

// modelDeliveries are those of an end, each to another host: which comes first of those that are due at the same moment is not said.
func modelDeliveries(chance *rand.Rand) (all []*engine.Delivery) {
	for i := range 3 {
		if chance.IntN(2) == 0 {
			continue
		}
		d := newDelivery(&engine.Run{}, i)
		d.Callback, d.Channel, d.To = "", oneOf(chance, "mail", ""), oneOf(chance, "me", "you")
		if i > 0 {
			d.Channel = []string{"log", "ops"}[i-1]
		} else if d.Channel == "" {
			d.Callback, d.To = oneOf(chance, "https://x.example.com/", "http://y.example.com:81/"), ""
		}
		d.Body = fmt.Sprint("body ", chance.IntN(100)) + strings.Repeat(" which is \x00 long", oneOf(chance, 0, 0, 2000))
		all = append(all, d)
	}
	return all
}

// settle settles a delivery, or one that was settled before.
func (w *world) settle(chance *rand.Rand) any {
	var d *engine.Delivery
	switch {
	case len(w.settled) > 0 && chance.IntN(6) == 0:
		d = oneOf(chance, w.settled...)
	case len(w.held) == 0:
		return nil
	default:
		i := chance.IntN(len(w.held))
		d = w.held[i]
		w.held = slices.Delete(w.held, i, i+1)
		w.settled = append(w.settled, d)
	}
	d.Attempt++
	d.Status, d.Sent = oneOf(chance, engine.Delivered, engine.Dead, engine.Pending), chance.IntN(4)
	d.LastStatus, d.LastAnswer, d.LastError = chance.IntN(600), oneOf(chance, "", "no"), oneOf(chance, "", "why \x00")
	attempt := engine.Attempt{At: w.began, Took: time.Second, Status: d.LastStatus, Error: d.LastError}
	d.History = append(d.History[:len(d.History):len(d.History)], attempt)
	var throttles []engine.Throttle
	if chance.IntN(4) == 0 {
		w.throttled = true
		pause := oneOf[time.Duration](chance, 0, time.Hour)
		throttles = append(throttles, engine.Throttle{To: d.Destination(), Pause: pause, AtOnce: chance.IntN(3)})
		if d.Channel != "" && chance.IntN(2) == 0 {
			to := engine.Destination{Host: d.Destination().Host}
			throttles = append(throttles, engine.Throttle{To: to, Pause: oneOf[time.Duration](chance, 0, 2*time.Hour), AtOnce: chance.IntN(3)})
		}
	}
	return w.s.Deliveries().Settle(w.t.Context(), d, oneOf[time.Duration](chance, 0, time.Minute, time.Hour), throttles...)
}
