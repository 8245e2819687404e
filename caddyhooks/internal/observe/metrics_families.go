package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// families are the counters and histograms of an instance, by their names. Each instance has its own, and all of them together are
// what a scrape gets.
type families struct {
	requests, authFailures, replays, ignored *prometheus.CounterVec
	runs, runFailures, repairs, tokens, cost *prometheus.CounterVec
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
		requests: counters("requests_total", "Requests by the status of their answer; 499 is a caller that hung up.", "hook", "code"),
		authFailures: counters("auth_failures_total", "Refused credentials: token, signature, or throttled for an address with too many of them.",
			"hook", "reason"),
		replays: counters("replays_total", "Requests answered like an earlier one, because they have the same idempotency key or signature.",
			"hook"),
		ignored: counters("ignored_total", "Requests that only or skip left out: answered 2xx, no run.", "hook"),

		runs: counters("runs_total", "Runs that ended: completed, failed, timed_out, cancelled, expired.", "hook", "status"),
		runFailures: counters("run_failures_total", "Why runs failed: runner_failed, runner_unavailable, schema_unmet, interrupted, "+
			"shutting_down.", "hook", "reason"),
		repairs: counters("repairs_total", "Calls of a runner to repair an answer that did not match its schema.", "hook"),
		tokens: counters("tokens_total", "Tokens of turns as agents report them: input with cached ones, and output with those of reasoning.",
			"hook", "direction"),
		cost: counters("cost_usd_total", "What turns cost in US dollars, as agents report it or by prices.", "hook"),

		attempts: counters("delivery_attempts_total", "Attempts at callbacks and channels, by what came of them.", "kind", "channel",
			"outcome"),
		settingsChanges: counters("settings_changes_total", "Changes of live settings that took effect on this node."),

		acceptDuration: histograms("accept_duration_seconds", "From when a request was read until its runs were stored.", momentBuckets),
		runDuration:    histograms("run_duration_seconds", "How long runs took that were started.", turnBuckets, "hook"),
		runWait: histograms("run_wait_seconds", "From acceptance until a runner took the run on; counted when the runner has answered.",
			waitBuckets),

		deliveryDuration: histograms("delivery_duration_seconds", "How long attempts at deliveries took.", deliveryBuckets, "kind", "channel"),
		commitDuration:   histograms("store_commit_duration_seconds", "How long transactions of the store took; none in memory.", momentBuckets),
		commitChanges:    histograms("store_commit_changes", "How many changes shared a transaction; none in memory.", changesBuckets),
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
		f.requests, f.authFailures, f.replays, f.ignored, f.runs, f.runFailures, f.repairs, f.tokens, f.cost, f.attempts,
		f.settingsChanges,
		f.acceptDuration, f.runDuration, f.runWait, f.deliveryDuration, f.commitDuration, f.commitChanges,
	}
}

// Figures that are read when somebody asks for them.
var (
	QueueDepth    = gauge("queue_depth", "Runs that wait.")
	QueueLimit    = gauge("queue_limit", "The queue_limit: how many runs may wait.")
	QueueOldest   = gauge("queue_oldest_seconds", "Age of the oldest run that waits, 0 if none does.")
	RunsRunning   = gauge("running", "Runs that are being carried out.")
	RunsWaiting   = gauge("waiting_runs", "Runs that are put aside until their agent or a person answers.")
	OpenQuestions = gauge("open_questions", "Questions that people have to answer.")
	WorkersAtOnce = gauge("workers", "The workers of this node: how many runs it carries out at once at most.")
	PendingOf     = gauge("deliveries_pending", "Deliveries that have not arrived yet.", "kind", "channel")
	DeadOf        = gauge("deliveries_dead", "Deliveries that were given up, until they are retried, dropped or pruned.", "kind", "channel")
	BudgetUsed    = gauge("budget_used_ratio", "How much of a budget is used, 1 if all is. With by, the most that a value has used; "+
		"0 if none has 0.8.", "hook", "budget", "by")
	StoreBytes       = gauge("store_bytes", "Size of the file, of the tables, or of the data in memory.")
	SettingsProblems = gauge("settings_problems", "Live settings and hooks that are left out; GET /hooks/settings says why.")
	EventStreams     = gauge("event_streams", "Open event streams, of the dashboard and of runs.")
	RunnerUp         = gauge("runner_up", "0 while the state of a runner is unreachable or busy, and its runs wait.", "runner")
	Paused           = gauge("paused", "How many hooks, chats and runners operators have paused, and 1 for all. Paces do not count.", "what")
	StoreUp          = gauge("store_up", "0 while the store cannot be reached or written to, is broken, or does not answer in time.")
	BuildInfo        = prometheus.NewDesc(metricsPrefix+"build_info", "Always 1, without hooks_instance.",
		[]string{"version"}, nil)
)

// Gauges lists them.
var Gauges = []*prometheus.Desc{
	QueueDepth, QueueLimit, QueueOldest, RunsRunning, RunsWaiting, OpenQuestions, WorkersAtOnce, PendingOf, DeadOf, BudgetUsed,
	StoreBytes, SettingsProblems, EventStreams, RunnerUp, Paused, StoreUp, BuildInfo,
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsPrefix+name, help, append([]string{instanceLabel}, labels...), nil)
}
