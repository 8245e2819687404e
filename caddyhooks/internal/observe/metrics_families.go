package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// families are the counters and histograms of an instance, by their names. Each instance has its own, and all of them together are
// what a scrape gets.
type families struct {
	requests, authFailures, replays, ignored *prometheus.CounterVec
	runs, runFailures, repairs               *prometheus.CounterVec
	attempts, settingsChanges                *prometheus.CounterVec

	acceptDuration, runDuration, runWait *prometheus.HistogramVec
	deliveryDuration                     *prometheus.HistogramVec
	commitDuration, commitChanges        *prometheus.HistogramVec
}

// The upper bounds of buckets, in seconds but for the last.
var (
	momentBuckets   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	turnBuckets     = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	waitBuckets     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}
	deliveryBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	changesBuckets  = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

func NewFamilies() *families {
	return &families{
		requests: counters("requests_total", `Requests by the status of their answer. The hook "" is that of paths at which there is none.`,
			"hook", "code"),
		authFailures: counters("auth_failures_total", "Requests whose token or signature was refused. Throttled ones came from an address "+
			"with too many of them.",
			"hook", "reason"),
		replays: counters("replays_total", "Requests that were answered like an earlier one, since they have the same idempotency key or "+
			"signature.", "hook"),
		ignored: counters("ignored_total", "Requests that a condition of their hook left out.", "hook"),

		runs:        counters("runs_total", "Runs that ended, by their status.", "hook", "status"),
		runFailures: counters("run_failures_total", "Runs with the status failed, by the reason.", "hook", "reason"),
		repairs:     counters("repairs_total", "Calls of a runner to repair an answer that did not match its schema.", "hook"),

		attempts: counters("delivery_attempts_total", "Attempts to send a callback, or an answer to a channel, by what came of them.",
			"kind", "channel", "outcome"),
		settingsChanges: counters("settings_changes_total", "Changes of the live settings that came into force on this node."),

		acceptDuration: histograms("accept_duration_seconds", "The time from when a request was read until its runs were stored.", momentBuckets),
		runDuration:    histograms("run_duration_seconds", "The time that runs took which were started.", turnBuckets, "hook"),
		runWait:        histograms("run_wait_seconds", "The time from the acceptance of runs until a runner took them on.", waitBuckets),

		deliveryDuration: histograms("delivery_duration_seconds", "The time that attempts at deliveries took.", deliveryBuckets, "kind",
			"channel"),
		commitDuration: histograms("store_commit_duration_seconds", "The time that transactions of the store took.", momentBuckets),
		commitChanges:  histograms("store_commit_changes", "How many changes shared a transaction of the store.", changesBuckets),
	}
}

const metricsPrefix = "caddy_hooks_"

// instanceLabel is the first label of each series. Prometheus calls the target of a scrape instance.
const instanceLabel = "hooks_instance"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help}, append([]string{instanceLabel}, labels...))
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricsPrefix + name, Help: help, Buckets: buckets},
		append([]string{instanceLabel}, labels...))
}

// All lists the families.
func (f *families) All() []prometheus.Collector {
	return []prometheus.Collector{
		f.requests, f.authFailures, f.replays, f.ignored, f.runs, f.runFailures, f.repairs, f.attempts, f.settingsChanges,
		f.acceptDuration, f.runDuration, f.runWait, f.deliveryDuration, f.commitDuration, f.commitChanges,
	}
}

// Figures that are read when somebody asks for them.
var (
	QueueDepth       = gauge("queue_depth", "Runs that wait to be carried out.")
	QueueLimit       = gauge("queue_limit", "How many runs may wait. Requests beyond that are answered 503.")
	QueueOldest      = gauge("queue_oldest_seconds", "The time since the oldest run that waits was accepted, 0 if none does.")
	RunsRunning      = gauge("running", "Runs that are being carried out.")
	WorkersAtOnce    = gauge("workers", "How many runs this node carries out at once at most.")
	PendingOf        = gauge("deliveries_pending", "Deliveries that have not arrived yet.", "kind", "channel")
	DeadOf           = gauge("deliveries_dead", "Deliveries that were given up, and are kept.", "kind", "channel")
	StoreBytes       = gauge("store_bytes", "The size of the store.")
	SettingsProblems = gauge("settings_problems", "Live settings and hooks that are left out, since they do not go with the configuration.")
	EventStreams     = gauge("event_streams", "Open event streams, of the admin API and of runs.")
	RunnerUp         = gauge("runner_up", "1, or 0 for a runner whose state is unreachable or busy: its runs wait.", "runner")
	StoreUp          = gauge("store_up", "1, or 0 if the store cannot be reached or written to, is broken, or does not answer in time.")
	BuildInfo        = prometheus.NewDesc(metricsPrefix+"build_info", "Always 1. The label tells the version of the module.",
		[]string{"version"}, nil)
)

// Gauges lists them.
var Gauges = []*prometheus.Desc{
	QueueDepth, QueueLimit, QueueOldest, RunsRunning, WorkersAtOnce, PendingOf, DeadOf, StoreBytes, SettingsProblems, EventStreams,
	RunnerUp, StoreUp, BuildInfo,
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsPrefix+name, help, append([]string{instanceLabel}, labels...), nil)
}
