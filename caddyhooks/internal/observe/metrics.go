// Package observe shows what the hooks do: metrics for Prometheus, spans of runs, entries of the access log without their secrets,
// and placeholders. It knows engine, and neither settings nor instances: those hand in what it shows.
package observe

import (
	"errors"
	"iter"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// Meters counts what an instance does, for Prometheus. It outlives reloads, as the engine does, while Caddy's registry is new with
// each configuration: a collector of the configuration reads the counts.
//
// Whoever counts finds the counters of a hook with one look into a map that nobody changes, and takes no lock. There are counters for
// hooks, channels and runners that are configured, and for nothing that callers choose. A nil value does not count requests.
type Meters struct {
	instance string
	Families *families

	acceptDuration                *durations
	runWait                       prometheus.Observer
	commitDuration, commitChanges prometheus.Observer // nil until the store tells of a transaction
	SettingsChanges               prometheus.Counter
	commits                       sync.Once

	hooks    atomic.Pointer[map[string]*HookMeters]
	channels atomic.Pointer[map[string]*deliveryMeters]
	unknown  *HookMeters     // names that no hook has, and runs of hooks that are gone
	runAPI   *HookMeters     // requests below runs/
	callback *deliveryMeters // deliveries to URLs
	gone     *deliveryMeters // deliveries to channels that are not configured any more

	traces deliveryTraces

	mu sync.Mutex // held by whoever adds or removes series
}

// maxHooksAtZero is up to how many hooks have their series before their first request, so that the first failure of a hook is an
// increase. With more hooks than that each gets its series with its first request.
const maxHooksAtZero = 100

// allMeters has the meters of the instances of all configurations, by the name of the instance.
var allMeters = caddy.NewUsagePool()

// JoinMeters shares the meters of instances of the same name, which is how they outlive a reload.
func JoinMeters(instance string) (joined *Meters, leave func()) {
	shared, _, _ := allMeters.LoadOrNew(instance, func() (caddy.Destructor, error) { return NewMeters(instance), nil })
	return shared.(*Meters), sync.OnceFunc(func() { _, _ = allMeters.Delete(instance) })
}

// Destruct does nothing: counts that nobody collects are gone.
func (m *Meters) Destruct() error { return nil }

func NewMeters(instance string) *Meters {
	f := NewFamilies()
	m := &Meters{
		instance: instance, Families: f,
		acceptDuration:  &durations{histogram: f.acceptDuration.WithLabelValues(instance)},
		runWait:         f.runWait.WithLabelValues(instance),
		SettingsChanges: f.settingsChanges.WithLabelValues(instance),
	}
	m.unknown, m.runAPI = &HookMeters{meters: m}, &HookMeters{meters: m, name: "runs"}
	m.callback = newDeliveryMeters(m, CallbackKind, "")
	m.gone = &deliveryMeters{meters: m, kind: ChannelKind}
	m.hooks.Store(&map[string]*HookMeters{})
	m.channels.Store(&map[string]*deliveryMeters{})
	return m
}

// hook finds the counters of a hook.
func (m *Meters) hook(name string) *HookMeters {
	if known := (*m.hooks.Load())[name]; known != nil {
		return known
	}
	return m.unknown
}

// Endpoint finds the counters for the part of a request's path that names the hook.
func (m *Meters) Endpoint(name string) *HookMeters {
	switch {
	case m == nil:
		return nil
	case strings.HasPrefix(name, "runs/"):
		return m.runAPI
	default:
		return m.hook(name)
	}
}

// destination finds the counters for a delivery.
func (m *Meters) destination(d *engine.Delivery) *deliveryMeters {
	if d.Channel == "" {
		return m.callback
	}
	if known := (*m.channels.Load())[d.Channel]; known != nil {
		return known
	}
	return m.gone
}

// MeteredNames are those of the hooks and channels that have series.
type MeteredNames struct{ hooks, channels map[string]struct{} }

// NewMeteredNames adds the built-in hooks to the custom ones.
func NewMeteredNames(hooks, channels iter.Seq[string]) MeteredNames {
	n := MeteredNames{hooks: map[string]struct{}{"wake": {}, "agent": {}}, channels: make(map[string]struct{})}
	for name := range hooks {
		n.hooks[name] = struct{}{}
	}
	for name := range channels {
		n.channels[name] = struct{}{}
	}
	return n
}

// Add takes over the names of others.
func (n MeteredNames) Add(others MeteredNames) {
	maps.Copy(n.hooks, others.hooks)
	maps.Copy(n.channels, others.channels)
}

// Keep makes counters for hooks and channels. With only, all others go with their series.
func (m *Meters) Keep(wanted MeteredNames, only bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hooks.Store(keptMeters(*m.hooks.Load(), wanted.hooks, only, func(name string) *HookMeters {
		return &HookMeters{meters: m, name: name}
	}))
	m.channels.Store(keptMeters(*m.channels.Load(), wanted.channels, only, func(name string) *deliveryMeters {
		return newDeliveryMeters(m, ChannelKind, name)
	}))
	if hooks := *m.hooks.Load(); len(hooks) <= maxHooksAtZero+2 { // wake and agent besides
		for _, hook := range hooks {
			hook.makeRequestsLocked()
			hook.makeRunsLocked()
		}
	}
}

// keptMeters is a map with the wanted names, of the meters there are and of new ones.
func keptMeters[M interface{ remove() }](known map[string]M, wanted map[string]struct{}, only bool,
	create func(name string) M) *map[string]M {
	kept := make(map[string]M, len(wanted))
	for name, meter := range known {
		if _, ok := wanted[name]; ok || !only {
			kept[name] = meter
		} else {
			meter.remove()
		}
	}
	for name := range wanted {
		if _, ok := kept[name]; !ok {
			kept[name] = create(name)
		}
	}
	return &kept
}

// HookMeters are the counters of a hook. It has series for its requests, and for its runs, since there was one.
type HookMeters struct {
	meters   *Meters
	name     string
	gone     bool // under the lock of the meters
	requests atomic.Pointer[requestMeters]
	runs     atomic.Pointer[runMeters]
}

type requestMeters struct {
	codes            atomic.Pointer[[]codeMeter]
	failures         [len(authReasons)]prometheus.Counter
	replays, ignored prometheus.Counter
}

// codeMeter counts the answers with a status.
type codeMeter struct {
	status int
	count  prometheus.Counter
}

type runMeters struct {
	ended    [len(endStatuses)]prometheus.Counter
	failures [len(failureReasons)]prometheus.Counter
	repairs  prometheus.Counter
	input    prometheus.Counter // tokens
	output   prometheus.Counter // likewise
	cost     prometheus.Counter
	duration *durations
}

// The values of labels.
var (
	endStatuses    = [...]engine.Status{engine.Completed, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired}
	failureReasons = [...]engine.Failure{engine.RunnerFailed, engine.RunnerUnavailable, engine.SchemaUnmet, engine.Interrupted,
		engine.ShuttingDown}
	authReasons  = [...]string{"token", "signature", "throttled"}
	sendOutcomes = [...]engine.DeliveryStatus{engine.Delivered, engine.Pending, engine.Dead}
)

// AuthReason is the place in authReasons.
type AuthReason int

const (
	BadToken AuthReason = iota
	BadSignature
	ThrottledClient
)

const (
	CallbackKind = "callback"
	ChannelKind  = "channel"
)

// maxCodes bounds the codes of a hook that have series of their own. There are fewer that anything here answers with, unless an
// operator tries them all out as respondStatus.
const maxCodes = 64

// requestSeries returns the counters for requests, which it makes if there are none.
func (h *HookMeters) requestSeries() *requestMeters {
	if known := h.requests.Load(); known != nil {
		return known
	}
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	return h.makeRequestsLocked()
}

func (h *HookMeters) makeRequestsLocked() *requestMeters {
	if known := h.requests.Load(); known != nil {
		return known
	}
	f, of := h.meters.familiesFor(h.gone), h.meters.instance
	made := &requestMeters{replays: f.replays.WithLabelValues(of, h.name), ignored: f.ignored.WithLabelValues(of, h.name)}
	made.codes.Store(new([]codeMeter))
	for i, reason := range authReasons {
		made.failures[i] = f.authFailures.WithLabelValues(of, h.name, reason)
	}
	h.requests.Store(made)
	return made
}

// familiesFor are the families for more series. For something that is gone they are others, which nobody collects.
func (m *Meters) familiesFor(gone bool) *families {
	if gone {
		return NewFamilies()
	}
	return m.Families
}

// runSeries returns the counters for runs, which it makes if there are none.
func (h *HookMeters) runSeries() *runMeters {
	if known := h.runs.Load(); known != nil {
		return known
	}
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	return h.makeRunsLocked()
}

func (h *HookMeters) makeRunsLocked() *runMeters {
	if known := h.runs.Load(); known != nil {
		return known
	}
	f, of := h.meters.familiesFor(h.gone), h.meters.instance
	made := &runMeters{repairs: f.repairs.WithLabelValues(of, h.name), cost: f.cost.WithLabelValues(of, h.name),
		input: f.tokens.WithLabelValues(of, h.name, "input"), output: f.tokens.WithLabelValues(of, h.name, "output"),
		duration: &durations{histogram: f.runDuration.WithLabelValues(of, h.name)}}
	for i, status := range endStatuses {
		made.ended[i] = f.runs.WithLabelValues(of, h.name, string(status))
	}
	for i, reason := range failureReasons {
		made.failures[i] = f.runFailures.WithLabelValues(of, h.name, string(reason))
	}
	h.runs.Store(made)
	return made
}

// remove takes the series of a hook away. It is called under the lock.
func (h *HookMeters) remove() {
	h.gone = true
	f, of := h.meters.Families, h.meters.instance
	if made := h.requests.Load(); made != nil {
		for _, code := range *made.codes.Load() {
			f.requests.DeleteLabelValues(of, h.name, codeLabel(code.status))
		}
		for _, reason := range authReasons {
			f.authFailures.DeleteLabelValues(of, h.name, reason)
		}
		f.replays.DeleteLabelValues(of, h.name)
		f.ignored.DeleteLabelValues(of, h.name)
	}
	if h.runs.Load() == nil {
		return
	}
	for _, status := range endStatuses {
		f.runs.DeleteLabelValues(of, h.name, string(status))
	}
	for _, reason := range failureReasons {
		f.runFailures.DeleteLabelValues(of, h.name, string(reason))
	}
	f.repairs.DeleteLabelValues(of, h.name)
	f.cost.DeleteLabelValues(of, h.name)
	f.tokens.DeleteLabelValues(of, h.name, "input")
	f.tokens.DeleteLabelValues(of, h.name, "output")
	f.runDuration.DeleteLabelValues(of, h.name)
}

// otherCode stands for all codes beyond maxCodes.
const otherCode = 0

func codeLabel(status int) string {
	if status == otherCode {
		return "other"
	}
	return strconv.Itoa(status)
}

// Answered counts a request that was answered with a status.
func (h *HookMeters) Answered(status int) {
	if h == nil {
		return
	}
	made := h.requestSeries()
	for _, code := range *made.codes.Load() {
		if code.status == status {
			code.count.Inc()
			return
		}
	}
	h.addCode(made, status).Inc()
}

// addCode makes the counter for a status.
func (h *HookMeters) addCode(made *requestMeters, status int) prometheus.Counter {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	codes := *made.codes.Load()
	if len(codes) >= maxCodes-1 {
		status = otherCode
	}
	for _, code := range codes {
		if code.status == status {
			return code.count
		}
	}
	count := h.meters.familiesFor(h.gone).requests.WithLabelValues(h.meters.instance, h.name, codeLabel(status))
	added := append(codes[:len(codes):len(codes)], codeMeter{status, count})
	made.codes.Store(&added)
	return count
}

// Refused counts a request whose credential was refused.
func (h *HookMeters) Refused(reason AuthReason) {
	if h != nil {
		h.requestSeries().failures[reason].Inc()
	}
}

// Replayed counts a request that was answered like an earlier one.
func (h *HookMeters) Replayed() {
	if h != nil {
		h.requestSeries().replays.Inc()
	}
}

// deliveryMeters are the counters for deliveries to a channel, or for callbacks.
type deliveryMeters struct {
	meters        *Meters
	kind, channel string
	once          sync.Once
	outcomes      [len(sendOutcomes)]prometheus.Counter
	duration      *durations
}

// newDeliveryMeters makes counters with their series.
func newDeliveryMeters(m *Meters, kind, channel string) *deliveryMeters {
	made := &deliveryMeters{meters: m, kind: kind, channel: channel}
	made.make()
	return made
}

func (d *deliveryMeters) make() {
	d.once.Do(func() {
		f, of := d.meters.Families, d.meters.instance
		for i, outcome := range sendOutcomes {
			d.outcomes[i] = f.attempts.WithLabelValues(of, d.kind, d.channel, outcomeLabel(outcome))
		}
		d.duration = &durations{histogram: f.deliveryDuration.WithLabelValues(of, d.kind, d.channel)}
	})
}

func outcomeLabel(outcome engine.DeliveryStatus) string {
	if outcome == engine.Pending {
		return "retried"
	}
	return string(outcome)
}

// remove takes the series of a channel away. It is called under the lock.
func (d *deliveryMeters) remove() {
	f, of := d.meters.Families, d.meters.instance
	for _, outcome := range sendOutcomes {
		f.attempts.DeleteLabelValues(of, d.kind, d.channel, outcomeLabel(outcome))
	}
	f.deliveryDuration.DeleteLabelValues(of, d.kind, d.channel)
}

// Accepted counts a request whose runs were stored so long after it was read.
func (m *Meters) Accepted(run *engine.Run, took time.Duration) {
	if m == nil {
		return
	}
	m.acceptDuration.observe(took, sampledTrace(run.TraceParent))
}

// RunAccepted does nothing: answers are counted.
func (m *Meters) RunAccepted(*engine.Run) {}

// RunTakenOn counts how long a run waited.
func (m *Meters) RunTakenOn(run *engine.Run, waited time.Duration) {
	m.runWait.Observe(waited.Seconds())
	m.traces.note(run)
}

// RunEnded counts a run by how it ended.
func (m *Meters) RunEnded(run *engine.Run, outcome engine.Outcome, took time.Duration) {
	m.traces.note(run)
	series := m.hook(run.Hook).runSeries()
	for i, status := range endStatuses {
		if status == outcome.Status {
			series.ended[i].Inc()
		}
	}
	if outcome.Status == engine.Failed {
		for i, reason := range failureReasons {
			if reason == outcome.Failure {
				series.failures[i].Inc()
			}
		}
	}
	if took > 0 {
		series.duration.observe(took, sampledTrace(run.TraceParent))
	}
}

// TurnEnded counts repairs, and what turns cost.
func (m *Meters) TurnEnded(run *engine.Run, _ string, repair int, _ time.Duration, used []engine.Use, err error) {
	if repair > 0 && !isUnavailable(err) { // which is tried again
		m.hook(run.Hook).runSeries().repairs.Inc()
	}
	if len(used) > 0 {
		series, sum := m.hook(run.Hook).runSeries(), usage.Sum(used)
		series.input.Add(float64(sum.Input))
		series.output.Add(float64(sum.Output))
		series.cost.Add(sum.Dollars())
	}
}

func isUnavailable(err error) bool {
	if err == nil {
		return false
	}
	var unavailable *engine.UnavailableError
	return errors.As(err, &unavailable)
}

// DeliveryAttempted counts an attempt at a delivery by what comes of it.
func (m *Meters) DeliveryAttempted(d *engine.Delivery, took time.Duration, _ error) {
	to := m.destination(d)
	to.make()
	for i, outcome := range sendOutcomes {
		if outcome == d.Status {
			to.outcomes[i].Inc()
		}
	}
	if took > 0 {
		to.duration.observe(took, m.traces.of(d))
	}
}

// RequestIgnored counts a request that a hook leaves out.
func (m *Meters) RequestIgnored(hook string) { m.hook(hook).requestSeries().ignored.Inc() }

// ChallengeAnswered does nothing: the answer is counted.
func (m *Meters) ChallengeAnswered(string) {}

// StoreCommitted counts a transaction of the store.
func (m *Meters) StoreCommitted(changes int, took time.Duration) {
	m.commits.Do(func() {
		m.commitDuration = m.Families.commitDuration.WithLabelValues(m.instance)
		m.commitChanges = m.Families.commitChanges.WithLabelValues(m.instance)
	})
	m.commitDuration.Observe(took.Seconds())
	m.commitChanges.Observe(float64(changes))
}

var _ engine.Metrics = (*Meters)(nil)
