package admin

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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /deliveries", listDeliveries, append(api.DeliveryFilters, "limit", "cursor")...)
	InstanceEndpoints.Handle("GET /deliveries/{id}", serveDelivery)
	InstanceEndpoints.Handle("DELETE /deliveries/{id}", dropDelivery)
	InstanceEndpoints.Handle("POST /deliveries/{id}/retry", retryDelivery, "unsent")
}

// listDeliveries lists the deliveries that a query selects, those of the newest run first.
func listDeliveries(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	query, err := parseDeliveryQuery(r.URL.Query())
	if err != nil {
		return err
	}
	deliveries, next, err := in.Service.Engine.ListDeliveries(r.Context(), query)
	if err != nil {
		return listError(err)
	}
	shown := api.ShowAll(deliveries, api.NewDeliverySummary)
	if err := in.Service.ExplainWaits(r.Context(), shown, deliveries); err != nil {
		return err
	}
	var paused []api.Paused
	if query.Cursor == "" {
		hosts, err := in.Service.Engine.PausedHosts(r.Context(), maxPaused)
		if err != nil {
			return err
		}
		paused = api.ShowAll(hosts, newPausedJSON)
	}
	return writeJSON(w, http.StatusOK, api.DeliveriesPage{Deliveries: shown, Cursor: next, Paused: paused})
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
	if query.Since, query.Until, err = parsePeriod(params, time.Now()); err != nil {
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

func serveDelivery(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	return answerDelivery(in, w, r, in.Service.Engine.Delivery, api.NewDeliveryDetails)
}

func retryDelivery(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	unsent, err := parseOn(r.URL.Query(), "unsent")
	if err != nil {
		return err
	}
	return answerDelivery(in, w, r, func(ctx context.Context, id string) (*engine.Delivery, error) {
		return in.Service.Engine.RetryDelivery(ctx, id, !unsent)
	}, api.NewDeliverySummary)
}

// answerDelivery answers with the delivery that get returns for the id in the path.
func answerDelivery(in *service.Instance, w http.ResponseWriter, r *http.Request,
	get func(ctx context.Context, id string) (*engine.Delivery, error),
	show func(*engine.Delivery) api.DeliveryDetails) error {
	d, err := get(r.Context(), r.PathValue("id"))
	if err != nil {
		return deliveryError(r, err)
	}
	shown := []api.DeliveryDetails{show(d)}
	if err := in.Service.ExplainWaits(r.Context(), shown, []*engine.Delivery{d}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown[0])
}

func dropDelivery(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	if err := in.Service.Engine.DropDelivery(r.Context(), r.PathValue("id")); err != nil {
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
