package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// firstStep is when the first step begins. The last one is under way.
func firstStep(r api.OverviewRange, now time.Time) time.Time {
	return now.Truncate(r.Step).Add(-time.Duration(r.Steps-1) * r.Step)
}

// overview looks at a range of time, for somebody who may not be allowed to see everything.
func overview(ctx context.Context, in *service.Instance, r api.OverviewRange, now time.Time, caller Caller) (*api.Overview, error) {
	e := in.Service.Engine
	begin := firstStep(r, now)
	minutes, err := e.MinutesSince(ctx, begin)
	if err != nil {
		return nil, err
	}
	backlog, err := e.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	pending, dead, err := e.CountUndelivered(ctx)
	if err != nil {
		return nil, err
	}
	questions, err := e.CountQuestions(ctx)
	if err != nil {
		return nil, err
	}
	budgets, err := e.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	steps := make([]engine.Minute, r.Steps)
	var sum engine.Minute
	for i := range minutes {
		sum.Add(&minutes[i])
		// The clock may have been set back since.
		steps[min(int(minutes[i].At.Sub(begin)/r.Step), r.Steps-1)].Add(&minutes[i])
	}
	shown := &api.Overview{
		Range: r.Name, StepSeconds: int(r.Step.Seconds()), Now: text.JSONTime(now),
		Figures: api.Figures{
			Accepted: sum.Accepted, Running: backlog.Running, Workers: in.EngineConfig.Workers, Queued: backlog.Queued,
			Waiting: backlog.Waiting, Questions: questions,
			OldestSeconds: text.RoundedSeconds(backlog.Oldest),
			Ended:         sum.Ended(), Completed: sum.Completed, Failed: sum.Failed, TimedOut: sum.TimedOut, Expired: sum.Expired,
			Cancelled:     sum.Cancelled,
			MedianSeconds: quantileSeconds(sum.Quantile(0.5)), P95Seconds: quantileSeconds(sum.Quantile(0.95)),
			P99Seconds: quantileSeconds(sum.Quantile(0.99)),
			Delivered:  sum.Delivered, Pending: pending, Dead: dead,
		},
	}
	at := func(i int) int64 { return begin.Add(time.Duration(i) * r.Step).Unix() }
	for _, line := range overviewLines {
		points := make([]api.Point, r.Steps)
		for i := range steps {
			points[i] = api.Point{At: at(i), Value: line.value(&steps[i])}
		}
		shown.Series = append(shown.Series, api.Series{Name: line.name, Unit: line.unit, Points: points})
	}
	active := in.Active.Load()
	shown.Hooks = hooksIn(active, &sum)
	for h := range shown.Hooks {
		hook := &shown.Hooks[h]
		hook.Points = make([]api.Point, r.Steps)
		for i := range steps {
			accepted := float64(steps[i].Hooks[hook.Name].Accepted)
			hook.Points[i] = api.Point{At: at(i), Value: &accepted}
		}
	}
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		shown.Nodes = append(shown.Nodes, api.Node{Name: n.Name, Host: n.Host, This: n.This, Silent: n.Silent,
			JoinedAt: text.JSONTime(n.JoinedAt), SeenAt: text.JSONTime(n.SeenAt), Running: n.Running})
	}
	shown.Attention, shown.Dismissed, err = attentionItems(ctx, in, attentionQuestion{
		active: active, failing: e.StoreFailing(), diskLow: in.Service.DiskLow(), nodes: nodes, down: in.RunnersDown(), backlog: backlog,
		dead: dead, questions: questions, budgets: budgets, sum: &sum, since: begin, rangeName: r.Name, now: now,
		hideTexts: caller.HideTexts, readOnly: caller.ReadOnly,
	})
	return shown, err
}

