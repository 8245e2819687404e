package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// deliveriesAtOnce bounds the attempts that are under way together.
const deliveriesAtOnce = 64

// deliver sends out deliveries as they become due, until the engine stops.
func (e *Engine) deliver() {
	defer e.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var next time.Time
		e.protect("claiming deliveries", func() { next = e.sendDue() })
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-e.stopping:
			return
		case <-e.deliveries:
		case <-timer.C:
		}
	}
}

// sendDue starts an attempt for what is due, as far as there is room, and says when there will be more to do. Room that
// is made by an attempt that ends is told by e.deliveries.
func (e *Engine) sendDue() (next time.Time) {
	room := deliveriesAtOnce - int(e.sending.Load())
	if room == 0 {
		return time.Time{}
	}
	due, next, err := e.store.ClaimDeliveries(e.base, time.Now(), room)
	if err != nil {
		e.log().Error("claiming deliveries failed, trying again in a second", zap.Error(err))
		return time.Now().Add(time.Second)
	}
	for _, d := range due {
		e.sending.Add(1)
		e.workers.Add(1)
		go func() {
			defer e.workers.Done()
			defer signal(e.deliveries)
			defer e.sending.Add(-1)
			e.protect("sending a delivery", func() { e.sendOnce(d) })
		}()
	}
	return next
}

// sendOnce makes one attempt and records how it went.
func (e *Engine) sendOnce(d *Delivery) {
	config := e.config.Load()
	d.Attempt++
	err := send(e.base, config, d)
	if err != nil && e.base.Err() != nil {
		d.Attempt-- // it was us who broke it off
	}

	over := true
	var later *RetryLaterError
	var final *FinalError
	if err != nil && !errors.As(err, &final) {
		delay, more := outbound.RetryDelay(d.Attempt, rand.Float64)
		if errors.As(err, &later) {
			delay = max(delay, later.After)
		}
		d.Due, over = time.Now().Add(delay), !more
	}
	fields := []zap.Field{zap.String("delivery_id", d.ID), zap.String("run_id", d.RunID), zap.Int("attempt", d.Attempt)}
	switch {
	case err == nil:
		config.Log.Debug("delivered", fields...)
	case over:
		config.Log.Error("delivery given up", append(fields, zap.Error(err))...)
	default:
		config.Log.Warn("delivery failed, will be tried again", append(fields, zap.Error(err), zap.Time("due", d.Due))...)
	}
	if err := e.store.SettleDelivery(context.Background(), d, over); err != nil {
		config.Log.Error("recording a delivery failed", append(fields, zap.Error(err))...)
	}
}

// send hands the delivery to its sender, and makes a panic there the failure of one attempt.
func send(ctx context.Context, config *Config, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sender panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if d.Channel == "" {
		return config.Callbacks.Send(ctx, d)
	}
	channel, ok := config.Channels[d.Channel]
	if !ok {
		return fmt.Errorf("there is no channel %q any more", d.Channel)
	}
	return channel.Send(ctx, d)
}
