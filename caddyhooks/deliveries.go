package caddyhooks

import (
	"net/url"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// deliveryJSON is a delivery as its run shows it.
type deliveryJSON struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`
	Target    string                `json:"target"`
	Status    engine.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	LastError string                `json:"lastError,omitempty"`
}

func newDeliveryJSON(d *engine.Delivery) deliveryJSON {
	kind, target := "callback", withoutSecrets(d.Callback)
	if d.Channel != "" {
		kind, target = "channel", d.Channel+":"+d.To
	}
	return deliveryJSON{ID: d.ID, Kind: kind, Target: target, Status: d.Status, Attempts: d.Attempt, LastError: d.LastError}
}

// withoutSecrets is a URL without its user, query and fragment, which may hold secrets of the caller.
func withoutSecrets(callback string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
