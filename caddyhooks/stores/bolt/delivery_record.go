package bolt

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The fields of a delivery.
const (
	deliveryID protowire.Number = iota + 1
	deliveryChat
	deliveryRunStatus
	deliveryCallback
	deliveryChannel
	deliveryTo
	deliveryContentType
	deliveryBody
	deliveryStatus
	deliveryAttempt
	deliveryDue
	deliveryLastError
	deliverySent
	deliveryRestart
	deliveryCreatedAt
	deliveryTriedAt
	deliveryLastStatus
	deliveryLastAnswer
	deliveryToken
	deliveryHook
	deliveryHistory // once for each attempt
)

// The fields of an attempt at a delivery.
const (
	attemptAt protowire.Number = iota + 1
	attemptTook
	attemptStatus
	attemptError
)

func encodeDelivery(d *engine.Delivery) []byte {
	e := newEncoder(256 + len(d.Body) + len(d.Callback))
	e.text(deliveryID, d.ID)
	e.text(deliveryChat, d.ChatID)
	e.text(deliveryRunStatus, string(d.RunStatus))
	e.text(deliveryCallback, d.Callback)
	e.text(deliveryChannel, d.Channel)
	e.text(deliveryTo, d.To)
	e.text(deliveryContentType, d.ContentType)
	e.text(deliveryStatus, string(d.Status))
	e.number(deliveryAttempt, int64(d.Attempt))
	e.time(deliveryDue, d.Due)
	e.text(deliveryLastError, d.LastError)
	e.number(deliverySent, int64(d.Sent))
	e.number(deliveryRestart, int64(d.Restart))
	e.time(deliveryCreatedAt, d.CreatedAt)
	e.time(deliveryTriedAt, d.TriedAt)
	e.number(deliveryLastStatus, int64(d.LastStatus))
	e.text(deliveryLastAnswer, d.LastAnswer)
	e.text(deliveryToken, d.Token)
	e.text(deliveryHook, d.Hook)
	for i := range d.History {
		e.bytes(deliveryHistory, encodeAttempt(&d.History[i]))
	}
	e.text(deliveryBody, d.Body)
	return e.data
}

// encodeAttempt writes down an attempt at a delivery.
func encodeAttempt(a *engine.Attempt) []byte {
	e := encoder{data: make([]byte, 0, 32+len(a.Error))}
	e.time(attemptAt, a.At)
	e.number(attemptTook, int64(a.Took))
	e.number(attemptStatus, int64(a.Status))
	e.text(attemptError, a.Error)
	return e.data
}

// decodeAttempt reads what encodeAttempt wrote.
func decodeAttempt(data []byte) (a engine.Attempt, err error) {
	err = eachField(data, func(n protowire.Number, f field) bool {
		switch n {
		case attemptAt:
			a.At = f.time()
		case attemptTook:
			a.Took = f.duration()
		case attemptStatus:
			a.Status = f.int()
		case attemptError:
			a.Error = f.text()
		}
		return true
	})
	return a, err
}

func decodeDelivery(key local.DeliveryKey, data []byte) (*engine.Delivery, error) {
	d := &engine.Delivery{RunID: key.Run().String(), Index: key.Index()}
	var attemptErr error
	err := fieldsOf(key[:], data, func(n protowire.Number, f field) bool {
		switch n {
		case deliveryID:
			d.ID = f.text()
		case deliveryChat:
			d.ChatID = f.text()
		case deliveryRunStatus:
			d.RunStatus = engine.Status(f.text())
		case deliveryCallback:
			d.Callback = f.text()
		case deliveryChannel:
			d.Channel = f.text()
		case deliveryTo:
			d.To = f.text()
		case deliveryContentType:
			d.ContentType = f.text()
		case deliveryBody:
			d.Body = f.text()
		case deliveryStatus:
			d.Status = engine.DeliveryStatus(f.text())
		case deliveryAttempt:
			d.Attempt = f.int()
		case deliveryDue:
			d.Due = f.time()
		case deliveryLastError:
			d.LastError = f.text()
		case deliverySent:
			d.Sent = f.int()
		case deliveryRestart:
			d.Restart = f.int()
		case deliveryCreatedAt:
			d.CreatedAt = f.time()
		case deliveryTriedAt:
			d.TriedAt = f.time()
		case deliveryLastStatus:
			d.LastStatus = f.int()
		case deliveryLastAnswer:
			d.LastAnswer = f.text()
		case deliveryToken:
			d.Token = f.text()
		case deliveryHook:
			d.Hook = f.text()
		case deliveryHistory:
			var attempt engine.Attempt
			attempt, attemptErr = decodeAttempt(f.bytes)
			d.History = append(d.History, attempt)
		}
		return attemptErr == nil
	})
	return d, errors.Join(err, attemptErr)
}
