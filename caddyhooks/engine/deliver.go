package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// attemptsAtOnce bounds the attempts that are under way together, and is a good deal more than PerHost.
	attemptsAtOnce = 256
	// unsettledAtOnce bounds them together with those whose end is still being stored.
	unsettledAtOnce = 1024
)

// deliver sends out deliveries as they become due, until the engine stops.
func (e *Engine) deliver() {
	defer e.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := time.Second // if the store panics
		e.protect("claiming deliveries", func() { wait = e.sendDue() })
		if wait < 0 {
			timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-e.stopping:
			return
		case <-e.store.Watch().Due():
		case <-e.sendMore:
		case <-timer.C:
		}
	}
}

// sendDue starts an attempt for each delivery that is due, as far as there is room, and says how long until there is more,
// negative if that is not a question of time.
func (e *Engine) sendDue() (wait time.Duration) {
	e.mu.Lock()
	room := min(attemptsAtOnce-int(e.attempts.Load()), unsettledAtOnce-len(e.sending))
	e.mu.Unlock()
	if room <= 0 {
		return -1 // an attempt that ends signals
	}
	if !e.leasesAreFresh() {
		signal(e.renewNow)
		return -1 // as does a renewal
	}
	askedAt := time.Now()
	due, wait, err := e.store.Deliveries().Claim(e.base, DeliveryBatch{Max: room, Lease: e.lease()})
	if e.noteBroken(err) {
		return -1
	}
	if err != nil {
		e.storeFailed("claiming deliveries failed, trying again in a second", err)
		return time.Second
	}
	for _, d := range due {
		e.attempts.Add(1)
		ctx, attempt := e.beginAttempt(d)
		e.workers.Add(1)
		go func() {
			defer e.workers.Done()
			defer signal(e.sendMore)
			defer e.endAttempt(attempt)
			e.protect("sending a delivery", func() { e.sendOnce(ctx, d, askedAt) })
		}()
	}
	return wait
}

// attempting is a delivery that this node has claimed, until its end is stored.
type attempting struct {
	claimed *Delivery // for its id and token
	cancel  context.CancelCauseFunc
}

func (e *Engine) beginAttempt(d *Delivery) (context.Context, *attempting) {
	ctx, cancel := context.WithCancelCause(e.base)
	attempt := &attempting{claimed: &Delivery{ID: d.ID, RunID: d.RunID, Index: d.Index, Token: d.Token}, cancel: cancel}
	e.mu.Lock()
	e.sending[attempt] = struct{}{}
	e.mu.Unlock()
	return ctx, attempt
}

func (e *Engine) endAttempt(attempt *attempting) {
	attempt.cancel(nil)
	e.mu.Lock()
	delete(e.sending, attempt)
	e.mu.Unlock()
}

// sendOnce makes one attempt and stores how it went. askedAt is when the delivery was claimed.
func (e *Engine) sendOnce(ctx context.Context, d *Delivery, askedAt time.Time) {
	config := e.config.Load()
	if time.Since(askedAt) > e.lease()/3 {
		_ = e.renewLeases() // the process stood still: the store tells whether the claim holds
	}
	if errors.Is(context.Cause(ctx), ErrClaimLost) {
		e.attempts.Add(-1)
		return
	}
	before := *d
	d.Attempt++
	d.LastStatus, d.LastAnswer = 0, ""
	began := time.Now()
	sending, ended := e.traceDelivery(ctx, d)
	err := send(sending, config, d)
	ended(err)
	took := time.Since(began)
	e.attempts.Add(-1)
	d.Status = Pending
	if err != nil && errors.Is(context.Cause(ctx), ErrClaimLost) {
		e.metrics().DeliveryAttempted(d, took, err)
		return // another node sends it
	}
	if err != nil && e.base.Err() != nil {
		e.metrics().DeliveryAttempted(d, took, err)
		before.Sent = d.Sent
		e.settle(config, &before, err, 0, nil) // it was us who broke it off, and it is as due as before
		return
	}
	var throttles []Throttle
	if err != nil && d.Sent > before.Sent { // as long as parts arrive it is on its way
		d.Restart = d.Attempt - 1
		throttles = e.breakers.succeeded(d.Destination())
	}
	learned, hopeless := e.learn(config, d, began, err)
	throttles = append(throttles, learned...)

	var final *FinalError
	var pause time.Duration
	delay, more := retryDelay(d.Attempt-d.Restart, rand.Float64)
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
	e.metrics().DeliveryAttempted(d, took, err)
	e.settle(config, d, err, pause, throttles)
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
func (e *Engine) learn(config *Config, d *Delivery, began time.Time, err error) (throttles []Throttle, hopeless bool) {
	to := d.Destination()
	host := Destination{Host: to.Host}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		throttles, down, news := e.breakers.failed(host, began, 0)
		if news {
			config.Log.Warn("a host cannot be reached, and gets a pause", zap.String("host", host.Host), zap.Duration("pause", throttles[0].Pause))
		}
		if down <= overdueAfter {
			return throttles, false
		}
		e.giveUpOverdue(config, host.Host)
		return throttles, d.Restart == 0 && !d.CreatedAt.IsZero() && d.TriedAt.Sub(d.CreatedAt) > overdueAfter
	}
	var later *RetryLaterError
	switch asked := errors.As(err, &later); {
	case asked && to.Chat != "" && later.WholeChannel:
		throttles, _, _ = e.breakers.failed(host, began, later.After)
	case asked && to.Chat != "":
		throttles, _, _ = e.breakers.failed(to, began, later.After)
		throttles = append(throttles, e.breakers.succeeded(host)...)
	default:
		throttles = e.breakers.succeeded(host)
		if to.Chat != "" {
			throttles = append(throttles, e.breakers.succeeded(to)...)
		}
	}
	return throttles, false
}

