package caddyhooks

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// overview is what an operator sees first: figures, plots and hooks of a range of time, and what needs somebody.
type overview struct {
	Range       string        `json:"range"`
	StepSeconds int           `json:"stepSeconds"`
	Now         *time.Time    `json:"now"`
	Figures     figures       `json:"figures"`
	Needs       []need        `json:"needs"`
	Series      []series      `json:"series"`
	Hooks       []hookFigures `json:"hooks"`
}

// figures are counts of the range, but for running, queued, pending and dead, which are of now.
type figures struct {
	Accepted      int64    `json:"accepted"`
	Running       int      `json:"running"`
	Workers       int      `json:"workers"` // of this node
	Queued        int      `json:"queued"`
	OldestSeconds float64  `json:"oldestSeconds"`
	Ended         int64    `json:"ended"` // completed, failed, timed out, expired and cancelled
	Completed     int64    `json:"completed"`
	Failed        int64    `json:"failed"`
	TimedOut      int64    `json:"timedOut"`
	Expired       int64    `json:"expired"`
	Cancelled     int64    `json:"cancelled"`
	MedianSeconds *float64 `json:"medianSeconds"`
	P95Seconds    *float64 `json:"p95Seconds"`
	Delivered     int64    `json:"delivered"`
	Pending       int      `json:"pending"`
	Dead          int      `json:"dead"`
}

// series is one line of a plot.
type series struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Points []point `json:"points"`
}

// point is a value at the beginning of a step. It is nil if it is not known.
type point struct {
	at    int64 // in seconds since 1970
	value *float64
}

// MarshalJSON writes [at, value].
func (p point) MarshalJSON() ([]byte, error) {
	data := strconv.AppendInt([]byte{'['}, p.at, 10)
	if data = append(data, ','); p.value == nil {
		data = append(data, "null"...)
	} else {
		data = strconv.AppendFloat(data, *p.value, 'f', -1, 64)
	}
	return append(data, ']'), nil
}

// hookFigures are those of one hook. The name "" stands for hooks that are too many to be counted each on its own.
type hookFigures struct {
	Name          string        `json:"name"`
	Action        engine.Action `json:"action,omitempty"` // none if the hook was deleted
	Accepted      int64         `json:"accepted"`
	Ended         int64         `json:"ended"`  // in whatever way
	Failed        int64         `json:"failed"` // timed out and expired ones too, a share of those that ended
	MedianSeconds *float64      `json:"medianSeconds"`
	P95Seconds    *float64      `json:"p95Seconds"`
	LastAt        *time.Time    `json:"lastAt,omitempty"`
	Points        []point       `json:"points"`
}

// overviewRange is a range of time that ends now, and the steps of its plots.
type overviewRange struct {
	name  string
	steps int
	step  time.Duration
}

var overviewRanges = []overviewRange{
	{"1h", 60, time.Minute},
	{"6h", 72, 5 * time.Minute},
	{"24h", 72, 20 * time.Minute},
	{"7d", 84, 2 * time.Hour},
}

// begin is when the first step begins. The last one is under way.
func (r overviewRange) begin(now time.Time) time.Time {
	return now.Truncate(r.step).Add(-time.Duration(r.steps-1) * r.step)
}

// overview looks at a range of time. With hideTexts nothing that runs were told or answered is quoted.
func (in *instance) overview(ctx context.Context, r overviewRange, now time.Time, hideTexts bool) (*overview, error) {
	e := in.service.engine
	begin := r.begin(now)
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
	steps := make([]engine.Minute, r.steps)
	var sum engine.Minute
	for i := range minutes {
		sum.Add(&minutes[i])
		// The clock may have been set back since.
		steps[min(int(minutes[i].At.Sub(begin)/r.step), r.steps-1)].Add(&minutes[i])
	}
	shown := &overview{
		Range: r.name, StepSeconds: int(r.step.Seconds()), Now: text.JSONTime(now),
		Figures: figures{
			Accepted: sum.Accepted, Running: backlog.Running, Workers: in.engineConfig.Workers, Queued: backlog.Queued, OldestSeconds: inSeconds(backlog.Oldest),
			Ended: sum.Ended(), Completed: sum.Completed, Failed: sum.Failed, TimedOut: sum.TimedOut, Expired: sum.Expired, Cancelled: sum.Cancelled,
			MedianSeconds: quantileSeconds(sum.Quantile(0.5)), P95Seconds: quantileSeconds(sum.Quantile(0.95)),
			Delivered: sum.Delivered, Pending: pending, Dead: dead,
		},
	}
	at := func(i int) int64 { return begin.Add(time.Duration(i) * r.step).Unix() }
	for _, line := range overviewLines {
		points := make([]point, r.steps)
		for i := range steps {
			points[i] = point{at(i), line.value(&steps[i])}
		}
		shown.Series = append(shown.Series, series{line.name, line.unit, points})
	}
	active := in.active.Load()
	shown.Hooks = hooksIn(active, &sum)
	for h := range shown.Hooks {
		hook := &shown.Hooks[h]
		hook.Points = make([]point, r.steps)
		for i := range steps {
			accepted := float64(steps[i].Hooks[hook.Name].Accepted)
			hook.Points[i] = point{at(i), &accepted}
		}
	}
	shown.Needs, err = in.needs(ctx, needsQuestion{
		active: active, failing: e.StoreFailing(), down: in.runnersDown(), backlog: backlog, dead: dead,
		sum: &sum, since: begin, rangeName: r.name, now: now, hideTexts: hideTexts,
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
	{"queue.depth", "runs", counting(func(m *engine.Minute) int64 { return m.Queued })},
	{"queue.oldest", "seconds", func(m *engine.Minute) *float64 { oldest := inSeconds(m.Oldest); return &oldest }},
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
	seconds := inSeconds(d)
	return &seconds
}

// inSeconds rounds to milliseconds.
func inSeconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// maxIdleHooks bounds the hooks without runs that are listed.
const maxIdleHooks = 100

// hooksIn lists the hooks that had runs, the busiest first, and those that are configured.
func hooksIn(active *activeSettings, sum *engine.Minute) []hookFigures {
	shown := []hookFigures{}
	for name, counts := range sum.Hooks {
		if name == "" && counts.Accepted == 0 && counts.Ended == 0 {
			continue
		}
		shown = append(shown, hookFigures{
			Name: name, Action: active.actionOf(name), Accepted: counts.Accepted, Ended: counts.Ended, Failed: counts.Failed, LastAt: text.JSONTime(counts.Last),
			MedianSeconds: quantileSeconds(counts.Quantile(0.5)), P95Seconds: quantileSeconds(counts.Quantile(0.95)),
		})
	}
	idle := 0
	for _, mapping := range active.settings.Mappings {
		if _, counted := sum.Hooks[mapping.Name]; !counted && idle < maxIdleHooks {
			idle++
			shown = append(shown, hookFigures{Name: mapping.Name, Action: active.actionOf(mapping.Name)})
		}
	}
	slices.SortFunc(shown, func(a, b hookFigures) int {
		return cmp.Or(cmp.Compare(b.Accepted, a.Accepted), cmp.Compare(a.Name, b.Name))
	})
	return shown
}

// actionOf is the action of a hook, "" if there is no such hook any more.
func (a *activeSettings) actionOf(name string) engine.Action {
	switch hook := a.hooks[name]; {
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
