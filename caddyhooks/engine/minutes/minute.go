// Package minutes counts what a node does, minute by minute, for plots. A Keeper counts, saves the minutes of its node, and loads those
// of all nodes. It imports nothing of the project.
package minutes

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"
)

// Store keeps what was counted in each minute. Every node saves its own minutes, and loads those of all.
type Store interface {
	// Save keeps minutes for Kept: older ones than that, seen from the newest that is saved, are forgotten. To save
	// a minute again, since it was under way or the answer was lost, replaces it.
	Save(ctx context.Context, minutes ...Minute) error

	// Load returns the minutes of all nodes that began at a time or later, the oldest first. There may be several of the
	// same time. One that is damaged is left out.
	Load(ctx context.Context, since time.Time) ([]Minute, error)
}

// Kept is how long minutes are kept.
const Kept = 7 * 24 * time.Hour

// Minute is what a node counted in one minute, or all nodes together.
type Minute struct {
	At   time.Time // when it began, by the clock of the node
	Part uint64    // tells apart what one opening of a store saves, also if its clock shows the same minute again

	Accepted, Completed, Failed, TimedOut, Cancelled, Expired int64 // runs

	Answered2xx, Answered4xx, Answered5xx int64 // requests
	Ignored, Challenges                   int64 // of them

	Delivered, Dead int64 // deliveries

	// The most during the minute, on whatever node, as far as it was looked at.
	Queued int64
	Oldest time.Duration

	Durations Durations     // of runs that were started
	Longest   time.Duration // of those
	Hooks     map[string]HookMinute
}

// HookMinute is what a Minute has of one hook. The hook "" stands for all those that are too many.
type HookMinute struct {
	Accepted  int64
	Ended     int64     // in whatever way
	Failed    int64     // timed out and expired ones too
	Last      time.Time // when the last one was accepted
	Durations HookDurations
	Longest   time.Duration
}

// sums are the counts of a minute that are added up over nodes and minutes, each at its place.
func (m *Minute) sums() [sumCount]*int64 {
	return [...]*int64{
		sumAccepted: &m.Accepted, sumCompleted: &m.Completed, sumFailed: &m.Failed, sumTimedOut: &m.TimedOut, sumCancelled: &m.Cancelled,
		sumExpired: &m.Expired, sumAnswered2xx: &m.Answered2xx, sumAnswered4xx: &m.Answered4xx, sumAnswered5xx: &m.Answered5xx,
		sumIgnored: &m.Ignored, sumChallenges: &m.Challenges, sumDelivered: &m.Delivered, sumDead: &m.Dead,
	}
}

const (
	sumAccepted = iota
	sumCompleted
	sumFailed
	sumTimedOut
	sumCancelled
	sumExpired
	sumAnswered2xx
	sumAnswered4xx
	sumAnswered5xx
	sumIgnored
	sumChallenges
	sumDelivered
	sumDead
	sumCount
)

// IsZero reports whether there is nothing to keep.
func (m *Minute) IsZero() bool {
	for _, sum := range m.sums() {
		if *sum != 0 {
			return false
		}
	}
	return m.Queued == 0 && len(m.Hooks) == 0
}

// Ended is how many runs ended, in whatever way.
func (m *Minute) Ended() int64 { return m.Completed + m.Failed + m.TimedOut + m.Cancelled + m.Expired }

// Add adds what another node counted, or what was counted in another minute. Of the queue the longer one counts.
func (m *Minute) Add(other *Minute) {
	for i, sum := range other.sums() {
		*m.sums()[i] += *sum
	}
	m.Queued = max(m.Queued, other.Queued)
	m.Oldest = max(m.Oldest, other.Oldest)
	m.Longest = max(m.Longest, other.Longest)
	for i, n := range other.Durations {
		m.Durations[i] += n
	}
	if m.Hooks == nil && len(other.Hooks) > 0 {
		m.Hooks = make(map[string]HookMinute, len(other.Hooks))
	}
	for name, hook := range other.Hooks {
		sum := m.Hooks[name]
		sum.Accepted += hook.Accepted
		sum.Ended += hook.Ended
		sum.Failed += hook.Failed
		sum.Longest = max(sum.Longest, hook.Longest)
		if hook.Last.After(sum.Last) {
			sum.Last = hook.Last
		}
		for i, n := range hook.Durations {
			sum.Durations[i] += n
		}
		m.Hooks[name] = sum
	}
}

// byMinute adds up minutes of the same time, and puts them in order. It changes none of them.
func byMinute(minutes []Minute) (sums []Minute) {
	sorted := slices.Clone(minutes)
	slices.SortStableFunc(sorted, func(a, b Minute) int { return a.At.Compare(b.At) })
	own := false // the last sum has a map of its own
	for i := range sorted {
		last := len(sums) - 1
		if last < 0 || !sums[last].At.Equal(sorted[i].At) {
			sums, own = append(sums, sorted[i]), false
			continue
		}
		if !own {
			sums[last].Hooks, own = maps.Clone(sums[last].Hooks), true
		}
		sums[last].Add(&sorted[i])
	}
	return sums
}

// Durations counts runs by how long they took. The first bucket is up to 10 ms, the last one more than an hour, and each
// of the others reaches about 1.8 times as far as the one before it.
type Durations [24]int64

// HookDurations is the same with buckets that are twice as wide.
type HookDurations [12]int64

// bucketEnds are where the buckets of Durations end; the last one does not.
var bucketEnds = func() (ends [len(Durations{}) - 1]time.Duration) {
	const first, last = 10 * time.Millisecond, time.Hour
	growth := math.Pow(float64(last)/float64(first), 1/float64(len(ends)-1))
	for i := range ends {
		ends[i] = time.Duration(float64(first) * math.Pow(growth, float64(i))).Round(time.Millisecond)
	}
	return ends
}()

// hookBucketEnds are the same of HookDurations.
var hookBucketEnds = func() (ends []time.Duration) {
	for i := 1; i < len(bucketEnds); i += 2 {
		ends = append(ends, bucketEnds[i])
	}
	return ends
}()

// bucketOf is the bucket of Durations for a duration. That of HookDurations is half of it.
func bucketOf(took time.Duration) int {
	i, _ := slices.BinarySearch(bucketEnds[:], took)
	return i
}

// Quantile is about how long a share of the runs took at most, with false if none were started.
func (m *Minute) Quantile(share float64) (time.Duration, bool) {
	return quantile(m.Durations[:], bucketEnds[:], m.Longest, share)
}

// Quantile is about how long a share of the runs took at most, with false if none were started.
func (h *HookMinute) Quantile(share float64) (time.Duration, bool) {
	return quantile(h.Durations[:], hookBucketEnds, h.Longest, share)
}

// quantile looks for the bucket in which a share of all ends, and how far in it that is: a bucket reaches so much further
// than the one before it that runs are taken to be spread by ratio, not by seconds.
func quantile(buckets []int64, ends []time.Duration, longest time.Duration, share float64) (time.Duration, bool) {
	total := int64(0)
	for _, n := range buckets {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := share * float64(total)
	for i, n := range buckets {
		if n == 0 || rank > float64(n) {
			rank -= float64(n)
			continue
		}
		inside, end := max(rank/float64(n), 0), longest
		if i < len(ends) {
			end = min(end, ends[i])
		}
		if i == 0 {
			return time.Duration(inside * float64(end)), true
		}
		from, to := float64(ends[i-1]), float64(max(end, ends[i-1]))
		return time.Duration(from * math.Pow(to/from, inside)), true
	}
	return longest, true
}