// overviewLines are the lines of all plots.
var overviewLines = []struct {
	name, unit string
	value      func(*engine.Minute) *float64
}{
	{"accepted", "runs", counting(func(m *engine.Minute) int64 { return m.Accepted })},
	{"ended.completed", "runs", counting(func(m *engine.Minute) int64 { return m.Completed })},
	{"ended.failed", "runs", counting(func(m *engine.Minute) int64 { return m.Failed })},
	{"ended.timed_out", "runs", counting(func(m *engine.Minute) int64 { return m.TimedOut })},
	{"ended.cancelled", "runs", counting(func(m *engine.Minute) int64 { return m.Cancelled })},
	{"ended.expired", "runs", counting(func(m *engine.Minute) int64 { return m.Expired })},
	{"duration.median", "seconds", func(m *engine.Minute) *float64 { return quantileSeconds(m.Quantile(0.5)) }},
	{"duration.p95", "seconds", func(m *engine.Minute) *float64 { return quantileSeconds(m.Quantile(0.95)) }},
	{"duration.p99", "seconds", func(m *engine.Minute) *float64 { return quantileSeconds(m.Quantile(0.99)) }},
	{"duration.longest", "seconds", func(m *engine.Minute) *float64 { return quantileSeconds(m.Longest, m.Longest > 0) }},
	{"queue.depth", "runs", counting(func(m *engine.Minute) int64 { return m.Queued })},
	{"queue.oldest", "seconds", func(m *engine.Minute) *float64 { oldest := text.RoundedSeconds(m.Oldest); return &oldest }},
	{"requests.2xx", "requests", counting(func(m *engine.Minute) int64 { return m.Answered2xx })},
	{"requests.4xx", "requests", counting(func(m *engine.Minute) int64 { return m.Answered4xx })},
	{"requests.ignored", "requests", counting(func(m *engine.Minute) int64 { return m.Ignored })},
	{"requests.challenges", "requests", counting(func(m *engine.Minute) int64 { return m.Challenges })},
	{"requests.5xx", "requests", counting(func(m *engine.Minute) int64 { return m.Answered5xx })},
}

func counting(count func(*engine.Minute) int64) func(*engine.Minute) *float64 {
	return func(m *engine.Minute) *float64 {
		n := float64(count(m))
		return &n
	}
}

func quantileSeconds(d time.Duration, any bool) *float64 {
	if !any {
		return nil
	}
	seconds := text.RoundedSeconds(d)
	return &seconds
}

// maxIdleHooks bounds the hooks without runs that are listed.
const maxIdleHooks = 100

// hooksIn lists the hooks that had runs, the busiest first, and those that are configured.
func hooksIn(active *settings.Active, sum *engine.Minute) []api.HookFigures {
	shown := []api.HookFigures{}
	for name, counts := range sum.Hooks {
		if name == "" && counts.Accepted == 0 && counts.Ended == 0 {
			continue
		}
		shown = append(shown, api.HookFigures{
			Name: name, Action: actionOf(active, name), Accepted: counts.Accepted, Ended: counts.Ended, Failed: counts.Failed,
			LastAt:        text.JSONTime(counts.Last),
			MedianSeconds: quantileSeconds(counts.Quantile(0.5)), P95Seconds: quantileSeconds(counts.Quantile(0.95)),
			P99Seconds: quantileSeconds(counts.Quantile(0.99)),
		})
	}
	idle := 0
	for _, mapping := range active.Settings.Mappings {
		if _, counted := sum.Hooks[mapping.Name]; !counted && idle < maxIdleHooks {
			idle++
			shown = append(shown, api.HookFigures{Name: mapping.Name, Action: actionOf(active, mapping.Name)})
		}
	}
	slices.SortFunc(shown, func(a, b api.HookFigures) int {
		return cmp.Or(cmp.Compare(b.Accepted, a.Accepted), cmp.Compare(a.Name, b.Name))
	})
	return shown
}

// actionOf is the action of a hook, "" if there is no such hook any more.
func actionOf(a *settings.Active, name string) engine.Action {
	switch hook := a.Hooks[name]; {
	case hook != nil:
		return cmp.Or(hook.Action, engine.Wake)
	case name == "wake":
		return engine.Wake
	case name == "agent":
		return engine.Agent
	default:
		return ""
	}
}

func init() {
	InstanceEndpoints.Handle("GET /overview", serveOverview, "range")
}

// serveOverview answers with the figures, plots and hooks of a range of time, and with what needs an operator.
func serveOverview(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := cmp.Or(r.URL.Query().Get("range"), api.OverviewRanges[0].Name)
	var names []string
	for _, known := range api.OverviewRanges {
		if known.Name == name {
			overview, err := overview(r.Context(), in, known, time.Now(), callerFrom(r))
			if err != nil {
				return err
			}
			return writeJSON(w, http.StatusOK, overview)
		}
		names = append(names, known.Name)
	}
	return api.Errorf(http.StatusBadRequest, "range must be one of %s", text.List(names))
}
