package caddyhooks

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /deliveries", (*instance).listDeliveries, "status", "channel", "host", "limit", "cursor")
	instanceEndpoints.handle("DELETE /deliveries", (*instance).dropDeliveries, "status", "channel", "host", "dry")
	instanceEndpoints.handle("POST /deliveries/retry", (*instance).retryDeliveries, "status", "channel", "host", "dry")
	instanceEndpoints.handle("GET /deliveries/{id}", (*instance).serveDelivery)
	instanceEndpoints.handle("DELETE /deliveries/{id}", (*instance).dropDelivery)
	instanceEndpoints.handle("POST /deliveries/{id}/retry", (*instance).retryDelivery)
}

// explainWaits tells of deliveries that are shown when they are tried next, and what they wait for.
func (s *service) explainWaits(ctx context.Context, shown []api.DeliveryDetails, deliveries []*engine.Delivery) error {
	waits, err := s.engine.DeliveryWaits(ctx, deliveries)
	if err != nil {
		return err
	}
	for i, wait := range waits {
		// An attempt that was just stored may be under way for the outbox still: its own schedule is told already.
		if ownSchedule := wait == (engine.DeliveryWait{}) && deliveries[i].Due.After(time.Now()); shown[i].Status == engine.Pending && !ownSchedule {
			shown[i].NextAttemptAt, shown[i].WaitsFor = text.JSONTime(wait.Until), waitsFor(wait.For, deliveries[i])
		}
	}
	return nil
}

// waitsFor says what a delivery waits for besides its own schedule.
func waitsFor(obstacle engine.Obstacle, d *engine.Delivery) string {
	host := "host"
	if d.Channel != "" {
		host = "channel"
	}
	switch obstacle {
	case engine.EarlierOne:
		return "an earlier delivery to the same chat"
	case engine.PauseOfHost:
		return "the " + host + ", which is left alone until then"
	case engine.OthersOfHost:
		return "other deliveries to the same " + host
	default:
		return ""
	}
}

// listDeliveries lists the deliveries that a query selects, those of the newest run first.
func (in *instance) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	query, err := parseDeliveryQuery(r.URL.Query())
	if err != nil {
		return err
	}
	deliveries, next, err := in.service.engine.ListDeliveries(r.Context(), query)
	if err != nil {
		return listError(err)
	}
	shown := api.ShowAll(deliveries, api.NewDeliverySummary)
	if err := in.service.explainWaits(r.Context(), shown, deliveries); err != nil {
		return err
	}
	var paused []api.Paused
	if query.Cursor == "" {
		hosts, err := in.service.engine.PausedHosts(r.Context(), maxPaused)
		if err != nil {
			return err
		}
		paused = api.ShowAll(hosts, newPausedJSON)
	}
	return writeAdminJSON(w, http.StatusOK, struct {
		Deliveries []api.DeliveryDetails `json:"deliveries"`
		Cursor     string                `json:"cursor,omitempty"`
		Paused     []api.Paused          `json:"paused,omitempty"` // with the first page
	}{shown, next, paused})
}

// maxPaused bounds how many are told.
const maxPaused = 100

func newPausedJSON(p engine.PausedHost) api.Paused {
	shown := api.Paused{Until: text.JSONTime(p.Until)}
	var isChannel bool
	if shown.Channel, isChannel = strings.CutPrefix(p.Host, "channel/"); !isChannel {
		shown.Channel, shown.Host = "", p.Host
	}
	return shown
}

func (in *instance) dropDeliveries(w http.ResponseWriter, r *http.Request) error {
	return in.changeDeliveries(w, r, "dropped", in.service.engine.DropDeliveries)
}

func (in *instance) retryDeliveries(w http.ResponseWriter, r *http.Request) error {
	return in.changeDeliveries(w, r, "retried", in.service.engine.RetryDeliveries)
}

// changeDeliveries changes all deliveries that a query selects, and answers with their number. With dry=1 it changes nothing.
func (in *instance) changeDeliveries(w http.ResponseWriter, r *http.Request, name string, change func(context.Context, engine.DeliveryQuery) (int, error)) error {
	params := r.URL.Query()
	query, err := parseDeliveryQuery(params)
	if err != nil {
		return err
	}
	if len(query.Statuses) == 0 || slices.Contains(query.Statuses, engine.Delivered) {
		return api.Errorf(http.StatusBadRequest, "say which: status=dead or status=pending, and host or channel if you like")
	}
	dry, err := parseDry(params)
	if err != nil {
		return err
	}
	if dry {
		name, change = "would", in.service.engine.CountDeliveries
	}
	n, err := change(r.Context(), query)
	if err != nil {
		return err
	}
	return writeAdminJSON(w, http.StatusOK, map[string]int{name: n})
}

func parseDeliveryQuery(params url.Values) (query engine.DeliveryQuery, err error) {
	if err := checkNotEmpty(params); err != nil {
		return query, err
	}
	query = engine.DeliveryQuery{Channel: params.Get("channel"), Cursor: params.Get("cursor")}
	if query.Statuses, err = parseOneOf(params, "status", engine.Pending, engine.Delivered, engine.Dead); err != nil {
		return query, err
	}
	if query.Host, err = parseHost(params.Get("host")); err != nil {
		return query, err
	}
	query.Limit, err = parseLimit(params)
	return query, err
}

// parseHost reads a host, with or without a port. With a scheme, as logs show hosts, it has a port.
func parseHost(text string) (string, error) {
	text = strings.ToLower(text)
	if !strings.Contains(text, "://") {
		return text, nil
	}
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && strings.Trim(text, "/") == u.Scheme+"://"+u.Host {
		return (&engine.Delivery{Callback: text}).CallbackHost(), nil
	}
	return "", api.Errorf(http.StatusBadRequest, "host must be a host, such as example.com or https://example.com:443, without a path")
}

// checkNotEmpty refuses an empty filter, which would select everything.
func checkNotEmpty(params url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if params.Get(name) == "" {
			return api.Errorf(http.StatusBadRequest, "%s must not be empty", name)
		}
	}
	return nil
}

func (in *instance) serveDelivery(w http.ResponseWriter, r *http.Request) error {
	return in.answerDelivery(w, r, in.service.engine.Delivery, api.NewDeliveryDetails)
}

func (in *instance) retryDelivery(w http.ResponseWriter, r *http.Request) error {
	return in.answerDelivery(w, r, in.service.engine.RetryDelivery, api.NewDeliverySummary)
}

// answerDelivery answers with the delivery that get returns for the id in the path.
func (in *instance) answerDelivery(w http.ResponseWriter, r *http.Request, get func(ctx context.Context, id string) (*engine.Delivery, error),
	show func(*engine.Delivery) api.DeliveryDetails) error {
	d, err := get(r.Context(), r.PathValue("id"))
	if err != nil {
		return deliveryError(r, err)
	}
	shown := []api.DeliveryDetails{show(d)}
	if err := in.service.explainWaits(r.Context(), shown, []*engine.Delivery{d}); err != nil {
		return err
	}
	return writeAdminJSON(w, http.StatusOK, shown[0])
}

func (in *instance) dropDelivery(w http.ResponseWriter, r *http.Request) error {
	if err := in.service.engine.DropDelivery(r.Context(), r.PathValue("id")); err != nil {
		return deliveryError(r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func deliveryError(r *http.Request, err error) error {
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return api.Errorf(http.StatusNotFound, "there is no delivery %q", text.Abridge(r.PathValue("id")))
	case errors.Is(err, engine.ErrUnderWay), errors.Is(err, engine.ErrDelivered):
		return api.Conflictf("%w", err)
	default:
		return err
	}
}
