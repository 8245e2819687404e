package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// pastHook is a hook as it was used in the last hour.
type pastHook struct {
	name          string
	aMinute       float64 // runs
	median        time.Duration
	spread        float64 // of how long runs took: the standard deviation of the logarithm
	failed        []int   // minutes in which a run failed
	timedOut      []int
	only          []int // minutes; empty for all
	callsBackWith float64
}

var pastHooks = []pastHook{
	{name: "github-issues", aMinute: 9.6, median: 1900 * time.Millisecond, spread: 0.6, failed: []int{12, 44}, timedOut: []int{46}, callsBackWith: 0.35},
	{name: "alertmanager", aMinute: 5.3, median: 2600 * time.Millisecond, spread: 0.6, failed: []int{43}, timedOut: []int{45}, callsBackWith: 0.4},
	{name: "wake", aMinute: 4.4, median: 1200 * time.Millisecond, spread: 0.55},
	{name: "invoices", aMinute: 0.7, median: 5 * time.Second, spread: 0.35, failed: []int{28, 41, 42, 42, 43}, callsBackWith: 1},
	{name: "agent", aMinute: 0.35, median: 3300 * time.Millisecond, spread: 0.8},
	{name: "nightly-report", aMinute: 5, median: 12 * time.Second, spread: 0.1, only: []int{21}},
}

// lastHour is what was counted in the minutes up to now. It is the same every time. A quarter of an hour ago the agent was slow
// for some minutes, so that the queue grew; before that, somebody tried wrong tokens.
func lastHour() []engine.Minute {
	random := rand.New(rand.NewPCG(12, 8)) //nolint:gosec // a picture needs no secrets
	now := time.Now()
	minutes := make([]engine.Minute, 60)
	for i := range minutes {
		m := &minutes[i]
		m.At = now.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute)
		slow := math.Exp(-math.Pow(float64(i-44)/4, 2)) // 1 in the worst minute
		rate := 1 + 0.3*math.Sin(float64(i)/9) - 0.25*slow
		length := time.Minute
		if i == 59 {
			length = now.Sub(m.At) / 3 // it is under way, and real requests follow
		}
		m.Hooks = make(map[string]engine.HookMinute)
		for _, hook := range pastHooks {
			hook.count(m, i, rate*length.Minutes(), slow, length, random)
		}
		m.Answered2xx = m.Accepted
		m.Answered4xx = int64(random.IntN(2))
		if i >= 15 && i <= 18 {
			m.Answered4xx += int64(14 - 3*(i-15))
		}
		if i == 43 || i == 44 {
			m.Answered5xx = int64(45 - i)
		}
		m.Queued = int64(4 + 3*math.Sin(float64(i)/5) + 3*random.Float64() + 40*slow)
		m.Oldest = time.Duration(float64(time.Second) * (1 + 30*slow))
	}
	return minutes
}

// count adds the runs of a hook to a minute.
func (h *pastHook) count(m *engine.Minute, minute int, rate, slow float64, length time.Duration, random *rand.Rand) {
	among := func(minutes []int) (n int64) {
		for _, one := range minutes {
			if one == minute {
				n++
			}
		}
		return n
	}
	if len(h.only) > 0 {
		rate = float64(among(h.only))
	}
	accepted := int64(h.aMinute*rate*(0.8+0.4*random.Float64()) + random.Float64()*min(1, rate))
	failed, timedOut := among(h.failed), among(h.timedOut)
	accepted = max(accepted, failed+timedOut)
	if accepted == 0 {
		return
	}
	counts := engine.HookMinute{Accepted: accepted, Ended: accepted, Failed: failed + timedOut, Last: m.At.Add(time.Duration(random.Float64() * float64(length)))}
	for range accepted {
		took := time.Duration(float64(h.median) * math.Exp(random.NormFloat64()*h.spread) * (1 + 1.3*slow))
		bucket := bucketOf(took)
		m.Durations[bucket]++
		counts.Durations[bucket/2]++
		m.Longest, counts.Longest = max(m.Longest, took), max(counts.Longest, took)
		if random.Float64() < h.callsBackWith {
			m.Delivered++
		}
	}
	m.Accepted += accepted
	m.Failed += failed
	m.TimedOut += timedOut
	m.Completed += accepted - failed - timedOut
	m.Hooks[h.name] = counts
}

// bucketOf is the bucket of engine.Durations for a duration: the first one is up to 10 ms, the last but one up to an hour, and
// each reaches further than the one before it by the same factor.
func bucketOf(took time.Duration) int {
	last := len(engine.Durations{}) - 1
	factor := math.Log(float64(time.Hour)/float64(10*time.Millisecond)) / float64(last-1)
	return min(last, max(0, int(math.Ceil(math.Log(float64(took)/float64(10*time.Millisecond))/factor))))
}
