package caddyhooks

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// samples has the last payloads of custom hooks, for previews. They are of requests with a good credential, and are kept in memory
// alone, as long as the messages of the hook's runs are kept at all. They outlive reloads.
//
// Most requests cost a look at a map and at the time: no more than one payload a second is kept of a hook.
type samples struct {
	byHook   atomic.Pointer[map[string]*hookSamples] // replaced as a whole, under mu
	replaced atomic.Int64                            // when a hook last took the place of another one, in nanoseconds since 1970

	mu      sync.Mutex
	inForce *activeSettings // of the newest configuration
}

// hookSamples are the last payloads of one hook.
type hookSamples struct {
	lastAt atomic.Int64 // when one was kept, in nanoseconds since 1970
	last   []sample     // the newest first; under mu of samples
}

// sample is a payload as it was received.
type sample struct {
	at          time.Time
	contentType string
	payload     []byte
}

const (
	samplesOfHook  = 3
	maxSample      = 64 << 10
	sampledHooks   = 64 // those that were sampled last
	sampleInterval = time.Second
	maxContentType = 128
)

// note keeps a payload, unless it is large or another one came just before it.
func (s *samples) note(hook string, header http.Header, payload []byte) {
	s.noteAt(time.Now(), hook, header, payload)
}

func (s *samples) noteAt(now time.Time, hook string, header http.Header, payload []byte) {
	if len(payload) > maxSample || !s.wants(hook, now.UnixNano()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wants(hook, now.UnixNano()) || !s.inForce.keepsSamplesOf(hook) {
		return
	}
	of := s.named(hook, now)
	of.lastAt.Store(now.UnixNano())
	kept := of.last[:min(len(of.last), samplesOfHook-1)]
	of.last = append([]sample{{now, oneline.Of(header.Get("Content-Type"), maxContentType), bytes.Clone(payload)}}, kept...)
}

// wants reports whether a payload of a hook would be kept now.
func (s *samples) wants(hook string, now int64) bool {
	all := s.byHook.Load()
	if all == nil {
		return true
	}
	if of := (*all)[hook]; of != nil {
		return over(now - of.lastAt.Load())
	}
	return len(*all) < sampledHooks || over(now-s.replaced.Load())
}

// over reports whether the interval is over after so many nanoseconds. They are negative if the clock was set back.
func over(elapsed int64) bool { return elapsed >= int64(sampleInterval) || elapsed < 0 }

// named finds the samples of a hook, or makes room for it.
func (s *samples) named(hook string, now time.Time) *hookSamples {
	all := s.all()
	if of := all[hook]; of != nil {
		return of
	}
	if len(all) >= sampledHooks {
		oldest := ""
		for name, of := range all {
			if oldest == "" || of.lastAt.Load() < all[oldest].lastAt.Load() {
				oldest = name
			}
		}
		delete(all, oldest)
		s.replaced.Store(now.UnixNano())
	}
	of := new(hookSamples)
	all[hook] = of
	s.byHook.Store(&all)
	return of
}

// all is a copy of the map, to be changed and stored.
func (s *samples) all() map[string]*hookSamples {
	if all := s.byHook.Load(); all != nil {
		return maps.Clone(*all)
	}
	return make(map[string]*hookSamples)
}

// of returns the samples of a hook, the newest first.
func (s *samples) of(hook string) []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.all()[hook]; of != nil {
		return slices.Clone(of.last)
	}
	return nil
}

// follow forgets the samples of hooks that are gone, or whose messages are not kept any more. Requests that were checked against
// earlier settings add none.
func (s *samples) follow(active *activeSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce = active
	all := s.all()
	maps.DeleteFunc(all, func(hook string, _ *hookSamples) bool { return !active.keepsSamplesOf(hook) })
	s.byHook.Store(&all)
}

// keepsSamplesOf reports whether there is such a custom hook, and whether messages of its runs are kept.
func (a *activeSettings) keepsSamplesOf(name string) bool {
	h := a.hooks[name]
	return h != nil && a.historyOf(h) > 0
}
