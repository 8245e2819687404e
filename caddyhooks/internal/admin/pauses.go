package admin

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /pauses", listPauses)
	InstanceEndpoints.Handle("POST /pauses", postPause)
	InstanceEndpoints.Handle("DELETE /pauses", deletePause, "what", "name")
}

func listPauses(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	shown := api.PauseList{Pauses: []api.Pause{}}
	for _, p := range in.Active.Load().Settings.Pauses {
		pause, err := newPauseJSON(r.Context(), in, &p)
		if err != nil {
			return err
		}
		shown.Pauses = append(shown.Pauses, pause)
	}
	return writeJSON(w, http.StatusOK, shown)
}

// mostWaiting is how many queued runs of a pause are counted.
const mostWaiting = 1000

func newPauseJSON(ctx context.Context, in *service.Instance, p *settings.Pause) (shown api.Pause, err error) {
	shown = api.Pause{What: string(p.What), Name: p.Name, Reason: p.Reason, By: p.By, At: text.JSONTime(p.At), Rate: p.Rate}
	query := engine.Query{Statuses: []engine.Status{engine.Queued}, Limit: mostWaiting}
	switch p.What {
	case starts.All:
		shown.Waiting, err = in.Service.Engine.Queued(ctx)
		return shown, err
	case starts.Hook:
		query.Hooks = []string{p.Name}
	case starts.Chat:
		query.ChatID = p.Name
	case starts.Runner:
		if query.Runners = []string{p.Name}; p.Name == in.EngineConfig.DefaultRunner {
			query.Runners = append(query.Runners, "") // runs that name none
		}
	}
	queued, next, err := in.Service.Engine.List(ctx, query)
	shown.Waiting, shown.WaitingMore = len(queued), next != ""
	return shown, err
}

var pauseFields = strictjson.Members("what", "name", "reason", "rate")

// parsePause reads what an operator wants to be paused.
func parsePause(body []byte) (p settings.Pause, err error) {
	obj, err := strictjson.ParseObject(body, pauseFields)
	if err != nil {
		return p, api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return p, settings.FieldErrorf(text.Abridge(obj.Other[0]), "is unknown here; use what, name, reason and rate")
	}
	f := intake.RequestFields{Members: obj.Members, Selected: pauseFields}
	p = settings.Pause{What: starts.What(f.Text("what")), Name: f.Text("name"), Reason: strings.TrimSpace(f.Text("reason")),
		Rate: f.Text("rate")}
	if f.Err != nil {
		return p, f.Err
	}
	return p, p.Check()
}

func postPause(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	p, err := parsePause(body)
	if err != nil {
		return changeError(err)
	}
	if err := checkPaused(r.Context(), in, &p); err != nil {
		return err
	}
	who := callerFrom(r)
	p.By, p.At = who.By, time.Now().UTC().Truncate(time.Millisecond)
	if err := in.Service.Pause(originOf(who), p); err != nil {
		return changeError(err)
	}
	shown, err := newPauseJSON(r.Context(), in, &p)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

func deletePause(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	p, err := parseResume(params)
	if err != nil {
		return changeError(err)
	}
	var paused []string
	found := false
	for _, other := range in.Active.Load().Settings.Pauses {
		found = found || other.IsFor(p.What, p.Name)
		if other.What == p.What {
			paused = append(paused, other.Name)
		}
	}
	if found {
		found, err = in.Service.Resume(originOf(callerFrom(r)), p.What, p.Name)
	}
	switch {
	case err != nil:
		return changeError(err)
	case found:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case p.What == starts.All:
		return api.Errorf(http.StatusNotFound, "all is not paused; caddy hooks pauses and GET /hooks/pauses list what is")
	default:
		return api.Errorf(http.StatusNotFound, "the %s %q is not paused%s", p.What, text.Abridge(p.Name), didYouMean(p.Name, paused))
	}
}

// parseResume reads what is to be resumed.
func parseResume(params url.Values) (settings.Pause, error) {
	p := settings.Pause{What: starts.What(params.Get("what")), Name: params.Get("name")}
	return p, p.Check()
}

// checkPaused refuses names that nothing has.
func checkPaused(ctx context.Context, in *service.Instance, p *settings.Pause) error {
	var names []string
	switch active := in.Active.Load(); p.What {
	case starts.Hook:
		names = slices.Concat([]string{"wake", "agent"}, slices.Collect(maps.Keys(active.Hooks)), slices.Collect(maps.Keys(active.Gone)))
	case starts.Runner:
		names = slices.Collect(maps.Keys(in.EngineConfig.Runners))
	case starts.Chat:
		runs, next, err := in.Service.Engine.List(ctx, engine.Query{ChatID: p.Name, Limit: 1})
		if err != nil || len(runs) > 0 || next != "" {
			return err
		}
		chats, _, err := in.Service.Engine.Chats(ctx, engine.ChatQuery{Limit: api.MaxPage})
		if err != nil {
			return err
		}
		for _, chat := range chats {
			names = append(names, chat.ChatID)
		}
	default:
		return nil
	}
	if slices.Contains(names, p.Name) {
		return nil
	}
	slices.Sort(names)
	return api.Errorf(http.StatusNotFound, "there is no %s %q%s", p.What, text.Abridge(p.Name), didYouMean(p.Name, names))
}

// didYouMean ends a sentence about a name that is not there.
func didYouMean(name string, names []string) string {
	if len(name) <= settings.MaxChatID {
		if meant := text.Nearest(name, names); meant != "" {
			return fmt.Sprintf("; did you mean %q?", text.Abridge(meant))
		}
	}
	return ""
}

// pausedItems tells what is paused, so that it is not forgotten.
func pausedItems(q attentionQuestion) (found []api.AttentionItem) {
	for _, p := range q.active.Settings.Pauses {
		link := "#/runs?status=queued"
		switch p.What {
		case starts.Hook:
			link += "&hook=" + url.QueryEscape(p.Name)
		case starts.Chat:
			link = "#/chats?chatId=" + url.QueryEscape(p.Name)
		}
		found = append(found, api.AttentionItem{Kind: "paused", Severity: api.SeverityLate, Link: link,
			Text:   oneline.Of(service.PausedText(&p), maxDetail),
			Detail: text.Count(q.backlog.Queued, "run is", "runs are") + " queued in all"})
	}
	return found
}
