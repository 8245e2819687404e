package observe

import (
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// durations is a histogram whose durations have traces.
type durations struct {
	histogram prometheus.Observer
	lastAt    [magnitudes]atomic.Int64 // when the last exemplar was noted, in nanoseconds since 1970, by the magnitude of the duration
}

const (
	// magnitudes of durations are powers of two of a nanosecond.
	magnitudes = 64
	// exemplarEvery is the time between two exemplars of a magnitude: each costs several times as much as the count. One that is rare, as the
	// slow ones that somebody looks for, is always noted.
	exemplarEvery = 100 * time.Millisecond
)

// observe counts a duration. If its trace is recorded, it is an exemplar: somebody who looks at a plot finds the trace.
func (d *durations) observe(took time.Duration, trace string) {
	if trace == "" || !d.wantsExemplar(took) {
		d.histogram.Observe(took.Seconds())
		return
	}
	d.histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
}

// wantsExemplar reports whether there was no exemplar of the magnitude for a while.
func (d *durations) wantsExemplar(took time.Duration) bool {
	lastAt := &d.lastAt[bits.Len64(uint64(max(took, 0)))]
	now, last := time.Now().UnixNano(), lastAt.Load()
	passed := time.Duration(now - last).Abs() // somebody may have set the clock back
	return passed >= exemplarEvery && lastAt.CompareAndSwap(last, now)
}

// sampledTrace returns the trace id in a traceparent whose flags say that the trace is recorded, otherwise "".
func sampledTrace(traceParent string) string {
	const idAt, idEnd, flagsAt = 3, 35, 53
	if len(traceParent) != flagsAt+2 {
		return ""
	}
	flags, err := strconv.ParseUint(traceParent[flagsAt:], 16, 8)
	if id := traceParent[idAt:idEnd]; err == nil && flags&1 == 1 && strings.Trim(id, "0") != "" {
		return id
	}
	return ""
}

// deliveryTraces remembers the traces of the last runs that have something to deliver: a delivery does not know them.
type deliveryTraces struct {
	any atomic.Bool

	mu     sync.Mutex
	traces map[string]string // by run
	runs   []string          // in a ring
	oldest int
}

// maxDeliveryTraces bounds the traces that are remembered.
const maxDeliveryTraces = 1024

// note remembers the trace of a run.
func (t *deliveryTraces) note(run *engine.Run) {
	if run.TraceParent == "" || run.CallbackURL == "" && run.Channel == "" {
		return
	}
	trace := sampledTrace(run.TraceParent)
	if trace == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.traces == nil {
		t.traces = make(map[string]string)
	}
	if _, known := t.traces[run.ID]; known {
		return
	}
	if len(t.runs) < maxDeliveryTraces {
		t.runs = append(t.runs, run.ID)
	} else {
		delete(t.traces, t.runs[t.oldest])
		t.runs[t.oldest] = run.ID
		t.oldest = (t.oldest + 1) % maxDeliveryTraces
	}
	t.traces[run.ID] = trace
	t.any.Store(true)
}

// of is the trace of a delivery, "" if it is not known.
func (t *deliveryTraces) of(d *engine.Delivery) string {
	if !t.any.Load() {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.traces[d.RunID]
}
