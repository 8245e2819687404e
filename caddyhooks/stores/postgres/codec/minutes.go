package codec

import (
	"encoding/json"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// minuteJSON is a minute without what columns have: At and Part.
type minuteJSON struct {
	Accepted    int64                     `json:"accepted,omitempty"`
	Completed   int64                     `json:"completed,omitempty"`
	Failed      int64                     `json:"failed,omitempty"`
	TimedOut    int64                     `json:"timedOut,omitempty"`
	Cancelled   int64                     `json:"cancelled,omitempty"`
	Expired     int64                     `json:"expired,omitempty"`
	Answered2xx int64                     `json:"answered2xx,omitempty"`
	Answered4xx int64                     `json:"answered4xx,omitempty"`
	Answered5xx int64                     `json:"answered5xx,omitempty"`
	Ignored     int64                     `json:"ignored,omitempty"`
	Challenges  int64                     `json:"challenges,omitempty"`
	Delivered   int64                     `json:"delivered,omitempty"`
	Dead        int64                     `json:"dead,omitempty"`
	Queued      int64                     `json:"queued,omitempty"`
	Oldest      time.Duration             `json:"oldest,omitempty"`
	Durations   map[int]int64             `json:"durations,omitempty"`
	Longest     time.Duration             `json:"longest,omitempty"`
	Hooks       map[string]hookMinuteJSON `json:"hooks,omitempty"`
}

type hookMinuteJSON struct {
	Accepted  int64         `json:"accepted,omitempty"`
	Ended     int64         `json:"ended,omitempty"`
	Failed    int64         `json:"failed,omitempty"`
	Last      *time.Time    `json:"last,omitempty"`
	Durations map[int]int64 `json:"durations,omitempty"`
	Longest   time.Duration `json:"longest,omitempty"`
}

// EncodeMinute writes down a minute without what columns have.
func EncodeMinute(m *engine.Minute) (string, error) {
	j := minuteJSON{
		Accepted: m.Accepted, Completed: m.Completed, Failed: m.Failed, TimedOut: m.TimedOut, Cancelled: m.Cancelled, Expired: m.Expired,
		Answered2xx: m.Answered2xx, Answered4xx: m.Answered4xx, Answered5xx: m.Answered5xx, Ignored: m.Ignored, Challenges: m.Challenges,
		Delivered: m.Delivered, Dead: m.Dead, Queued: m.Queued, Oldest: m.Oldest, Durations: newCounts(m.Durations[:]), Longest: m.Longest,
	}
	if len(m.Hooks) > 0 {
		j.Hooks = make(map[string]hookMinuteJSON, len(m.Hooks))
	}
	for name, hook := range m.Hooks {
		h := hookMinuteJSON{Accepted: hook.Accepted, Ended: hook.Ended, Failed: hook.Failed, Durations: newCounts(hook.Durations[:]),
			Longest: hook.Longest}
		if !hook.Last.IsZero() {
			h.Last = &hook.Last
		}
		j.Hooks[Escape(name)] = h
	}
	data, err := json.Marshal(&j)
	return string(data), err
}

// DecodeMinute fills in what EncodeMinute wrote.
func DecodeMinute(data []byte, m *engine.Minute) error {
	var j minuteJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	m.Accepted, m.Completed, m.Failed, m.TimedOut, m.Cancelled, m.Expired = j.Accepted, j.Completed, j.Failed, j.TimedOut, j.Cancelled,
		j.Expired
	m.Answered2xx, m.Answered4xx, m.Answered5xx, m.Ignored, m.Challenges = j.Answered2xx, j.Answered4xx, j.Answered5xx, j.Ignored, j.Challenges
	m.Delivered, m.Dead, m.Queued, m.Oldest, m.Longest = j.Delivered, j.Dead, j.Queued, j.Oldest, j.Longest
	fillCounts(m.Durations[:], j.Durations)
	if len(j.Hooks) > 0 {
		m.Hooks = make(map[string]engine.HookMinute, len(j.Hooks))
	}
	for name, h := range j.Hooks {
		hook := engine.HookMinute{Accepted: h.Accepted, Ended: h.Ended, Failed: h.Failed, Longest: h.Longest}
		if h.Last != nil {
			hook.Last = *h.Last
		}
		fillCounts(hook.Durations[:], h.Durations)
		m.Hooks[Unescape(name)] = hook
	}
	return nil
}

// newCounts has the buckets that are not empty, by their number.
func newCounts(buckets []int64) map[int]int64 {
	counts := make(map[int]int64)
	for i, n := range buckets {
		if n != 0 {
			counts[i] = n
		}
	}
	return counts
}

func fillCounts(buckets []int64, counts map[int]int64) {
	for i, n := range counts {
		if i >= 0 && i < len(buckets) {
			buckets[i] = n
		}
	}
}
