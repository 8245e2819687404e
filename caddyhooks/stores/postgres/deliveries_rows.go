package postgres

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// deliveryColumns are the columns of a deliveryRow.
const deliveryColumns = "run, index, status, created_at, due, tried_at, token, record, body"

// deliveryRow is a row with the deliveryColumns.
type deliveryRow struct {
	run           uuid.NullUUID
	index         *int32
	status, token *string
	created, due  *time.Time
	tried         *time.Time
	record, body  []byte
}

func (r *deliveryRow) fields() []any {
	return []any{&r.run, &r.index, &r.status, &r.created, &r.due, &r.tried, &r.token, &r.record, &r.body}
}

func (r *deliveryRow) delivery() (*engine.Delivery, error) {
	run := r.run.UUID.String()
	d := &engine.Delivery{ID: engine.DeliveryID(run, int(*r.index)), RunID: run, Index: int(*r.index), Body: string(r.body),
		Status: engine.DeliveryStatus(*r.status), CreatedAt: *r.created, Due: *r.due}
	if err := codec.DecodeDelivery(r.record, d); err != nil {
		return nil, err
	}
	if r.tried != nil {
		d.TriedAt = *r.tried
	}
	if r.token != nil {
		d.Token = *r.token
	}
	return d, nil
}

// scanDelivery reads a row with the deliveryColumns.
func scanDelivery(rows pgx.Rows) (*engine.Delivery, error) {
	var row deliveryRow
	if err := rows.Scan(row.fields()...); err != nil {
		return nil, err
	}
	return row.delivery()
}

// decodeDeliveries reads what the function run_deliveries_1 writes.
func decodeDeliveries(data []byte, run string) (all []*engine.Delivery, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	var rows []struct {
		Index                   int
		Status, Token           string
		CreatedAt, Due, TriedAt int64 // in microseconds
		Record                  json.RawMessage
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		d := &engine.Delivery{ID: engine.DeliveryID(run, r.Index), RunID: run, Index: r.Index, Status: engine.DeliveryStatus(r.Status),
			Token:     r.Token,
			CreatedAt: time.UnixMicro(r.CreatedAt), Due: time.UnixMicro(r.Due)}
		if err := codec.DecodeDelivery(r.Record, d); err != nil {
			return nil, err
		}
		if r.TriedAt != 0 {
			d.TriedAt = time.UnixMicro(r.TriedAt)
		}
		all = append(all, d)
	}
	return all, nil
}

// deliveryRun is the id of the run of a delivery, as the database knows it. A caller may have made up the delivery.
func deliveryRun(d *engine.Delivery) (run string, ok bool) {
	id, err := uuid.Parse(d.RunID)
	return id.String(), err == nil && d.Index >= 0 && d.Index <= 255
}