// overdueAfter is how long a delivery waits for a host that cannot be reached all the while before it is given up. As
// attempts to such a host are few, the schedule alone would take for ever when there are many deliveries to it.
const overdueAfter = 24 * time.Hour

// giveUpOverdue gives up deliveries that have waited in vain for a host for too long.
func (e *Engine) giveUpOverdue(config *Config, host string) {
	for e.base.Err() == nil {
		batch := DeliveryBatch{Max: 100, Lease: e.lease(), Host: host, DueFor: overdueAfter}
		overdue, _, err := e.store.Deliveries().Claim(e.base, batch)
		if err != nil {
			e.storeFailed("claiming overdue deliveries failed", err)
		}
		if len(overdue) == 0 {
			return
		}
		var all sync.WaitGroup
		for _, d := range overdue {
			_, attempt := e.beginAttempt(d)
			all.Go(func() {
				defer e.endAttempt(attempt)
				err := errors.New("the host could not be reached for a day")
				d.Status, d.LastError = Dead, err.Error()
				e.metrics().DeliveryAttempted(d, 0, err)
				e.settle(config, d, err, 0, nil)
			})
		}
		all.Wait()
	}
}

// settle stores how an attempt went, which d tells, and why it failed if it did.
func (e *Engine) settle(config *Config, d *Delivery, cause error, pause time.Duration, throttles []Throttle) {
	fields := []zap.Field{zap.String("delivery_id", d.ID), zap.String("run_id", d.RunID), zap.String("host", d.Destination().Host),
		zap.Int("attempt", d.Attempt)}
	switch d.Status {
	case Delivered:
		config.Log.Debug("delivered", fields...)
	case Dead:
		config.Log.Error("delivery given up", append(fields, ErrorField(cause))...)
	case Pending:
		log := config.Log.Warn
		if d.Channel != "" && askedToWait(cause) > 0 {
			log = config.Log.Debug // which happens all the time
		}
		log("delivery failed, will be tried again", append(fields, ErrorField(cause), zap.Time("due", time.Now().Add(untilNext(d.Destination(), pause, throttles))))...)
	}
	settle := func(ctx context.Context) error {
		signal(e.sendMore) // its place is free for another one, while it is being stored
		return e.store.Deliveries().Settle(ctx, d, pause, throttles...)
	}
	switch err := e.insist(config, writeDelivery, d.RunID, settle); {
	case errors.Is(err, ErrClaimLost):
		config.Log.Warn("how a delivery went is not recorded, since another node has it", fields...)
	case err != nil:
		e.storeFailed("recording a delivery failed", err, fields...)
	default:
		switch d.Status {
		case Delivered:
			e.minutes.Delivered()
		case Dead:
			e.minutes.Dead()
		}
		e.announceSettled(d)
		e.events.Deliveries.publish(d.ID)
	}
}

// untilNext is how long a delivery waits that has a pause of its own, after throttles of its host and of its chat.
func untilNext(to Destination, own time.Duration, throttles []Throttle) time.Duration {
	pauses := make(map[Destination]time.Duration)
	for _, t := range throttles { // of two for the same, the last one counts
		pauses[t.To] = t.Pause
	}
	return max(own, pauses[to], pauses[Destination{Host: to.Host}])
}

// lastError is what is told about an attempt that failed, "" if it did not.
func lastError(err error) string {
	if err == nil {
		return ""
	}
	var panicked *PanicError
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
			err = newPanicError("the sender", p)
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
