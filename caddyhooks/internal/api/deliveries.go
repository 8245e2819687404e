package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Delivery is a delivery as its run shows it.
type Delivery struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`
	Target    string                `json:"target"`
	Status    engine.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	LastError string                `json:"lastError,omitempty"`
	History   []Attempt             `json:"history,omitempty"` // for operators
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
	return Delivery{ID: d.ID, Kind: kind, Target: target, Status: d.Status, Attempts: d.Attempt, LastError: d.LastError}
}
