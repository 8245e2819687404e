package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/retries"
)

const (
	// attemptsAtOnce bounds the attempts that are under way together, and is a good deal more than PerHost.
	attemptsAtOnce = 256
	// unsettledAtOnce bounds them together with those whose end is still being stored.
	unsettledAtOnce = 1024
)

// loop sends out deliveries as they become due, until the engine stops.
func (s *deliveries) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := time.Second // if the store panics
		s.protect("claiming deliveries", func() { wait = s.sendDue() })
		if wait < 0 {
			timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-s.stopping:
			return
		case <-s.store.Watch().Due():
		case <-s.more:
		case <-timer.C:
		}
	}
}

// sendDue starts an attempt for each delivery that is due, as far as there is room, and says how long until there is more,
// negative if that is not a question of time.
func (s *deliveries) sendDue() (wait time.Duration) {
	most := min(attemptsAtOnce-int(s.attempts.Load()), unsettledAtOnce-s.leases.heldDeliveries())
	if most <= 0 {
		return -1 // an attempt that ends signals
	}
	if !s.leases.areFresh() {
		signal(s.leases.now)
		return -1 // as does a renewal
	}
	askedAt := time.Now()
	due, wait, err := s.store.Deliveries().Claim(s.base, DeliveryBatch{Max: most, Lease: s.lease()})
	if s.store.noteBroken(err) {
		return -1
	}
	if err != nil {
		s.store.failed("claiming deliveries failed, trying again in a second", err)
		return time.Second
	}
	for _, d := range due {
		s.attempts.Add(1)
		ctx, cancel := context.WithCancelCause(s.base)
		release := s.leases.holdDelivery(d, cancel)
		s.workers.Go(func() {
			defer signal(s.more)
			defer release()
			defer cancel(nil)
			s.protect("sending a delivery", func() { s.sendOnce(ctx, d, askedAt) })
		})
	}
	return wait
}

// sendOnce makes one attempt and stores how it went. askedAt is when the delivery was claimed.
func (s *deliveries) sendOnce(ctx context.Context, d *Delivery, askedAt time.Time) {
	config := s.config()
	if time.Since(askedAt) > s.lease()/3 {
		_ = s.leases.renew() // the process stood still: the store tells whether the claim holds
	}
	if errors.Is(context.Cause(ctx), ErrClaimLost) {
		s.attempts.Add(-1)
		return
	}
	before := *d
	d.Attempt++
	d.LastStatus, d.LastAnswer = 0, ""
	began := time.Now()
	sending, ended := s.trace(ctx, d)
	err := s.send(sending, config, d)
	ended(err)
	took := time.Since(began)
	s.attempts.Add(-1)
	d.Status = Pending
	if err != nil && errors.Is(context.Cause(ctx), ErrClaimLost) {
		s.metrics().DeliveryAttempted(d, took, err)
		return // another node sends it
	}
	if err != nil && s.base.Err() != nil {
		s.metrics().DeliveryAttempted(d, took, err)
		before.Sent = d.Sent
		s.settle(config, &before, err, 0, nil) // it was us who broke it off, and it is as due as before
		return
	}
	var throttles []Throttle
	if err != nil && d.Sent > before.Sent { // as long as parts arrive it is on its way
		d.Restart = d.Attempt - 1
		throttles = s.breakers.Succeeded(d.Destination())
	}
	learned, hopeless := s.learn(config, d, began, err)
	throttles = append(throttles, learned...)

	var final *FinalError
	var pause time.Duration
	delay, more := retries.Delay(d.Attempt - d.Restart)
	d.LastError = lastError(err)
	d.remember(Attempt{At: d.TriedAt, Took: took, Status: d.LastStatus, Error: d.LastError})
	switch {
	case err == nil:
		d.Status, d.LastAnswer = Delivered, ""
	case askedToWait(err) > 0 && d.Channel != "" && d.TriedAt.Sub(d.CreatedAt) < overdueAfter:
		d.Attempt-- // to be told to wait is no failure. It is still due, and so stays the first of its chat.
	case errors.As(err, &final), !more, hopeless:
		d.Status = Dead
	case d.Channel != "" && delay <= maxHold:
		// Its chat waits with it, so that answers stay in order and in one piece.
		throttles = append(throttles, Throttle{To: d.Destination(), Pause: delay})
	default:
		pause = max(delay, askedToWait(err))
	}
	s.metrics().DeliveryAttempted(d, took, err)
	s.settle(config, d, err, pause, throttles)
}

// maxHold is how long a chat is held up by an answer that fails again and again. After that others pass it.
const maxHold = 5 * time.Minute

// askedToWait is the pause that the other side asked for when an attempt failed, 0 if it did not.
func askedToWait(err error) time.Duration {
	var later *RetryLaterError
	if errors.As(err, &later) {
		return later.After
	}
	return 0
}

