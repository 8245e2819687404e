package api

import (
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// DeliveryDetails is a delivery as operators see it. See NewDeliveryDetails and NewDeliverySummary.
type DeliveryDetails struct {
	Delivery
	RunID         string        `json:"runId"`
	RunStatus     engine.Status `json:"runStatus"`
	ChatID        string        `json:"chatId"`
	Hook          string        `json:"hook,omitempty"`
	CreatedAt     *time.Time    `json:"createdAt,omitempty"`
	LastAttemptAt *time.Time    `json:"lastAttemptAt,omitempty"`
	NextAttemptAt *time.Time    `json:"nextAttemptAt,omitempty"`
	WaitsFor      string        `json:"waitsFor,omitempty"`
	LastStatus    int           `json:"lastStatus,omitempty"`
	LastAnswer    string        `json:"lastAnswer,omitempty"`
	ContentType   string        `json:"contentType,omitempty"`
	Body          string        `json:"body,omitempty"`
}

// DeliveriesPage is a page of the list of deliveries.
type DeliveriesPage struct {
	Deliveries []DeliveryDetails `json:"deliveries"`
	Cursor     string            `json:"cursor,omitempty"` // of the next page
	Paused     []Paused          `json:"paused,omitempty"` // with the first page
}

// NewDeliveryDetails is for the answer to a question about this one delivery. It alone has the path of a callback.
func NewDeliveryDetails(d *engine.Delivery) DeliveryDetails {
	details := NewDeliverySummary(d)
	details.LastAnswer, details.Body, details.History = d.LastAnswer, d.Body, NewAttempts(d.History)
	if u, err := url.Parse(d.Callback); err == nil && u.Host != "" {
		details.Target = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
		if u.RawQuery != "" { // a receiver may quote it
			details.LastAnswer = strings.ReplaceAll(details.LastAnswer, u.RawQuery, text.Mask)
		}
	}
	return details
}

// NewDeliverySummary leaves out the body, and an answer in which the receiver of a callback may quote its path.
func NewDeliverySummary(d *engine.Delivery) DeliveryDetails {
	details := DeliveryDetails{
		Delivery: NewDelivery(d), RunID: d.RunID, RunStatus: d.RunStatus, ChatID: d.ChatID, Hook: d.Hook,
		CreatedAt: text.JSONTime(d.CreatedAt), LastAttemptAt: text.JSONTime(d.TriedAt),
		LastStatus: d.LastStatus, ContentType: d.ContentType,
	}
	if d.Channel != "" {
		details.LastAnswer = d.LastAnswer
	}
	details.ID = engine.DeliveryID(d.RunID, d.Index)          // deliveries of the first version have another id, by which they are not found
	if d.Status == engine.Pending && d.Due.After(d.TriedAt) { // its own schedule; the engine knows more
		details.NextAttemptAt = text.JSONTime(d.Due)
	}
	return details
}

// Paused is a host or a channel that is left alone until a time, since it cannot be reached or asked for a pause.
type Paused struct {
	Host    string     `json:"host,omitempty"` // as the parameter host takes it
	Channel string     `json:"channel,omitempty"`
	Until   *time.Time `json:"until"`
}

// Delivery is a delivery as its run shows it.
type Delivery struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`   // "callback" or "channel"
	Target    string                `json:"target"` // scheme and host of a callback, or channel:address
	Status    engine.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	Repeats   int                   `json:"repeats,omitempty"`   // how often it was sent again although it had arrived
	LastError string                `json:"lastError,omitempty"` // of the last attempt that failed
	History   []Attempt             `json:"history,omitempty"`   // for operators
}

// Attempt is an attempt at a delivery as operators see it.
type Attempt struct {
	At      *time.Time `json:"at"`
	Seconds float64    `json:"seconds"`
	Status  int        `json:"status,omitempty"`
	Error   string     `json:"error,omitempty"`
}

func NewAttempts(history []engine.Attempt) (shown []Attempt) {
	for _, a := range history {
		shown = append(shown, Attempt{text.JSONTime(a.At), text.JSONSeconds(a.Took), a.Status, a.Error})
	}
	return shown
}

func NewDelivery(d *engine.Delivery) Delivery {
	kind, target := "callback", text.MaskedCallback(d.Callback)
	if d.Channel != "" {
		kind, target = "channel", d.Channel+":"+d.To
	}
	return Delivery{ID: d.ID, Kind: kind, Target: target, Status: d.Status, Attempts: d.Attempt, Repeats: d.Repeats, LastError: d.LastError}
}
