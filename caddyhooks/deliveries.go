package caddyhooks

import (
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// deliveryJSON is a delivery as its run shows it.
type deliveryJSON struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`
	Target    string                `json:"target"`
	Status    engine.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	LastError string                `json:"lastError,omitempty"`
	History   []attemptJSON         `json:"history,omitempty"` // for operators
}

// attemptJSON is an attempt at a delivery as operators see it.
type attemptJSON struct {
	At      *time.Time `json:"at"`
	Seconds float64    `json:"seconds"`
	Status  int        `json:"status,omitempty"`
	Error   string     `json:"error,omitempty"`
}

func newAttemptsJSON(history []engine.Attempt) (shown []attemptJSON) {
	for _, a := range history {
		shown = append(shown, attemptJSON{text.JSONTime(a.At), text.JSONSeconds(a.Took), a.Status, a.Error})
	}
	return shown
}

func newDeliveryJSON(d *engine.Delivery) deliveryJSON {
	kind, target := "callback", maskedCallback(d.Callback)
	if d.Channel != "" {
		kind, target = "channel", d.Channel+":"+d.To
	}
	return deliveryJSON{ID: d.ID, Kind: kind, Target: target, Status: d.Status, Attempts: d.Attempt, LastError: d.LastError}
}

// maskedQuery hides the query of a callback URL, in which many receivers want a token.
func maskedQuery(callback string) string {
	if url, query, _ := strings.Cut(callback, "?"); query != "" {
		return url + "?" + mask
	}
	return callback
}

// maskedCallback is the scheme and the host of a callback URL. Its path or its query is a secret for many receivers, as in
// https://hooks.example.com/services/T0/B0/secret, and so only the fact that there is one is told.
func maskedCallback(callback string) string {
	u, err := url.Parse(callback)
	if err != nil || u.Host == "" {
		return ""
	}
	masked := u.Scheme + "://" + u.Host
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		masked += "/…"
	}
	return masked
}
