package caddyhooks

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// shownDelivery is a delivery as its run shows it.
type shownDelivery struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`
	Target    string                `json:"target"`
	Status    engine.DeliveryStatus `json:"status"`
	Attempts  int                   `json:"attempts"`
	LastError string                `json:"lastError,omitempty"`
}

func showDelivery(d *engine.Delivery) shownDelivery {
	kind, target := "callback", withoutSecrets(d.Callback)
	if d.Channel != "" {
		kind, target = "channel", d.Channel+":"+d.To
	}
	return shownDelivery{ID: d.ID, Kind: kind, Target: target, Status: d.Status, Attempts: d.Attempt, LastError: d.LastError}
}

// withoutSecrets is a URL without the parts in which callers put what others should not see.
func withoutSecrets(callback string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// detailedDelivery is a delivery as it is shown to operators, in a list without what it delivers.
type detailedDelivery struct {
	shownDelivery
	RunID         string        `json:"runId"`
	RunStatus     engine.Status `json:"runStatus"`
	ChatID        string        `json:"chatId"`
	CreatedAt     *time.Time    `json:"createdAt,omitempty"`
	LastAttemptAt *time.Time    `json:"lastAttemptAt,omitempty"`
	NextAttemptAt *time.Time    `json:"nextAttemptAt,omitempty"`
	LastStatus    int           `json:"lastStatus,omitempty"`
	LastAnswer    string        `json:"lastAnswer,omitempty"`
	ContentType   string        `json:"contentType,omitempty"`
	Body          string        `json:"body,omitempty"`
}

func detailDelivery(d *engine.Delivery) detailedDelivery {
	detailed := detailedDelivery{
		shownDelivery: showDelivery(d), RunID: d.RunID, RunStatus: d.RunStatus, ChatID: d.ChatID,
		CreatedAt: showTime(d.CreatedAt), LastAttemptAt: showTime(d.TriedAt),
		LastStatus: d.LastStatus, LastAnswer: d.LastAnswer, ContentType: d.ContentType, Body: d.Body,
	}
	detailed.ID = engine.DeliveryID(d.RunID, d.Index)         // those of the first version had another, by which they are not found
	if d.Status == engine.Pending && d.Due.After(d.TriedAt) { // otherwise it waits for its chat or its host
		detailed.NextAttemptAt = showTime(d.Due)
	}
	return detailed
}

// serveDeliveries lists the deliveries that a query selects, those of the newest run first, or drops or sends them again.
func (in *instance) serveDeliveries(w http.ResponseWriter, r *http.Request, retry bool) error {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return apiError(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	query, err := parseDeliveryQuery(params)
	if err != nil {
		return err
	}
	n := 0
	switch {
	case retry && r.Method != http.MethodPost:
		return notAllowed(w, "POST")
	case !retry && r.Method == http.MethodGet:
		return in.listDeliveries(w, r, query)
	case !retry && r.Method != http.MethodDelete:
		return notAllowed(w, "GET, DELETE")
	case query.Status != engine.Dead && query.Status != engine.Pending:
		return apiError(http.StatusBadRequest, "say which: status=dead or status=pending, and host or channel if you like")
	case params.Has("limit") || params.Has("cursor"):
		return apiError(http.StatusBadRequest, "this is about all deliveries that are selected: leave out limit and cursor")
	case retry:
		n, err = in.shared.engine.RetryDeliveries(r.Context(), query)
	default:
		n, err = in.shared.engine.DropDeliveries(r.Context(), query)
	}
	if err != nil {
		return err
	}
	if retry {
		return respond(w, map[string]int{"retried": n})
	}
	return respond(w, map[string]int{"dropped": n})
}

func parseDeliveryQuery(params url.Values) (engine.DeliveryQuery, error) {
	query := engine.DeliveryQuery{
		Status: engine.DeliveryStatus(params.Get("status")), Channel: params.Get("channel"), Host: strings.ToLower(params.Get("host")),
		Cursor: params.Get("cursor"),
	}
	// A filter that is misspelt, or came out empty, must not be passed over: more would be dropped than was meant.
	for name, values := range params {
		switch name {
		case "status", "channel", "host", "limit", "cursor":
		default:
			return query, apiError(http.StatusBadRequest, "there is no parameter %q; use status, channel, host, limit and cursor", name)
		}
		if len(values) != 1 || values[0] == "" {
			return query, apiError(http.StatusBadRequest, "%s must be given once, and not be empty", name)
		}
	}
	switch query.Status {
	case "", engine.Pending, engine.Delivered, engine.Dead:
	default:
		return query, apiError(http.StatusBadRequest, "status must be one of pending, delivered and dead")
	}
	var err error
	query.Limit, err = parseLimit(params)
	return query, err
}

func (in *instance) listDeliveries(w http.ResponseWriter, r *http.Request, query engine.DeliveryQuery) error {
	deliveries, next, err := in.shared.engine.ListDeliveries(r.Context(), query)
	if errors.Is(err, engine.ErrCursor) {
		return badCursor()
	}
	if err != nil {
		return err
	}
	page := struct {
		Deliveries []detailedDelivery `json:"deliveries"`
		Cursor     string             `json:"cursor,omitempty"`
	}{[]detailedDelivery{}, next}
	for _, d := range deliveries {
		page.Deliveries = append(page.Deliveries, detailDelivery(d))
	}
	return respond(w, page)
}

// serveDelivery shows a delivery, drops it or sends it again.
func (in *instance) serveDelivery(w http.ResponseWriter, r *http.Request, id string, retry bool) error {
	var d *engine.Delivery
	var err error
	switch {
	case retry && r.Method != http.MethodPost:
		return notAllowed(w, "POST")
	case retry:
		d, err = in.shared.engine.RetryDelivery(r.Context(), id)
	case r.Method == http.MethodGet:
		d, err = in.shared.engine.Delivery(r.Context(), id)
	case r.Method == http.MethodDelete:
		err = in.shared.engine.DropDelivery(r.Context(), id)
	default:
		return notAllowed(w, "GET, DELETE")
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return apiError(http.StatusNotFound, "there is no delivery %q", id)
	case errors.Is(err, engine.ErrUnderWay), errors.Is(err, engine.ErrDelivered):
		return conflictf("%w", err)
	case err != nil:
		return err
	case d == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return respond(w, detailDelivery(d))
	}
}
