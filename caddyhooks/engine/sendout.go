package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

const (
	// deliveriesAtOnce bounds the attempts that are under way together, and is a good deal more than PerHost.
	deliveriesAtOnce = 256
	// unsettledAtOnce bounds them together with those whose end is still being stored.
	unsettledAtOnce = 1024
)

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
	room := min(deliveriesAtOnce-int(e.sending.Load()), unsettledAtOnce-int(e.unsettled.Load()))
	if room <= 0 {
		return time.Time{}
	}
	due, next, err := e.store.ClaimDeliveries(e.base, time.Now(), room)
	if err != nil {
		e.log().Error("claiming deliveries failed, trying again in a second", zap.Error(err))
		return time.Now().Add(time.Second)
	}
	for _, d := range due {
		e.sending.Add(1)
		e.unsettled.Add(1)
		e.workers.Add(1)
		go func() {
			defer e.workers.Done()
			defer signal(e.deliveries)
			defer e.unsettled.Add(-1)
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
	sent := d.Sent
	err := send(e.base, config, d)
	e.sending.Add(-1)
	if err != nil && d.Sent > sent {
		d.Restart = d.Attempt - 1 // as long as parts arrive it is on its way
	}
	overdue := false
	if err != nil && e.base.Err() != nil {
		d.Attempt-- // it was us who broke it off
	} else {
		overdue = e.heed(config, d, err) && d.Restart == 0 && d.TriedAt.Sub(d.CreatedAt) > overdueAfter
	}

	d.Status, d.LastError = Delivered, ""
	if err == nil {
		d.LastAnswer = ""
	} else {
		d.Status, d.LastError = Dead, lastError(err)
		var final *FinalError
		if delay, more := outbound.RetryDelay(d.Attempt-d.Restart, rand.Float64); more && !errors.As(err, &final) && !overdue {
			var later *RetryLaterError
			if errors.As(err, &later) {
				delay = max(delay, later.After)
			}
			d.Status, d.Due = Pending, time.Now().Add(delay)
		}
	}
	e.settle(config, d, err)
}

// heed has others benefit from how an attempt went: nothing is sent in vain to a host that cannot be reached, and a chat
// whose service asked for a pause gets one. It reports whether the host has been down for so long that what
// waits for it is given up.
func (e *Engine) heed(config *Config, d *Delivery, err error) (hopeless bool) {
	to := d.Destination()
	host := Destination{Host: to.Host}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		pause, down := e.breakers.failed(host.Host, d.TriedAt, time.Now())
		if pause > 0 {
			config.Log.Warn("a host cannot be reached, and gets a pause", zap.String("host", host.Host), zap.Duration("pause", pause))
			e.store.Throttle(host, 1, time.Now().Add(pause))
		}
		if down > overdueAfter {
			e.giveUpOverdue(config, host.Host)
			return true
		}
	} else if e.breakers.succeeded(host.Host) {
		e.store.Throttle(host, 0, time.Time{})
	}
	var later *RetryLaterError
	if errors.As(err, &later) && to.Chat != "" {
		e.store.Throttle(to, 0, time.Now().Add(min(later.After, maxChatPause)))
	}
	return false
}

// maxChatPause bounds for how long a chat is left alone because of what was said to one delivery.
const maxChatPause = 5 * time.Minute

// overdueAfter is how long a delivery waits for a host that cannot be reached all the while before it is given up. As
// attempts to such a host are few, the schedule alone would take for ever when there are many deliveries to it.
const overdueAfter = 24 * time.Hour

// giveUpOverdue gives up what has waited in vain for a host for too long.
func (e *Engine) giveUpOverdue(config *Config, host string) {
	for e.base.Err() == nil {
		overdue, err := e.store.ClaimOverdue(e.base, host, time.Now().Add(-overdueAfter), 100)
		if err != nil {
			config.Log.Error("claiming overdue deliveries failed", zap.Error(err))
		}
		if len(overdue) == 0 {
			return
		}
		var all sync.WaitGroup
		for _, d := range overdue {
			all.Go(func() {
				err := errors.New("the host could not be reached for a day")
				d.Status, d.LastError, d.TriedAt = Dead, err.Error(), time.Now()
				e.settle(config, d, err)
			})
		}
		all.Wait()
	}
}

// settle records how an attempt went, which d tells, and why it failed if it did.
func (e *Engine) settle(config *Config, d *Delivery, cause error) {
	fields := []zap.Field{zap.String("delivery_id", d.ID), zap.String("run_id", d.RunID), zap.String("host", d.Destination().Host),
		zap.Int("attempt", d.Attempt)}
	switch d.Status {
	case Delivered:
		config.Log.Debug("delivered", fields...)
	case Dead:
		config.Log.Error("delivery given up", append(fields, zap.Error(cause))...)
	case Pending:
		config.Log.Warn("delivery failed, will be tried again", append(fields, zap.Error(cause), zap.Time("due", d.Due))...)
	}
	settle := func() error {
		signal(e.deliveries) // its place is free for another one, while it is being stored
		return e.store.SettleDelivery(context.Background(), d)
	}
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

// maxAttempt bounds an attempt that goes on and on, one part after another.
const maxAttempt = 10 * time.Minute

// send hands the delivery to its sender, and makes a panic there the failure of one attempt.
func send(ctx context.Context, config *Config, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	if d.Channel == "" {
		return config.Callbacks.Send(ctx, d)
	}
	channel, ok := config.Channels[d.Channel]
	if !ok {
		return fmt.Errorf("there is no channel %q any more", d.Channel)
	}
	return channel.Send(ctx, d)
}
