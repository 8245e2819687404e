package admin

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/bulk"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /bulk", listBulk, "limit")
	InstanceEndpoints.Handle("POST /bulk", startBulk, bulkParameters()...)
	InstanceEndpoints.Handle("GET /bulk/{id}", serveBulk)
	InstanceEndpoints.Handle("POST /bulk/{id}/stop", stopBulk)
	InstanceEndpoints.Handle("POST /bulk/{id}/resume", resumeBulk)
}

// bulkParameters are the filters of runs and of deliveries.
func bulkParameters() []string {
	parameters := append([]string{"do", "dry"}, api.RunFilters...)
	for _, name := range api.ExportFilters["deliveries"] {
		if !slices.Contains(parameters, name) {
			parameters = append(parameters, name)
		}
	}
	return parameters
}

func listBulk(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	limit, err := parseLimit(r.URL.Query())
	if err != nil {
		return err
	}
	actions, err := in.Service.Bulk.List(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.BulkList{Bulk: api.ShowAll(actions[:min(limit, len(actions))], newBulk)})
}

func serveBulk(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	action, err := in.Service.Bulk.Get(r.Context(), r.PathValue("id"))
	return answerBulk(w, r, http.StatusOK, action, err)
}

func stopBulk(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	action, err := in.Service.Bulk.Stop(r.Context(), r.PathValue("id"), callerFrom(r).String())
	return answerBulk(w, r, http.StatusOK, action, err)
}

func resumeBulk(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	action, err := in.Service.Bulk.Resume(r.Context(), r.PathValue("id"))
	return answerBulk(w, r, http.StatusAccepted, action, err)
}

// startBulk starts a bulk action. With dry=1 it tells what the action would do.
func startBulk(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	dry, err := parseOn(params, "dry")
	if err != nil {
		return err
	}
	action, err := parseBulk(params, time.Now())
	if err != nil {
		return err
	}
	if action.How, err = readAgain(r, "deliver"); err != nil {
		return changeError(err)
	}
	if action.How.Deliver && action.Do != bulk.Again {
		return api.Errorf(http.StatusBadRequest, "deliver is for runs that are started again")
	}
	if action.Do == bulk.Again {
		if err := checkRunner(in, "a run"); err != nil {
			return err
		}
	}
	if dry {
		free, err := in.Service.Searches.Take(w, "searches")
		if err != nil {
			return err
		}
		defer free()
		plan, err := in.Service.Bulk.Plan(r.Context(), action)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, api.BulkPlan{Would: plan.Would, Skipped: newSkipped(plan.Skipped)})
	}
	action.By = callerFrom(r).String()
	action, err = in.Service.Bulk.Start(r.Context(), action)
	return answerBulk(w, r, http.StatusAccepted, action, err)
}

// statusesOf are the statuses that a verb is for.
var statusesOf = map[bulk.Verb][]string{
	bulk.Again:  {string(engine.Completed), string(engine.Failed), string(engine.TimedOut), string(engine.Cancelled), string(engine.Expired)},
	bulk.Cancel: {string(engine.Queued), string(engine.Running), string(engine.Waiting)},
	bulk.Retry:  {string(engine.Pending), string(engine.Dead), string(engine.Delivered)},
	bulk.Drop:   {string(engine.Pending), string(engine.Dead)},
}

// parseBulk reads the parameters of a bulk action. A status has to be named, so that none of it is done by mistake; those that can be
// cancelled are few.
func parseBulk(params url.Values, now time.Time) (*bulk.Action, error) {
	verb := bulk.Verb(params.Get("do"))
	if !slices.Contains(bulk.Verbs, verb) {
		return nil, api.Errorf(http.StatusBadRequest, "do must be one of again, cancel, retry and drop")
	}
	filters := api.RunFilters
	if !verb.IsAboutRuns() {
		filters = api.ExportFilters["deliveries"]
	}
	own := make(url.Values)
	for name := range params {
		switch {
		case name == "do", name == "dry":
		case !slices.Contains(filters, name):
			return nil, api.Errorf(http.StatusBadRequest, "%s does not take %s; use %s", verb, name, text.List(filters))
		default:
			own.Set(name, params.Get(name))
		}
	}
	if err := checkNotEmpty(own); err != nil {
		return nil, err
	}
	if verb == bulk.Cancel && !own.Has("status") {
		own.Set("status", strings.Join(statusesOf[verb], ","))
	}
	statuses, err := parseList(own, "status")
	if err != nil {
		return nil, err
	}
	fits := func(status string) bool { return slices.Contains(statusesOf[verb], status) }
	if len(statuses) == 0 || slices.ContainsFunc(statuses, func(status string) bool { return !fits(status) }) {
		return nil, api.Errorf(http.StatusBadRequest, "say which by status: %s is for %s", verb, text.List(statusesOf[verb]))
	}
	action := &bulk.Action{Do: verb, Filter: make(map[string]string)}
	var since, until time.Time
	if verb.IsAboutRuns() {
		query, err := parseRunQuery(own, now)
		if err != nil {
			return nil, err
		}
		action.Runs, since, until = &query, query.Since, query.Until
	} else {
		query, err := parseDeliveryQuery(own)
		if err != nil {
			return nil, err
		}
		action.Deliveries, since, until = &query, query.Since, query.Until
	}
	setMoment(own, "since", since)
	setMoment(own, "until", until)
	for name := range own {
		action.Filter[name] = own.Get(name)
	}
	return action, nil
}

// setMoment replaces a time that was said by its distance from now.
func setMoment(params url.Values, name string, moment time.Time) {
	if !moment.IsZero() {
		params.Set(name, moment.UTC().Format(time.RFC3339))
	}
}

func answerBulk(w http.ResponseWriter, r *http.Request, status int, action *bulk.Action, err error) error {
	switch {
	case errors.Is(err, bulk.ErrNotFound):
		return api.Errorf(http.StatusNotFound, "there is no bulk action %q", text.Abridge(r.PathValue("id")))
	case errors.Is(err, bulk.ErrEnded), errors.Is(err, bulk.ErrIsRunning), errors.Is(err, bulk.ErrMany):
		return api.Conflictf("%w", err)
	case err != nil:
		return err
	}
	return writeJSON(w, status, newBulk(action))
}

func newBulk(a *bulk.Action) api.Bulk {
	shown := api.Bulk{ID: a.ID, Do: string(a.Do), Filter: a.Filter, Deliver: a.How.Deliver, By: a.By, State: string(a.State), Done: a.Done,
		Skipped: newSkipped(a.Skipped), StartedAt: text.JSONTime(a.StartedAt), EndedAt: text.JSONTime(a.EndedAt), StoppedBy: a.StoppedBy,
		Waiting: a.Waiting, Error: a.Error}
	if a.Counted {
		shown.Matching = &a.Matching
	}
	return shown
}

func newSkipped(skipped map[bulk.Skip]int) map[string]int {
	shown := make(map[string]int)
	for reason, n := range skipped {
		shown[string(reason)] = n
	}
	return shown
}
