package service

import (
	"errors"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
)

// metricsCollector answers scrapes with the metrics of all instances that run in this process. So a scrape while configurations
// change gets each instance once, and one that is gone is gone.
//
// Each configuration has a registry of its own, at which both the app and the admin API register. The admin API does so too since it
// answers for a configuration that failed to start, until the next one: the instances of before go on meanwhile.
type metricsCollector struct{}

func RegisterMetrics(ctx caddy.Context) error {
	var already prometheus.AlreadyRegisteredError
	if err := ctx.GetMetricsRegistry().Register(metricsCollector{}); err != nil && !errors.As(err, &already) {
		return err
	}
	return nil
}

// Describe lists all metrics there can be.
func (metricsCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, family := range observe.NewFamilies().All() {
		family.Describe(descs)
	}
	for _, desc := range observe.Gauges {
		descs <- desc
	}
}

// Collect is called for each scrape.
func (metricsCollector) Collect(metrics chan<- prometheus.Metric) {
	names := slices.Concat(Running.Names(), Waiting.Names())
	slices.Sort(names)
	var group sync.WaitGroup
	for _, name := range slices.Compact(names) {
		in := Running.Find(name)
		if in == nil {
			in = Waiting.Find(name)
		}
		if in == nil {
			continue // it was stopped meanwhile
		}
		group.Go(func() { in.collect(metrics) }) // their stores may be slow
	}
	group.Wait()
	if len(names) > 0 {
		metrics <- prometheus.MustNewConstMetric(observe.BuildInfo, prometheus.GaugeValue, 1, moduleVersion())
	}
}

// moduleVersion is the version of this module in the program, as far as it is known.
var moduleVersion = sync.OnceValue(func() string {
	const path = "github.com/caddy-hooks/caddy-hooks"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == path && module.Version != "" {
			return module.Version
		}
	}
	return "(devel)"
})

// collect gives the counts of the instance, and figures that are read now.
func (in *Instance) collect(metrics chan<- prometheus.Metric) {
	if in.Meters == nil {
		return
	}
	for _, family := range in.Meters.Families.All() {
		family.Collect(metrics)
	}
	show := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{in.Name}, labels...)...)
	}
	s, config := in.Service, &in.EngineConfig
	show(observe.QueueLimit, float64(config.Limits.Queue))
	show(observe.WorkersAtOnce, float64(config.Workers))
	show(observe.EventStreams, float64(s.Events.streamCount()+s.RunStreams.streamCount()))
	if active := in.Active.Load(); active != nil {
		show(observe.SettingsProblems, float64(len(active.Problems)))
		for _, what := range starts.Kinds {
			show(observe.Paused, float64(countPaused(active.Settings.Pauses, what)), string(what))
		}
	}
	figures, err := s.Figures.Ask(s.Engine)
	down := in.RunnersDown() // after the store, which may take a while: this is of now, as health is
	for name := range config.Runners {
		show(observe.RunnerUp, oneUnless(slices.ContainsFunc(down, func(runner engine.RunnerState) bool { return runner.Name == name })), name)
	}
	show(observe.StoreUp, oneUnless(err != nil || s.Engine.StoreFailing() != nil))
	if err != nil {
		return
	}
	show(observe.QueueDepth, float64(figures.Backlog.Queued))
	show(observe.QueueOldest, figures.Backlog.Oldest.Seconds())
	show(observe.RunsRunning, float64(figures.Backlog.Running))
	show(observe.RunsWaiting, float64(figures.Backlog.Waiting))
	show(observe.OpenQuestions, float64(figures.Questions))
	if figures.Bytes >= 0 {
		show(observe.StoreBytes, float64(figures.Bytes))
	}
	used := make(map[budget.Budget]float64) // the most of all values of By, which come from outside and are no labels
	for i := range figures.Budgets {
		state := &figures.Budgets[i]
		used[state.Budget] = max(used[state.Budget], float64(state.Used)/float64(state.Most()))
	}
	for b, ratio := range used {
		show(observe.BudgetUsed, ratio, b.Hook, b.Limit.String(), b.By)
	}
	callbacks, channels, gone := figures.Undelivered.By(config.Channels)
	showUndelivered := func(count engine.Undelivered, kind, channel string) {
		show(observe.PendingOf, float64(count.Pending), kind, channel)
		show(observe.DeadOf, float64(count.Dead), kind, channel)
	}
	showUndelivered(callbacks, observe.CallbackKind, "")
	for name, count := range channels {
		showUndelivered(count, observe.ChannelKind, name)
	}
	if gone != (engine.Undelivered{}) {
		showUndelivered(gone, observe.ChannelKind, "")
	}
}

func oneUnless(down bool) float64 {
	if down {
		return 0
	}
	return 1
}
