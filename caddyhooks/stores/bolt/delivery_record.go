package bolt

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// deliveryFields are the fields of a delivery, in the order of their numbers.
func deliveryFields(d *engine.Delivery) []any {
	return []any{
		&d.ID, &d.ChatID, (*string)(&d.RunStatus), &d.Callback, &d.Channel, &d.To, &d.ContentType, &d.Body, (*string)(&d.Status), &d.Attempt,
		&d.Due, &d.LastError, &d.Sent, &d.Restart, &d.CreatedAt, &d.TriedAt, &d.LastStatus, &d.LastAnswer, &d.Token, &d.Hook, &d.History,
		&d.Repeats, &d.Progress, &d.Question, &d.Closes,
	}
}

// Numbers of them that are looked for.
const (
	deliveryChannel protowire.Number = 5
	deliveryStatus  protowire.Number = 9
	deliveryTriedAt protowire.Number = 16
)

func attemptFields(a *engine.Attempt) []any { return []any{&a.At, &a.Took, &a.Status, &a.Error} }

func encodeDelivery(d *engine.Delivery) []byte {
	return encodeFields(newEncoder(256+len(d.Body)+len(d.Callback)), deliveryFields(d))
}

func decodeDelivery(key local.DeliveryKey, data []byte) (*engine.Delivery, error) {
	d := &engine.Delivery{RunID: key.Run().String(), Index: key.Index()}
	return d, decodeFields(key[:], data, deliveryFields(d))
}
