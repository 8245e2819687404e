package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// minutes implements engine.Minutes.
type minutes struct{ *store }

func newMinutes(s *store) *minutes { return &minutes{s} }

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

func encodeMinute(m *engine.Minute) (string, error) {
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
		j.Hooks[dbText(name)] = h
	}
	data, err := json.Marshal(&j)
	return string(data), err
}

// decodeMinute fills in what encodeMinute wrote.
func decodeMinute(data []byte, m *engine.Minute) error {
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
		m.Hooks[goText(name)] = hook
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

func (m *minutes) Save(ctx context.Context, saved ...engine.Minute) error {
	if len(saved) == 0 {
		return nil
	}
	var at []time.Time
	var parts []int64
	var counted []string
	newest := saved[0].At
	for i := range saved {
		minute := &saved[i]
		text, err := encodeMinute(minute)
		if err != nil {
			return err
		}
		at, parts, counted = append(at, minute.At), append(parts, int64(minute.Part)), append(counted, text)
		if minute.At.After(newest) {
			newest = minute.At
		}
	}
	return m.exec(ctx, "SELECT @.save_minutes_1($1, $2, $3, $4, $5)", m.node, at, parts, counted, newest.Add(-engine.KeptMinutes))
}

func (m *minutes) Load(ctx context.Context, since time.Time) (loaded []engine.Minute, err error) {
	if whole := since.Truncate(time.Microsecond); whole.Before(since) { // the database knows microseconds
		since = whole.Add(time.Microsecond)
	}
	var minute engine.Minute
	var part int64
	var counted []byte
	err = m.query(ctx, func(row pgx.Rows) error {
		minute = engine.Minute{}
		if err := row.Scan(&minute.At, &part, &counted); err != nil {
			return err
		}
		minute.Part = uint64(part)
		if decodeMinute(counted, &minute) == nil { // nothing but a plot reads it
			loaded = append(loaded, minute)
		}
		return nil
	}, "SELECT at, part, counted FROM @.load_minutes_1($1)", since)
	if err != nil {
		return nil, err
	}
	return loaded, nil
}
