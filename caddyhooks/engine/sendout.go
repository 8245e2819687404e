package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
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
		next := time.Now().Add(time.Second) // if the store panics
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
	d.TriedAt, d.LastStatus, d.LastAnswer = time.Now(), 0, ""
	err := send(e.base, config, d)
	if err != nil && e.base.Err() != nil {
		d.Attempt-- // it was us who broke it off
	}

	var later *RetryLaterError
	var final *FinalError
	d.Status, d.LastError = Delivered, ""
	if err == nil {
		d.LastAnswer = ""
	} else {
		d.Status, d.LastError = Dead, lastError(err)
		if delay, more := outbound.RetryDelay(d.Attempt-d.Restart, rand.Float64); more && !errors.As(err, &final) {
			if errors.As(err, &later) {
				delay = max(delay, later.After)
			}
			d.Status, d.Due = Pending, time.Now().Add(delay)
		}
	}
	fields := []zap.Field{zap.String("delivery_id", d.ID), zap.String("run_id", d.RunID), zap.Int("attempt", d.Attempt)}
	switch d.Status {
	case Delivered:
		config.Log.Debug("delivered", fields...)
	case Dead:
		config.Log.Error("delivery given up", append(fields, zap.Error(err))...)
	case Pending:
		config.Log.Warn("delivery failed, will be tried again", append(fields, zap.Error(err), zap.Time("due", d.Due))...)
	}
	settle := func() error { return e.store.SettleDelivery(context.Background(), d) }
	if err := e.insist(config, "recording a delivery", d.RunID, settle); err != nil {
		config.Log.Error("recording a delivery failed", append(fields, zap.Error(err))...)
	}
}

// panicError is a panic of a sender. What it says is for the log alone.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("the sender panicked: %v\n%s", e.value, e.stack)
}

// lastError is what is told about an attempt that failed.
func lastError(err error) string {
	var panicked *panicError
	if errors.As(err, &panicked) {
		return "the sender failed"
	}
	text := err.Error()
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}

// send hands the delivery to its sender, and makes a panic there the failure of one attempt.
func send(ctx context.Context, config *Config, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
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
