package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin shows and changes live settings, and shows runs and their deliveries, on Caddy's admin endpoint:
//
//	GET, PATCH        /hooks/settings
//	GET               /hooks/mappings
//	GET, PUT, DELETE  /hooks/mappings/<name>
//	GET               /hooks/runs
//	GET               /hooks/runs/<id>
//	POST              /hooks/runs/<id>/cancel
//	GET, DELETE       /hooks/deliveries
//	POST              /hooks/deliveries/retry
//	GET, DELETE       /hooks/deliveries/<id>
//	POST              /hooks/deliveries/<id>/retry
//	GET               /hooks/instances
//
// That is the instance "default"; the same of another one is found below /hooks/instances/<name>/. What the
// configuration sets is shown, and a change of it is answered 409. Secrets are shown masked, and a masked secret that
// is sent back keeps what it stands for.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.hooks",
		New: func() caddy.Module { return new(Admin) },
	}
}

// Routes returns the route of the API.
func (a *Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/hooks/", Handler: caddy.AdminHandlerFunc(a.serve)}}
}

func (a *Admin) serve(w http.ResponseWriter, r *http.Request) error {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/hooks/"), "/")
	name := "default"
	if parts[0] == "instances" {
		if len(parts) == 1 {
			return a.serveInstances(w, r)
		}
		name, parts = parts[1], parts[2:]
	}
	in := running.find(name)
	if in == nil {
		return apiError(http.StatusNotFound, "there is no hooks instance %q", name)
	}
	switch {
	case len(parts) == 1 && parts[0] == "settings":
		return in.serveSettings(w, r)
	case len(parts) == 1 && parts[0] == "mappings":
		return in.serveMappings(w, r)
	case len(parts) == 2 && parts[0] == "mappings":
		return in.serveMapping(w, r, parts[1])
	case len(parts) == 1 && parts[0] == "runs":
		return in.serveRuns(w, r)
	case (len(parts) == 2 || len(parts) == 3 && parts[2] == "cancel") && parts[0] == "runs":
		return in.serveRun(w, r, parts[1], len(parts) == 3)
	case len(parts) == 1 && parts[0] == "deliveries":
		return in.serveDeliveries(w, r, false)
	case len(parts) == 2 && parts[0] == "deliveries" && parts[1] == "retry":
		return in.serveDeliveries(w, r, true)
	case (len(parts) == 2 || len(parts) == 3 && parts[2] == "retry") && parts[0] == "deliveries":
		return in.serveDelivery(w, r, parts[1], len(parts) == 3)
	default:
		return apiError(http.StatusNotFound, "there is no such endpoint; try /hooks/settings, /hooks/mappings, /hooks/runs or /hooks/deliveries")
	}
}

func (a *Admin) serveInstances(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET")
	}
	return respond(w, running.names())
}

