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
	before := *d
	d.Attempt++
	d.TriedAt, d.LastStatus, d.LastAnswer = time.Now(), 0, ""
	err := send(e.base, config, d)
	e.sending.Add(-1)
	if err != nil && e.base.Err() != nil {
		before.Sent = d.Sent
		e.settle(config, &before, err) // it was us who broke it off, and it is as due as before
		return
	}
	if err != nil && d.Sent > before.Sent { // as long as parts arrive it is on its way
		d.Restart = d.Attempt - 1
		e.breakers.succeeded(d.Destination())
	}
	hopeless := e.heed(config, d, err)

	var final *FinalError
	delay, more := outbound.RetryDelay(d.Attempt-d.Restart, rand.Float64)
	d.Status, d.LastError = Pending, lastError(err)
	switch {
	case err == nil:
		d.Status, d.LastAnswer = Delivered, ""
	case askedToWait(err) > 0 && d.Channel != "" && d.TriedAt.Sub(d.CreatedAt) < overdueAfter:
		d.Attempt-- // to be told to wait is no failure. It is still due, and so stays the first of its chat.
	case errors.As(err, &final), !more, hopeless:
		d.Status = Dead
	case d.Channel != "" && delay <= maxHold:
		// Its chat waits with it, so that answers stay in order and in one piece.
		e.store.Throttle(d.Destination(), 0, time.Now().Add(delay))
	default:
		d.Due = time.Now().Add(max(delay, askedToWait(err)))
	}
	e.settle(config, d, err)
}

// maxHold is for how long a chat is held up by an answer that fails again and again. After that others pass it.
const maxHold = 5 * time.Minute

// askedToWait is the pause that the other side asked for when an attempt failed, 0 if it did not.
func askedToWait(err error) time.Duration {
	var later *RetryLaterError
	if errors.As(err, &later) {
		return later.After
	}
	return 0
}

// heed has others benefit from how an attempt went: nothing is sent in vain to a host that cannot be reached, and a chat
// whose service asked for a pause gets one. It reports whether the host has been down for so long that the delivery is to be
// given up.
func (e *Engine) heed(config *Config, d *Delivery, err error) (hopeless bool) {
	to := d.Destination()
	host := Destination{Host: to.Host}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		pause, down := e.breakers.failed(host, d.TriedAt, 0)
		if pause > 0 {
			config.Log.Warn("a host cannot be reached, and gets a pause", zap.String("host", host.Host), zap.Duration("pause", pause))
		}
		if down <= overdueAfter {
			return false
		}
		e.giveUpOverdue(config, host.Host)
		return d.Restart == 0 && !d.CreatedAt.IsZero() && time.Since(d.CreatedAt) > overdueAfter
	}
	var later *RetryLaterError
	switch asked := errors.As(err, &later); {
	case asked && to.Chat != "" && later.Everywhere:
		e.breakers.failed(host, d.TriedAt, later.After)
	case asked && to.Chat != "":
		e.breakers.succeeded(host)
		e.breakers.failed(to, d.TriedAt, later.After)
	default:
		e.breakers.succeeded(host)
		e.breakers.succeeded(to)
	}
	return false
}

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
		log := config.Log.Warn
		if d.Channel != "" && askedToWait(cause) > 0 {
			log = config.Log.Debug // which happens all the time
		}
		log("delivery failed, will be tried again", append(fields, zap.Error(cause), zap.Time("due", d.Due))...)
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

// lastError is what is told about an attempt that failed, "" if it did not.
func lastError(err error) string {
	if err == nil {
		return ""
	}
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