// learn lets other deliveries benefit from how an attempt went: nothing is sent in vain to a host that cannot be reached,
// and a chat whose service asked for a pause gets one. hopeless says that the host has been down for so long that the
// delivery is to be given up.
func (s *deliveries) learn(config *Config, d *Delivery, began time.Time, err error) (throttles []Throttle, hopeless bool) {
	to := d.Destination()
	host := Destination{Host: to.Host}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		throttles, down, news := s.breakers.Failed(host, began, 0)
		if news {
			config.Log.Warn("host unreachable; deliveries pause", zap.String("host", host.Host), zap.Duration("pause", throttles[0].Pause))
		}
		if down <= overdueAfter {
			return throttles, false
		}
		s.giveUpOverdue(config, host.Host)
		return throttles, d.Restart == 0 && !d.CreatedAt.IsZero() && d.TriedAt.Sub(d.CreatedAt) > overdueAfter
	}
	var later *RetryLaterError
	switch asked := errors.As(err, &later); {
	case asked && to.Chat != "" && later.WholeChannel:
		throttles, _, _ = s.breakers.Failed(host, began, later.After)
	case asked && to.Chat != "":
		throttles, _, _ = s.breakers.Failed(to, began, later.After)
		throttles = append(throttles, s.breakers.Succeeded(host)...)
	default:
		throttles = s.breakers.Succeeded(host)
		if to.Chat != "" {
			throttles = append(throttles, s.breakers.Succeeded(to)...)
		}
	}
	return throttles, false
}

// overdueAfter is how long a delivery waits for a host that cannot be reached all the while before it is given up. As
// attempts to such a host are few, the schedule alone would take for ever when there are many deliveries to it.
const overdueAfter = 24 * time.Hour

// giveUpOverdue gives up deliveries that have waited in vain for a host for too long.
func (s *deliveries) giveUpOverdue(config *Config, host string) {
	for s.base.Err() == nil {
		batch := DeliveryBatch{Max: 100, Lease: s.lease(), Host: host, DueFor: overdueAfter}
		overdue, _, err := s.store.Deliveries().Claim(s.base, batch)
		if err != nil {
			s.store.failed("claiming overdue deliveries failed", err)
		}
		if len(overdue) == 0 {
			return
		}
		var all sync.WaitGroup
		for _, d := range overdue {
			release := s.leases.holdDelivery(d, func(error) {})
			all.Go(func() {
				defer release()
				err := errors.New("the host could not be reached for a day")
				d.Status, d.LastError = Dead, err.Error()
				s.metrics().DeliveryAttempted(d, 0, err)
				s.settle(config, d, err, 0, nil)
			})
		}
		all.Wait()
	}
}

// settle stores how an attempt went, which d tells, and why it failed if it did.
func (s *deliveries) settle(config *Config, d *Delivery, cause error, pause time.Duration, throttles []Throttle) {
	fields := []zap.Field{zap.String("delivery_id", d.ID), zap.String("run_id", d.RunID), zap.String("host", d.Destination().Host),
		zap.Int("attempt", d.Attempt)}
	switch d.Status {
	case Delivered:
		config.Log.Debug("delivered", fields...)
	case Dead:
		config.Log.Error("delivery given up", append(fields, panics.Field(cause))...)
	case Pending:
		log := config.Log.Warn
		if d.Channel != "" && askedToWait(cause) > 0 {
			log = config.Log.Debug // which happens all the time
		}
		log("delivery failed, will be tried again", append(fields, panics.Field(cause),
			zap.Time("due", time.Now().Add(retries.UntilNext(d.Destination(), pause, throttles))))...)
	}
	settle := func(ctx context.Context) error {
		signal(s.more) // its place is free for another one, while it is being stored
		return s.store.Deliveries().Settle(ctx, d, pause, throttles...)
	}
	switch err := s.store.insist(config, writeDelivery, d.RunID, settle); {
	case errors.Is(err, ErrClaimLost):
		config.Log.Warn("delivery result dropped; another node has the delivery", fields...)
	case err != nil:
		s.store.failed("recording a delivery failed", err, fields...)
	default:
		switch d.Status {
		case Delivered:
			s.minutes.Delivered()
		case Dead:
			s.minutes.Dead()
		}
		s.announceSettled(d)
		s.events.Deliveries.Publish(d.ID)
	}
}

// lastError is what is told about an attempt that failed, "" if it did not.
func lastError(err error) string {
	if err == nil {
		return ""
	}
	var panicked *panics.Error
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
func (s *deliveries) send(ctx context.Context, config *Config, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panics.New("the sender", p)
		}
	}()
	if d.Channel == "" {
		return config.Callbacks.Send(ctx, d)
	}
	channel, ok := config.Channels[d.Channel]
	if !ok {
		return fmt.Errorf("there is no channel %q any more", d.Channel)
	}
	if d.Question != "" {
		return s.sendQuestion(ctx, config, channel, d)
	}
	return channel.Send(ctx, d)
}

// trace begins the span of an attempt at a delivery. Its sender finds the trace parent in the context. The trace of the run
// is read from the store rather than kept with each delivery: where nobody traces, that costs nothing.
func (s *deliveries) trace(ctx context.Context, d *Delivery) (traced context.Context, end func(error)) {
	traces := s.traces()
	if traces == nil {
		return ctx, notTraced
	}
	asking, stop := s.store.context()
	record, err := s.store.Runs().Get(asking, d.RunID)
	stop()
	if err != nil || record.Run.TraceParent == "" { // a store that fails is noticed when the attempt is settled
		return ctx, notTraced
	}
	traceParent, endSpan := traces.DeliveryBegins(record.Run, d)
	return context.WithValue(ctx, traceParentKey{}, traceParent), func(err error) { endSpan(deliveryFailure(ctx, d, err)) }
}