func (in *instance) serveSettings(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPatch:
		body, err := readAdminBody(r)
		if err != nil {
			return err
		}
		patch, err := strictjson.ParseObject(body)
		if err != nil {
			return apiError(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
		}
		err = in.shared.change(func(in *instance, live *Settings) error {
			for _, member := range patch {
				if err := in.patch(live, member); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return changeError(err)
		}
	default:
		return notAllowed(w, "GET, PATCH")
	}
	return respond(w, in.showSettings())
}

func (in *instance) serveMappings(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET")
	}
	return respond(w, in.showSettings().Mappings)
}

func (in *instance) serveMapping(w http.ResponseWriter, r *http.Request, name string) error {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		body, err := readAdminBody(r)
		if err != nil {
			return err
		}
		m, err := parseMapping(body)
		if err == nil && m.Name != "" && m.Name != name {
			err = fieldErrorf("name", "must be %s, as in the URL, or be left out", name)
		}
		m.Name = name
		pinned := false
		if err == nil {
			err = in.shared.change(func(in *instance, live *Settings) error {
				store, err := in.takeMapping(&m, live.Mappings)
				if err != nil || !store {
					pinned = true
					return err
				}
				if i := indexMapping(live.Mappings, name); i >= 0 {
					live.Mappings[i] = m
				} else {
					live.Mappings = append(live.Mappings, m)
				}
				return nil
			})
		}
		if err != nil {
			return changeError(err)
		}
		return respond(w, m.shown(pinned))
	case http.MethodDelete:
		err := in.shared.change(func(in *instance, live *Settings) error {
			if indexMapping(in.pinned.Mappings, name) >= 0 {
				return pinnedHook(name)
			}
			i := indexMapping(live.Mappings, name)
			if i < 0 {
				return apiError(http.StatusNotFound, "there is no hook %q", name)
			}
			live.Mappings = slices.Delete(live.Mappings, i, i+1)
			return nil
		})
		if err != nil {
			return changeError(err)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return notAllowed(w, "GET, PUT, DELETE")
	}
	for _, m := range in.showSettings().Mappings {
		if m.Name == name {
			return respond(w, m)
		}
	}
	return apiError(http.StatusNotFound, "there is no hook %q", name)
}

// maxPage is how many runs or deliveries are listed at once, at most.
const maxPage = 1000

func parseLimit(params url.Values) (int, error) {
	if !params.Has("limit") {
		return 100, nil
	}
	n, err := strconv.Atoi(params.Get("limit"))
	if err != nil || n < 1 || n > maxPage {
		return 0, apiError(http.StatusBadRequest, "limit must be from 1 to %d", maxPage)
	}
	return n, nil
}

func badCursor() error {
	return apiError(http.StatusBadRequest, "cursor must be one that a page before this one had")
}

// serveRuns lists runs, the newest first. A page can be short although there is more: then it has a cursor.
func (in *instance) serveRuns(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET")
	}
	params := r.URL.Query()
	query := engine.Query{
		Hook: params.Get("hook"), ChatID: params.Get("chatId"), Status: engine.Status(params.Get("status")),
		Cursor: params.Get("cursor"),
	}
	statuses := []engine.Status{"", engine.Queued, engine.Running, engine.Completed, engine.Failed, engine.TimedOut, engine.Cancelled}
	if !slices.Contains(statuses, query.Status) {
		return apiError(http.StatusBadRequest, "status must be one of queued, running, completed, failed, timed_out and cancelled")
	}
	var err error
	if query.Limit, err = parseLimit(params); err != nil {
		return err
	}
	records, next, err := in.shared.engine.List(r.Context(), query)
	if errors.Is(err, engine.ErrCursor) {
		return badCursor()
	}
	if err != nil {
		return err
	}
	page := struct {
		Runs   []shownRun `json:"runs"`
		Cursor string     `json:"cursor,omitempty"`
	}{[]shownRun{}, next}
	for _, record := range records {
		page.Runs = append(page.Runs, showListed(record))
	}
	return respond(w, page)
}

// serveRun shows a run, or cancels it.
func (in *instance) serveRun(w http.ResponseWriter, r *http.Request, id string, cancel bool) error {
	var record *engine.Record
	var err error
	switch {
	case cancel && r.Method != http.MethodPost:
		return notAllowed(w, "POST")
	case !cancel && r.Method != http.MethodGet:
		return notAllowed(w, "GET")
	case cancel:
		record, err = in.shared.engine.Cancel(r.Context(), id)
	default:
		record, err = in.shared.engine.Find(r.Context(), id, 0)
	}
	if errors.Is(err, engine.ErrNotFound) {
		return apiError(http.StatusNotFound, "there is no run %q", id)
	}
	if errors.Is(err, engine.ErrStopping) {
		return apiError(http.StatusServiceUnavailable, "the service is shutting down")
	}
	if err != nil {
		return err
	}
	if cancel && record.Status.Ended() && record.Status != engine.Cancelled {
		return conflictf("the run has ended already: it is %s", record.Status)
	}
	if cancel && !record.Status.Ended() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted) // the runner was told, and has not let go yet
	}
	return respond(w, showRun(record))
}

const maxAdminBody = 4 << 20

func readAdminBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
	if err != nil {
		return nil, apiError(http.StatusBadRequest, "the body broke off before its end")
	}
	if len(body) > maxAdminBody {
		return nil, apiError(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxAdminBody)
	}
	return body, nil
}

func respond(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

func apiError(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

func conflictf(format string, args ...any) error {
	return apiError(http.StatusConflict, format, args...)
}

func notAllowed(w http.ResponseWriter, allowed string) error {
	w.Header().Set("Allow", allowed)
	return apiError(http.StatusMethodNotAllowed, "method not allowed; use %s", allowed)
}

// changeError is the answer to a change that was refused or that failed.
func changeError(err error) error {
	var api caddy.APIError
	var field *fieldError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &field):
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	default:
		return err
	}
}

// Interface guard
var _ caddy.AdminRouter = (*Admin)(nil)
