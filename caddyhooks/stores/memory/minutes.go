package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// savedMinute is a minute that a node has saved.
type savedMinute struct {
	engine.Minute
	node string
}

func (s minutes) Save(_ context.Context, saved ...engine.Minute) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest time.Time
	for _, minute := range saved {
		if minute.At.After(newest) {
			newest = minute.At
		}
		minute.Hooks = maps.Clone(minute.Hooks)
		same := func(other savedMinute) bool {
			return other.node == s.Node() && other.Part == minute.Part && other.At.Equal(minute.At)
		}
		from := s.minutesFrom(minute.At)
		if i := slices.IndexFunc(from, same); i >= 0 { // it was saved before
			from[i].Minute = minute
			continue
		}
		place := len(s.Data.minutes) - len(s.minutesFrom(minute.At.Add(1)))
		s.Data.minutes = slices.Insert(s.Data.minutes, place, savedMinute{minute, s.Node()})
	}
	kept := s.minutesFrom(newest.Add(-engine.KeptMinutes))
	s.Data.minutes = slices.Delete(s.Data.minutes, 0, len(s.Data.minutes)-len(kept))
	return nil
}

func (s minutes) Load(_ context.Context, since time.Time) (loaded []engine.Minute, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, saved := range s.minutesFrom(since) {
		minute := saved.Minute
		minute.Hooks = maps.Clone(minute.Hooks)
		loaded = append(loaded, minute)
	}
	return loaded, nil
}

// minutesFrom are the minutes that began at a time or later.
func (d *Data) minutesFrom(at time.Time) []savedMinute {
	first, _ := slices.BinarySearchFunc(d.minutes, at, func(saved savedMinute, at time.Time) int { return saved.At.Compare(at) })
	return d.minutes[first:]
}
