package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// deliveryCall is a Claim, or a Settle. They go to the database together, since each attempt that ends makes room for another one.
type deliveryCall struct {
	claim *engine.DeliveryBatch
	due   []*engine.Delivery
	wait  time.Duration

	settle *settlement
	lost   bool
}

// settlement is how an attempt ended, as the database is told.
type settlement struct {
	run, token, status, record string
	index                      int32
	pause                      float64
	throttles                  []engine.Throttle
}

func (d *deliveries) Claim(ctx context.Context, batch engine.DeliveryBatch) (due []*engine.Delivery, wait time.Duration, err error) {
	if batch.Host != "" {
		due, err = d.claimOverdue(ctx, batch)
		return due, -1, err
	}
	call := &deliveryCall{claim: &batch}
	if err := d.calls.do(ctx, call); err != nil {
		return nil, 0, err
	}
	return call.due, call.wait, nil
}

// claimOverdue claims deliveries to one host that have been due for long.
func (d *deliveries) claimOverdue(ctx context.Context, batch engine.DeliveryBatch) (due []*engine.Delivery, err error) {
	if batch.Max <= 0 {
		return nil, nil
	}
	err = d.on(deliveryCalls).query(ctx, func(rows pgx.Rows) error {
		delivery, err := scanDelivery(rows)
		due = append(due, delivery)
		return err
	}, "SELECT "+deliveryColumns+" FROM @.claim_overdue_1($1, $2, $3, $4, $5)",
		d.node, codec.Escape(batch.Host), batch.DueFor.Seconds(), batch.Max, batch.Lease.Seconds())
	sortByDue(due)
	return due, err
}

func sortByDue(due []*engine.Delivery) {
	slices.SortStableFunc(due, func(a, b *engine.Delivery) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
}

func (d *deliveries) Settle(ctx context.Context, delivery *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) error {
	run, ok := deliveryRun(delivery)
	if !ok || delivery.Token == "" {
		return engine.ErrClaimLost
	}
	record, err := codec.EncodeDelivery(delivery)
	if err != nil {
		return err
	}
	call := &deliveryCall{settle: &settlement{run: run, index: int32(delivery.Index), token: codec.Escape(delivery.Token),
		status: string(delivery.Status),
		record: record, pause: pause.Seconds(), throttles: slices.Clone(throttles)}}
	if err := d.calls.do(ctx, call); err != nil {
		return err
	}
	if call.lost {
		return engine.ErrClaimLost
	}
	return nil
}

// deliver has settlements and claims go to the database: the settlements with the first claim, the other claims after that.
func (d *deliveries) deliver(ctx context.Context, calls []*deliveryCall) error {
	var settles, claims []*deliveryCall
	for _, call := range calls {
		if call.settle != nil {
			settles = append(settles, call)
		} else {
			claims = append(claims, call)
		}
	}
	for len(settles) > 0 || len(claims) > 0 {
		var claim *deliveryCall
		if len(claims) > 0 {
			claim, claims = claims[0], claims[1:]
		}
		if err := d.deliverOnce(ctx, settles, claim); err != nil {
			return err
		}
		settles = nil
	}
	return nil
}

// deliverOnce is one call of the database. There may be no claim.
func (d *deliveries) deliverOnce(ctx context.Context, settles []*deliveryCall, claim *deliveryCall) error {
	s := newSettlements()
	for _, call := range settles {
		s.add(call.settle)
	}
	batch := engine.DeliveryBatch{}
	if claim != nil {
		batch = *claim.claim
	}
	var (
		due  []*engine.Delivery
		lost []int32
		wait float64
		more bool // due than were handed out
	)
	asked := time.Now()
	err := d.on(deliveryCalls).query(ctx, func(rows pgx.Rows) error {
		var (
			row     deliveryRow
			rowWait *float64
			rowMore *bool
			rowLost []int32
		)
		if err := rows.Scan(append([]any{&rowLost, &rowWait, &rowMore}, row.fields()...)...); err != nil {
			return err
		}
		if !row.run.Valid {
			lost, wait, more = rowLost, *rowWait, *rowMore
			return nil
		}
		delivery, err := row.delivery()
		due = append(due, delivery)
		return err
	}, "SELECT lost, wait, more, "+deliveryColumns+" FROM @.deliver_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		d.node, s.runs, s.indexes, s.tokens, s.statuses, s.pauses, s.records,
		s.throttlesOf, s.throttleHosts, s.throttleChats, s.atOnce, s.throttlePauses, batch.Max, batch.Lease.Seconds())
	if err != nil {
		return err
	}
	d.commits.note(len(settles), asked)
	for _, place := range lost {
		settles[place-1].lost = true
	}
	if claim != nil {
		sortByDue(due)
		claim.due, claim.wait = due, -1
		if wait >= 0 {
			claim.wait = time.Duration(wait * float64(time.Second))
		}
	}
	if more || s.later {
		d.watch.tellOthers("d")
	}
	return nil
}

// settlements are the arguments of a call that settles attempts.
type settlements struct {
	runs, tokens, statuses, records []string
	indexes                         []int32
	pauses                          []float64

	throttlesOf, atOnce []int32
	throttleHosts       []string
	throttleChats       []*string
	throttlePauses      []float64

	later bool // some are to be sent again
}

// newSettlements makes the arguments of a call that settles nothing: a nil slice would be no array.
func newSettlements() *settlements {
	return &settlements{runs: []string{}, tokens: []string{}, statuses: []string{}, records: []string{}, indexes: []int32{},
		pauses:      []float64{},
		throttlesOf: []int32{}, atOnce: []int32{}, throttleHosts: []string{}, throttleChats: []*string{}, throttlePauses: []float64{}}
}

func (s *settlements) add(one *settlement) {
	s.runs, s.indexes, s.tokens = append(s.runs, one.run), append(s.indexes, one.index), append(s.tokens, one.token)
	s.statuses, s.records, s.pauses = append(s.statuses, one.status), append(s.records, one.record), append(s.pauses, one.pause)
	s.later = s.later || one.status == string(engine.Pending)
	for _, t := range one.throttles {
		s.throttlesOf, s.atOnce = append(s.throttlesOf, int32(len(s.runs))), append(s.atOnce, int32(t.AtOnce))
		s.throttleHosts = append(s.throttleHosts, codec.Escape(t.To.Host))
		s.throttleChats = append(s.throttleChats, chatColumn(t.To))
		s.throttlePauses = append(s.throttlePauses, t.Pause.Seconds())
	}
}

// chatColumn is the chat of a destination as the database has it.
func chatColumn(to engine.Destination) *string {
	if to.Chat == "" {
		return nil
	}
	chat := codec.Escape(to.Chat)
	return &chat
}
